"""`tune run` in a directory of its own, with all programs emulated."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.commands import Tune
from builders.emulated import EmulatedBench
from builders.jobs import SPEC, Facts, serving
from builders.model_files import copy_examples
from builders.reasons import said
from builders.searches import served

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.meter import session
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import RunDecision
from tuner.record.status import Status
from tuner.record.store import RunStore
from tuner.run import run as pipeline
from tuner.score.trial import Trial

MODEL = "emulated-accelerator"


class Bench(EmulatedBench):
    """Calls ``then`` before the trial of that number, the first being 0."""

    def __init__(self) -> None:
        super().__init__(served)
        self.then: dict[int, Callable[[], object]] = {}

    def deploy(self, candidate: Any, *, fresh: bool = False, in_production: bool = False) -> Any:
        try:
            self.then.get(len(self.deployed), lambda: None)()
        except BaseException:
            self.deployed.append((candidate, fresh))
            raise
        return super().deploy(candidate, fresh=fresh)


def best_of(trials: Sequence[Trial]) -> RunDecision:
    scored = [t for t in trials if t.score is not None]
    best = max(scored, key=lambda t: t.score.value if t.score else 0.0)
    return RunDecision.of(Status.IMPROVED, (said("it won"),), None, ProvedConfig.of_trial(best))


class Workplace:
    """A spec, a repository of its own, and all programs emulated.

    Attributes:
        tune: Calls the command line; keeps what it printed where there is a ``capsys``.
        overloading: Called when the winner would be overloaded.
    """

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str] | None = None,
    ) -> None:
        self.tune = (lambda *words: guarded(cli, [*words])) if capsys is None else Tune(capsys)
        copy_examples(directory / "my repository", MODEL)
        self.config = directory / "my repository" / MODEL / "config.pbtxt"
        self.spec = directory / "my spec.yaml"
        self.spec.write_text(
            SPEC.format(repository="my repository") + "search: {strategy: random}\n"
        )
        self.results = directory / "results"
        self.bench = Bench()
        self.overloading: Callable[[], object] = lambda: None

        @contextmanager
        def find_programs(*_: object) -> Iterator[Any]:
            yield Facts()

        @contextmanager
        def set_up_bench(of: Any, *_: object) -> Iterator[Any]:
            self.bench.slos = of.job.spec.slos
            yield self.bench

        def probe_overload(_: object, verdict: RunDecision) -> RunDecision:
            self.overloading()
            return verdict

        monkeypatch.chdir(directory)
        monkeypatch.setenv("XDG_STATE_HOME", str(directory / "state"))
        monkeypatch.setattr("tuner.search.cores.may_be_first", lambda: False)
        monkeypatch.setattr(pipeline, "find_programs", find_programs)
        monkeypatch.setattr(pipeline, "host_of", lambda *_: Facts())
        monkeypatch.setattr(pipeline, "serving", serving)
        monkeypatch.setattr(session, "set_up_bench", set_up_bench)
        monkeypatch.setattr(pipeline, "prove", lambda _, trials, stored: best_of(trials))
        monkeypatch.setattr(pipeline, "probe_overload", probe_overload)

    @property
    def store(self) -> RunStore:
        (directory,) = [d for d in self.results.iterdir() if (d / "manifest.json").is_file()]
        return RunStore(directory)

    @property
    def result(self) -> dict[str, Any]:
        result = self.store.result()
        assert result is not None
        return result.to_json()


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)
