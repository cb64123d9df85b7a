"""What is told of a race: of which finalist, with which figures, in which words."""

from __future__ import annotations

import math

import pytest
from builders.racing import a_race, rules, side
from builders.reasons import said

from tuner.proof.rounds import RoundsResult
from tuner.proof.verdict import best_other, gain_of, to_know
from tuner.reason import Reason, ReasonKind
from tuner.score.ratio import Ratio


def test_reported_finalist_was_compared_to_the_end() -> None:
    """One that left after three rounds has an interval as wide as three rounds make it."""
    race = a_race(Ratio(0.9, 0.5, 1.6), Ratio(1.0, 0.96, 1.06), Ratio(0.9, 0.8, 1.0), no_gain=True)
    left, last, worse = race.finalists
    left.left = Reason(ReasonKind.BEATEN)
    assert best_other(race) is last
    last.left = worse.left = Reason(ReasonKind.MISSED_AGAIN)
    assert best_other(race) is left


def test_means_are_of_the_rounds_that_both_were_in() -> None:
    gone = side(2, [120.0] * 3, left="out of memory")
    race = RoundsResult(
        side(1, [100.0] * 3 + [50.0] * 7), (gone,), {gone.candidate: Ratio(1.2, 1.0, 1.4)}
    )
    gain = gain_of(race, gone, rules())
    assert gain is not None
    assert gain.means is not None
    assert (gain.means.best, gain.means.current) == pytest.approx((120.0, 100.0))


@pytest.mark.parametrize("estimate", [1.05, 1.1, 1.3])
def test_wider_interval_takes_more_rounds(estimate: float) -> None:
    def more(width: float) -> int:
        ratio = Ratio(estimate, estimate / width, estimate * width)
        race = a_race(ratio)
        needed = to_know(race, race.finalists[0], rules(), 60.0)
        assert needed is not None
        assert needed.minutes == pytest.approx(needed.rounds)
        return needed.rounds

    assert 1 <= more(1.31) <= more(1.5) <= more(2.0)
    assert more(2.0) > 1


def test_chance_of_gain_follows_the_rounds() -> None:
    def chance(*levels: float) -> float:
        race = a_race(Ratio(1.1, 0.9, 1.3))
        race.finalists[0].rounds[:] = side(2, levels).rounds
        race.current.rounds[:] = side(1, [100.0, 101.0, 99.0]).rounds
        needed = to_know(race, race.finalists[0], rules(), 60.0)
        assert needed is not None
        assert needed.chance is not None
        return needed.chance

    assert chance(100.0, 101.0, 99.0) == pytest.approx(0.5)
    assert 0.5 < chance(104.0, 101.0, 101.0) < chance(110.0, 111.0, 108.0) < 1.0


@pytest.mark.parametrize(
    ("ratio", "left"),
    [
        (Ratio(1.1, 0.9, math.inf), ""),  # it sustains all that can be sent
        (Ratio(1.0, 0.9, 1.2), ""),  # it does not seem better
        (Ratio(1.05, 0.9, 1.2), "out of memory"),
        (Ratio(1.09, 0.9, 1.3), ""),  # not worth a change
    ],
)
def test_no_rounds_are_named_where_none_would_tell(ratio: Ratio, left: str) -> None:
    race = a_race(ratio)
    race.finalists[0].left = said(left) if left else None
    assert to_know(race, race.finalists[0], rules(min_gain=0.1), 60.0) is None
