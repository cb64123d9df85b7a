from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from builders.candidates import candidate_of, fields_of
from builders.emulated import FreshBench
from builders.measurements import SERVED_WHEN_SATURATED, synthetic_measurement

from tuner.confirm.confirm import Confirmation, Outcome, Rules, confirm
from tuner.confirm.rounds import Entrant, Row
from tuner.confirm.simplify import MOST_LOSS, Simplified, simplify
from tuner.errors import DeployRefusedError
from tuner.measurement.measurement import Arrivals, Measurement
from tuner.run.confirmation import PutBack, Role
from tuner.score.capacity import LevelRange
from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.metrics import P99_LATENCY
from tuner.spec.slo import Goal, Objective

COUNT = "instance_group.count"
BATCHING = "dynamic_batching"
DELAY = "dynamic_batching.max_queue_delay_microseconds"
ENABLE = "response_cache.enable"
CURRENT = candidate_of({COUNT: 1, BATCHING: None, ENABLE: None})
FOUND = candidate_of({COUNT: 2, BATCHING: True, DELAY: 500, ENABLE: True}, 1024)
Capacity = Callable[[Candidate], float]


class SimplerBench(FreshBench):
    """In each round (``seed``) with that round's luck.

    ``common`` is the spread of what all configs of a round share (its arrivals), ``own`` that of
    each measurement, both of the logarithm of the capacity.
    """

    def __init__(
        self, capacity: Capacity, common: float = 0.0, own: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__(capacity, weather=0.0)
        self._of, self._common, self._own, self._seed = capacity, common, own, seed

    @property
    def measured(self) -> list[tuple[Candidate, float, int]]:
        return [(a.candidate, a.level, a.seed) for a in self.asked]

    def true(self, candidate: Candidate) -> float:
        return self._of(candidate)

    def kindness(self, seed: int) -> float:
        shared = np.random.default_rng([self._seed, seed]).normal(0.0, self._common)
        alone = np.random.default_rng([self._seed, seed, len(self.asked)]).normal(0.0, self._own)
        return math.exp(shared + alone)


def rules_of(rows: list[Row] | None = None, *, rounds: int = 3, min_gain: float = 0.02) -> Rules:
    kept = [] if rows is None else rows
    return Rules(Objective.goodput(), LevelRange(1, 1e5), rounds, min_gain, 7, kept.append)


def confirmed(
    bench: SimplerBench, found: Candidate, rules: Rules, current: Candidate = CURRENT
) -> Confirmation:
    """``found`` as it proved itself against ``current``; each entered with its true capacity."""
    sides = [Entrant(c, bench.true(c)) for c in (current, found)]
    (result,) = confirm(bench, sides[0], sides[1:], rules)
    bench.asked.clear()
    return result


def tried_on(
    bench: SimplerBench, rows: list[Row] | None = None, found: Candidate = FOUND
) -> Simplified:
    winner = confirmed(bench, found, rules_of())
    assert winner.outcome is Outcome.CONFIRMED
    return simplify(bench, winner, rules_of(rows), lambda _: True)


def told(result: Simplified) -> dict[str, PutBack]:
    return {p.field: p for p in result.tried}


def by(factors: dict[str, float], capacity: float = 1000.0, base: Candidate = CURRENT) -> Capacity:
    """Each field that is not as in ``base`` multiplies the capacity by its factor."""

    def of(candidate: Candidate) -> float:
        changed = [p for p in factors if fields_of(candidate).get(p) != fields_of(base).get(p)]
        return capacity * math.prod(factors[p] for p in changed)

    return of


def test_what_makes_no_difference_is_undone() -> None:
    result = tried_on(SimplerBench(lambda c: 1000 if fields_of(c)[BATCHING] else 100))
    assert result.candidate == candidate_of({COUNT: 1, BATCHING: True, DELAY: None, ENABLE: None})
    kept = {p.field: p.kept for p in result.tried}
    assert kept == {
        "response_cache.size off": False,
        DELAY: False,
        COUNT: False,
    }  # without the batcher it would be the current config, which lost already
    assert len(result.proof.points) == 3


def test_what_triton_assumes_anyway_goes_without_being_measured() -> None:
    """A delay of 0 that is written out and none at all are one config."""

    def same(one: Candidate, other: Candidate) -> bool:
        return {p: v or None for p, v in fields_of(one).items()} == {
            p: v or None for p, v in fields_of(other).items()
        }

    spelled = candidate_of({**fields_of(FOUND), DELAY: 0}, FOUND.cache_bytes)
    bench = SimplerBench(lambda c: 1000 if fields_of(c)[BATCHING] else 100)
    winner = confirmed(bench, spelled, rules_of())
    result = simplify(bench, winner, rules_of(), lambda _: True, same=same)
    assert fields_of(result.candidate)[DELAY] is None
    assert set(told(result)) == {"response_cache.size off", COUNT}
    assert {fields_of(c)[DELAY] for c, _, _ in bench.measured if fields_of(c)[COUNT] == 1} == {None}


def test_what_matters_stays_and_costs_one_round() -> None:
    rows: list[Row] = []
    bench = SimplerBench(lambda c: 1000 if c == FOUND else 100)
    result = tried_on(bench, rows)
    assert result.candidate == FOUND
    assert all(p.kept for p in result.tried)
    assert {r.round for r in rows} == {0}
    assert {r.role for r in rows} == {Role.SIMPLER}
    for row in (p.to_json() for p in result.tried):
        assert row["difference"] == pytest.approx(-900, rel=0.05)


def test_what_matters_much_costs_one_measurement() -> None:
    rows: list[Row] = []
    bench = SimplerBench(lambda c: 1000 if c == FOUND else 700)
    result = tried_on(bench, rows)
    assert result.candidate == FOUND
    assert len(rows) == len(result.tried) == 4
    for row in (p.to_json() for p in result.tried):
        assert row["without"] == pytest.approx(700 * SERVED_WHEN_SATURATED, rel=0.01)


def test_what_is_a_little_worse_is_measured_until_it_passes() -> None:
    rows: list[Row] = []
    bench = SimplerBench(by({COUNT: 1.12, BATCHING: 8.0}))
    found = candidate_of({COUNT: 2, BATCHING: True, ENABLE: None})
    result = tried_on(bench, rows, found)
    one_instance = told(result)[COUNT]
    assert one_instance.kept
    assert one_instance.without_change == pytest.approx(8_000, rel=0.01)
    assert len([r for r in rows if fields_of(r.candidate)[COUNT] == 1]) > 1


def test_a_simpler_config_is_measured_under_the_arrivals_of_the_winners_rounds() -> None:
    bench = SimplerBench(by({COUNT: 1.0, BATCHING: 2.0}))
    tried_on(bench, found=candidate_of({COUNT: 2, BATCHING: True, ENABLE: None}))
    assert [seed for _, _, seed in bench.measured] == [7, 8, 9]  # brief: one measurement a round


def test_of_several_models_the_changes_of_each_are_undone_one_by_one() -> None:
    fields = {COUNT: 1, BATCHING: None, DELAY: None}
    current = Candidate.of_models({"head": fields, "tiny-bert": fields})
    changed = {COUNT: 2, BATCHING: True, DELAY: 500}
    found = Candidate.of_models({"head": changed, "tiny-bert": changed})

    def capacity(candidate: Candidate) -> float:
        return 1000.0 if candidate.of("tiny-bert").get(BATCHING) else 100.0

    bench = SimplerBench(capacity)
    winner = confirmed(bench, found, rules_of(), current=current)
    result = simplify(bench, winner, rules_of(), lambda _: True)
    kept = {BATCHING: True, COUNT: 1, DELAY: None}
    assert result.candidate.models == {"head": {BATCHING: None, COUNT: 1}, "tiny-bert": kept}
    assert told(result)["tiny-bert/dynamic_batching"].kept
    assert not told(result)["head/dynamic_batching"].kept


def test_each_change_is_told_with_what_the_winner_stood_in_the_same_rounds() -> None:
    bench = SimplerBench(by({COUNT: 1.25, DELAY: 1.0, BATCHING: 8.0}))
    result = tried_on(
        bench, found=candidate_of({**fields_of(CURRENT), COUNT: 2, DELAY: 5, BATCHING: 1})
    )
    no_delay, one_instance = told(result)[DELAY], told(result)[COUNT]
    assert (no_delay.kept, one_instance.kept) == (False, True)
    assert no_delay.with_change == pytest.approx(10_000, rel=0.01)
    assert no_delay.without_change == pytest.approx(10_000, rel=0.01)
    # it was saturated, and is told by what it answered then
    assert one_instance.without_change == pytest.approx(8_000 * SERVED_WHEN_SATURATED, rel=0.01)
    assert no_delay.loss_allowed == MOST_LOSS


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_change_worth_five_percent_is_written_whatever_its_name(order: str) -> None:
    """Two fields changed, one worth 5 %, the other nothing: the first stays, the second goes."""
    worth, nothing = order
    current, found = candidate_of({"a": 1, "b": 1}), candidate_of({"a": 2, "b": 2})
    lost, inside = 0, 0
    for seed in range(40):
        bench = SimplerBench(by({worth: 1.05, nothing: 1.0}, base=current), 0.04, 0.005, seed)
        winner = confirmed(bench, found, rules_of(), current)
        if winner.outcome is not Outcome.CONFIRMED:
            continue
        result = simplify(bench, winner, rules_of(), lambda _: True)
        lost += fields_of(result.candidate)[worth] == 1
        true = 1.05 if fields_of(result.candidate)[worth] == 2 else 1.0
        inside += result.proof.ratio.low <= true <= result.proof.ratio.high
    assert lost == 0
    assert inside >= 37


def test_the_gain_told_is_that_of_the_simpler_config() -> None:
    """One field loses 1.5 % where 2 % may be lost: the gain is of what is left."""
    bench = SimplerBench(by({COUNT: 1.015, BATCHING: 4.0}))
    result = tried_on(bench, found=candidate_of({COUNT: 2, BATCHING: True, ENABLE: None}))
    assert fields_of(result.candidate)[COUNT] == 1
    assert result.proof.ratio.estimate == pytest.approx(4.0, rel=0.005)
    assert result.proof.level <= 4000


def test_of_a_small_gain_no_more_than_half_of_what_a_change_is_worth_may_be_lost() -> None:
    found = candidate_of({COUNT: 2, BATCHING: True, ENABLE: None})
    for loss, kept in ((1.004, False), (1.015, True)):
        result = tried_on(SimplerBench(by({COUNT: loss, BATCHING: 1.08})), found=found)
        assert told(result)[COUNT].loss_allowed == 0.01
        assert told(result)[COUNT].kept is kept


def test_a_simpler_config_must_itself_be_worth_a_change() -> None:
    """As good as the winner within what it may lose, but no longer surely above the current one."""
    bench = SimplerBench(by({COUNT: 1.008, BATCHING: 1.018}))
    rules = rules_of(min_gain=0.02)
    found = candidate_of({COUNT: 2, BATCHING: True, ENABLE: None})
    winner = confirmed(bench, found, rules)
    assert winner.outcome is Outcome.CONFIRMED
    result = simplify(bench, winner, rules, lambda _: True)
    assert result.candidate == found


@pytest.mark.parametrize(("answered", "again"), [(1_050.0, False), (9_000.0, True)])
def test_what_the_search_saw_overloaded_far_below_is_not_measured_again(
    answered: float, again: bool
) -> None:
    current, found = candidate_of({"a": 1, "b": 1}), candidate_of({"a": 2, "b": 2})
    without_a = candidate_of({"a": 1, "b": 2})
    bench = SimplerBench(by({"a": 8.0, "b": 1.25}, base=current))
    winner = confirmed(bench, found, rules_of(), current)
    known = {without_a: answered}
    result = simplify(bench, winner, rules_of(), lambda _: True, ceiling=known.get)
    assert result.candidate == found
    assert (without_a in {c for c, _, _ in bench.measured}) is again
    assert told(result)["a"].without_change == pytest.approx(1250 if again else 1050, rel=0.05)


@pytest.mark.parametrize(
    ("loss", "rounds", "kept"),
    [(0.20, 1, True), (0.10, 2, True), (0.03, 3, True), (0.01, 3, False)],
)
def test_a_simpler_config_is_given_up_when_no_luck_brings_it_back(
    loss: float, rounds: int, kept: bool
) -> None:
    """Later rounds may be 4 % better than the winner's, and all three together lose 2 %."""
    current, found = candidate_of({"a": 1, "b": 1}), candidate_of({"a": 2, "b": 2})
    bench = SimplerBench(by({"a": 8.0, "b": 1 / (1 - loss)}, base=current))
    rows: list[Row] = []
    result = simplify(
        bench, confirmed(bench, found, rules_of(), current), rules_of(rows), lambda _: True
    )
    assert told(result)["b"].kept is kept
    one = [r.round for r in rows if r.candidate == candidate_of({"a": 2, "b": 1})]
    assert sorted(set(one)) == list(range(rounds))


def test_a_change_kept_after_one_round_is_told_with_what_the_winner_stood_in_that_one() -> None:
    current, found = candidate_of({"a": 1, "b": 1}), candidate_of({"a": 2, "b": 2})
    bench = SimplerBench(by({"a": 8.0, "b": 2.0}, base=current), common=0.05, seed=4)
    winner = confirmed(bench, found, rules_of(), current)
    rounds = winner.own.capacities()
    assert abs(rounds[0] / math.prod(rounds) ** (1 / 3) - 1) > 0.01
    result = simplify(bench, winner, rules_of(), lambda _: True)
    assert told(result)["b"].with_change == pytest.approx(rounds[0])


def test_small_losses_of_several_fields_do_not_add_up() -> None:
    class Slower(SimplerBench):
        """Each change undone costs 1.5 % of a latency that is minimised."""

        def reading(self, level: float, seed: int) -> Measurement:
            undone = sum(fields_of(self.candidate)[name] != 9 for name in "abc")
            p99_us = 20e3 * 1.015**undone * (2 if undone == 3 else 1)
            return synthetic_measurement(level, p99_us)

    objective = Objective(Goal.MINIMIZE, P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
    rules = Rules(objective, None, 3, 0.02, 7, lambda _: None)
    current, found = candidate_of(dict.fromkeys("abc", 1)), candidate_of(dict.fromkeys("abc", 9))
    bench = Slower(lambda _: 300.0)
    winner = confirmed(bench, found, rules, current)
    result = simplify(bench, winner, rules, lambda _: True)
    assert [p.kept for p in result.tried] == [False, True, True]


def test_a_closed_loop_is_compared_by_what_it_serves() -> None:
    class Closed(SimplerBench):
        """Latency is what the clients wait for one another; throughput saturates."""

        def reading(self, level: float, seed: int) -> Measurement:
            clients = self.serves * self.kindness(seed)
            return synthetic_measurement(
                level, 40e3 * level / clients, served=10 * clients, arrivals=Arrivals.CLOSED
            )

    rules = Rules(Objective.goodput(), LevelRange(1, 512, True), 3, 0.02, 7, lambda _: None)
    bench = Closed(by({COUNT: 1.0, BATCHING: 4.0}, 16))
    found = candidate_of({COUNT: 2, BATCHING: True, ENABLE: None})
    winner = confirmed(bench, found, rules)
    result = simplify(bench, winner, rules, lambda _: True)
    assert result.candidate == candidate_of({COUNT: 1, BATCHING: True, ENABLE: None})
    assert all(level == round(level) for _, level, _ in bench.measured)


def test_a_field_inside_an_absent_message_goes_with_it() -> None:
    bench = SimplerBench(lambda c: 1000 if c.cache_bytes else 100)
    result = tried_on(bench)
    assert DELAY not in fields_of(result.candidate) or fields_of(result.candidate)[DELAY] is None
    assert fields_of(result.candidate)[BATCHING] is None
    assert result.candidate.cache_bytes == FOUND.cache_bytes


def test_a_config_that_cannot_be_served_is_no_simplification() -> None:
    class Refusing(SimplerBench):
        def deploy(self, candidate: Candidate, *, fresh: bool = False) -> object:
            if candidate not in (CURRENT, FOUND):
                raise DeployRefusedError("no")
            return super().deploy(candidate, fresh=fresh)

    result = tried_on(Refusing(lambda c: 1000 if c == FOUND else 500))
    assert result.candidate == FOUND
    assert len(result.tried) == 4
    assert all(p.kept and p.without_change is None for p in result.tried)
    assert [p.with_change for p in result.tried] == pytest.approx([1000.0] * 4, rel=0.01)
    assert all(p.to_json()["difference"] is None for p in result.tried)


def test_the_current_config_itself_is_never_the_simpler_winner() -> None:
    only = candidate_of({COUNT: 2, BATCHING: None, ENABLE: None})
    bench = SimplerBench(by({COUNT: 1.5}))
    result = tried_on(bench, found=only)
    assert result.candidate == only
    assert bench.measured == []
    assert result.tried == ()


def test_without_a_gain_to_state_a_simpler_config_is_held_to_the_winner_alone() -> None:
    """The current config met the SLOs at no load: there is nothing to compare with."""
    bench = SimplerBench(by({COUNT: 1.0, BATCHING: 2.0}))
    found = candidate_of({COUNT: 2, BATCHING: True, ENABLE: None})
    (winner,) = confirm(bench, Entrant(CURRENT, None), [Entrant(found, 2000.0)], rules_of())
    assert winner.gain is None
    result = simplify(bench, winner, rules_of(), lambda _: True)
    assert fields_of(result.candidate)[COUNT] == 1
    assert result.proof.gain is None
    assert result.proof.level == pytest.approx(2000, rel=0.05)


MIB = 1 << 20
SIZES = tuple(MIB << n for n in range(7))  # 1 to 64 MiB


def with_cache(size: int | None, **fields: FieldValue) -> Candidate:
    return candidate_of({**fields, ENABLE: True if size else None}, size)


def least_cache(
    capacity_of: Callable[[int], float],
    *,
    winner: int = SIZES[-1],
    sizes: Sequence[int] = SIZES,
    current: Candidate = CURRENT,
    allowed: Callable[[Candidate], bool] = lambda _: True,
    rounds: int = 3,
) -> tuple[Simplified, SimplerBench, list[Row]]:
    """``capacity_of`` size 0 is that without a cache; the current config sustains a third of it."""
    rows: list[Row] = []

    def capacity(candidate: Candidate) -> float:
        size = candidate.cache_bytes or 0
        return capacity_of(size) / (3.0 if candidate == CURRENT else 1.0)

    bench = SimplerBench(capacity)
    rules = rules_of(rows, rounds=rounds)
    proved = confirmed(bench, with_cache(winner), rules, current)
    rows.clear()
    return simplify(bench, proved, rules, allowed, sizes), bench, rows


def size_of(result: Simplified) -> int | None:
    return result.candidate.cache_bytes


@pytest.mark.parametrize("enough", SIZES)
def test_the_smallest_cache_that_serves_as_much_is_chosen(enough: int) -> None:
    result, bench, rows = least_cache(lambda size: 1000 if size >= enough else 900)
    assert size_of(result) == enough
    assert fields_of(result.candidate)[ENABLE] is True
    assert len(bench.measured) == len(rows)
    assert len({(r.candidate, r.round) for r in rows}) <= 2 + 3 * 3
    assert result.tried[0].field == "response_cache.size off"
    assert result.tried[0].kept


@pytest.mark.parametrize("per_step", [0.002, 0.005, 0.01, 0.03])
def test_the_choice_is_within_two_percent_whatever_the_curve(per_step: float) -> None:
    """Every doubling serves a little more: small losses do not add up."""

    def capacity(size: int) -> float:
        return 1000.0 * (1 + per_step) ** SIZES.index(size) if size else 500.0

    result, _, _ = least_cache(capacity)
    chosen = size_of(result)
    assert chosen is not None
    best = capacity(SIZES[-1])
    noise_of_reading = 0.002  # a brief round reads the capacity from the winner's slope
    assert capacity(chosen) >= (0.98 - noise_of_reading) * best
    smaller = [s for s in SIZES if s < chosen]
    assert not smaller or capacity(smaller[-1]) < (0.98 + noise_of_reading) * best


def test_a_smaller_cache_may_cost_two_percent_of_a_small_gain_too() -> None:
    """Where any other change may cost only half of what a change must be worth."""
    bench_of = {0: 0.90, SIZES[0]: 0.985, SIZES[1]: 1.0}

    def capacity(candidate: Candidate) -> float:
        size = candidate.cache_bytes or 0
        count = 1.0 if fields_of(candidate).get(COUNT) == 2 else 0.985
        return 1000.0 * (bench_of[size] * count if candidate != current else 0.9)

    rows: list[Row] = []
    current = candidate_of({COUNT: 1, ENABLE: None})
    rules = rules_of(rows, min_gain=0.02)
    bench = SimplerBench(capacity)
    winner = confirmed(bench, with_cache(SIZES[1], **{COUNT: 2}), rules, current)
    rows.clear()
    result = simplify(bench, winner, rules, lambda _: True, SIZES[:1])
    assert result.candidate == with_cache(SIZES[0], **{COUNT: 2})
    assert [(p.field, p.loss_allowed, p.kept) for p in result.tried] == [
        ("response_cache.size off", 0.02, True),
        ("response_cache.size 1 MiB", 0.02, False),
        (COUNT, 0.01, True),
    ]
    held = [r for r in rows if r.candidate == result.candidate]
    assert [r.round for r in held] == [n for n in range(3) for _ in range(2)]


def test_a_cache_that_brings_nothing_goes() -> None:
    result, _, rows = least_cache(lambda _: 1000)
    assert size_of(result) is None
    assert result.candidate == with_cache(None)
    assert [p.kept for p in result.tried if p.field.startswith("response_cache")] == [False]
    assert {r.round for r in rows} == {0, 1, 2}


def test_no_cache_is_measured_even_when_it_is_the_current_config() -> None:
    current = with_cache(None)
    result, bench, _ = least_cache(lambda size: 1000 if size else 700, current=current)
    assert bench.measured[0][0] == current
    off = result.tried[0]
    assert (off.field, off.kept) == ("response_cache.size off", True)
    assert off.without_change is not None
    assert off.with_change is not None
    assert off.without_change < off.with_change
    assert size_of(result) == SIZES[0]


def test_no_cache_is_in_the_table_even_when_triton_would_not_load_it() -> None:
    result, bench, _ = least_cache(lambda _: 1000, sizes=(), allowed=lambda c: bool(c.cache_bytes))
    assert bench.measured == []
    (off,) = result.tried
    assert (off.field, off.kept, off.without_change) == ("response_cache.size off", True, None)


def test_each_size_tried_is_in_the_table() -> None:
    result, _, _ = least_cache(lambda size: 1000 if size >= 8 * MIB else 900)
    assert [(p.field, p.kept) for p in result.tried] == [
        ("response_cache.size off", True),
        ("response_cache.size 8 MiB", False),
        ("response_cache.size 2 MiB", True),
        ("response_cache.size 4 MiB", True),
    ]


def test_a_winner_without_a_cache_is_left_alone() -> None:
    current = with_cache(SIZES[0])
    bench = SimplerBench(lambda c: 100 if c.cache_bytes else 1000)
    winner = confirmed(bench, with_cache(None), rules_of(), current)
    result = simplify(bench, winner, rules_of(), lambda _: True, SIZES)
    assert result.candidate == with_cache(None)


def test_a_minimised_metric_keeps_the_smallest_cache_within_two_percent() -> None:
    values = (30e3, 25e3, 22e3, 20.6e3, 20.3e3, 20.1e3, 20e3, 20e3)
    p99_us = dict(zip((0, *SIZES), values, strict=True))

    class AtOneLoad(SimplerBench):
        def reading(self, level: float, seed: int) -> Measurement:
            size = self.candidate.cache_bytes or 0
            return synthetic_measurement(level, p99_us[size])

    objective = Objective(Goal.MINIMIZE, P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
    rules = Rules(objective, None, 3, 0.02, 7, lambda _: None)
    bench = AtOneLoad(lambda _: 300.0)
    winner = confirmed(bench, with_cache(SIZES[-1]), rules)
    result = simplify(bench, winner, rules, lambda _: True, SIZES)
    assert size_of(result) == 8 * MIB  # 20.3 ms; 20.6 ms is 3 % more than 20 ms
