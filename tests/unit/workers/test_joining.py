"""Workers beside a run, over emulated benches and one storage."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.emulated import EmulatedBench
from builders.jobs import Facts, opened
from builders.joining import SlowBench, a_random_search, answered, owned, request_of, url_of
from builders.model_files import write_model
from builders.reasons import said
from builders.searches import a_search, searched, served
from builders.waits import wait_until

from tuner.bench.events import Silent
from tuner.bench.job import Job, job_from, prepare
from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.run.open_run import OpenRun
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState, TrialTime, Worker
from tuner.search.searcher import JoinedSearcher
from tuner.search.searching import search
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.study.files import ask
from tuner.search.study.offer import find_offer
from tuner.search.study.record import StudyRecord
from tuner.space.candidate import Candidate
from tuner.spec.load import load_spec
from tuner.workers import worker as joining
from tuner.workers.worker import (
    JoinRequest,
    _Checkpoint,
    measure,
    refuse_another_host,
    refuse_another_machine,
    refuse_another_spec,
    refuse_other_configs,
    refuse_other_files,
    spec_for,
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_random_search(tmp_path)


class PatientBench(SlowBench):
    """The run's own: goes on after its first trial when a worker has handed one in."""

    def __init__(self, deployed: list[Candidate], workers: Sequence[SlowBench]) -> None:
        super().__init__(deployed)
        self.workers = workers

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Any:
        if len(self.deployed) == 1:
            wait_until(lambda: any(len(worker.deployed) > 1 for worker in self.workers))
        return super().deploy(candidate, fresh=fresh)


@contextmanager
def a_worker(
    job: Job, run: OpenRun, bench: EmulatedBench, gpu: str = "1"
) -> Iterator[Callable[[], list[Trial]]]:
    """As `tune worker` does it, without a server; opened apart, since warnings are no thread's."""
    spec, space, url = job.spec, job.space, url_of(run)
    with StudyRecord(
        url, spec.name, run.store.run_id, space, spec.objective, Worker("box", gpu)
    ) as record:
        strategy = STRATEGIES[spec.search.strategy](space, spec)
        searcher = JoinedSearcher(
            space, strategy, record, spec.budget.trials, lambda: time.sleep(0.005)
        )
        session = replace(owned(job, bench), checkpoint=_Checkpoint(record, lambda: None))

        def work() -> list[Trial]:
            measure(session, searcher)
            return searcher.mine

        yield work


def test_a_run_and_two_workers_measure_nothing_twice_and_the_run_keeps_it_all(
    job: Job, tmp_path: Path
) -> None:
    request = request_of(job, tmp_path)
    deployed: list[Candidate] = []
    workers = [SlowBench(deployed), SlowBench(deployed)]
    with (
        opened(job, request) as run,
        a_worker(job, run, workers[0], "1") as one,
        a_worker(job, run, workers[1], "2") as two,
        ThreadPoolExecutor() as threads,
    ):
        working = [threads.submit(work) for work in (one, two)]
        trials, _ = search(owned(job, PatientBench(deployed, workers)), run.searcher)
        run.searcher.over()
        handed_in = {t.candidate.key: t for work in working for t in work.result()}
        stored = run.store.trials()
    assert stored == trials
    assert len({c.key for c in deployed}) == len(deployed)
    assert [t.number for t in stored] == list(range(len(stored)))
    theirs = {t.candidate.key: t for t in stored if t.worker}
    assert theirs
    assert {t.worker for t in theirs.values()} <= {Worker("box", "1"), Worker("box", "2")}
    assert theirs.keys() <= handed_in.keys()
    for key, trial in theirs.items():
        assert points(trial) == points(handed_in[key])
        assert trial.score == handed_in[key].score

    with opened(job, replace(request, resume=run.store.directory)) as again:
        assert again.searcher.history == stored
        again.searcher.next()
        assert again.searcher.history[: len(stored)] == stored


def points(trial: Trial) -> list[dict[str, Any]]:
    return [Point.from_json(p.to_json()).to_json() for p in trial.points]


def test_a_search_that_ends_in_mid_trial_frees_the_candidate(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "POLL_S", -1.0)

    class EndsTheSearch(SlowBench):
        def deploy(
            self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
        ) -> Any:
            run.searcher.over()
            _Checkpoint(shared, lambda: None)()  # as the bench does
            raise AssertionError("the search was over")

    with (
        opened(job, request_of(job, tmp_path)) as run,
        StudyRecord(
            url_of(run), job.spec.name, run.store.run_id, job.space, job.spec.objective
        ) as shared,
    ):
        current = Trial(0, job.space.current, TrialState.FAILED, reason=said("no"))
        run.searcher.start(current.candidate)
        run.searcher.tell(current)
        with a_worker(job, run, EndsTheSearch([])) as work:
            assert work() == []
            assert len(shared.claims()) == 2
        assert [c.candidate_key for c in shared.claims()] == [current.candidate.key]


