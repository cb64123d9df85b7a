"""Workers beside a run, over emulated benches and one storage."""

from __future__ import annotations

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
from builders.joining import SlowBench, a_random_search, owned, request_of, url_of
from builders.model_files import REPOSITORY
from builders.searches import a_search, searched, served
from builders.waits import wait_until

from tuner.bench.events import Silent
from tuner.bench.job import Job, prepare
from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.run.open_run import OpenRun
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState, TrialTime, Worker
from tuner.search.searcher import JoinedSearcher
from tuner.search.searching import search
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.study.offer import find_offer
from tuner.search.study.record import StudyRecord
from tuner.space.candidate import Candidate
from tuner.spec.server import resolve
from tuner.workers import worker as joining
from tuner.workers.worker import (
    JoinRequest,
    _Checkpoint,
    job_of,
    measure,
    offered_spec,
    refuse_another_host,
    refuse_another_machine,
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_random_search(tmp_path)


class PatientBench(SlowBench):
    """The run's own: goes on after its first trial when a worker has handed one in."""

    def __init__(self, deployed: list[Candidate], workers: Sequence[SlowBench]) -> None:
        super().__init__(deployed)
        self.workers = workers

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> Any:
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


def joined_job(offer: Any, request: JoinRequest) -> Job:
    return job_of(offer, offered_spec(offer, request), request.environment)


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
        def deploy(self, candidate: Candidate, *, fresh: bool = False) -> Any:
            run.searcher.over()
            _Checkpoint(shared, lambda: None)()  # as the bench does
            raise AssertionError("the search was over")

    with (
        opened(job, request_of(job, tmp_path)) as run,
        StudyRecord(
            url_of(run), job.spec.name, run.store.run_id, job.space, job.spec.objective
        ) as shared,
    ):
        current = Trial(0, job.space.current, TrialState.FAILED, reason="no")
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
            theirs = joined_job(offer, JoinRequest(called, url, gpus=(1,)))
            assert theirs.spec.budget.trials == 5
            assert theirs.spec.server.gpus == (1,)
            ours = job.spec.model_copy(update={"server": theirs.spec.server})
            assert theirs.spec == ours
            assert theirs.space.current == job.space.current
        with pytest.raises(SpecError, match="called 'nothing'"):
            find_offer(url, "nothing")
    with pytest.raises(SpecError, match="has ended") as ended:
        find_offer(url, name)
    assert ended.value.hint.startswith("workers help while `tune run` searches")


def test_a_storage_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReadyError, match="there is no storage"):
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
        assert "GPUs: NVIDIA H200 (driver 570) there, none here" in caught.value.message
        assert "CPU" not in caught.value.message
        there = replace(offer.manifest, fingerprint="1" * 16)
        with pytest.raises(EnvironmentNotReadyError, match="since it differs"):
            refuse_another_machine(there, Facts())  # type: ignore[arg-type]

    def test_another_machine_before_any_program_is_started(
        self, offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*_: Any) -> Any:
            raise AssertionError("started")

        monkeypatch.setattr(joining, "find_offer", lambda *_: offer)
        monkeypatch.setattr(joining, "find_programs", never)
        with pytest.raises(EnvironmentNotReadyError, match="since it differs"):
            joining.join(JoinRequest("m", "sqlite://"), Silent())
        host = Facts()
        refuse_another_host(offer.manifest, host)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("more", "named"),
        [
            ("server: {binary: /tmp/evil}", "server.binary: /tmp/evil"),
            ("server: {args: [--backend-directory=/x]}", "server.args: --backend-directory=/x"),
            ("server: {environment: {LD_PRELOAD: /x.so}}", "environment: LD_PRELOAD: $LD_PRELOAD"),
            ("server: {mode: docker, image: evil}", "server.image: evil"),
            ("server: {mode: docker, image: i, mounts: {/: /host}}", "server.mounts: /: /host"),
            ("workload: {perf_analyzer: /tmp/evil}", "workload.perf_analyzer: /tmp/evil"),
        ],
    )
    def test_programs_that_are_not_the_workers_own(
        self, offer: Any, more: str, named: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def reached(*_: Any) -> Any:
            raise EnvironmentNotReadyError("the machine was looked at")

        text = f"{offer.manifest.spec_text}{more}\n"
        strange = replace(offer, manifest=replace(offer.manifest, spec_text=text))
        monkeypatch.setattr(joining, "find_offer", lambda *_: strange)
        monkeypatch.setattr(joining, "read_host", reached)
        with pytest.raises(SpecError) as caught:
            joining.join(JoinRequest("m", "sqlite://"), Silent())
        assert named in caught.value.message
        assert "--trust" in caught.value.hint
        with pytest.raises(EnvironmentNotReadyError, match="looked at"):
            joining.join(JoinRequest("m", "sqlite://", trust=True), Silent())

    @pytest.mark.parametrize("text", ["[", "model: m\n", "- 1\n", "server: {args: [--http-port]}"])
    def test_a_spec_that_is_none(self, offer: Any, text: str) -> None:
        whole = offer.manifest.spec_text + text if text.startswith("server") else text
        broken = replace(offer, manifest=replace(offer.manifest, spec_text=whole))
        with pytest.raises(SpecError, match="the study holds no valid spec"):
            offered_spec(broken, JoinRequest("m", ""))

    def test_a_hidden_value_is_the_workers_own(self, offer: Any) -> None:
        text = (
            f"{offer.manifest.spec_text}server: {{environment: {{KEY: '***', A: {{from: B}}}}}}\n"
        )
        hidden = replace(offer, manifest=replace(offer.manifest, spec_text=text))
        variables = offered_spec(hidden, JoinRequest("m", "")).server.environment
        assert resolve(variables, {"KEY": "mine", "B": "b"}) == {"KEY": "mine", "A": "b"}
        with pytest.raises(EnvironmentNotReadyError, match="not set: B, KEY"):
            resolve(variables, {})

    def test_another_config_and_a_repository_that_is_not_here(
        self, offer: Any, tmp_path: Path
    ) -> None:
        directory = tmp_path / "models" / "emulated-accelerator"
        directory.mkdir(parents=True)
        (directory / "config.pbtxt").write_text("max_batch_size: 4\n")
        with pytest.raises(SpecError, match=r"(?s)is not the config that.*\n\+max_batch_size: 4"):
            joined_job(offer, JoinRequest("m", "", directory.parent))
        text = offer.manifest.spec_text.replace(str(REPOSITORY), "/nowhere")
        moved = replace(offer, manifest=replace(offer.manifest, spec_text=text))
        with pytest.raises(EnvironmentNotReadyError) as caught:
            joined_job(moved, JoinRequest("m", ""))
        assert "--repository" in caught.value.hint

    def test_another_file_of_the_model(self, offer: Any) -> None:
        joined_job(offer, JoinRequest("m", ""))
        other = replace(offer, files={**offer.files, "emulated-accelerator/1/model.py": "0" * 16})
        with pytest.raises(SpecError, match=r"not those that .*:\n  .*/1/model.py differs"):
            joined_job(other, JoinRequest("m", ""))

    def test_a_path_of_the_spec_begins_where_the_runs_spec_lies(
        self, offer: Any, tmp_path: Path
    ) -> None:
        text = offer.manifest.spec_text.replace(str(REPOSITORY), "repository")
        there = replace(offer, manifest=replace(offer.manifest, spec_text=text))
        assert offered_spec(there, JoinRequest("m", "")).repository == tmp_path / "repository"

    def test_somebody_elses_server(self, offer: Any) -> None:
        server = "server: {mode: remote, http: 'h:1', grpc: 'h:2'}\n"
        manifest = replace(offer.manifest, spec_text=offer.manifest.spec_text + server)
        with pytest.raises(SpecError, match="remote"):
            joined_job(replace(offer, manifest=manifest), JoinRequest("m", ""))


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
