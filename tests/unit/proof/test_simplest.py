"""The simplest config that is as good: what makes no difference is undone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from builders.candidates import candidate_of, fields_of
from builders.emulated import FreshBench, a_session
from builders.measurements import synthetic_measurement
from builders.proving import COUNT, ProvingBench, lost_at, result, searched, spec_of
from builders.reasons import texts
from builders.spaces import space_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.measurement.measurement import Arrivals, Measurement
from tuner.proof import proof
from tuner.proof.contender import Contender, measure_round
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.simplest import Simplest, simplest
from tuner.proof.soak import first_level
from tuner.record.confirmation import ChangeUndone, Repeat, Role
from tuner.record.result_schema import RunDecision
from tuner.record.status import Status
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.metrics import P99_LATENCY
from tuner.spec.slo import Goal, Objective

BATCHING = "dynamic_batching"
DELAY = "dynamic_batching.max_queue_delay_microseconds"
ENABLE = "response_cache.enable"
CURRENT = candidate_of({COUNT: 1, BATCHING: None, ENABLE: None})
BEST = candidate_of({COUNT: 2, BATCHING: True, DELAY: 500, ENABLE: True}, 1024)
MIB = 1 << 20
SIZES = tuple(MIB << n for n in range(7))  # 1 to 64 MiB
SEARCHED = LoadPlan(Arrivals.POISSON, None, LevelRange(1, 1e5))
Capacity = Callable[[Candidate], float]


def rules_of(plan: LoadPlan = SEARCHED, objective: Objective | None = None) -> ProofRules:
    return ProofRules(objective or Objective.goodput(), (), plan, spec_of().confirm, 7)


def tried_on(
    capacity: Capacity | FreshBench,
    best: Candidate = BEST,
    current: Candidate = CURRENT,
    rules: ProofRules | None = None,
    level: float | None = None,
    alike: Callable[[Candidate, Candidate], bool] = lambda one, other: one == other,
    refused: Callable[[Candidate], bool] = lambda _: False,
    leaves: Callable[[Candidate], bool] = lambda _: True,
    **more: Any,
) -> tuple[Simplest, FreshBench, list[Repeat]]:
    """What is left of ``best``, which had one round; ``refused``: what Triton would not load;
    ``leaves``: what the spec lets a candidate leave out."""
    bench = capacity if isinstance(capacity, FreshBench) else FreshBench(capacity, weather=0.0)
    rules, rows = rules or rules_of(), list[Repeat]()
    measured = MeasuredOnce(bench, rows.append)
    winner = Contender(Entrant(best, level or bench.capacity_of(best)))
    measure_round(measured, winner, rules, 0, Role.CANDIDATE)
    rows.clear()
    bench.loads.clear()
    violations = lambda c: [c] if refused(c) else []  # noqa: E731
    space: Any = SimpleNamespace(alike=alike, violations=violations, leaves=leaves)
    at = first_level(winner, rules)
    return simplest(measured, winner, current, at, rules, space, **more), bench, rows


def undone_by_field(left: Simplest) -> dict[str, ChangeUndone]:
    return {p.field: p for p in left.undone}


def by(factors: Mapping[str, float], capacity: float = 1000.0) -> Capacity:
    """Each field that is not as in the current config multiplies the capacity by its factor."""

    def of(candidate: Candidate) -> float:
        changed = [p for p in factors if fields_of(candidate).get(p) != fields_of(CURRENT).get(p)]
        return capacity * math.prod(factors[p] for p in changed)

    return of


FACTORS = st.dictionaries(
    st.sampled_from("abcde"), st.sampled_from([1.0, 1.0, 1.01, 1.3, 3.0]), min_size=1
)


@settings(deadline=None)
@given(FACTORS)
def test_what_is_left_is_as_good_and_each_change_was_measured_once_at_the_most(
    factors: dict[str, float],
) -> None:
    """Whatever each change of a winner is worth."""
    current, best = (candidate_of(dict.fromkeys(factors, value)) for value in (1, 2))

    def capacity(candidate: Candidate) -> float:
        changed = (factors[p] for p, v in fields_of(candidate).items() if v == 2)
        return 1000.0 * math.prod(changed)

    left, bench, rows = tried_on(capacity, best, current)
    assert left.candidate != current
    assert all(capacity(left.candidate) >= a.level for a in bench.loads)
    assert len(bench.loads) == len(rows) == len(left.undone) <= len(factors)
    assert len({(a.level, a.seed) for a in bench.loads}) <= 1
    assert {r.role for r in rows} <= {Role.SIMPLER}
    kept = {p.field: p.kept for p in left.undone}
    assert all(kept[p] for p in kept if factors[p] >= 1.3)
    spared = len(fields_of(left.candidate)) - list(fields_of(left.candidate).values()).count(1)
    assert spared == 1 or not any(kept[p] for p in kept if factors[p] == 1.0)


def test_what_is_left_has_itself_been_measured() -> None:
    """Either of two changes may go, and not both."""
    current, best = candidate_of({"a": 1, "b": 1, "c": 1}), candidate_of({"a": 2, "b": 2, "c": 2})

    def capacity(candidate: Candidate) -> float:
        fields = fields_of(candidate)
        return 1000.0 if fields["c"] == 2 and 2 in (fields["a"], fields["b"]) else 100.0

    left, bench, _ = tried_on(capacity, best, current)
    assert left.candidate == candidate_of({"a": 1, "b": 2, "c": 2})
    assert left.candidate in {a.candidate for a in bench.loads}
    assert left.winner == best


def test_what_triton_assumes_anyway_goes_without_being_measured() -> None:
    """A delay of 0 that is written out and none at all are one config."""

    def alike(one: Candidate, other: Candidate) -> bool:
        return {p: v or None for p, v in fields_of(one).items()} == {
            p: v or None for p, v in fields_of(other).items()
        }

    spelled = candidate_of({COUNT: 2, BATCHING: True, DELAY: 0, ENABLE: None})
    for late in (False, True):
        left, bench, _ = tried_on(
            by({COUNT: 1.5, BATCHING: 8.0}), spelled, alike=alike, leave_out=lambda late=late: late
        )
        assert fields_of(left.candidate)[DELAY] is None
        assert set(undone_by_field(left)) == (set() if late else {COUNT, BATCHING})
        assert not any(fields_of(a.candidate).get(DELAY) == 0 for a in bench.loads)


def test_a_field_inside_an_absent_message_goes_with_it() -> None:
    left, _, _ = tried_on(lambda c: 1000.0 if c.cache_bytes else 100.0)
    assert fields_of(left.candidate).get(DELAY) is None
    assert fields_of(left.candidate)[BATCHING] is None
    assert left.candidate.cache_bytes == BEST.cache_bytes


def test_of_several_models_the_changes_of_each_are_undone_one_by_one() -> None:
    fields = {COUNT: 1, BATCHING: None, DELAY: None}
    current = Candidate.of_models({"head": fields, "tiny-bert": fields})
    changed = {COUNT: 2, BATCHING: True, DELAY: 500}
    best = Candidate.of_models({"head": changed, "tiny-bert": changed})

    def capacity(candidate: Candidate) -> float:
        return 1000.0 if candidate.of("tiny-bert").get(BATCHING) else 100.0

    left, _, _ = tried_on(capacity, best, current)
    kept = {BATCHING: True, COUNT: 1, DELAY: None}
    assert left.candidate.models == {"head": {BATCHING: None, COUNT: 1}, "tiny-bert": kept}
    assert undone_by_field(left)["tiny-bert/dynamic_batching"].kept
    assert not undone_by_field(left)["head/dynamic_batching"].kept


def test_a_config_that_cannot_be_served_is_no_simplification() -> None:
    left, _, _ = tried_on(FreshBench({CURRENT: 500.0, BEST: 1000.0}))
    assert left.candidate == BEST
    assert len(left.undone) == 4
    assert all(p.kept and p.without_change is None and p.difference is None for p in left.undone)


def test_a_simpler_config_that_is_expected_to_sustain_far_less_is_not_measured() -> None:
    current, best = candidate_of({"a": 1, "b": 1, "c": 1}), candidate_of({"a": 2, "b": 2, "c": 2})
    left, bench, _ = tried_on(
        by({"a": 3.0}), best, current, loses=lambda c: fields_of(c).get("a") == 1
    )
    assert fields_of(left.candidate) == {"a": 2, "b": 1, "c": 1}
    assert len(bench.loads) == 2


def test_what_the_spec_leaves_no_choice_about_stays_without_being_measured() -> None:
    """A queue policy that changes nothing below the capacity, and is wanted all the same."""
    timeout = "dynamic_batching.default_queue_policy.default_timeout_microseconds"
    current = candidate_of({COUNT: 1, timeout: None})
    best = candidate_of({COUNT: 2, timeout: 50_000})
    fields = {COUNT: {"int": [1, 4]}, timeout: {"choice": [50_000]}}
    space = space_of(fields, 'name: "m" max_batch_size: 8 dynamic_batching {}')
    left, bench, _ = tried_on(lambda _: 1000.0, best, current, leaves=space.leaves)
    assert left.candidate == candidate_of({COUNT: 1, timeout: 50_000})
    assert [a.candidate for a in bench.loads] == [left.candidate]


def test_a_config_that_triton_would_not_load_is_not_tried() -> None:
    def refused(candidate: Candidate) -> bool:
        return fields_of(candidate)[COUNT] == 1

    left, bench, _ = tried_on(lambda _: 1000.0, refused=refused)
    assert fields_of(left.candidate)[COUNT] == 2
    assert not any(refused(a.candidate) for a in bench.loads)


@pytest.mark.parametrize(
    "best",
    [
        candidate_of({COUNT: 2, BATCHING: None, ENABLE: None}),
        candidate_of({COUNT: 1, BATCHING: None, ENABLE: True}, MIB),
    ],
)
def test_the_current_config_itself_is_never_the_simpler_winner(best: Candidate) -> None:
    left, _, _ = tried_on(lambda _: 1000.0, best)
    assert left.candidate == best


def test_of_a_minimised_metric_small_losses_of_several_changes_do_not_add_up() -> None:
    class Slower(FreshBench):
        """Each change undone costs 1.5 % of a latency that is minimised."""

        def reading(self, level: float, seed: int) -> Measurement:
            undone = sum(fields_of(self.candidate)[name] != 9 for name in "abc")
            return synthetic_measurement(level, 20e3 * 1.015**undone)

    objective = Objective(Goal.MINIMIZE, P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
    rules = rules_of(LoadPlan(Arrivals.POISSON, (300.0,), LevelRange(1, 1e5)), objective)
    current, best = candidate_of(dict.fromkeys("abc", 1)), candidate_of(dict.fromkeys("abc", 9))
    left, _, _ = tried_on(Slower(lambda _: 300.0), best, current, rules, level=300.0)
    assert [p.kept for p in left.undone] == [False, True, True]
    assert undone_by_field(left)["a"].with_change == pytest.approx(20e3)
    assert undone_by_field(left)["b"].difference == pytest.approx(0.03 * 20e3, rel=0.02)


def test_a_closed_loop_is_compared_by_what_it_serves() -> None:
    class Closed(FreshBench):
        def reading(self, level: float, seed: int) -> Measurement:
            return synthetic_measurement(
                level, 40e3 * level / 64.0, served=10 * self.serves, arrivals=Arrivals.CLOSED
            )

    rules = rules_of(LoadPlan(Arrivals.CLOSED, None, LevelRange(1, 512, True)))
    best = candidate_of({COUNT: 2, BATCHING: True, ENABLE: None})
    bench = Closed(by({COUNT: 1.0, BATCHING: 4.0}, 16), weather=0.0, arrivals=Arrivals.CLOSED)
    left, bench, _ = tried_on(bench, best, rules=rules, level=60.0)  # type: ignore[assignment]
    assert left.candidate == candidate_of({COUNT: 1, BATCHING: True, ENABLE: None})
    assert all(a.level == round(a.level) for a in bench.loads)


# -- the response cache


def with_cache(size: int | None, **fields: FieldValue) -> Candidate:
    return candidate_of({COUNT: 1, **fields, ENABLE: True if size else None}, size)


@pytest.mark.parametrize("enough", SIZES)
def test_the_smallest_cache_that_serves_as_much_is_chosen(enough: int) -> None:
    left, bench, rows = tried_on(
        lambda c: 1000.0 if (c.cache_bytes or 0) >= enough else 700.0,
        with_cache(SIZES[-1]),
        sizes=SIZES,
    )
    assert left.candidate.cache_bytes == enough
    assert fields_of(left.candidate)[ENABLE] is True
    assert len(bench.loads) == len(rows) <= 1 + 3
    first = left.undone[0]
    assert (first.field, first.kept) == ("response_cache.size off", True)


def test_a_cache_that_brings_nothing_goes() -> None:
    left, _, _ = tried_on(lambda _: 1000.0, with_cache(MIB, **{BATCHING: True}), sizes=SIZES)
    assert left.candidate.cache_bytes is None
    assert fields_of(left.candidate)[ENABLE] is None


def test_a_cache_that_only_the_current_config_has_comes_back_where_that_is_as_good() -> None:
    current = with_cache(SIZES[0])
    for without, kept in ((1000.0, False), (2000.0, True)):
        left, _, _ = tried_on(
            lambda c, w=without: 1000.0 if c.cache_bytes else w,
            with_cache(None, **{COUNT: 2}),
            current,
            sizes=SIZES,
        )
        assert undone_by_field(left)["server arguments"].kept is kept


# -- what the proof makes of it

COUNTED = candidate_of({COUNT: 1})
BOTH, SIMPLER = (candidate_of({COUNT: 2, "max_batch_size": size}) for size in (8, None))
OTHERWISE = candidate_of({COUNT: 1, "max_batch_size": 8})


def proved(
    shares: Mapping[Candidate, float] | None = None,
    current: float = 400.0,
    answers: Mapping[Candidate, float] | None = None,
    **changes: Any,
) -> tuple[ProvingBench, RunDecision]:
    capacity = {COUNTED: current, BOTH: 1000.0, SIMPLER: 1000.0, OTHERWISE: current}
    bench = ProvingBench(spec_of(**changes), capacity, shares, weather=0.0)
    bench.answer = answers or {}
    session = a_session(bench, bench.spec, COUNTED)
    return bench, proof.prove(session, searched(bench, COUNTED, BOTH))


@pytest.mark.parametrize("current", [100.0, 400.0])
def test_simplest_config_is_soaked_written_and_reported_with_its_least_gain(
    current: float,
) -> None:
    bench, verdict = proved(current=current)
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.winner.candidate == SIMPLER
    assert [c for c, _ in bench.soaked] == [SIMPLER]
    assert verdict.gain is not None
    assert verdict.gain.ratio.low < 1000.0 / current
    assert [(p.field, p.kept) for p in verdict.simplification] == [
        ("instance_group.count", True),
        ("max_batch_size", False),
    ]
    result(bench, verdict)


@pytest.mark.parametrize("accepted", [{}, {SIMPLER: 2.0}])
def test_where_the_simpler_config_does_not_last_the_winner_itself_is_soaked(
    accepted: Mapping[Candidate, float],
) -> None:
    """Or where it answers something else: all that is asked of a config is asked of the other."""
    bench, verdict = proved({} if accepted else {SIMPLER: 0.1}, answers=accepted)
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.winner.candidate == BOTH
    assert bench.soaked[-1][0] == BOTH
    assert all(p.kept for p in verdict.simplification)
    assert any("all of its changes stay" in text for text in texts(verdict.why))
    assert any("max batch 8: " in text for text in texts(verdict.why))


def test_a_simpler_config_is_credited_with_no_lower_load_than_the_winner_might_sustain() -> None:
    bench, verdict = proved({SIMPLER: 0.8})
    assert verdict.winner is not None
    assert verdict.winner.candidate == BOTH
    (_, simpler), (_, winner) = bench.soaked
    assert simpler == winner


def test_of_a_small_gain_nothing_is_undone() -> None:
    _, verdict = proved(current=930.0)
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.winner.candidate == BOTH
    assert verdict.simplification is None
    assert not any("Left out" in text for text in texts(verdict.why))


def test_simplification_is_skipped_with_a_note_once_time_is_up() -> None:
    bench, verdict = proved(confirm={"time": 0.001})
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.winner.candidate == BOTH
    assert (len(verdict.winner.rounds), len(bench.soaks)) == (3, 1)
    assert "undoing changes" in texts(verdict.why)[-1]


def test_a_simpler_config_that_the_search_saw_saturated_below_the_load_is_not_measured() -> None:
    capacity = {COUNTED: 400.0, BOTH: 1000.0, SIMPLER: 1000.0, OTHERWISE: 400.0}
    bench = ProvingBench(spec_of(), capacity, weather=0.0)
    trials = [*searched(bench, COUNTED, BOTH), lost_at(bench, 2, OTHERWISE, 1020.0)]
    verdict = proof.prove(a_session(bench, bench.spec, COUNTED), trials)
    assert verdict.simplification is not None
    assert [p.field for p in verdict.simplification] == ["max_batch_size"]
    assert not bench.measured(OTHERWISE)
