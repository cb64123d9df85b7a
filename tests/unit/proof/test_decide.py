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

GAIN = 0.02


def looks(at_most: int, finalists: int = 1, over_after: int = 10**6) -> dict[int, Look]:
    """Those that are made, by the rounds before them."""
    by_rounds: dict[int, Look] = {}
    for rounds in range(1, at_most + 1):
        look = look_after(rounds, at_most, finalists, late=rounds >= over_after)
        if look is not None:
            by_rounds[rounds] = look
            if look.last:
                break
    return by_rounds


def test_rounds_that_are_looked_at() -> None:
    assert [*looks(12)] == [3, 5, 8, 12]


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
    ("low", "estimate", "high", "expected"),
    [
        (1.001, 1.05, 1.09, LookResult.BETTER),
        (1.001, 5.0, 25.0, LookResult.BETTER),
        (1.001, 1.02, 1.04, LookResult.NO_GAIN),  # surely better, by too little
        (0.95, 1.00, 1.09, LookResult.NO_GAIN),
        (0.80, 1.01, 1.60, LookResult.NO_GAIN),  # however wide the interval
        (0.0002, 0.41, 812.0, LookResult.OPEN),  # unless it bounds nothing
        (0.999, 1.05, 1.09, LookResult.OPEN),
        (1.01, 1.50, math.inf, LookResult.BETTER),  # at least so much
        (0.95, 1.00, math.inf, LookResult.OPEN),  # a lower limit of the gain says nothing
        (0.0, 1.50, math.inf, LookResult.OPEN),  # nothing could be compared
    ],
)
def test_answer_of_a_look(low: float, estimate: float, high: float, expected: LookResult) -> None:
    assert answer(Ratio(estimate, low, high), GAIN) is expected


@pytest.mark.parametrize("finalists", [1, 2])
def test_continued_proof_looks_once_when_its_time_is_over(finalists: int) -> None:
    assert look_after(14, 12, finalists) is None
    assert look_after(14, 12, finalists, late=True) == Look(ERROR / 2 / finalists, last=True)


def ended(random: np.random.Generator, noise: float, *truths: float) -> LookResult:
    """Of several finalists of these gains, whether any is called better or none has a gain."""
    rounds = np.log([1.0, *truths])[:, None] + noise * random.standard_normal((1 + len(truths), 12))
    for made, look in looks(12, len(truths)).items():
        current, *others = (Side(row.tolist(), [0.0] * made) for row in np.exp(rounds[:, :made]))
        answers = [
            answer(
                compare(one, current, look.error, [o for o in others if o is not one]),
                GAIN,
            )
            for one in others
        ]
        if LookResult.BETTER in answers:
            return LookResult.BETTER
        if all(a is LookResult.NO_GAIN for a in answers):
            return LookResult.NO_GAIN
    return LookResult.OPEN


@pytest.mark.parametrize("finalists", [1, 2])
def test_equal_config_is_called_better_in_one_of_forty_runs_at_most(finalists: int) -> None:
    random, runs, noise = np.random.default_rng(1), 600, 0.3
    truths = [1.0] * finalists
    wrong = sum(ended(random, noise, *truths) is LookResult.BETTER for _ in range(runs))
    assert wrong / runs <= ERROR / 2


def test_gain_is_detected_and_equal_config_has_none() -> None:
    random, runs = np.random.default_rng(2), 300
    results = [ended(random, 0.03, 1.10) for _ in range(runs)]
    assert results.count(LookResult.BETTER) >= 0.95 * runs
    results = [ended(random, 0.03, 1.0) for _ in range(runs)]
    assert results.count(LookResult.NO_GAIN) >= 0.95 * runs
    results = [ended(random, 0.045, 1.10) for _ in range(runs)]
    assert results.count(LookResult.BETTER) >= 0.88 * runs
    results = [ended(random, 0.06, 1.20) for _ in range(runs)]
    assert results.count(LookResult.BETTER) >= 0.95 * runs
    results = [ended(random, 0.06, 1.0) for _ in range(runs)]
    assert results.count(LookResult.NO_GAIN) >= 0.85 * runs
