"""One long load: whether a claim holds, and what is claimed where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders.candidates import candidate_of
from builders.emulated import FreshBench, a_session
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement
from builders.proving import CURRENT, OTHER, spec_of, trial
from builders.soaking import Lasting, told

from tuner.confirm.confirm import Entrant, Rules, confirm
from tuner.confirm.rounds import Row
from tuner.confirm.soak import MOST, RELAXATIONS, SoakRules, claim_window_s, soak
from tuner.confirm.stored import ResumedBench
from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.measurement.measurement import Arrivals, Course, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.programs.run.outcome import Verdict
from tuner.programs.run.prove import prove
from tuner.run.confirmation import LoadCurve, Role, Soak, Soaked
from tuner.score.capacity import LevelRange
from tuner.score.judge import passes
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.metrics import THROUGHPUT
from tuner.spec.slo import Goal, Objective, Slo
from tuner.steps.session import curve_window

WINNER = candidate_of({"instance_group.count": 2})
SEARCHED = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))
#: Loads after which a claim is given up.
FARTHEST = pytest.approx([100.0, 100.0 / 1.16, 100.0 / 1.16 / 1.32], rel=1e-4)


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
    """Answers every soak with what ``found`` gives for its level."""

    def __init__(
        self, found: Callable[[float], Measurement], arrivals: Arrivals = Arrivals.POISSON
    ) -> None:
        super().__init__({WINNER: 100.0}, arrivals=arrivals)
        self.found = found
        self.asked_s: list[float] = []

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.asked_s.append(least_s)
        self.soaks.append(self._asked(level, seed))
        return judge_point(self.slos, replace(self.found(level), seed=seed))


class Script(LongLoads):
    """Each soak of a queue that saturates at 300/s, unless something else is to happen first."""

    def __init__(self, *happenings: Exception) -> None:
        super().__init__(lambda level: queue_at(level, 300.0))
        self.happenings = list(happenings)

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        if self.happenings:
            self.asked_s.append(least_s)
            self.soaks.append(self._asked(level, seed))
            raise self.happenings.pop(0)
        return super().soak(level, seed, least_s)


def soaked(
    bench: FreshBench, level: float, plan: LoadPlan = SEARCHED, at_most: int = MOST
) -> tuple[Soak, list[Row], list[str]]:
    rows: list[Row] = []
    told: list[str] = []
    rules = SoakRules(
        slos=bench.slos,
        plan=plan,
        seed=7,
        usual_s=30.0,
        least_s=12.0,
        record=rows.append,
        told=told.append,
    )
    return soak(bench, WINNER, level, rules, at_most=at_most), rows, told


def test_a_claim_that_holds_is_soaked_once_on_a_fresh_server_and_told() -> None:
    bench = LongLoads(lambda level: queue_at(level, 300.0))
    found, rows, told = soaked(bench, 225.0)
    assert found.held.level == 225.0
    assert bench.deployed == [(WINNER, True)]
    assert [(r.role, r.candidate, r.point.measurement) for r in rows] == [
        (Role.SOAK, WINNER, found.held.measurement)
    ]
    late = found.held.late
    assert told == [f"225/s for 30 s: {late.text}, p99 {told[0].split('p99 ')[1]}"]
    assert late.share < 0.01


def test_a_soak_that_shows_a_longer_memory_than_the_rounds_did_is_made_again_for_longer() -> None:
    remembering = Course(growth=0.0, growth_error=0.1, relaxation_s=0.5)
    bench = LongLoads(lambda level: replace(queue_at(level, 300.0), course=remembering))
    found, _, told = soaked(bench, 225.0)
    assert found.held.level == 225.0
    assert bench.asked_s == [12.0, 0.5 * RELAXATIONS]
    assert told[1] == "latency recovers slowly after busy periods: repeated for 100 s"
    compared = LongLoads(bench.found)
    soaked(compared, 225.0, at_most=1)
    assert compared.asked_s == [12.0]


def test_a_soak_that_cannot_be_any_longer_is_not_made_again() -> None:
    remembering = Course(growth=0.0, growth_error=0.1, relaxation_s=5.0)
    bench = LongLoads(lambda level: replace(queue_at(level, 300.0, 120.0), course=remembering))
    found, _, _ = soaked(bench, 225.0)
    assert found.held is not None
    assert bench.asked_s == [12.0]


def test_a_claim_that_short_windows_overstate_is_lowered_to_one_that_holds() -> None:
    bench = LongLoads(lambda level: queue_at(level, 300.0))
    found, rows, told = soaked(bench, 262.0)
    assert not found.tried[0].held
    assert 262.0 / 1.16 <= found.held.level < 262.0
    assert found.held.late.share <= 0.01
    assert (
        [a.level for a in bench.soaks]
        == [s.level for s in found.tried]
        == [r.point.measurement.load.level for r in rows]
    )
    assert "; misses p99_latency <= 40ms" in told[0]
    assert [a.seed for a in bench.soaks] == [7, 8]  # no luck is shared
    assert len({a.server for a in bench.soaks}) == len(bench.soaks)


def test_a_claim_above_saturation_is_lowered_below_what_was_answered() -> None:
    found, _, _ = soaked(LongLoads(lambda level: queue_at(level, 300.0)), 330.0)
    assert found.tried[1].level == pytest.approx(0.95 * 300.0)


def test_the_tail_is_taken_to_rise_steeply_near_saturation() -> None:
    """A stress of 1.2 lowers the claim by 6 %: not by the 17 % of a flat tail."""
    late = LongLoads(lambda level: synthetic_measurement(level, 48e3 * (level / 100.0) ** 6))
    found, _, _ = soaked(late, 100.0)
    assert found.held.level == pytest.approx(100.0 * 1.2 ** (-1 / 3), rel=1e-3)


def test_a_claim_that_misses_twice_is_lowered_by_twice_as_much() -> None:
    late = LongLoads(lambda level: synthetic_measurement(level, 40e3 * (level / 90.0) ** 2))
    found, _, _ = soaked(late, 100.0)
    second = 100.0 * (100 / 90) ** (-2 / 3)
    assert [s.level for s in found.tried] == pytest.approx([100, second, second / 1.08], rel=1e-3)
    assert found.held is not None


def test_an_unsteady_soak_does_not_hold_however_low_its_latency() -> None:
    def growing(level: float) -> Measurement:
        answered = synthetic_measurement(level, 20e3, served=0.9 * level, count=round(27 * level))
        return replace(answered, duration_s=30.0, due_per_s=level)

    found, _, told = soaked(LongLoads(growing), 100.0)
    assert found.held is None
    assert len(found.tried) == MOST
    assert all("p99_latency <= 40ms: not steady" in sentence for sentence in told)
    levels = [s.level for s in found.tried]
    assert levels == sorted(levels, reverse=True)


def test_a_claim_that_never_holds_is_not_lowered_for_ever() -> None:
    found, rows, _ = soaked(LongLoads(lambda level: synthetic_measurement(level, 4e6)), 100.0)
    assert found.held is None
    assert [s.level for s in found.tried] == FARTHEST
    assert len(rows) == MOST


def test_of_listed_loads_the_next_lower_one_is_tried() -> None:
    plan = LoadPlan(Arrivals.POISSON, (100.0, 200.0, 290.0), SEARCHED.levels)
    found, _, _ = soaked(LongLoads(lambda level: queue_at(level, 280.0)), 290.0, plan)
    assert [s.level for s in found.tried] == [290.0, 200.0]
    assert found.held is not None


def test_below_the_lowest_listed_load_there_is_none() -> None:
    plan = LoadPlan(Arrivals.POISSON, (290.0,), SEARCHED.levels)
    found, _, _ = soaked(LongLoads(lambda level: queue_at(level, 280.0)), 290.0, plan)
    assert found.held is None
    assert len(found.tried) == 1


def test_a_closed_loop_is_lowered_by_a_client_at_least_and_has_no_late_share() -> None:
    def clients(level: float) -> Measurement:
        p99_us = 40.1e3 if level > 8 else 30e3
        return synthetic_measurement(level, p99_us, served=80.0, arrivals=Arrivals.CLOSED)

    plan = LoadPlan(Arrivals.CLOSED, None, LevelRange(1.0, 1024.0, whole=True))
    found, _, told = soaked(LongLoads(clients, Arrivals.CLOSED), 9.0, plan)
    assert [s.level for s in found.tried] == [9.0, 8.0]
    assert found.held.late is None
    assert told[-1] == "8 concurrent for 3 s: p99 30 ms"


def test_a_load_that_the_generator_cannot_keep_up_with_is_lowered() -> None:
    """A server that uses all the CPU leaves its client none: that load does not hold."""
    found, rows, told = soaked(Script(ClientLimitError("too fast")), 225.0)
    assert found.held.level == pytest.approx(225.0 / 1.16, rel=1e-4)
    assert (found.limited, found.failures) == (("too fast",), ("too fast",))
    assert list(found.sentences) == told == ["too fast", found.held.sentence]
    assert len(rows) == 1


def test_where_the_generator_keeps_up_with_no_load_none_holds() -> None:
    """Each is put on for longer: long busy periods are rare, or the rounds had met them."""
    bench = Script(*[ClientLimitError(f"too fast {i}") for i in range(MOST)])
    found, rows, _ = soaked(bench, 100.0)
    assert (found.tried, found.held, found.reason) == ((), None, "")
    assert found.failures == ("too fast 0", "too fast 1", "too fast 2")
    assert [a.level for a in bench.soaks] == FARTHEST
    assert bench.asked_s == [12.0, 60.0, 120.0]
    assert len(bench.deployed) == MOST
    assert rows == []


def test_a_miss_and_a_load_that_the_generator_cannot_keep_up_with_are_lowered_in_turn() -> None:
    """A run lost its winner to two loads of five minutes each that its client fell behind in."""

    class Starved(Script):
        def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
            if len(self.soaks) == 1:
                self.happenings = [ClientLimitError("too fast")]
            return super().soak(level, seed, least_s)

    bench = Starved()
    found, _, told = soaked(bench, 295.0)
    missed, limited, held = told
    assert "; misses p99_latency <= 40ms" in missed
    assert limited == "too fast"
    assert held == found.held.sentence
    first, second, third = (a.level for a in bench.soaks)
    assert (first, third) == (295.0, pytest.approx(second / 1.32, rel=1e-3))
    assert 250.0 < second < 290.0
    assert found.failures == (missed, limited)
    assert list(found.sentences) == told


@pytest.mark.parametrize(("p99_ms", "second_s"), [(200.0, 60.0), (50.0, 2.0 * RELAXATIONS)])
def test_what_a_queue_far_above_its_bound_remembers_lengthens_no_lower_load(
    p99_ms: float, second_s: float
) -> None:
    """One that missed it closely does: the lower load is near it as well."""

    def found_at(level: float) -> Measurement:
        if level < 100.0:
            return synthetic_measurement(level, 30e3)
        remembering = Course(growth=0.0, growth_error=0.1, relaxation_s=2.0)
        return replace(synthetic_measurement(level, 1e3 * p99_ms), course=remembering)

    bench = LongLoads(found_at)
    found, _, _ = soaked(bench, 100.0)
    assert found.held is not None
    assert bench.asked_s == [12.0, second_s]


def test_what_held_only_until_it_was_put_on_for_longer_is_no_claim() -> None:
    class Starved(LongLoads):
        def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
            if least_s > 12.0 and level > 200.0:
                raise ClientLimitError("too fast")
            return super().soak(level, seed, least_s)

    remembering = Course(growth=0.0, growth_error=0.1, relaxation_s=0.5)
    bench = Starved(lambda level: replace(queue_at(level, 300.0), course=remembering))
    found, rows, _ = soaked(bench, 225.0)
    assert [s.level for s in found.tried] == [pytest.approx(225.0 / 1.16, rel=1e-4)]
    assert found.limited == ("too fast",)
    assert [(r.order, r.point.level) for r in rows] == [(0, 225.0), (1, found.held.level)]


STOLEN = "The hypervisor gave 12.0% of the machine's CPU to other guests meanwhile."


def missed_beside(disturbance: str, p99_ms: float = 41.0, late: float = 0.02) -> Soak:
    """Soaks that all miss, on a disturbed machine."""

    def found_at(level: float) -> Measurement:
        by_arrival = np.full(1000, 1e4)
        by_arrival[: round(1000 * late)] = 1e3 * p99_ms
        made = synthetic_measurement(level, 1e3 * p99_ms)
        return replace(made, by_arrival_us=by_arrival, disturbances=(disturbance,))

    return soaked(LongLoads(found_at), 100.0)[0]


def test_of_a_config_that_narrowly_misses_on_a_disturbed_machine_nothing_is_known() -> None:
    found = missed_beside(STOLEN)
    assert found.held is None
    assert found.reason == f"it missed an SLO on a disturbed machine: {STOLEN[:-1]}"
    assert len(found.tried) == MOST  # each stays in the result, with its reason
    assert all(f"not judged: {STOLEN[:-1]}" in s.sentence for s in found.tried)


def test_a_miss_by_far_counts_whatever_ran_beside_it() -> None:
    found = missed_beside(STOLEN, late=0.06)
    assert (found.held, found.reason) == (None, "")
    assert not any(s.excuse for s in found.tried)


def test_what_holds_on_a_disturbed_machine_holds() -> None:
    spoilt = LongLoads(lambda level: replace(queue_at(level, 300.0), disturbances=(STOLEN,)))
    found, _, _ = soaked(spoilt, 225.0)
    assert found.held is not None
    lowered, _, _ = soaked(spoilt, 330.0)  # a server that cannot answer what is sent has missed
    assert not lowered.tried[0].excuse


def test_a_config_is_credited_with_less_than_what_held() -> None:
    found, _, _ = soaked(LongLoads(lambda level: queue_at(level, 300.0)), 225.0)
    careful = replace(found, headroom=0.03)
    assert careful.credited_per_s == pytest.approx(0.97 * 225.0)
    assert careful.sentences[-1].endswith("; credited with 218.2/s")
    assert found.credited_per_s == pytest.approx(225.0)


def test_a_load_without_a_result_is_put_on_it_once_more() -> None:
    bench = Script(LoadFailedError("no export"))
    found, _, _ = soaked(bench, 225.0)
    assert found.held is not None
    assert [a.server for a in bench.soaks] == [1, 2]


@pytest.mark.parametrize(
    "happenings",
    [(LoadFailedError("no export"), LoadFailedError("again")), (ModelFailsError("it failed 3"),)],
)
def test_a_config_that_gives_no_result_for_long_is_not_proved(
    happenings: tuple[TrialError, ...],
) -> None:
    with pytest.raises(LoadFailedError, match=happenings[-1].message):
        soaked(Script(*happenings), 225.0)


def test_refused_requests_are_late() -> None:
    measurement = replace(queue_at(225.0, 300.0), failed_count=144)
    by_arrival = measurement.by_arrival_us
    by_arrival[::50] = np.inf
    found, _, told = soaked(LongLoads(lambda _: measurement), 225.0)
    late = found.tried[0].late
    assert late.share >= 0.02
    assert NO_ERRORS.expression in told[0]


def test_it_survives_a_file() -> None:
    found, _, _ = soaked(Script(ClientLimitError("too fast")), 225.0)
    assert len(found.sentences) > 1
    again = Soak.from_json(found.to_json())
    assert again.sentences == found.sentences
    assert passes(again.held.point.slo)
    data = again.held.to_json()
    assert Soaked.from_json({**data, "late": None}).late is None


def searched(power: float, relaxation_s: float, *levels: float) -> list[Point]:
    """A server that sustains 100/s, and whose p99 rises with that power of the load."""
    course = Course(growth=0.0, growth_error=0.1, relaxation_s=relaxation_s)
    found = [synthetic_measurement(v, 40e3 * (v / 100.0) ** power) for v in levels]
    return [judge_point([P99_40MS], replace(m, course=course)) for m in found]


def test_a_queue_that_remembers_long_gets_long_windows_and_a_steep_one_short_ones() -> None:
    slow = claim_window_s(searched(5.0, 0.2, 96, 104), [P99_40MS])
    assert slow == pytest.approx(2 * 0.2 * (2.16 / (0.08 * 5.0)) ** 2, rel=0.01)
    assert claim_window_s(searched(5.0, 0.1, 96, 104), [P99_40MS]) == pytest.approx(slow / 2)
    assert claim_window_s(searched(10.0, 0.2, 98, 102), [P99_40MS]) == pytest.approx(slow / 4)


def test_where_the_search_does_not_tell_no_window_is_longer() -> None:
    assert claim_window_s(searched(5.0, 0.2, 96), [P99_40MS]) == 0.0  # no slope
    assert claim_window_s(searched(5.0, 0.2, 20, 30), [P99_40MS]) == 0.0  # far from the bound
    throughput = Slo(THROUGHPUT, 10.0, "throughput >= 10/s")
    assert claim_window_s(searched(5.0, 0.2, 96, 104), [throughput]) == 0.0
    older = [replace(p.measurement, course=None) for p in searched(5.0, 0.2, 96, 104)]
    assert claim_window_s([judge_point([P99_40MS], m) for m in older], [P99_40MS]) == 0.0


class Windows(FreshBench):
    """Keeps how long each config was measured."""

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.lengths: dict[Candidate, set[float]] = getattr(self, "lengths", {})
        self.lengths.setdefault(self.candidate, set()).add(least_s)
        return super().measure(level, seed)


@pytest.mark.parametrize("soaked", [False, True])
@pytest.mark.parametrize(("current", "own_s"), [(300.0, 9.0), (100.0, 0.0)])
def test_configs_that_are_compared_closely_have_one_window(
    current: float, own_s: float, soaked: bool
) -> None:
    """One that sustains a third of the other's load has no claim that would need its window, and
    that of the other is soaked.
    """
    bench = Windows({CURRENT: current, OTHER: 320.0})
    rules = Rules(
        Objective(Goal.MAXIMIZE_GOODPUT),
        LevelRange(1, 1e5),
        3,
        0.02,
        500_000,
        lambda _: None,
        soaked=soaked,
    )
    sides = Entrant(CURRENT, current, window_s=9.0), Entrant(OTHER, 320.0, window_s=4.0)
    confirm(bench, sides[0], [sides[1]], rules)
    assert bench.lengths == {CURRENT: {own_s}, OTHER: {own_s or (0.0 if soaked else 4.0)}}


class Curved(Lasting):
    """``trouble_at``: the share of the last soak at which a short load gives no result."""

    def __init__(self, trouble_at: float = 9.0, **changes: Any) -> None:
        super().__init__(spec_of(**changes), {CURRENT: 100.0, OTHER: 1000.0}, {})
        self.trouble_at, self.failing = trouble_at, LoadFailedError("no export.")

    def once(self, level: float, seed: int, window: Window) -> Point:
        if self.soaks and level > self.trouble_at * self.soaks[-1].level:
            raise self.failing
        return super().once(level, seed, window)


def curve_of(verdict: Verdict) -> LoadCurve | None:
    return verdict.winner.soak.curve


def test_five_loads_around_the_credited_one_go_to_the_server_that_was_soaked() -> None:
    bench = Curved()
    verdict, watching, rows = told(bench)
    curve = curve_of(verdict)
    credited = 0.97 * bench.soaks[-1].level
    assert [p.level for p in curve.points] == pytest.approx(
        [share * credited for share in (0.7, 0.8, 0.9, 1.0, 1.05)]
    )
    assert {a.server for a in bench.short} == {bench.soaks[-1].server}
    assert len({a.seed for a in bench.short}) == 1
    assert bench.short[0].seed not in {*bench.seeds, bench.soaks[-1].seed}
    easy = [p for p in curve.points if p.measurement.p99_latency_us <= 0.8 * 40e3]
    assert easy
    said = f"at {easy[-1].level:.4g}/s its p99_latency is still within 80% of the SLO"
    assert [n for n in watching.notes if n.startswith("load curve")] == [f"load curve: {said}"]
    assert [r.point.level for r in rows if r.role is Role.CURVE] == [a.level for a in bench.short]
    soak = verdict.winner.soak if verdict.winner else None
    kept = Soak.from_json(soak.to_json()).curve
    assert kept.sentence == said


@pytest.mark.parametrize("trouble", [LoadFailedError("no export."), ClientLimitError("no export.")])
def test_a_load_without_a_result_is_left_out_with_its_reason(trouble: TrialError) -> None:
    bench = Curved(trouble_at=0.95)
    bench.failing = trouble
    verdict, _, _ = told(bench)
    curve = curve_of(verdict)
    assert len(curve.points) == 3
    assert curve.left_out == (f"{0.97 * bench.soaks[-1].level:.4g}/s and above (no export)",)
    assert curve.sentence.endswith("; left out: " + curve.left_out[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": {"arrivals": {"kind": "poisson", "rate": [90, 900]}}},
        {"confirm": {"soak": 0}},
    ],
)
def test_where_no_capacity_was_searched_or_nothing_was_soaked_there_is_none(
    changes: dict[str, Any],
) -> None:
    bench = Curved(**changes)
    verdict, watching, _ = told(bench)
    assert bench.short == []
    soak = verdict.winner.soak
    assert soak is None or "curve" not in soak.to_json()
    assert not any("curve" in note for note in watching.notes)


@pytest.mark.parametrize(
    ("slo", "rate", "fits"), [("40ms", 97, True), ("40ms", 95, False), ("2s", 97, False)]
)
def test_five_seconds_are_never_exceeded(slo: str, rate: float, fits: bool) -> None:
    """Whatever the spec's own window: where a verdict needs longer, the load is left out."""
    spec = spec_of(slo=[f"p99_latency <= {slo}"], workload={"window": "30s", "warmup": "20s"})
    window = curve_window(spec, LoadPoint(Arrivals.POISSON, rate))
    assert (window.duration_s <= 5.0) is fits
    if fits:
        assert window.total_s < 7.0
        assert not window.ends_early  # above the claim an SLO is missed, and by how much is asked


def test_all_loads_of_a_slow_model_are_left_out_in_one_sentence() -> None:
    bench = Curved(slo=["p99_latency <= 2s"])
    curve = curve_of(told(bench)[0])
    assert (bench.short, curve.points) == ([], ())
    assert curve.sentence.startswith("left out: ")
    assert curve.sentence.endswith("(5 s are too short for a verdict)")


def test_a_resumed_run_measures_only_the_loads_that_are_missing() -> None:
    rows: list[Row] = told(Curved())[2]
    kept = [r.kept for r in rows][:-2]
    assert [r.role for r in kept[-4:]] == [Role.SOAK, Role.CURVE, Role.CURVE, Role.CURVE]
    again, new = Curved(), list[Row]()
    resumed = ResumedBench(again, kept, new.append, lambda _: None)
    session = a_session(resumed, again.spec, CURRENT, record=resumed.record)
    searched = trial(again, 0, CURRENT, 98, 110), trial(again, 1, OTHER, 980, 1100)
    whole = prove(session, searched)
    assert (len(again.asked), again.soaks, len(again.short)) == (0, [], 2)
    curve = curve_of(whole)
    assert len(curve.points) == 5
    assert [r.role for r in new] == [Role.CURVE, Role.CURVE]
