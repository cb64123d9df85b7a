"""`tune worker` from the offer to its end, its programs emulated."""

from __future__ import annotations

import platform
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from builders.emulated import EmulatedBench
from builders.jobs import Facts, opened
from builders.joining import SlowBench, a_random_search, answered, owned, request_of, url_of

from tuner.bench import session
from tuner.bench.events import Silent
from tuner.bench.job import Job
from tuner.bench.serving import Serving
from tuner.bench.timebook import TimeBook
from tuner.errors import InterruptedRunError, TunerError
from tuner.run.open_run import OpenRun
from tuner.score.trial import Trial, Worker
from tuner.search.searching import search
from tuner.workers import worker as joining
from tuner.workers.worker import JoinRequest


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_random_search(tmp_path)


@dataclass
class Watching(Silent):
    """Keeps what a worker tells; ``after`` is called with each finished trial."""

    after: Callable[[Trial], None] = lambda _: None
    told: list[Any] = field(default_factory=list)

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        self.told.append((run, trials, space_size))

    def note(self, text: str) -> None:
        self.told.append(text)

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        self.after(trial)


@dataclass
class Machine:
    """Another machine that joins."""

    bench: EmulatedBench
    seen: list[Any] = field(default_factory=list)

    @contextmanager
    def find_programs(self, theirs: Job, environment: object, _: object) -> Iterator[Any]:
        self.seen.append((theirs.spec.server.gpus, environment))
        yield Facts()

    @contextmanager
    def serving(
        self, theirs: Job, _: object, logs: Path, book: TimeBook, step: Callable[[str], None]
    ) -> Iterator[Serving]:
        self.seen.append(logs.is_dir() and logs)
        yield Serving(theirs, cast("Any", None), cast("Any", SimpleNamespace(memory=dict)))

    @contextmanager
    def set_up_bench(self, *_: object) -> Iterator[Any]:
        yield self.bench


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(SlowBench([]))
    for name in ("find_programs", "serving"):
        monkeypatch.setattr(joining, name, getattr(machine, name))
    monkeypatch.setattr(session, "set_up_bench", machine.set_up_bench)
    monkeypatch.setattr(joining, "host_of", lambda *_: Facts())
    monkeypatch.setattr(joining, "POLL_S", 0.01)
    return machine


@contextmanager
def begun(job: Job, tmp_path: Path) -> Iterator[OpenRun]:
    """A run whose own bench has measured the current config."""
    with opened(job, request_of(job, tmp_path)) as run:
        budget = job.spec.budget.model_copy(update={"trials": 1})
        brief = replace(job, spec=job.spec.model_copy(update={"budget": budget}))
        search(owned(brief, SlowBench([])), run.searcher)
        answered(run)
        yield run


def asking(job: Job, run: OpenRun, **more: Any) -> JoinRequest:
    return JoinRequest(job.loaded.path, url_of(run), **more)


def test_a_worker_measures_until_the_search_is_over_and_hands_all_in(
    job: Job,
    tmp_path: Path,
    machine: Machine,
) -> None:
    logs = tmp_path / "a" / "log"
    with begun(job, tmp_path) as run:
        mine: list[Trial] = []

        def after(trial: Trial) -> None:
            mine.append(trial)
            if len(mine) == 3:
                run.searcher.over()

        watched = Watching(after)
        request = asking(job, run, gpus=(1, 2), logs=logs, environment={"A": "b"})
        done = joining.join(request, watched)
    assert done.run == run.store.run_id
    assert list(done.trials) == mine
    assert len({t.candidate.key for t in mine}) == 3
    assert job.space.current.key not in {t.candidate.key for t in mine}
    assert machine.seen == [((1, 2), {"A": "b"}), logs]
    assert watched.told[0] == (Path(run.store.run_id), 9, job.space.size().count)
    with opened(job, request_of(job, tmp_path, resume=run.store.directory)) as again:
        again.searcher.next()  # takes over what was handed in
        workers = [t.worker for t in again.searcher.history if t.worker]
    assert workers == [Worker(platform.node(), "1,2")] * 3


def test_a_search_that_ends_in_mid_trial_ends_the_worker_without_an_error(
    job: Job,
    tmp_path: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with begun(job, tmp_path) as run:

        @contextmanager
        def set_up_bench(
            served: object, events: object, book: object, checkpoint: Any, *_: object
        ) -> Iterator[Any]:
            class Ending(SlowBench):
                def deploy(self, *_: Any, **__: Any) -> Any:
                    run.searcher.over()
                    monkeypatch.setattr(joining, "POLL_S", -1.0)
                    checkpoint()
                    raise AssertionError("the search was over")

            yield Ending([])

        monkeypatch.setattr(session, "set_up_bench", set_up_bench)
        watched = Watching()
        assert joining.join(asking(job, run), watched).trials == ()
    assert watched.told[-1] == "the search ended before this trial did"


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_stopped_worker_says_that_its_candidate_is_free_and_how_to_join_again(
    wrapped: bool,
    job: Job,
    tmp_path: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stopped(SlowBench):
        def deploy(self, *_: Any, **__: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            if wrapped:  # as a library does
                raise RuntimeError("a commit failed")
            raise InterruptedRunError("interrupted")

    machine.bench = Stopped([])
    with begun(job, tmp_path) as run:
        with pytest.raises(InterruptedRunError) as stopped:
            joining.join(asking(job, run), Watching())
        assert stopped.value.hint == (
            "what it was measuring is free again; the same command joins again"
        )


@pytest.mark.parametrize("asked", [True, False])
def test_an_error_of_its_own_is_told_as_it_is(
    asked: bool,
    job: Job,
    tmp_path: Path,
    machine: Machine,
) -> None:
    class Broken(SlowBench):
        def deploy(self, *_: Any, **__: Any) -> Any:
            if asked:
                signal.raise_signal(signal.SIGINT)
            raise TunerError("no room left")

    machine.bench = Broken([])
    with begun(job, tmp_path) as run, pytest.raises(TunerError, match="no room left") as told:
        joining.join(asking(job, run), Watching())
    assert not isinstance(told.value, InterruptedRunError)
