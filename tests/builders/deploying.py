"""What deployers are tried with: a server that only takes notes of what is done to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.reasons import server_says
from builders.serving import served_one, served_several
from google.protobuf import json_format

from tuner.errors import DeployRefusedError, ServerGoneError
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import new_config
from tuner.sentences import failed
from tuner.server.control import Metrics
from tuner.server.server import NO_VARIABLES, Endpoints, Place, Server, Variables
from tuner.space.candidate import Candidate, FieldValue
from tuner.triton import deploy
from tuner.triton.deploy import Deployer

FILE = parse("max_batch_size: 8 dynamic_batching { } instance_group { count: 1 kind: KIND_CPU }")
SERVED = served_one(FILE)
HERE = Endpoints("h:1", "g:1", None)
OUT_OF_MEMORY = "load failed for model 'm': version 1 is at UNAVAILABLE state: out of memory"
IN_USE = "load failed for model 'm': version 1 is at UNAVAILABLE state: device 0 is in use"
HANGS = "loading m: no answer within 20 s"


@dataclass
class Notes:
    """What happened, and what the next loads are answered with (None is a success)."""

    events: list[str] = field(default_factory=list)
    answers: list[Exception | None] = field(default_factory=list)
    running: dict[str, Any] = field(default_factory=dict)
    ensembles: dict[str, Any] = field(default_factory=dict)
    ignores_loads: bool = False
    alive: bool = True
    too_old: bool = False
    metrics: Metrics | None = None
    outside: list[int] = field(default_factory=list)


@dataclass
class FakeServer:
    notes: Notes
    endpoints: Endpoints = HERE

    def alive(self) -> bool:
        return self.notes.alive

    def log_tail(self, lines: int = 40) -> str:
        return "error: the last words"

    def put_back(self) -> int:
        return len(self.notes.outside)


@dataclass
class FakeLauncher:
    notes: Notes
    restartable: bool = True
    place: Place = Place.ELSEWHERE
    cpus: tuple[int, ...] = ()

    def on(self, cpus: tuple[int, ...]) -> FakeLauncher:
        return replace(self, cpus=cpus)

    @contextmanager
    def launch(
        self, server_args: Sequence[str], log: Path, environment: Variables = NO_VARIABLES
    ) -> Iterator[Server]:
        self.notes.alive, self.notes.running, self.notes.ensembles = True, {}, {}
        variables = [f"{name}={value}" for name, value in environment.items()]
        self.notes.events.append(" ".join(["start", *server_args, *variables]))
        if self.notes.too_old and deploy.WITHOUT_COMPLETION in server_args:
            words = f"unrecognized option '{deploy.WITHOUT_COMPLETION}'"
            raise failed(ServerGoneError, server_says(words))
        yield FakeServer(self.notes)
        self.notes.events.append("stop")


@dataclass
class FakeControl:
    notes: Notes

    def __enter__(self) -> FakeControl:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self, model: str, config_json: str, deadline_s: float) -> None:
        groups = json.loads(config_json).get("instance_group", ())
        which = () if model == "m" else (model,)
        self.notes.events.append(" ".join(["load", *which, *(str(g["count"]) for g in groups)]))
        if self.notes.answers and (error := self.notes.answers.pop(0)):
            raise error
        if not self.notes.ignores_loads:
            self.notes.running[model] = json_format.Parse(config_json, new_config())
            self._set_up_ensembles(model)

    def _set_up_ensembles(self, loaded: str) -> None:
        """As Triton does: one that a step's batches do not fit is gone, until they fit again."""
        running = self.notes.running
        if running[loaded].ensemble_scheduling.step:
            self.notes.ensembles[loaded] = running[loaded]
        for name, config in self.notes.ensembles.items():
            models = [running.get(step.model_name) for step in config.ensemble_scheduling.step]
            running[name] = config
            if not all(m and m.max_batch_size >= config.max_batch_size for m in models):
                del running[name]

    def unload(self, model: str, deadline_s: float) -> None:
        self.notes.events.append("unload" if model == "m" else f"unload {model}")
        self.notes.running.pop(model, None)
        for name, config in self.notes.ensembles.items():
            if any(step.model_name == model for step in config.ensemble_scheduling.step):
                self.notes.running.pop(name, None)

    def metrics(self) -> Metrics | None:
        return self.notes.metrics

    def ready(self, model: str) -> bool:
        return model in self.notes.running

    def running_config(self, model: str) -> Any:
        if model not in self.notes.running:
            raise DeployRefusedError(f"Request for unknown model: '{model}'")
        return self.notes.running[model]


def noting(patch: pytest.MonkeyPatch) -> Notes:
    notes = Notes()
    patch.setattr(deploy, "Control", lambda endpoints: FakeControl(notes))
    patch.setattr(deploy.health, "live", lambda endpoints: True)
    return notes


def deployer(notes: Notes, *, unload_first: bool = False, restartable: bool = True) -> Deployer:
    return Deployer(
        FakeLauncher(notes, restartable), SERVED, Path("log"), unload_first=unload_first
    )


def count(value: int, cache_bytes: int | None = None, **more: FieldValue) -> Candidate:
    return candidate_of({"instance_group.count": value, **more}, cache_bytes)


COUNT = "instance_group.count"
SIZE = "max_batch_size"
STEP = """
backend: "python" max_batch_size: 8 instance_group { count: 1 kind: KIND_CPU }
input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }
"""
ENSEMBLE = """
platform: "ensemble" max_batch_size: 4
input { name: "in" data_type: TYPE_FP32 dims: 4 }
output { name: "out" data_type: TYPE_FP32 dims: 4 }
ensemble_scheduling {
  step {
    model_name: "first" model_version: -1
    input_map { key: "x" value: "in" } output_map { key: "y" value: "middle" }
  }
  step {
    model_name: "second" model_version: -1
    input_map { key: "x" value: "middle" } output_map { key: "y" value: "out" }
  }
}
"""


def ensemble(notes: Notes, directory: Path, *, restartable: bool = True) -> Deployer:
    served = served_several(directory, whole=ENSEMBLE, first=STEP, second=STEP)
    return Deployer(FakeLauncher(notes, restartable), served, Path("log"))


def steps(**fields: Mapping[str, FieldValue]) -> Candidate:
    return Candidate.of_models(fields)