def test_a_run_is_found_by_its_id_and_by_its_study_while_it_searches(
    job: Job, tmp_path: Path
) -> None:
    request = request_of(job, tmp_path, trials=5)
    job = replace(job, spec=prepare(request).spec)
    with opened(job, request) as run:
        name, url = run.store.run_id, url_of(run)
        for called in (name, "emulated-accelerator"):
            offer = find_offer(url, called)
            assert offer.manifest.run_id == name
            refuse_another_spec(job.loaded, offer)
            theirs = spec_for(offer, job.loaded.spec, (1,))
            assert theirs.server.gpus == (1,)
            assert theirs.model_copy(update={"server": job.spec.server}) == job.spec
        with pytest.raises(SpecError, match="called 'nothing'"):
            find_offer(url, "nothing")
    with pytest.raises(SpecError, match=name):
        find_offer(url, name)


def test_a_storage_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReadyError, match=r"none\.db"):
        find_offer(f"sqlite:///{tmp_path / 'none.db'}", "m")
    assert list(tmp_path.iterdir()) == []


class TestWhatIsRefused:
    @pytest.fixture
    def offer(self, job: Job, tmp_path: Path) -> Any:
        with opened(job, request_of(job, tmp_path)) as run:
            return find_offer(url_of(run), run.store.run_id)

    def test_another_machine_with_what_differs(self, offer: Any) -> None:
        refuse_another_machine(offer.manifest, Facts())  # type: ignore[arg-type]
        gpu = {"name": "NVIDIA H200", "driver": "570"}
        there = replace(offer.manifest, gpus=[gpu], fingerprint="1" * 16)
        with pytest.raises(EnvironmentNotReadyError) as caught:
            refuse_another_machine(there, Facts())  # type: ignore[arg-type]
        assert "H200 (driver 570)" in caught.value.message
        assert "CPU" not in caught.value.message
        there = replace(offer.manifest, fingerprint="1" * 16)
        with pytest.raises(EnvironmentNotReadyError, match="since it differs"):
            refuse_another_machine(there, Facts())  # type: ignore[arg-type]

    def test_another_machine_before_any_program_is_started(
        self, offer: Any, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*_: Any) -> Any:
            raise AssertionError("started")

        monkeypatch.setattr(joining, "find_offer", lambda *_: offer)
        monkeypatch.setattr(joining, "find_programs", never)
        with pytest.raises(EnvironmentNotReadyError, match="since it differs"):
            joining.join(JoinRequest(job.loaded.path, "sqlite://"), Silent())
        host = Facts()
        refuse_another_host(offer.manifest, host)  # type: ignore[arg-type]

    def test_another_spec_with_what_differs_and_where(self, offer: Any, tmp_path: Path) -> None:
        text = (tmp_path / "spec.yaml").read_text()
        own = tmp_path / "own.yaml"
        own.write_text(text.replace("40ms", "50ms") + "workload: {window: 5s}\n")
        with pytest.raises(SpecError) as refused:
            refuse_another_spec(load_spec(own), offer)
        told = refused.value.message
        places = re.findall(rf"{own}:(\d+:\d+): ([\w.]+):", told)
        assert places == [("3:1", "slo"), ("9:12", "workload.window")]
        assert re.findall(r"\b\d+m?s\b", told) == ["50ms", "40ms", "5s", "3s"]

    def test_another_config(self, offer: Any, job: Job, tmp_path: Path) -> None:
        refuse_other_configs(job, offer.manifest)
        write_model(tmp_path / "models" / job.spec.name, "max_batch_size: 4\n")
        loaded = load_spec(job.loaded.path, [f"repository={tmp_path / 'models'}"])
        refuse_another_spec(loaded, offer)
        with pytest.raises(SpecError, match=r"\n\+max_batch_size: 4"):
            refuse_other_configs(job_from(loaded, loaded.spec, {}), offer.manifest)

    def test_another_file_of_a_model_or_of_its_load(self, job: Job, tmp_path: Path) -> None:
        with opened(job, request_of(job, tmp_path)) as run:
            answered(run)
            assert run.searcher._record is not None
            there = ask(run.searcher._record, pytest.fail, pytest.fail)
        assert there
        refuse_other_files(job, "r", there)
        other = {**there, "emulated-accelerator/1/model.py": "0" * 16, "workload": "0"}
        with pytest.raises(SpecError) as refused:
            refuse_other_files(job, "r", other)
        _, *lines = refused.value.message.splitlines()
        files = [line.split()[0] for line in lines]
        assert files == ["emulated-accelerator/1/model.py", "workload"]

    def test_somebody_elses_server(self, job: Job) -> None:
        server = "server={mode: remote, http: 'h:1', grpc: 'h:2'}"
        request = JoinRequest(job.loaded.path, "sqlite://", overrides=(server,))
        with pytest.raises(SpecError, match="remote"):
            joining.join(request, Silent())


def test_a_workers_trial_costs_the_run_none_of_its_time() -> None:
    theirs = Trial(
        1,
        candidate_of({"instance_group.count": 9}),
        TrialState.FAILED,
        time=TrialTime(measuring_s=1e6),
        worker=Worker("box", "1"),
    )
    assert Trial.from_json(theirs.to_json()) == theirs
    session, searcher = a_search(
        EmulatedBench(served), [candidate_of({"instance_group.count": 1})] * 3, time="60s"
    )
    searcher.history.append(theirs)
    searched(session, searcher)
    assert len(searcher.history) == 3
