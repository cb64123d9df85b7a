"""Models of a quarter of a second and more a request, on the real bench over an emulated server."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders.again_bench import bench_rules
from builders.candidates import candidate_of, fields_of
from builders.emulated import a_session, saying
from builders.events import Watching
from builders.searches import ListedSearcher

from tuner.errors import LoadFailedError
from tuner.load.latency import AnsweredRequests, figures_of, observe_closed, observe_open
from tuner.load.probes.warming import FirstCalls
from tuner.load.traffic.arrivals import arrivals_of
from tuner.measurement.batch_profile import BatchCall
from tuner.measurement.measurement import LoadPoint, Measurement, Rejected, Stage
from tuner.measurement.window import Window, soak_of, window_of
from tuner.meter.bench import TritonBench
from tuner.meter.session import Session
from tuner.prepare.timebook import TimeBook
from tuner.proof.proof import prove
from tuner.record.status import Status
from tuner.score.judge import SloOutcome
from tuner.score.next_load import load_plan
from tuner.score.trial import Aim, TrialState
from tuner.search.budget import StopReason
from tuner.search.searching import CurrentConfigFailsError, search
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.triton.changes import DeploymentKind

ENDPOINTS = Endpoints("h", "g", None)


class Server:
    """So many instances that take the same time for every request, first come first served."""

    def __init__(self, service_s: float) -> None:
        self.service_s = service_s
        self.instances = 1
        self.windows: list[tuple[float, float]] = []  # level and length of each measurement
        self.deployed: list[int] = []
        self.spent_s = 0.0

    def fresh(self) -> None:
        pass

    def deploy(self, candidate: Candidate) -> Any:
        self.instances = int(fields_of(candidate)["instance_group.count"])  # type: ignore[arg-type]
        self.deployed.append(self.instances)
        return SimpleNamespace(kind=DeploymentKind.RELOAD, endpoints=ENDPOINTS)

    def await_first_answers(self, patience_s: float, note: Any) -> Sequence[FirstCalls]:
        return ()

    def seconds_for(self, count: int, patience_s: float) -> float:
        took_s = -(-count // self.instances) * self.service_s
        self.spent_s += took_s
        return took_s

    def seconds_alone(self, patience_s: float) -> Any:
        took_s = self.seconds_for(1, patience_s)
        return None if took_s is None else {"": took_s}

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        self.windows.append((load.level, window.duration_s))
        self.spent_s += window.total_s
        if not load.arrivals.open_loop:
            return self._closed(load, window, seed)
        spans_s = (window.warmup_s, window.duration_s, window.tail_s + 2.0)
        due_s = arrivals_of(load, spans_s, seed)
        free_s = [0.0] * self.instances
        answered_s = np.array([self._next(free_s, at) for at in due_s])
        count = int((answered_s <= window.total_s).sum())
        requests = AnsweredRequests(
            _ns(due_s[:count]), _ns(answered_s[:count]), round(window.total_s * 1e9)
        )
        return Measurement.of_all(figures_of(observe_open(requests, due_s, window), load, seed))

    def answers(self) -> Any:
        return {"": saying(1.0)}

    def _closed(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        if window.total_s / 3 < self.service_s * load.level / self.instances:
            raise LoadFailedError("perf_analyzer failed: a whole window passed without an answer")
        free_s, ready_s = [0.0] * self.instances, [0.0] * round(load.level)
        sent, answered = [], []
        while ready_s[0] < window.total_s:
            at = heapq.heappop(ready_s)
            done = self._next(free_s, at)
            sent.append(at)
            answered.append(done)
            heapq.heappush(ready_s, done)
        requests = AnsweredRequests(_ns(sent), _ns(answered), round(window.total_s * 1e9))
        return Measurement.of_all(figures_of(observe_closed(requests, window), load, seed))

    def _next(self, free_s: list[float], at_s: float) -> float:
        done = max(heapq.heappop(free_s), at_s) + self.service_s
        heapq.heappush(free_s, done)
        return done


def _ns(seconds: Any) -> Any:
    return np.rint(np.asarray(seconds) * 1e9).astype(np.int64)


def a_search(
    server: Server, slo: str, *counts: int, budget: Any = None, **workload: Any
) -> tuple[Session, ListedSearcher, list[Rejected]]:
    spec = Spec.model_validate(
        {
            "model": "m",
            "repository": "r",
            "slo": [slo],
            "space": {"instance_group.count": {"int": [1, 4]}},
            "workload": workload,
            "budget": budget or {},
        }
    )
    events, rejected = Watching(), []
    plan = load_plan(spec.workload, spec.objective, spec.slos)
    rules = bench_rules(
        slos=spec.slos,
        arrivals=plan.arrivals,
        window=lambda load, rate: window_of(spec, load, rate, brief=True),
        rejected=rejected.append,
        note=events.note,
        soak=lambda load, rate, least_s: soak_of(spec, load, rate, least_s),
    )
    searcher = ListedSearcher([candidate_of({"instance_group.count": n}) for n in counts])
    bench = TritonBench(server, lambda _: server, rules, TimeBook())  # type: ignore[arg-type,return-value]
    session = a_session(bench, spec, searcher.candidates[0], plan, events=events)
    return session, searcher, rejected


def searched(session: Session, searcher: ListedSearcher) -> tuple[list[Any], StopReason]:
    ended = search(session, searcher)  # type: ignore[arg-type]
    session.bench.enter(Stage.CONFIRMATION)
    return ended


CLOSED = {"arrivals": {"kind": "closed"}}


@pytest.mark.parametrize(
    ("service_s", "slo", "capacity"),
    [
        (1.0, "p99_latency <= 6s", 4.0),
        (1.0, "p90_latency <= 6s", 4.0),
        (0.25, "p99_latency <= 2s", 16.0),
        (20.0, "p50_latency <= 60s", 0.2),
        (20.0, "avg_latency <= 60s", 0.2),
    ],
)
def test_a_slow_model_is_tuned_to_its_end(service_s: float, slo: str, capacity: float) -> None:
    server = Server(service_s)
    session, searcher, _ = a_search(server, slo, 1, 4, 2)
    trials, reason = searched(session, searcher)
    assert reason is StopReason.EXHAUSTED
    assert [t.state for t in trials] == [
        TrialState.MEASURED,
        TrialState.MEASURED,
        TrialState.PRUNED,
    ]
    assert all(t.score is not None and t.score.feasible for t in trials[:2])
    best = trials[1].score
    assert best is not None
    assert 0.75 * capacity <= best.value <= 1.02 * capacity


def test_long_windows_are_announced_before_the_first() -> None:
    server = Server(0.25)
    session, searcher, _ = a_search(server, "p99_latency <= 2s", 2)
    searched(session, searcher)
    assert session.events.notes[0].startswith("one request at a time takes 250 ms; with 16 at once")
    windows = "p99_latency at about 6.4/s needs windows of 49 s, p95_latency 9.7 s; the run takes "
    assert session.events.notes[1].startswith(windows)
    lengths = {round(length_s) for level, length_s in server.windows if f"{level:.2g}" == "6.4"}
    assert lengths == {49}


@pytest.mark.parametrize(("service_s", "longer"), [(0.002, False), (0.02, True)])
def test_a_run_that_takes_longer_than_expected_is_announced_before_its_first_window(
    service_s: float, longer: bool
) -> None:
    session, searcher, _ = a_search(Server(service_s), "p99_latency <= 100ms", 1, 4, 2)
    searched(session, searcher)
    announced = [note for note in session.events.notes if "the run takes about" in note]
    assert len(announced) == longer


def test_a_candidate_gets_fewer_measurements_where_each_takes_minutes() -> None:
    server = Server(1.0)
    session, searcher, _ = a_search(server, "p99_latency <= 6s", 4)
    (trial,), _ = searched(session, searcher)
    assert len(trial.points) <= 3
    assert len(server.windows) == len(trial.points)


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each instance is predicted to answer 8/s."""

    def capacity_per_s(candidate: Candidate, *_: Any) -> float:
        return 8.0 * int(fields_of(candidate)["instance_group.count"])  # type: ignore[arg-type]

    rates = SimpleNamespace(capacity_per_s=capacity_per_s)
    monkeypatch.setattr("tuner.search.measuring.BatchRates.of", lambda *_: rates)
    calls = FirstCalls("m", batch_calls=(BatchCall(1, 1, 0.1),))
    monkeypatch.setattr(Server, "await_first_answers", lambda *_: [calls])


