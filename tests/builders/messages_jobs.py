"""What is said of a spec and its models before anything is started, and of the first server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from builders.again_bench import Step, a_bench, behind, gone, quiet, sleeping, stalled
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.first_server import (
    TENSORS,
    Server,
    always_batching,
    always_eight,
    as_given,
    first_server,
)
from builders.refusals import Case
from builders.serving import write_models

from tuner.errors import DeployRefusedError, TunerError
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.machine_lock import LockHolder, Neighbours, registered
from tuner.score.next_load import load_plan
from tuner.search.window_notes import window_notes
from tuner.sentences import sentence
from tuner.spec.model import Spec

ROOT = Path(__file__).parents[2]
TWO = MODEL.replace("one", "two")
ONE_SPEC = """\
model: e
repository: models
slo: [p99_latency <= 40ms]
space: {response_cache.size: {choice: [off, 1MiB]}}
"""
NLP = f"""\
repository: {ROOT / "model_repository"}
model: nlp
slo: [p99_latency <= 60ms]
models:
  nlp: {{space: {{instance_group.count: {{int: [1, 4]}}, dynamic_batching: {{choice: [off, on]}}}}}}
  tokenizer: {{space: {{instance_group.count: {{int: [1, 4]}}}}}}
"""
LEVELS = "dynamic_batching {{ priority_levels: {n} default_priority_level: {n} }}"
PRIORITIES = """\
repository: models
models: {e: {space: {response_cache.enable: {choice: [off, on]}}}, one: {%s}}
streams:
  urgent: {model: %s, share: 20%%, priority: 1}
  patient: {model: %s, share: 80%%, priority: 2}
