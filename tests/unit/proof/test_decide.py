"""When the rounds are looked at, and what a look says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.proof.compare import Side, compare
from tuner.proof.decide import FEWEST, Look, LookResult, answer, look_after
from tuner.score.ratio import ERROR, Ratio

GAIN, MATTERS = 0.02, 0.10
EARLY, LAST = Look(0.01, last=False), Look(0.01, last=True)


def looks(at_most: int, finalists: int = 1, over_after: int = 10**6) -> dict[int, Look]:
    """Those that are made, by the rounds before them."""
    found: dict[int, Look] = {}
    for rounds in range(1, at_most + 1):
        look = look_after(rounds, at_most, finalists, late=rounds >= over_after)
        if look is not None:
            found[rounds] = look
            if look.last:
                break
    return found


def test_of_ten_rounds_the_third_fifth_seventh_and_tenth_are_looked_at() -> None:
    assert [*looks(10)] == [3, 5, 7, 10]


@settings(deadline=None)
@given(st.integers(3, 40), st.integers(1, 5), st.integers(1, 60))
def test_the_looks_at_all_finalists_spend_the_error_and_no_more_also_when_time_is_over(
    at_most: int, finalists: int, over_after: int
) -> None:
    made = looks(at_most, finalists, over_after)
    assert math.fsum(finalists * look.error for look in made.values()) == pytest.approx(ERROR)
    assert [look.last for look in made.values()] == [False] * (len(made) - 1) + [True]
    assert min(made) >= FEWEST
    assert max(made) == min(at_most, max(over_after, FEWEST))


@pytest.mark.parametrize(
    ("low", "estimate", "high", "early", "last"),
    [
        (1.021, 1.05, 1.09, LookResult.BETTER, LookResult.BETTER),
        (1.021, 5.0, 25.0, LookResult.BETTER, LookResult.BETTER),
        (0.95, 1.00, 1.09, LookResult.RULED_OUT, LookResult.RULED_OUT),
        (0.95, 1.00, 1.11, LookResult.OPEN, LookResult.OPEN),
        (1.01, 1.05, 1.09, LookResult.OPEN, LookResult.RULED_OUT),  # it may yet be worth a change
        (1.01, 1.50, math.inf, LookResult.OPEN, LookResult.OPEN),
    ],
)
def test_what_a_look_says(
    low: float, estimate: float, high: float, early: LookResult, last: LookResult
) -> None:
    ratio = Ratio(estimate, low, high)
    assert answer(ratio, GAIN, MATTERS, EARLY) is early
    assert answer(ratio, GAIN, MATTERS, LAST) is last


def ended(random: np.random.Generator, noise: float, *truths: float) -> LookResult:
    """Of several finalists of these gains, whether any is called better or all are ruled out."""
    rounds = np.log([1.0, *truths])[:, None] + noise * random.standard_normal((1 + len(truths), 10))
    for made, look in looks(10, len(truths)).items():
        current, *others = (Side(row.tolist(), [0.0] * made) for row in np.exp(rounds[:, :made]))
        answers = [
            answer(
                compare(own, current, look.error, [o for o in others if o is not own]),
                GAIN,
                MATTERS,
                look,
            )
            for own in others
        ]
        if LookResult.BETTER in answers:
            return LookResult.BETTER
        if all(a is LookResult.RULED_OUT for a in answers):
            return LookResult.RULED_OUT
    return LookResult.OPEN


@pytest.mark.parametrize("finalists", [1, 2])
def test_what_is_worth_no_change_is_called_better_in_one_of_forty_runs_at_most(
    finalists: int,
) -> None:
    random, runs, noise = np.random.default_rng(1), 600, 0.3
    truths = [1.0 + GAIN] * finalists
    wrong = sum(ended(random, noise, *truths) is LookResult.BETTER for _ in range(runs))
    assert wrong / runs <= ERROR / 2


def test_a_gain_that_is_there_is_found_and_one_that_is_not_is_ruled_out() -> None:
    random, runs = np.random.default_rng(2), 300
    found = [ended(random, 0.03, 1.10) for _ in range(runs)]
    assert found.count(LookResult.BETTER) >= 0.95 * runs
    found = [ended(random, 0.03, 1.0) for _ in range(runs)]
    assert found.count(LookResult.RULED_OUT) >= 0.95 * runs
    found = [ended(random, 0.06, 1.20) for _ in range(runs)]
    assert found.count(LookResult.BETTER) >= 0.95 * runs
    found = [ended(random, 0.06, 1.0) for _ in range(runs)]
    assert found.count(LookResult.RULED_OUT) >= 0.60 * runs