@pytest.mark.usefixtures("predicted")
def test_a_load_far_below_a_predicted_capacity_is_not_measured_where_that_takes_long() -> None:
    server = Server(0.1)
    session, searcher, _ = a_search(server, "p99_latency <= 600ms", 1, 4)
    (first, second), _ = searched(session, searcher)
    assert first.score is not None
    assert 6.0 < first.score.value < 10.0
    assert second.points[0].level == pytest.approx(32.0)
    assert second.score is not None
    assert 30.0 < second.score.value < 40.0


@pytest.mark.usefixtures("predicted")
def test_a_candidate_that_misses_at_its_predicted_capacity_still_races() -> None:
    """All of its instances use one device."""
    server = Server(0.1)
    session, searcher, _ = a_search(server, "p99_latency <= 600ms", 1, 4)
    deploy = server.deploy

    def shared(candidate: Candidate) -> Any:
        deployed, server.instances = deploy(candidate), 1
        return deployed

    server.deploy = shared  # type: ignore[method-assign]
    (first, second), _ = searched(session, searcher)
    assert first.score is not None
    assert second.state is TrialState.PRUNED
    assert first.sustained_level is not None
    to_beat = 1.02 * first.sustained_level
    assert second.points[0].level == pytest.approx(to_beat, rel=0.001)
    assert second.points[-1].level > 1.3 * to_beat


