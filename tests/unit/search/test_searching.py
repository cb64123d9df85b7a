"""The search loop over an emulated bench: what becomes of failures, and of time."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.candidates import fields_of
from builders.emulated import EmulatedBench
from builders.measurements import synthetic_measurement
from builders.reasons import model_fails, said, server_says, texts
from builders.searches import CANDIDATES, a_search, searched, served
from builders.surface import strategy

from tuner.errors import (
    ClientLimitError,
    DeployRefusedError,
    InterruptedRunError,
    LoadFailedError,
    OutOfTimeError,
    ServerGoneError,
    ServerHangsError,
    TooManyFailedTrialsError,
    TrialError,
)
from tuner.measurement.measurement import Arrivals, Measurement
from tuner.progress.events import Silent
from tuner.proof import proof
from tuner.reason import Reason, ReasonKind
from tuner.record.remedies import remedies
from tuner.record.status import Status
from tuner.score.capacity import LevelRange
from tuner.score.judge import NEAR_MISS
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point, judge_point
from tuner.score.trial import Aim, Trial, TrialState
from tuner.search import measuring
from tuner.search.budget import StopReason, lone_miss
from tuner.search.incumbent import near_misses
from tuner.search.searcher import Searcher
from tuner.search.searching import CurrentConfigFailsError, search
from tuner.search.strategy import Proposal
from tuner.sentences import failed
from tuner.server.memory import MACHINE, Memory
from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.model import StrategyName
from tuner.spec.slo import Slo


def test_every_trial_is_kept_and_better_ones_are_measured_in_full() -> None:
    session, searcher = a_search(EmulatedBench(served), CANDIDATES[:4])
    trials, reason = searched(session, searcher)
    assert reason is StopReason.EXHAUSTED
    assert searcher.history == trials
    assert [t.state for t in trials] == [TrialState.MEASURED] * 4
    values = [t.score.value for t in trials if t.score]
    assert values == sorted(values)


def test_a_worse_candidate_is_pruned_after_a_look_where_measurements_are_longer() -> None:
    tried = [CANDIDATES[0], CANDIDATES[3], CANDIDATES[1]]
    session, searcher = a_search(EmulatedBench(served), tried, slo="p99_latency <= 400ms")
    trials, _ = searched(session, searcher)
    assert trials[2].state is TrialState.PRUNED
    assert trials[2].points == ()  # a look was enough
    seen, best = trials[2].saturated, trials[1].sustained_level
    assert seen is not None
    assert best is not None
    assert seen.at_most_per_s is not None
    assert seen.at_most_per_s < best
    assert Aim(session.spec.objective).bound(trials[2]) == pytest.approx(
        math.log(seen.at_most_per_s)
    )


def test_the_load_to_beat_is_the_incumbents_and_a_little_more() -> None:
    session, searcher = a_search(EmulatedBench(served), [CANDIDATES[2], CANDIDATES[0]])
    trials, _ = searched(session, searcher)  # the current config is measured in any case
    best = trials[0].sustained_level
    assert best is not None
    level = trials[1].points[0].measurement.load.level
    assert level == pytest.approx(best * 1.02, rel=1e-3)
    capacity = trials[0].capacity_level
    assert capacity is not None
    assert best <= capacity <= best * 1.04


def test_a_refused_config_fails_with_the_servers_reason_and_the_search_goes_on() -> None:
    troubles: dict[Candidate, list[Exception]] = {CANDIDATES[1]: [DeployRefusedError("no GPU")]}
    bench = EmulatedBench(served, troubles=troubles)
    session, searcher = a_search(bench, CANDIDATES[:3])
    trials, _ = searched(session, searcher)
    assert trials[1].state is TrialState.FAILED
    assert trials[1].reason == server_says("no GPU")
    assert bench.given_up == [server_says("no GPU")]
    assert trials[1].attempts == 1
    assert trials[1].refused
    assert trials[2].state is TrialState.MEASURED


def instances(candidate: Candidate) -> FieldValue:
    return fields_of(candidate).get("instance_group.count")


def test_no_larger_config_is_deployed_after_a_load_timeout_and_its_cure_is_named() -> None:
    space, grid = strategy(StrategyName.GRID, {"instance_group.count": {"int": [1, 6]}})
    cause = server_says("no answer within 120 s")
    slow = failed(ServerHangsError, Reason(ReasonKind.LOAD_TIMEOUT, causes=(cause,)))
    troubles = {c: [slow] * 3 for c in filter(None, space.steps()) if instances(c) == 3}
    bench = EmulatedBench(served, troubles=troubles)
    session, _ = a_search(bench, CANDIDATES)
    session = replace(session, job=replace(session.job, known_space=space))
    trials, _ = search(session, Searcher(space, grid))
    assert [instances(t.candidate) for t in trials] == [1, 2, 3]
    assert {instances(c) for c, _ in bench.deployed} == {1, 2, 3}
    assert remedies(filter(None, [trials[-1].reason])) == [
        "raise server.load_timeout if the model takes longer to load"
    ]


@pytest.mark.parametrize("informative", [True, False])
def test_a_candidate_without_a_result_at_the_load_to_beat_is_measured_from_below(
    informative: bool,
) -> None:
    class Drowning(EmulatedBench):
        def measure(self, level: float, seed: int) -> Point:
            if self.candidate == CANDIDATES[0] and level > 150:
                raise LoadFailedError("no results by the deadline")
            return super().measure(level, seed)

    bench = Drowning(served)
    session, searcher = a_search(bench, [CANDIDATES[5], CANDIDATES[0]], informative=informative)
    trials, _ = searched(session, searcher)
    assert trials[1].state is TrialState.MEASURED
    assert 90 < trials[1].score.value <= 100  # type: ignore[union-attr]
    assert bench.given_up == []


def test_a_trial_whose_server_died_is_repeated_once() -> None:
    troubles: dict[Candidate, list[Exception]] = {CANDIDATES[1]: [ServerGoneError("killed")]}
    session, searcher = a_search(EmulatedBench(served, troubles=troubles), CANDIDATES[:2])
    trials, _ = searched(session, searcher)
    assert trials[1].state is TrialState.MEASURED
    assert trials[1].attempts == 2
    assert trials[1].reason is None


def test_a_server_that_dies_twice_fails_the_trial() -> None:
    deaths: list[Exception] = [ServerGoneError("killed"), ServerGoneError("killed again")]
    session, searcher = a_search(
        EmulatedBench(served, troubles={CANDIDATES[1]: deaths}), CANDIDATES[:2]
    )
    trials, _ = searched(session, searcher)
    assert trials[1].state is TrialState.FAILED
    assert trials[1].reason == said("killed again")


class Loaded:
    """Each instance of what the bench serves takes a sixth of what is free, and 1 byte."""

    def __init__(self, bench: EmulatedBench) -> None:
        self.bench = bench

    def __call__(self) -> dict[str, Memory]:
        instances = fields_of(self.bench.candidate).get("instance_group.count", 1)
        assert isinstance(instances, int)
        return {MACHINE: Memory(instances * 101, 0, 600)}


def test_what_cannot_fit_is_not_tried_and_counts_as_no_failure() -> None:
    bench = EmulatedBench(served)
    session, searcher = a_search(bench, CANDIDATES, trials=4)
    trials, _ = searched(replace(session, memory=Loaded(bench)), searcher)
    assert [t.attempts for t in trials] == [1, 1, 1, 1]
    assert [t.memory[MACHINE].taken_bytes for t in trials] == [101, 202, 303, 404]
    bench = EmulatedBench(served)
    order = [*CANDIDATES[:3], CANDIDATES[5], CANDIDATES[4], CANDIDATES[3]]
    session, searcher = a_search(bench, order, trials=4)
    trials, _ = searched(replace(session, memory=Loaded(bench)), searcher)
    assert [t.attempts for t in trials] == [1, 1, 1, 0, 0, 1], "the budget is of those tried"
    assert trials[3].refused
    assert {c for c, _ in bench.deployed} == {*CANDIDATES[:4]}


def test_first_guess_is_compared_with_the_memory_of_the_current_config() -> None:
    bench = EmulatedBench(served)
    session, searcher = a_search(bench, [CANDIDATES[5], CANDIDATES[0]])
    trials, _ = searched(replace(session, memory=Loaded(bench)), searcher)
    assert [t.attempts for t in trials] == [0, 1]


def test_too_many_failures_end_the_run_with_the_last_reason() -> None:
    troubles: dict[Candidate, list[Exception]] = {
        c: [DeployRefusedError("no GPU")] for c in CANDIDATES[1:]
    }
    session, searcher = a_search(EmulatedBench(served, troubles=troubles), CANDIDATES)
    with pytest.raises(TooManyFailedTrialsError, match="no GPU"):
        searched(session, searcher)
    assert len(searcher.history) >= 5


def test_a_stop_keeps_what_was_finished() -> None:
    calls = 0

    def checkpoint() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise InterruptedRunError("stopped")

    session, searcher = a_search(EmulatedBench(served), CANDIDATES, checkpoint)
    with pytest.raises(InterruptedRunError):
        searched(session, searcher)
    assert len(searcher.history) == 2


@pytest.mark.parametrize("of_spec", [0, 3])
def test_every_config_is_raced_under_the_same_arrivals(of_spec: int) -> None:
    bench = EmulatedBench(served)
    session, searcher = a_search(bench, CANDIDATES)
    spec = session.spec
    seeded = spec.model_copy(update={"search": spec.search.model_copy(update={"seed": of_spec})})
    searched(replace(session, job=replace(session.job, spec=seeded)), searcher)
    assert len(bench.seeds) > len(CANDIDATES)
    assert set(bench.seeds) == {1000 * of_spec + 1}
    assert {seed for seed, _ in bench.looks} == {1000 * of_spec + 1}


def test_unmeasurable_current_config_ends_the_run_with_the_error_of_the_measurement() -> None:
    """No search goes on that would end with the advice to relax an SLO."""
    fails = model_fails("RuntimeError: weights.bin is not there")
    session, searcher = a_search(
        EmulatedBench(served, troubles={CANDIDATES[0]: [fails]}), CANDIDATES
    )
    with pytest.raises(CurrentConfigFailsError, match=r"cannot be measured.*weights\.bin") as ended:
        searched(session, searcher)
    assert "inputs: {kind: file" in ended.value.hint
    assert ended.value.exit_code == 5
    assert len(searcher.history) == 1


@pytest.mark.parametrize(("loaded", "cure"), [("m", "calls: [tokenizer]"), ("tokenizer", "file")])
def test_a_called_model_of_the_repository_that_is_not_loaded_is_named_with_the_cure(
    loaded: str, cure: str
) -> None:
    fails = model_fails("Model 'tokenizer' is not ready.")
    bench = EmulatedBench(served, troubles={CANDIDATES[0]: [fails]})
    session, searcher = a_search(bench, CANDIDATES)
    repository = Path(__file__).parents[3] / "model_repository"
    models: Any = SimpleNamespace(models={"m": SimpleNamespace(name=loaded)})
    spec = session.spec.model_copy(update={"repository": repository})
    job = replace(session.job, spec=spec, known_models=models)
    with pytest.raises(CurrentConfigFailsError) as ended:
        searched(replace(session, job=job), searcher)
    assert cure in ended.value.hint


def test_a_client_that_cannot_send_the_load_to_beat_does_not_fail_the_best_candidate() -> None:
    class Limited(EmulatedBench):
        def measure(self, level: float, seed: int) -> Point:
            if self.candidate == CANDIDATES[5] and level > 250:
                raise ClientLimitError("the load generator could not keep up", sent_per_s=250)
            return super().measure(level, seed)

    session, searcher = a_search(Limited(served), [CANDIDATES[2], CANDIDATES[5]])
    trials, _ = searched(session, searcher)
    assert trials[1].state is TrialState.MEASURED
    assert trials[1].score.value == pytest.approx(225, rel=0.01)  # type: ignore[union-attr]
    assert texts([trials[1].limit])[0].endswith(" 225/s")


class SlowBench(EmulatedBench):
    """Each measurement takes 10 s of a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(served)
        self.now_s = 0.0
        monkeypatch.setattr(measuring.time, "monotonic", lambda: self.now_s)

    def measure(self, level: float, seed: int) -> Point:
        self.now_s += 10.0
        return super().measure(level, seed)


