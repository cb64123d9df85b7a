"""What the rounds of a proof say of configs whose truth is known, whatever that is.

Rates are of truths that are the same in every run: their bounds hold or do not, and never flake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
from builders.truths import CONFIGS, Raced, Truth, numbered, race, truth
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tuner.proof.contender import MOST_LOADS, Contender
from tuner.reason import ReasonKind
from tuner.record.confirmation import Role
from tuner.score.ratio import ERROR
from tuner.spec.model import Confirm

RULES = Confirm()
LEAST, CLEAR = 1.0 + float(RULES.min_gain), 1.10


@cache
def raced(count: int, gains: tuple[float, ...], noise: float | None = None) -> Sequence[Raced]:
    return [race(each) for each in numbered(count, gains, noise)]


# -- how often it is wrong, and how often it finds out


def is_beaten(finalist: Contender) -> bool:
    return finalist.left is not None and finalist.left.kind is ReasonKind.BEATEN


@pytest.mark.parametrize("gains", [(1.0,), (1.0, 1.0)])
def test_equal_config_is_called_better_in_one_run_of_twenty_at_most(
    gains: tuple[float, ...],
) -> None:
    runs = raced(30, gains)
    assert sum(bool(r.result.better) for r in runs) <= ERROR * len(runs)


@pytest.mark.parametrize("gains", [(LEAST,), (LEAST, LEAST), (CLEAR,), (1.0,)])
def test_the_interval_holds_the_true_gain_in_nineteen_runs_of_twenty(
    gains: tuple[float, ...],
) -> None:
    intervals = [ratio for r in raced(30, gains) for ratio in r.ratios]
    assert len(intervals) >= 30
    assert sum(low <= gain <= high for gain, low, high in intervals) >= (1.0 - ERROR) * len(
        intervals
    )


def test_clear_gain_is_detected_and_equal_config_is_kept() -> None:
    assert sum(bool(r.result.better) for r in raced(30, (CLEAR,), 0.02)) >= 28
    assert sum(r.result.no_gain for r in raced(30, (1.0,), 0.02)) >= 28


def test_the_best_finalist_is_not_the_one_that_is_left_out() -> None:
    runs = raced(30, (0.85, 1.05), 0.02)
    dropped = [r for r in runs if any(f.left for f in r.result.finalists)]
    assert len(dropped) >= 4  # else nothing was asked here
    assert not [r for r in dropped if r.result.finalists[1].left]
    equal = raced(30, (LEAST, LEAST))
    beaten = [r for r in equal if any(map(is_beaten, r.result.finalists))]
    assert len(beaten) <= ERROR * len(equal)


# -- in every run


@settings(max_examples=20)
@given(truth())
def test_a_proof_never_contradicts_itself_and_measures_no_more_than_it_may(made: Truth) -> None:
    ran = race(made)
    result, rounds = ran.result, len(ran.result.current.rounds)
    assert not (result.better and result.no_gain)
    for contender in result.better:
        ratio = result.ratios[contender.candidate]
        assert 1.0 < ratio.low <= ratio.estimate <= ratio.high
        assert ratio.estimate > LEAST
    if result.no_gain:
        assert all(result.ratios[f.candidate].estimate <= LEAST for f in result.finalists)
    assert rounds <= RULES.rounds
    in_round = Counter((row.round, row.candidate_key) for row in ran.rows)
    assert max(in_round.values()) <= MOST_LOADS
    loads = {(row.round, row.candidate_key, row.point.level) for row in ran.rows}
    assert len(loads) == len(ran.rows) == len(ran.bench.loads)  # none twice
    assert len(ran.bench.deployed) == len(in_round)  # a fresh server for each


@settings(max_examples=20)
@given(truth())
def test_each_round_has_different_arrivals_which_are_the_same_for_all(made: Truth) -> None:
    ran = race(made)
    seeds = {row.round: row.point.measurement.seed for row in ran.rows}
    assert len(set(seeds.values())) == len(seeds)
    assert all(row.point.measurement.seed == seeds[row.round] for row in ran.rows)
    roles = {(row.candidate_key == CONFIGS[0].key, row.role) for row in ran.rows}
    assert roles <= {(True, Role.CURRENT), (False, Role.CANDIDATE)}


QUIET = truth(noise=st.just(0.0), busy=st.just(0.0), slope=st.floats(4.0, 16.0))


@settings(max_examples=20)
@given(QUIET)
@example(Truth((100.0, 130.0, 200.0)))
@example(Truth((100.0, 200.0, 130.0)))
def test_without_noise_the_answer_is_the_truth(made: Truth) -> None:
    ran = race(made)
    best = max(made.gains)
    for gain, low, high in ran.ratios:
        assert low <= gain <= high
    assert bool(ran.result.better) >= (best > 1.04)
    assert not ran.result.better or best > LEAST
    assert ran.result.no_gain >= (best < 1.0)
    if ran.result.better and best > 1.04:
        winner = ran.result.better[0]
        assert made.gains[ran.result.finalists.index(winner)] >= 0.98 * best


@settings(max_examples=15)
@given(QUIET, st.floats(0.4, 2.5), st.floats(1.0, 20.0))
def test_the_answer_does_not_depend_on_what_the_search_expected_nor_on_the_unit(
    made: Truth, expected: float, factor: float
) -> None:
    factor = min(factor, 5e4 / max(made.capacities))  # far from the highest load that is sent
    answers = [
        race(made),
        race(made, lambda capacity: expected * capacity),
        race(made.times(factor)),
    ]
    outcomes = {(bool(a.result.better), a.result.no_gain) for a in answers}
    near = any(abs(gain / edge - 1.0) < 0.03 for gain in made.gains for edge in (1.0, LEAST))
    assert near or len(outcomes) == 1


@settings(max_examples=15)
@given(truth(gains=st.lists(st.sampled_from([0.9, 1.0, 1.3]), min_size=2, max_size=2)))
def test_the_answer_does_not_depend_on_the_order_of_the_finalists(made: Truth) -> None:
    one, other = race(made), race(made, order=(1, 0))
    assert {f.candidate for f in one.result.better} == {f.candidate for f in other.result.better}
    assert one.result.no_gain == other.result.no_gain
    assert sum(one.ratios, ()) == pytest.approx(sum(other.ratios, ()))


@settings(max_examples=15)
@given(truth(), st.floats(0.0, 0.5))
def test_who_asks_for_more_gain_gets_no_more_often_a_better_config(
    made: Truth, more: float
) -> None:
    stricter = race(made, min_gain=min(0.02 + more, 0.5))
    assert not stricter.result.better or race(made).result.better