@pytest.mark.parametrize(
    ("service_s", "slo", "workload", "advice"),
    [
        (20.0, "p99_latency <= 60s", {}, "Set it to 41m, or bound p95_latency (90)"),
        (1.0, "p99_latency <= 6s", {"max_window": "1m"}, "Set it to 3m, or bound p95_latency (90)"),
        (20.0, "p50_latency <= 60s", {"max_window": "30s"}, "Set it to 1m"),
    ],
)
def test_percentile_that_no_window_can_judge_is_reported_at_once_and_not_as_infeasible(
    service_s: float, slo: str, workload: dict[str, str], advice: str
) -> None:
    server = Server(service_s)
    session, searcher, _ = a_search(server, slo, 4, 2, **workload)
    with pytest.raises(CurrentConfigFailsError, match="requests, and the model answers") as ended:
        searched(session, searcher)
    assert advice in ended.value.message
    assert server.windows == []


def test_budget_too_short_for_one_measurement_is_reported_at_once() -> None:
    server = Server(1.0)
    session, searcher, _ = a_search(server, "p99_latency <= 6s", 4, budget={"time": "1m"})
    with pytest.raises(CurrentConfigFailsError, match=r"budget\.time is 60 s: raise it"):
        searched(session, searcher)
    assert server.windows == []


@pytest.mark.parametrize(("instances", "clients"), [(1, 40), (4, 160)])
def test_a_closed_loop_of_a_model_of_25_ms_is_searched_to_its_end(
    instances: int, clients: int
) -> None:
    """One probe of 3 s used to be too few answers, and that the end."""
    server = Server(0.025)
    session, searcher, rejected = a_search(server, "p99_latency <= 1s", instances, **CLOSED)
    server.seconds_for = lambda count, patience_s: None  # type: ignore[assignment,method-assign]
    (trial,), _ = searched(session, searcher)
    assert trial.score is not None
    assert trial.score.feasible
    assert trial.score.value == pytest.approx(40.0 * instances, rel=0.05)
    tried = [p.measurement.load.level for p in trial.points]
    assert max(tried) >= 0.5 * clients
    assert len(rejected) <= 1


def test_a_window_without_enough_answers_is_measured_again_for_longer() -> None:
    session, _, rejected = a_search(Server(0.1), "p99_latency <= 1s", 1, **CLOSED)
    session.bench.deploy(session.current)
    point = session.bench.measure(4.0, 1)
    assert point.measurement.completed_count >= 299
    assert len(rejected) == 1
    assert "too few for a verdict: measured for 33.2 s" in session.events.notes[0]
    session.bench.measure(8.0, 1)
    assert len(rejected) == 1  # now it is known


def test_a_model_of_a_second_in_a_closed_loop_is_waited_for() -> None:
    server = Server(1.0)
    session, searcher, _ = a_search(server, "p90_latency <= 6s", 2, **CLOSED)
    (trial,), _ = searched(session, searcher)
    assert trial.score is not None
    assert trial.score.value == pytest.approx(2.0, rel=0.1)
    assert session.events.notes[0] == "one request at a time takes 1 s; the first load is 4 clients"