@pytest.mark.parametrize("order", [(0, 5), (5, 0)])
def test_the_time_budget_is_kept_to_within_a_measurement(
    order: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = SlowBench(monkeypatch)
    session, searcher = a_search(bench, [CANDIDATES[n] for n in order], time="15s")
    trials, reason = searched(session, searcher)
    assert reason is StopReason.TIME
    assert bench.now_s <= 15.0 + 2 * 10.0  # the current config's one is owed
    assert all(t.score is not None for t in searcher.history)
    assert CANDIDATES[0] in {t.candidate for t in trials}


def test_the_first_load_counts_against_the_time_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = SlowBench(monkeypatch)
    session, searcher = a_search(bench, CANDIDATES[:4], time="90s")
    trials, reason = searched(replace(session, load_s=80.0), searcher)
    assert reason is StopReason.TIME
    assert [t.candidate for t in trials] == [CANDIDATES[0]]
    assert bench.now_s == 10.0


class Noting(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        self.notes.append(f"trial {number} started")


def test_no_time_for_the_current_config_ends_the_run_and_says_what_to_raise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging(SlowBench):
        def measure(self, level: float, seed: int) -> Point:
            raise OutOfTimeError("the time budget is used up")

    session, searcher = a_search(Hanging(monkeypatch), CANDIDATES, time="15s")
    with pytest.raises(CurrentConfigFailsError) as ended:
        searched(session, searcher)
    assert "budget.time" in ended.value.hint
    assert searcher.history == []


@pytest.mark.parametrize(
    ("order", "measured"), [([0, 1, 2], [0]), ([1, 0, 2], [0, 2])], ids=["after", "before"]
)
def test_a_trial_that_ran_out_of_time_leaves_nothing_behind_and_ends_the_search(
    order: list[int], measured: list[int]
) -> None:
    """Or else each further one is proposed and given up; the current config is owed a result."""

    class Late(EmulatedBench):
        def measure(self, level: float, seed: int) -> Point:
            if self.candidate == CANDIDATES[1]:
                raise OutOfTimeError("the time budget is used up")
            return super().measure(level, seed)

    bench, watched = Late(served), Noting()
    session, searcher = a_search(bench, [CANDIDATES[n] for n in order])
    trials, reason = searched(replace(session, events=watched), searcher)
    assert [t.candidate for t in searcher.history] == [CANDIDATES[n] for n in measured]
    assert trials == searcher.history
    assert len(bench.given_up) == 1
    abandoned = f"Time budget reached; trial {order.index(1)} abandoned."
    last = order[0] == 0  # said with the reason, once
    assert (abandoned in watched.notes) is not last
    assert (reason is StopReason.ABANDONED) is last
    if last:
        assert reason.value.format(number=len(trials)) == abandoned


@pytest.mark.parametrize(
    ("error", "too_large"),
    [
        (ClientLimitError("the load generator could not keep up"), False),
        (LoadFailedError("perf_analyzer ended with exit code 3"), False),
        (ServerGoneError("killed"), False),
        (failed(ServerGoneError, server_says("CUDA out of memory")), True),
    ],
)
def test_only_what_a_larger_config_would_share_counts_as_refused(
    error: TrialError, too_large: bool
) -> None:
    troubles = {CANDIDATES[1]: [error, error]}
    session, searcher = a_search(EmulatedBench(served, troubles=troubles), CANDIDATES[:2])  # type: ignore[arg-type]
    searched(session, searcher)
    assert searcher.history[1].state is TrialState.FAILED
    assert searcher.history[1].refused is too_large
    assert Trial.from_json(searcher.history[1].to_json()) == searcher.history[1]


def test_death_of_a_server_is_reported_with_the_number_of_the_trial() -> None:
    troubles: dict[Candidate, list[Exception]] = {CANDIDATES[1]: [ServerGoneError("killed")]}
    watched = Noting()
    session, searcher = a_search(EmulatedBench(served, troubles=troubles), CANDIDATES[:2])
    searched(replace(session, events=watched), searcher)
    assert "trial 1: killed" in watched.notes
    assert [t.number for t in searcher.history] == [0, 1]
    assert searcher.history[0].attempts == 1
    assert all(t.started_at for t in searcher.history)
    assert {t.deployment for t in searcher.history} == {"in place"}


def test_a_closed_loops_race_is_about_throughput_not_about_clients() -> None:
    """The second sustains fewer clients and answers them 42 % more."""
    clients = {
        CANDIDATES[0]: (64, 1684.0),
        CANDIDATES[1]: (59, 2394.0),
        CANDIDATES[2]: (40, 1500.0),
    }

    class Closed(EmulatedBench):
        def reading(self, level: float, seed: int) -> Measurement:
            most, rate = clients[self.candidate]
            p99_us, served = 40e3 * (level / most) ** 2, rate * min(level / most, 1.05)
            return synthetic_measurement(level, p99_us, served=served, arrivals=Arrivals.CLOSED)

    session, searcher = a_search(Closed(served, arrivals=Arrivals.CLOSED), CANDIDATES[:3])
    plan = LoadPlan(Arrivals.CLOSED, None, LevelRange(1, 256, integer=True))
    trials, _ = searched(replace(session, job=replace(session.job, plan=plan)), searcher)
    assert [t.state for t in trials] == [
        TrialState.MEASURED,
        TrialState.MEASURED,
        TrialState.PRUNED,
    ]
    best = trials[1].score
    assert best is not None
    assert best.value == pytest.approx(2394.0, rel=0.05)
    assert trials[1].points[0].measurement.load.level == trials[0].sustained_level


def test_an_slo_out_of_reach_ends_the_search_soon() -> None:
    slo = "p99_latency <= 1us"
    bench = EmulatedBench(served, slos=(Slo.parse(slo),))
    session, searcher = a_search(bench, CANDIDATES, slo=slo)
    trials, reason = searched(session, searcher)
    assert reason is StopReason.OUT_OF_REACH
    assert len(trials) == 2
    assert len(bench.loads) == 2


def test_an_slo_below_what_one_request_takes_ends_the_search_after_one_measurement() -> None:
    slo = "p99_latency <= 1us"
    bench = EmulatedBench(served, slos=(Slo.parse(slo),))
    session, searcher = a_search(bench, [*reversed(CANDIDATES)], slo=slo)
    session.job.space.only_schedules = True  # type: ignore[misc]
    trials, reason = searched(session, searcher)
    assert reason is StopReason.OUT_OF_REACH
    assert len(trials) == len(bench.loads) == 1
    verdict = proof.prove(session, trials)
    assert verdict.status is Status.INFEASIBLE
    assert texts(verdict.why)[0].startswith("one request at a time takes ")
    assert len(bench.loads) == 1


@pytest.mark.parametrize("delay_us", [0, 14_000])
def test_a_queue_delay_is_nothing_that_every_config_takes(delay_us: int) -> None:
    """A request by itself waits for all of it, and one with another config does not."""
    bound = Slo.parse("p99_latency <= 4ms")
    measured = synthetic_measurement(10.0, 20e3, served=10.0)  # a median of 15 ms
    point = judge_point((bound,), measured)
    trial = Trial(0, CANDIDATES[0], TrialState.MEASURED, (point,))
    space: Any = SimpleNamespace(only_schedules=True, queue_delay_us=lambda _: delay_us)
    assert bool(lone_miss([trial], [bound], space)) is (delay_us == 0)
    space.only_schedules = False
    assert lone_miss([trial], [bound], space) is None


def test_search_proposes_no_trial_beyond_the_budget() -> None:
    """A strategy may take seconds to choose."""
    session, searcher = a_search(EmulatedBench(served), CANDIDATES, trials=2)
    trial_counts, propose = [], searcher.next

    def propose_and_count() -> Proposal | None:
        trial_counts.append(len(searcher.history))
        return propose()

    searcher.next = propose_and_count  # type: ignore[method-assign]
    searched(session, searcher)
    assert trial_counts == [0, 1]


def raced(gain: float, luck: int, near_miss: float, noise: float = 0.01) -> list[Trial]:
    """The current config, then one that is better by ``gain``, on servers of some noise."""
    capacity = {CANDIDATES[0]: 100.0, CANDIDATES[1]: 100.0 * (1.0 + gain)}
    bench = EmulatedBench(capacity, noise=noise, seed=luck, weather=0.0)
    session, searcher = a_search(bench, CANDIDATES[:2])
    return searched(replace(session, near_miss=near_miss), searcher)[0]


def discarded(gain: float, near_miss: float) -> int:
    """Of 40 searches those after which the other config does not seem better."""
    searches = (raced(gain, luck, near_miss) for luck in range(40))
    return sum(t[1].state is TrialState.PRUNED and not near_misses(t, near_miss) for t in searches)


def test_a_config_that_is_three_percent_better_is_hardly_ever_discarded_by_one_race() -> None:
    assert discarded(0.03, near_miss=0.0) >= 4  # without a second measurement
    assert discarded(0.03, near_miss=NEAR_MISS) <= 1
    assert discarded(-0.05, near_miss=NEAR_MISS) >= 39


def test_near_miss_is_measured_again_at_the_load_of_the_incumbent_under_other_arrivals() -> None:
    capacity = {CANDIDATES[0]: 100.0, CANDIDATES[1]: 100.0}
    bench = EmulatedBench(capacity, weather=0.0)
    session, searcher = a_search(bench, CANDIDATES[:2])
    first, second = searched(session, searcher)[0]
    sustained = first.sustained_level
    assert sustained is not None
    race, again = second.points
    assert not race.passed
    assert race.measurement.load.level == pytest.approx(sustained * 1.02, rel=1e-3)
    assert again.measurement.load.level == sustained
    assert [race.measurement.seed, again.measurement.seed] == [1, 2]
    assert second.state is TrialState.MEASURED  # it sustained it
    assert second.score is not None
    assert second.score.value == sustained


def test_a_config_far_from_the_load_to_beat_is_measured_once() -> None:
    trials = raced(-0.05, 0, NEAR_MISS, noise=0.0)
    assert trials[1].state is TrialState.PRUNED
    assert len(trials[1].points) == 1


def test_what_the_load_generator_can_send_bounds_every_later_load_and_makes_equals() -> None:
    bench = EmulatedBench(lambda _: 5000.0, sends=600.0)
    session, searcher = a_search(bench, CANDIDATES[1:4])
    trials, _ = searched(session, searcher)
    beyond = [a.candidate for a in bench.loads if a.level > 600.0]
    assert set(beyond) <= {trials[0].candidate}  # the first one finds it out
    assert len({t.score.value for t in trials if t.score is not None}) == 1
    assert all(text.endswith(" 540/s") for text in texts(t.limit for t in trials))
