"""One long load: whether a claim holds, what is claimed where it does not, and what is written.

What is told of a proof in which none holds is in `golden/messages/proofs-hindered.txt`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from builders.candidates import candidate_of
from builders.emulated import FreshBench
from builders.events import Watching
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement
from builders.messages_proofs import STOLEN, Late, Robbed
from builders.proving import CURRENT, OTHER, ProvingBench, prove, result, spec_of
from builders.reasons import texts
from builders.truths import Truth, truth
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import (
    ClientLimitError,
    InterruptedRunError,
    LoadFailedError,
    ModelFailsError,
    TrialError,
)
from tuner.machine.cpus import Cores
from tuner.measurement.host_use import MemoryTrend
from tuner.measurement.measurement import Arrivals, Course, Measurement
from tuner.proof.contender import Contender, Round
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.next_soak import likely_capacity
from tuner.proof.soak import MOST_SOAKS, RELAXATIONS, first_level, soak
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Repeat, Role, Soak, Soaked
from tuner.record.remedies import remedies
from tuner.record.status import Status
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point, judge_point
from tuner.spec.slo import Objective

WINNER = candidate_of({"instance_group.count": 2})
SEARCHED = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))


def queue_at(level: float, saturation: float, seconds: float = 30.0) -> Measurement:
    """A single server of constant service time (Lindley's recursion), from an empty queue."""
    rng = np.random.default_rng(11)
    count = round(level * seconds)
    steps = 1.0 / saturation - rng.exponential(1.0, count) / level
    walk = np.cumsum(steps) - steps[0]
    by_arrival = (walk - np.minimum.accumulate(walk) + 1.0 / saturation) * 1e6
    ascending = np.sort(by_arrival)
    made = synthetic_measurement(level, float(np.quantile(ascending, 0.99)), count=count)
    answered = min(level, saturation)
    return replace(
        made,
        duration_s=seconds,
        throughput_infer_per_s=answered,
        completed_count=round(answered * seconds),
        due_per_s=level,
        latencies_us=ascending,
        by_arrival_us=by_arrival,
    )


class LongLoads(FreshBench):
    """Answers every soak with what ``reading`` gives for its level, after the ``troubles``."""

    def __init__(
        self,
        reading: Callable[[float], Measurement] = lambda level: queue_at(level, 300.0),
        *troubles: Exception,
        arrivals: Arrivals = Arrivals.POISSON,
    ) -> None:
        super().__init__({WINNER: 100.0}, arrivals=arrivals)
        self.reading, self.in_the_way = reading, list(troubles)
        self.least_s: list[float] = []

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.least_s.append(least_s)
        self.soaks.append(self._load(level, seed))
        if self.in_the_way:
            raise self.in_the_way.pop(0)
        return judge_point(self.slos, replace(self.reading(level), seed=seed))


def rounds_of(*points: Point, level: float = 100.0) -> Contender:
    """Of a config, one round with these points, if any."""
    return Contender(Entrant(WINNER, level), [Round(points)] if points else [])


def soaked(
    bench: FreshBench,
    level: float,
    plan: LoadPlan = SEARCHED,
    rounds: Contender | None = None,
    *,
    shared: bool = False,
    **more: Any,
) -> tuple[Soak, list[Repeat], list[str]]:
    rows: list[Repeat] = []
    notes: list[str] = []
    goal, slos = Objective.goodput(), tuple(bench.slos)
    rules = ProofRules(goal, slos, plan, spec_of().confirm, 7, shared_soak=shared)
    measured = MeasuredOnce(bench, rows.append)
    outcome = soak(measured, WINNER, rounds or rounds_of(), level, rules, notes.append, **more)
    return outcome, rows, notes


# -- one soak and lower ones


def test_sustained_claim_is_soaked_once_on_a_fresh_server_and_reported() -> None:
    bench = LongLoads()
    outcome, rows, notes = soaked(bench, 225.0)
    assert outcome.sustained is not None
    assert (outcome.sustained.level, len(bench.soaks)) == (225.0, 1)
    assert bench.deployed == [(WINNER, True)]
    assert [(r.role, r.candidate_key, r.point.measurement) for r in rows] == [
        (Role.SOAK, WINNER.key, outcome.sustained.measurement)
    ]
    assert outcome.sustained.late is not None
    assert notes == [outcome.tried[0].sentence]


@pytest.mark.parametrize("level", [262.0, 295.0, 330.0])
def test_a_claim_that_short_windows_overstate_is_lowered_to_one_that_holds(level: float) -> None:
    bench = LongLoads()
    outcome, rows, notes = soaked(bench, level)
    assert not outcome.tried[0].sustained
    assert outcome.sustained is not None
    assert outcome.sustained.late is not None
    assert outcome.sustained.late.share <= 0.01
    levels = [a.level for a in bench.soaks]
    assert levels == [r.point.level for r in rows]
    assert descent(levels) == sorted(set(descent(levels)), reverse=True)
    assert sorted(notes) == sorted(tried.sentence for tried in outcome.tried)
    assert len({a.seed for a in bench.soaks}) == len(levels)  # no luck is shared
    assert len({a.server for a in bench.soaks}) == len(levels)


@settings(deadline=None)
@given(truth(slope=st.floats(3.0, 16.0)), st.floats(0.3, 1.3))
def test_however_little_lasts_no_more_than_that_is_claimed_after_three_loads(
    made: Truth, share: float
) -> None:
    capacity = made.capacities[0]
    lasting = share * capacity

    def measured_at(level: float) -> Measurement:
        used = min((level / lasting) ** made.slope, 100.0)
        return synthetic_measurement(level, 40e3 * used, served=min(level, 1.05 * lasting))

    bench, claimed = LongLoads(measured_at), SEARCHED.levels.nearest(0.93 * capacity)
    outcome, rows, _ = soaked(bench, claimed, rounds=near(capacity))
    levels = [a.level for a in bench.soaks]
    down = descent(levels)
    assert down == sorted(set(down), reverse=True)
    assert levels[0] == claimed
    assert len(rows) == len({a.seed for a in bench.soaks}) == len({a.server for a in bench.soaks})
    assert len(down) <= MOST_SOAKS
    lasts = [level <= lasting for level in down]
    assert lasts == [False] * (len(lasts) - 1) + [outcome.sustained is not None]
    if outcome.sustained is not None:
        assert outcome.sustained.level == max(level for level in levels if level <= lasting)
        assert outcome.credited_level is not None
        assert outcome.credited_level <= 0.97 * outcome.sustained.level * (1.0 + 1e-9)


def descent(levels: list[float]) -> list[float]:
    """The loads down to the lowest; at most one between that and a missed one comes after it."""
    lowest = levels.index(min(levels)) + 1
    assert len(levels) - lowest <= 1
    assert all(min(levels) < level < max(levels) for level in levels[lowest:])
    return levels[:lowest]


def near_miss_above(lasting: float) -> Callable[[float], Measurement]:
    """Answers everything, and misses its SLO by little above a load, however far above that is."""

    def measured_at(level: float) -> Measurement:
        return synthetic_measurement(level, 46e3 if level > lasting else 30e3)

    return measured_at


@pytest.mark.parametrize("share", [0.9, 0.6, 0.3])
def test_soak_goes_down_until_a_load_holds(share: float) -> None:
    bench = LongLoads(near_miss_above(share * 1361.0))
    outcome, _, _ = soaked(bench, 1361.0, rounds=near(1411.0), least=174.0)
    assert outcome.sustained is not None
    assert outcome.sustained.level <= share * 1361.0
    levels = descent([a.level for a in bench.soaks])
    assert all(b <= 0.751 * a for a, b in pairwise(levels[2:]))


def test_soak_goes_down_by_a_quarter_at_once_where_rounds_had_other_cpus() -> None:
    bench = LongLoads(near_miss_above(800.0))
    soaks, _, _ = soaked(bench, 1361.0, rounds=near(1411.0), least=174.0, shared=True)
    levels = descent([a.level for a in bench.soaks])
    assert all(b <= 0.751 * a for a, b in pairwise(levels))
    assert soaks.sustained is not None
    assert len(levels) == 3


@pytest.mark.parametrize(("lasting", "credited"), [(800.0, 765.0), (1000.0, 890.0)])
def test_load_half_way_to_the_miss_is_soaked_once_and_the_highest_sustained_counts(
    lasting: float, credited: float
) -> None:
    bench = LongLoads(near_miss_above(lasting))
    outcome, _, _ = soaked(bench, 1361.0, rounds=near(1411.0), shared=True)
    levels = [a.level for a in bench.soaks]
    assert levels[-1] == pytest.approx(math.sqrt(levels[-2] * levels[-3]), rel=0.01)
    assert outcome.sustained is not None
    assert outcome.tried[-1] == outcome.sustained
    assert outcome.sustained.level == pytest.approx(credited, rel=0.01)
    assert {s.level for s in outcome.tried} == {*levels}


def test_load_half_way_without_a_result_keeps_the_sustained_load() -> None:
    class Fails(LongLoads):
        def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
            if self.soaks and level > self.soaks[-1].level:
                raise ModelFailsError("out of memory")
            return super().soak(level, seed, least_s)

    outcome, _, notes = soaked(
        Fails(near_miss_above(800.0)), 1361.0, rounds=near(1411.0), shared=True
    )
    assert outcome.sustained is not None
    assert not outcome.lost
    assert notes[-1] == "out of memory"


def test_rounds_that_the_miss_contradicts_no_longer_count_for_the_next_load() -> None:
    """A p99 of twice its bound at a load that the rounds surely sustained."""

    def measured_at(level: float) -> Measurement:
        return synthetic_measurement(level, 40e3 * (level / 1000.0) ** 3.0)

    bench = LongLoads(measured_at)
    soaked(bench, 1300.0, rounds=near(1400.0))
    first, second = (a.level for a in bench.soaks)
    assert first == 1300.0
    assert 940.0 < second <= 1000.0


def test_no_load_is_soaked_that_is_no_gain() -> None:
    bench = LongLoads(near_miss_above(10.0))
    outcome, _, _ = soaked(bench, 1361.0, rounds=near(1411.0), least=500.0)
    assert outcome.sustained is None
    levels = [s.level for s in outcome.tried]
    assert levels[-1] == 500.0  # the least that is one was tried
    assert min(levels) == 500.0


@pytest.mark.parametrize(("late", "count"), [(True, 3), (False, MOST_SOAKS)])
def test_no_further_load_is_soaked_when_time_is_over(late: bool, count: int) -> None:
    bench = LongLoads(near_miss_above(1.0))
    outcome, _, _ = soaked(bench, 1361.0, rounds=near(1411.0), is_late=lambda: late)
    assert (len(outcome.tried), outcome.sustained) == (count, None)


def unsteady(level: float) -> Measurement:
    answered = synthetic_measurement(level, 20e3, served=0.9 * level, count=round(27 * level))
    return replace(answered, duration_s=30.0, due_per_s=level)


@pytest.mark.parametrize(
    ("listed", "tried", "holds"),
    [((100.0, 200.0, 290.0), [290.0, 200.0], True), ((290.0,), [290.0], False)],
)
def test_of_listed_loads_the_next_lower_one_is_tried(
    listed: tuple[float, ...], tried: list[float], holds: bool
) -> None:
    plan = LoadPlan(Arrivals.POISSON, listed, SEARCHED.levels)
    outcome, _, _ = soaked(LongLoads(lambda level: queue_at(level, 280.0)), 290.0, plan)
    assert [s.level for s in outcome.tried] == tried
    assert (outcome.sustained is not None) is holds
    assert outcome.headroom == 0.0  # loads are as listed


def test_a_closed_loop_is_lowered_by_a_client_at_least_and_has_no_late_share() -> None:
    def clients(level: float) -> Measurement:
        p99_us = 40.1e3 if level > 8 else 30e3
        return synthetic_measurement(level, p99_us, served=80.0, arrivals=Arrivals.CLOSED)

    plan = LoadPlan(Arrivals.CLOSED, None, LevelRange(1.0, 1024.0, integer=True))
    outcome, _, notes = soaked(LongLoads(clients, arrivals=Arrivals.CLOSED), 9.0, plan)
    assert [s.level for s in outcome.tried] == [9.0, 8.0]
    assert outcome.sustained is not None
    assert (outcome.sustained.late, outcome.headroom) == (None, 0.0)
    assert notes[-1] == outcome.sustained.sentence


def test_a_load_that_the_generator_cannot_keep_up_with_is_lowered() -> None:
    """A server that uses all the CPU leaves its client none: that load does not hold."""
    outcome, rows, notes = soaked(
        LongLoads(lambda level: queue_at(level, 300.0), ClientLimitError("too fast")), 225.0
    )
    assert outcome.sustained is not None
    assert outcome.sustained.level < 225.0
    assert (outcome.limited, texts(outcome.failures)) == (("too fast",), ["too fast"])
    assert notes == ["too fast", outcome.sustained.sentence]
    assert len(rows) == 1


def test_where_the_generator_keeps_up_with_no_load_none_holds() -> None:
    troubles = [ClientLimitError(f"too fast {i}") for i in range(MOST_SOAKS)]
    bench = LongLoads(unsteady, *troubles)
    outcome, rows, _ = soaked(bench, 100.0)
    assert (outcome.tried, outcome.sustained, outcome.reason, rows) == ((), None, "", [])
    assert texts(outcome.failures) == [f"too fast {i}" for i in range(MOST_SOAKS)]


def test_a_load_without_a_result_is_put_on_it_once_more() -> None:
    bench = LongLoads(lambda level: queue_at(level, 300.0), LoadFailedError("no export"))
    outcome, _, _ = soaked(bench, 225.0)
    assert outcome.sustained is not None
    assert [(a.level, a.server) for a in bench.soaks] == [(225.0, 1), (225.0, 2)]


@pytest.mark.parametrize(
    "troubles",
    [(LoadFailedError("no export"), LoadFailedError("again")), (ModelFailsError("it failed 3"),)],
)
def test_a_config_that_gives_no_result_for_long_is_not_proved(
    troubles: tuple[TrialError, ...],
) -> None:
    with pytest.raises(LoadFailedError, match=troubles[-1].message):
        soaked(LongLoads(unsteady, *troubles), 225.0)


# -- how long


def remembering(level: float, p99_us: float, relaxation_s: float) -> Measurement:
    course = Course(growth=0.0, growth_error=0.1, relaxation_s=relaxation_s)
    return replace(synthetic_measurement(level, p99_us), course=course)


def test_how_long_a_soak_lasts_follows_from_what_the_rounds_remembered() -> None:
    bench = LongLoads()
    at = judge_point([P99_40MS], remembering(100.0, 38e3, 0.5))
    soaked(bench, 225.0, rounds=rounds_of(at))
    assert bench.least_s == [RELAXATIONS * 0.5]


def test_sustained_soak_is_not_repeated_for_longer() -> None:
    bench = LongLoads(lambda level: remembering(level, 30e3, 5.0))
    outcome, _, _ = soaked(bench, 100.0)
    assert outcome.sustained is not None
    assert bench.least_s == [0.0]


@pytest.mark.parametrize("p99_ms", [200.0, 50.0])
def test_what_a_queue_above_its_bound_remembers_lengthens_no_lower_load(p99_ms: float) -> None:
    """A queue remembers for longer, the nearer it is to its capacity."""
    bench = LongLoads(
        lambda level: remembering(level, 30e3 if level < 100.0 else 1e3 * p99_ms, 2.0)
    )
    outcome, _, _ = soaked(bench, 100.0)
    assert outcome.sustained is not None
    assert bench.least_s == [0.0, 0.0]


# -- a disturbed machine


def missed_beside(late: float, duration_s: float = 30.0) -> Soak:
    """Soaks that all miss, on a disturbed machine."""

    def measured_at(level: float) -> Measurement:
        by_arrival = np.full(1000, 1e4)
        by_arrival[: round(1000 * late)] = 41e3
        made = synthetic_measurement(level, 41e3, duration_s=duration_s)
        return replace(made, by_arrival_us=by_arrival, disturbances=(Reason.of_text(STOLEN),))

    return soaked(LongLoads(measured_at), 100.0)[0]


def test_of_a_config_that_narrowly_misses_on_a_disturbed_machine_nothing_is_known() -> None:
    outcome = missed_beside(late=0.02)
    assert outcome.sustained is None
    assert outcome.reason.endswith(f": {STOLEN[:-1]}")
    assert all(f"not judged: {STOLEN[:-1]}" in s.sentence for s in outcome.tried)


def test_a_miss_by_far_counts_whatever_ran_beside_it() -> None:
    outcome = missed_beside(late=0.06)
    assert (outcome.sustained, outcome.reason) == (None, "")


def test_miss_that_ended_early_is_far_only_by_the_requests_of_the_full_soak() -> None:
    """The rest of them might have been in time."""
    assert missed_beside(late=0.06, duration_s=10.0).reason.endswith(f": {STOLEN[:-1]}")
    assert missed_beside(late=0.16, duration_s=10.0).reason == ""


def test_what_holds_on_a_disturbed_machine_holds() -> None:
    spoilt = LongLoads(
        lambda level: replace(queue_at(level, 300.0), disturbances=(Reason.of_text(STOLEN),))
    )
    assert soaked(spoilt, 225.0)[0].sustained is not None
    lowered, _, _ = soaked(spoilt, 330.0)  # a server that cannot answer what is sent has missed
    assert not lowered.tried[0].excuse


# -- what is credited


def near(capacity: float) -> Contender:
    """Rounds that show this capacity."""
    at = [synthetic_measurement(s * capacity, 40e3 * s**6) for s in (0.96, 1.04)]
    return rounds_of(*(judge_point([P99_40MS], m) for m in at))


def test_a_config_is_credited_with_no_more_than_rounds_and_soak_surely_show() -> None:
    headroom = float(spec_of().confirm.headroom)
    credited = []
    for capacity in (400.0, 260.0, 240.0):
        outcome, _, _ = soaked(LongLoads(), 225.0, rounds=near(capacity))
        assert outcome.credited_level is not None
        assert outcome.credited_level <= (1.0 - headroom) * 225.0 * (1.0 + 1e-9)
        credited.append(outcome.credited_level)
    assert credited == sorted(credited, reverse=True)
    assert credited[0] == pytest.approx((1.0 - headroom) * 225.0)


def test_likely_capacity_is_that_of_rounds_and_soaks_without_what_a_credit_leaves_out() -> None:
    outcome, _, _ = soaked(LongLoads(), 225.0, rounds=near(240.0))
    assert outcome.sustained is not None
    likely = likely_capacity(outcome, near(240.0))
    assert likely is not None
    assert 225.0 <= likely <= 245.0
    assert outcome.credited_level is not None
    assert likely > outcome.credited_level
    lowered, _, _ = soaked(
        LongLoads(lambda level: queue_at(level, 260.0)), 255.0, rounds=near(400.0)
    )
    assert lowered.sustained is not None
    assert not lowered.tried[0].sustained
    bounded = likely_capacity(lowered, near(400.0))
    assert bounded is not None
    assert lowered.sustained.level <= bounded <= 255.0
    assert likely_capacity(None, near(240.0)) is None
    assert likely_capacity(outcome, rounds_of()) is None


def test_fewer_independent_requests_are_credited_with_less() -> None:
    credited = []
    for seconds in (30.0, 3.0, 1.0):
        outcome, _, _ = soaked(
            LongLoads(lambda level, s=seconds: queue_at(level, 260.0, s)),  # type: ignore[misc]
            225.0,
            rounds=near(235.0),
        )
        credited.append(outcome.credited_level or 0.0)
    assert credited == sorted(credited, reverse=True)
    assert credited[-1] < credited[0]


def test_credited_load_survives_a_file_and_is_reported() -> None:
    outcome, _, _ = soaked(
        LongLoads(lambda level: queue_at(level, 300.0), ClientLimitError("too fast")), 225.0
    )
    again = Soak.from_json(outcome.to_json())
    assert again.sentences == outcome.sentences
    assert len(outcome.sentences) == 2
    assert "; credited with " in outcome.sentences[-1]
    assert again.sustained is not None
    assert again.sustained.point.passed
    assert Soaked.from_json({**again.sustained.to_json(), "late": None}).late is None


def test_refused_requests_are_late() -> None:
    measurement = replace(queue_at(225.0, 300.0), failed_count=144)
    by_arrival = measurement.by_arrival_us
    assert by_arrival is not None
    by_arrival[::50] = np.inf
    outcome, _, notes = soaked(LongLoads(lambda _: measurement), 225.0)
    late = outcome.tried[0].late
    assert late is not None
    assert late.share >= 0.02
    assert NO_ERRORS.expression in notes[0]


def test_the_first_load_is_below_the_mean_capacity_or_as_listed() -> None:
    listed = LoadPlan(Arrivals.POISSON, (96.0, 200.0), SEARCHED.levels)
    rules = ProofRules(Objective.goodput(), (P99_40MS,), SEARCHED, spec_of().confirm, 7)
    assert 85.0 < first_level(near(100.0), rules) < 100.0
    assert first_level(near(100.0), replace(rules, plan=listed)) == 96.0


# -- what the proof makes of it


def gains(other: float, lasting: float, current: float = 500.0, **changes: Any) -> ProvingBench:
    return ProvingBench(
        spec_of(**changes), {CURRENT: current, OTHER: other}, {OTHER: lasting}, weather=0.0
    )


def test_written_config_is_credited_with_the_sustained_load() -> None:
    bench, watching, rows = gains(1000.0, 0.85), Watching(), list[Repeat]()
    verdict = prove(bench, events=watching, record=rows.append)
    assert verdict.status is Status.IMPROVED
    (first, claimed), (second, sustained) = bench.soaked
    assert (first, second) == (OTHER, OTHER)
    assert sustained < claimed < 1000.0
    stored = result(bench, verdict)
    assert stored.winner is not None
    assert stored.winner.credited_infer_per_s is not None
    assert stored.winner.credited_infer_per_s <= 0.97 * sustained * 1.001
    assert stored.gain is not None
    assert stored.gain.ratio.estimate == pytest.approx(2 * sustained / claimed, rel=0.02)
    soaks = [note for note in watching.notes if note.startswith("soak: ")]
    assert len(soaks) == 2
    assert soaks[0].startswith(f"soak: {claimed:.4g}/s ")
    assert any(f"{sustained:.4g}/s" in text for text in texts(verdict.why))
    assert [r.candidate_key for r in rows if r.role is Role.SOAK] == [OTHER.key, OTHER.key]


def test_current_config_is_soaked_at_the_likely_capacity_of_the_winner_less_the_least_gain() -> (
    None
):
    """At the winner's credit, which leaves out a share of both, a gain of 6% was refused."""
    bench = gains(530.0, 1.0)
    verdict = prove(bench)
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.baseline is not None
    credited = verdict.winner.credited_infer_per_s
    assert credited is not None
    (first, claimed), (second, missed) = bench.soaked
    assert (first, second) == (OTHER, CURRENT)
    assert credited < claimed < missed < 530.0 / 1.02
    at_most = verdict.baseline.at_most_infer_per_s
    assert at_most is not None
    assert 1.02 * at_most == pytest.approx(credited, rel=0.001)


@pytest.mark.parametrize("gain", [1.0, 1.005])
def test_config_that_is_no_better_is_not_written_for_the_likely_capacity(gain: float) -> None:
    assert prove(gains(500.0 * gain, 1.0)).status is Status.KEPT


@pytest.mark.parametrize(
    ("listed", "status"), [([90, 500, 900], Status.IMPROVED), ([90, 900], Status.NOT_KNOWN)]
)
def test_a_listed_load_is_lowered_to_the_next_and_must_still_be_a_gain(
    listed: list[float], status: Status
) -> None:
    """The current config sustains 90/s too."""
    arrivals = {"arrivals": {"kind": "poisson", "rate": listed}}
    verdict = prove(gains(1000.0, 0.7, current=100.0, workload=arrivals))
    assert verdict.status is status
    assert verdict.winner is None or verdict.winner.sustained.level == 500.0  # type: ignore[union-attr]


@pytest.mark.parametrize("accepted", [False, True])
def test_a_config_that_sustains_nothing_for_long_is_not_written(accepted: bool) -> None:
    bench = Late(spec_of(), {CURRENT: 500.0, OTHER: 1000.0})
    verdict = prove(bench, accept_unsoaked=accepted)
    assert verdict.status is Status.NOT_KNOWN
    assert "4,000 ms" in texts(verdict.why)[-1]
    assert 2 <= len(bench.soaks) <= MOST_SOAKS
    assert min(a.level for a in bench.soaks) < 500.0  # the current config's own capacity


@pytest.mark.parametrize("accepted", [False, True])
def test_what_no_soak_could_judge_is_written_only_where_that_is_accepted(accepted: bool) -> None:
    bench = Robbed(spec_of(), {CURRENT: 500.0, OTHER: 1000.0})
    verdict = prove(bench, accept_unsoaked=accepted)
    assert verdict.status is (Status.IMPROVED if accepted else Status.NOT_KNOWN)
    assert any(text.endswith(STOLEN[:-1]) for text in texts(verdict.why))
    result(bench, verdict)


def test_a_config_that_starves_its_client_at_every_load_is_not_written() -> None:
    trouble = ClientLimitError("the load generator could not keep up")
    verdict = prove(ProvingBench(spec_of(), {CURRENT: 500.0, OTHER: 1000.0}, trouble=trouble))
    assert verdict.status is Status.NOT_KNOWN
    assert f"not sustained in the soak: {trouble.message}; " in texts(verdict.why)[-1]


def test_memory_that_grows_through_the_soak_of_the_winner_is_in_the_verdict() -> None:
    grown = MemoryTrend(500e6, 80e6, 1e6, 40e6, 1e6)

    class Leaking(ProvingBench):
        def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
            point = super().soak(level, seed, least_s)
            host = replace(point.measurement.host, memory=grown)
            return replace(point, measurement=replace(point.measurement, host=host))

    verdict = prove(Leaking(spec_of(), {CURRENT: 500.0, OTHER: 1000.0}))
    assert verdict.status is Status.IMPROVED
    assert ReasonKind.MEMORY_GROWS in [reason.kind for reason in verdict.why]
    assert any("confirm.soak" in advice for advice in remedies(verdict.why))


def test_a_stop_in_the_soak_ends_the_proof() -> None:
    trouble = InterruptedRunError("interrupted")
    with pytest.raises(InterruptedRunError):
        prove(ProvingBench(spec_of(), {CURRENT: 500.0, OTHER: 1000.0}, trouble=trouble))


def test_soak_is_on_a_server_that_is_started_as_its_users_start_it() -> None:
    bench = gains(1000.0, 1.0)
    assert prove(bench).status is Status.IMPROVED
    assert bench.in_production == [bench.soaks[0].candidate]


def test_no_soak_is_made_where_the_spec_wants_none() -> None:
    bench = gains(1000.0, 0.5, confirm={"soak": 0})
    verdict = prove(bench)
    assert verdict.status is Status.IMPROVED
    assert bench.soaks == []
    assert verdict.winner is not None
    assert verdict.winner.soak is None
    assert bench.in_production == []


def test_verdict_says_that_the_server_had_fewer_cpus_than_in_production() -> None:
    split = Cores((0, 1, 2), (3,), of=4)
    assert split.shortage in prove(gains(1000.0, 1.0), cores=split).why
    assert split.shortage not in prove(gains(1000.0, 1.0)).why