def test_a_slow_candidates_measurement_is_not_begun_where_it_cannot_end_in_time() -> None:
    server = Server(1.0)
    session, searcher, _ = a_search(server, "p99_latency <= 6s", 4, 3, budget={"time": "10m"})
    session = replace(session, load_s=590.0)
    trials, reason = searched(session, searcher)
    assert reason is StopReason.TIME or len(trials) == 1
    assert len(trials) == 1
    assert len(trials[0].points) == 1


@pytest.mark.parametrize(
    ("service_s", "slo", "hours"),
    [(1.0, "p99_latency <= 6s", 3.0), (0.25, "p99_latency <= 2s", 1.0)],
)
def test_a_slow_model_is_proved_and_soaked_too(service_s: float, slo: str, hours: float) -> None:
    """Two instances now, four are found, proved against the two, and sustain a long load."""
    server = Server(service_s)
    session, searcher, _ = a_search(server, slo, 2, 4)
    trials, _ = searched(session, searcher)
    verdict = prove(session, trials)
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert fields_of(verdict.winner.candidate) == {"instance_group.count": 4}
    assert verdict.gain is not None
    assert verdict.gain.ratio.low > 1.4
    assert server.spent_s < 3600.0 * hours


def test_a_slow_current_config_far_behind_is_not_measured_again() -> None:
    """Its windows of ten minutes made half an hour of a run, to tell a gain of 12 times."""
    server = Server(1.0)
    session, searcher, _ = a_search(server, "p99_latency <= 6s", 1, 8)
    trials, _ = searched(session, searcher)
    before = len(server.windows)
    verdict = prove(session, trials)
    assert not [level for level, _ in server.windows[before:] if 0.5 < level < 4.0]
    assert verdict.gain is not None
    assert verdict.gain.at_least
    assert verdict.baseline is not None
    assert verdict.baseline.credited_infer_per_s  # it keeps what it sustained in the search


def test_of_a_loser_forty_requests_tell_enough_and_give_no_verdict() -> None:
    """The 459 of a p99 took ten minutes. They are no bound of the config either."""
    server = Server(1.0)
    session, searcher, _ = a_search(server, "p99_latency <= 6s", 8, 1)
    searcher.informative = True
    (_, lost), _ = searched(session, searcher)
    race, informing = lost.points
    assert lost.state is TrialState.PRUNED
    assert 40 <= informing.level * informing.measurement.duration_s <= 41
    assert informing.outcome is SloOutcome.TOO_FEW
    aim = Aim(session.spec.objective)
    alone = replace(lost, points=(race,))
    assert aim.bound(lost) == aim.bound(alone)


def test_over_a_slow_config_far_behind_only_the_best_finalist_is_measured_again() -> None:
    """The current config lost its race, and is known to be far behind by what it answered."""
    server = Server(1.0)
    session, searcher, _ = a_search(server, "p99_latency <= 6s", 1, 6, 8)
    searcher.candidates = [searcher.candidates[i] for i in (1, 0, 2)]
    searcher.informative = True
    trials, _ = searched(session, searcher)
    assert [t.state for t in trials] == [
        TrialState.MEASURED,
        TrialState.PRUNED,
        TrialState.MEASURED,
    ]
    server.deployed.clear()
    verdict = prove(session, trials)
    assert server.deployed[:2] == [1, 8]  # the first for a lone request
    assert 6 not in server.deployed
    assert verdict.gain is not None
    assert verdict.gain.at_least
    assert verdict.gain.ratio.low > 3.0


def test_a_window_that_lacks_a_few_answers_is_measured_again_though_it_gets_little_longer() -> None:
    """With 290 of 299 answers in 3 s a config was taken for one that misses its SLO."""
    session, _, rejected = a_search(Server(1 / 96.7), "p99_latency <= 1s", 1, window="6s", **CLOSED)
    session.bench.deploy(session.current)
    point = session.bench.measure(6.0, 1)
    assert [r.measurement.completed_count for r in rejected if r.measurement] == [290]
    assert point.outcome is SloOutcome.MET
    assert point.measurement.completed_count >= 299