server: {args: ['--cache-config=local,size=1048576']}
slo: [p99_latency <= 40ms]
"""
PLAIN = """
backend: "python" max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
"""
DECOUPLED = "model_transaction_policy { decoupled: true }"
SPEECH = """\
repository: models
model: speech
slo: [{slo}]
workload: {{protocol: {protocol}}}
objective: {objective}
space: {{instance_group.count: {{choice: [1, 2]}}}}
"""
MIX = """\
repository: models
models: {plain: {space: {instance_group.count: {choice: [1, 2]}}}, speech: {}}
"""


def made(spec: str, **models: str) -> Callable[[Path], Job]:
    def make(here: Path) -> Job:
        write_models(here / "models", **models)
        (here / "spec.yaml").write_text(spec)
        return prepare(Request(spec=here / "spec.yaml"))

    return make


def refused() -> dict[str, Case]:
    """What the models of a spec cannot do."""

    def steps(**models: str) -> Case:
        return made(ONE_SPEC, **{"e": ENSEMBLE, "one": MODEL, "two": TWO, **models})

    def prioritized(model: str, levels: int) -> Case:
        one = MODEL + LEVELS.format(n=levels) if levels else MODEL
        return made(PRIORITIES % ("", model, model), e=ENSEMBLE, one=one, two=TWO)

    def speech(
        slo: str, objective: str = "maximize goodput", protocol: str = "grpc", spec: str = SPEECH
    ) -> Case:
        text = spec.format(slo=slo, protocol=protocol, objective=objective)
        return made(text, plain=PLAIN, speech=PLAIN + DECOUPLED)

    def mix(slo: str, of_each: str = "") -> Case:
        both = "".join(f"  {m}: {{model: {m}, share: 50%{of_each}}}\n" for m in ("plain", "speech"))
        return speech("", spec=f"{slo}{MIX}streams:\n{both}".replace("{", "{{").replace("}", "}}"))

    more = 'input { name: "more" data_type: TYPE_FP32 dims: 1 }'
    return {
        "a step of smaller batches": steps(one=MODEL.replace("4\n", "1\n", 1)),
        "a step with an input that is not mapped": steps(two=TWO + more),
        "a step of another shape": steps(two=TWO.replace("dims: 4", "dims: 5")),
        "a step with a mistake of its own": steps(
            two=TWO + "dynamic_batching { preferred_batch_size: 9 }"
        ),
        "a step that answers many times": steps(two=TWO + DECOUPLED),
        "a step that batches inside its engine": steps(two=TWO.replace('"python"', '"vllm"')),
        "a step that takes sequences": steps(one=MODEL + "sequence_batching { }"),
        "a step that is the ensemble": steps(e=ENSEMBLE.replace('"two"', '"e"')),
        "a step with a word that is none": steps(one=MODEL + "nonsense: 1"),
        "an ensemble's own instances": made(NLP),
        "priorities for a model without": prioritized("one", 0),
        "priorities for a model with one": prioritized("one", 1),
        "priorities for an ensemble whose steps have none": prioritized("e", 0),
        "priorities for an ensemble of which a step has one": prioritized("e", 1),
        "a latency of a decoupled model": speech("p99_latency <= 1s"),
        "a latency of a decoupled model to minimise": speech(
            "p99_last_response <= 1s", "minimize avg_latency at 20/s"
        ),
        "HTTP for a decoupled model": speech("p99_last_response <= 1s", protocol="http"),
        "a first response of a model that answers once": mix(
            "", ", slo: [p90_first_response <= 1s]"
        ),
        "a latency of all streams, of which one is decoupled": mix("slo: [p90_latency <= 1s]\n"),
    }


def a_mix(**streams: Any) -> Spec:
    models = {"a": {"space": {"instance_group.count": {"int": [1, 4]}}}, "b": {}}
    facts = {"models": models, "repository": "r", "workload": {"window": "2s"}, "streams": streams}
    return Spec.model_validate(facts)


MOST = {"model": "a", "share": 0.95, "slo": ["p99_latency <= 40ms"]}
RARE = {"model": "b", "share": 0.05, "slo": ["p99_latency <= 200ms"]}


SIZED = f"max_batch_size: 8\n{TENSORS}"
NO_BACKEND = "unable to find backend library for backend 'onnxruntime', try specifying runtime"
PORT_TAKEN = "failed to start GRPC service: Unavailable - Socket '127.0.0.1:5' already in use"


def holder(run: str) -> LockHolder:
    return LockHolder(os.getpid(), "run", run, ("/models/m",), "all", "2025-03-01T10:00:00+00:00")


def measuring() -> dict[str, Case]:
    """What is noted of windows, servers, neighbours and measurements that are made again."""

    def windows(level: float | None, **streams: Any) -> Case:
        spec = a_mix(most=MOST, **streams)
        plan = load_plan(spec.workload, spec.objective, spec.slos, spec.shares)
        return lambda _: window_notes(spec, plan, level)

    def server(completes: Any = None, *, words: str = "", config: str = SIZED) -> Case:
        trouble: dict[int, Exception] = {1: DeployRefusedError(words)} if words else {}

        def case(here: Path) -> str:
            first = Server(completes or as_given, trouble)
            with first_server(here, first, config) as serving:
                return serving.completed

        return case

    def both(config: Any) -> None:
        always_eight(config)
        always_batching(config)

    def again(*steps: Step, levels: Sequence[float] = (50.0,)) -> Case:
        """The notes, how it ends, and why what does not count does not."""

        def case(_: Path) -> list[str]:
            notes: list[str] = []
            with sleeping():
                bench, rejected = a_bench(
                    *steps,
                    disturbed=lambda what, pause_s: notes.append(f"{what} ({pause_s:.0f} s)"),
                )
                try:
                    for level in levels:
                        bench.measure(level, 1)
                except TunerError as error:
                    bench.lost(error.reason)
                    notes += filter(None, (error.message, error.hint))
            return [
                *notes,
                *(f"rejected: {one.level:g}/s: {sentence(one.reason)}" for one in rejected),
            ]

        return case

    def neighbours(here: Path) -> list[str]:
        notes: list[str] = []
        with patch("tuner.prepare.machine_lock.registry", lambda: here / "registry"):
            with registered(holder("one")) as record, registered(holder("two")):
                seen = Neighbours(holder("one"), record, notes.append)
                seen.look()
        return [re.sub(r"pid \d+", "pid PID", text) for text in notes]

    return {
        "a rare stream": windows(200.0, rare=RARE),
        "a rare stream, at no load that is known": windows(None, rare=RARE),
        "a background that hardly comes": windows(
            100.0, beside={"model": "b", "rate": "0.1/s", "slo": ["p99_latency <= 1s"]}
        ),
        "the server completes the size and the batcher": server(both, config=TENSORS),
        "the server completes nothing": server(),
        "the model does not load": server(words="no weights"),
        "no server has its backend": server(words=NO_BACKEND),
        "a port stays taken": server(words=PORT_TAKEN),
        "another tune measures on the machine": neighbours,
        "the machine stood still": again(stalled, quiet),
        "the client was behind twice": again(behind, behind),
        "the server is gone": again(quiet, gone, levels=(10.0, 30.0)),
    }
