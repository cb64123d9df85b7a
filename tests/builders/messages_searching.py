"""What a search says of configs, and how one ends that cannot go on, on an emulated bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from builders.candidates import candidate_of, fields_of
from builders.emulated import EmulatedBench
from builders.events import Watching
from builders.model_files import REPOSITORY
from builders.reasons import model_fails, texts
from builders.refusals import Case
from builders.searches import CANDIDATES, a_search, searched, served

from tuner.checks.machine import note_cache_sizes
from tuner.errors import LoadFailedError, ModelFailsError, OutOfTimeError
from tuner.measurement.measurement import Arrivals
from tuner.prepare.job import Request, prepare
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point
from tuner.search.first_load import first_level
from tuner.search.screening import Screening
from tuner.server.memory import MACHINE, Memory
from tuner.space.candidate import Candidate


def slow(candidate: Candidate) -> float:
    return served(candidate) / 10.0


class Limited(EmulatedBench):
    """Runs out of time at the candidates that it is given."""

    def __init__(self, late: Sequence[Candidate]) -> None:
        super().__init__(served)
        self.late = late

    def measure(self, level: float, seed: int) -> Point:
        if self.candidate in self.late:
            raise OutOfTimeError("the time budget is used up")
        return super().measure(level, seed)


class Refusing(EmulatedBench):
    """Answers one request, and refuses many at once."""

    def many_at_once(self, concurrency: int, seed: int) -> float:
        raise LoadFailedError("the queue is full")


def failing(words: str, loaded: str = "") -> Case:
    """The model fails with its current config; of the repository's models one is loaded."""

    def case(_: Path) -> None:
        troubles = {CANDIDATES[0]: [model_fails(words)]}
        session, searcher = a_search(EmulatedBench(served, troubles=troubles), [*CANDIDATES])
        if loaded:
            models: Any = SimpleNamespace(models={"m": SimpleNamespace(name=loaded)})
            spec = session.spec.model_copy(update={"repository": REPOSITORY})
            session = replace(session, job=replace(session.job, spec=spec, known_models=models))
        searched(session, searcher)

    return case


def late(*candidates: Candidate) -> Case:
    def case(_: Path) -> list[str]:
        session, searcher = a_search(Limited(candidates), [*CANDIDATES], time="15s")
        events = Watching()
        searched(replace(session, events=events), searcher)
        return events.notes

    return case


def refused_by_memory(_: Path) -> str:
    bench = EmulatedBench(served)

    def memory() -> dict[str, Memory]:
        instances = fields_of(bench.candidate).get("instance_group.count", 1)
        assert isinstance(instances, int)
        return {MACHINE: Memory(instances * 101, 0, 600)}

    session, searcher = a_search(bench, [*CANDIDATES[:3], CANDIDATES[5]])
    trials, _ = searched(replace(session, memory=memory), searcher)
    return texts([trials[-1].reason])[0]


def limited_by_the_client(_: Path) -> str:
    session, searcher = a_search(EmulatedBench(lambda _: 5000.0, sends=600.0), CANDIDATES[1:2])
    (trial,), _ = searched(session, searcher)
    return texts([trial.limit])[0]


def refusing_many(_: Path) -> list[str]:
    notes: list[str] = []
    bench = Refusing(lambda _: 900.0 / 1.1, alone_s=0.01)
    bench.deploy(candidate_of({}))
    levels = LevelRange(0.1, 1e5)
    first_level(bench, LoadPlan(Arrivals.POISSON, None, levels), 1, notes.append)
    return notes


CACHED = """\
model: {model}
repository: {repository}
workload: {{inputs: {inputs}}}
slo: [p99_latency <= 60ms]
space: {{response_cache.size: {{choice: [512KiB, off, 32KiB]}}}}
"""


def cache_notes(
    here: Path, inputs: str, model: str = "emulated-accelerator", repository: Path = REPOSITORY
) -> list[str]:
    path = here / "spec.yaml"
    path.write_text(CACHED.format(model=model, repository=repository, inputs=inputs))
    return [f.message for f in note_cache_sizes(prepare(Request(spec=path)))]


def cached(repeat: str) -> Case:
    return lambda here: cache_notes(here, f"{{kind: random, unique: 400, repeat: {repeat}}}")


def screened(bench: EmulatedBench) -> Case:
    """Looks at some configs before they are measured."""

    def case(_: Path) -> list[str]:
        session, _searcher = a_search(bench, [])
        events = Watching()
        list(Screening(replace(session, events=events)).ranked([*CANDIDATES[1:4]]))
        return events.notes

    return case


def searching() -> dict[str, Case]:
    not_ready = "Model 'tokenizer' is not ready."
    return {
        "the current config fails": failing("RuntimeError: no weights.bin"),
        "it calls a model that is not loaded": failing(not_ready, "m"),
        "it calls a model that is loaded": failing(not_ready, "tokenizer"),
        "the time ends with the current config": late(CANDIDATES[0]),
        "the time ends with another": late(CANDIDATES[1]),
        "there is too little memory": refused_by_memory,
        "the client can send no more": limited_by_the_client,
        "many requests at once are refused": refusing_many,
        "configs are looked at first": screened(EmulatedBench(slow, alone_s=0.025)),
        "one of them fails": screened(
            EmulatedBench(slow, troubles={CANDIDATES[2]: [ModelFailsError("no")]}, alone_s=0.025)
        ),
        "a cache, and all requests are as likely": cached("{kind: uniform}"),
        "a cache, and few requests are most of them": cached("{kind: zipf, exponent: 1.2}"),
    }
