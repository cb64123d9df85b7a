"""What is told of a race: of which finalist, with which figures, in which words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from builders.racing import a_race, rules, side

from tuner.proof.rounds import RoundsResult
from tuner.proof.verdict import best_other, gain_of, to_know
from tuner.score.ratio import Ratio


def test_the_finalist_that_is_told_of_was_compared_to_the_end() -> None:
    """One that left after three rounds has an interval as wide as three rounds make it."""
    race = a_race(
        Ratio(0.9, 0.5, 1.6), Ratio(1.0, 0.96, 1.06), Ratio(0.9, 0.8, 1.0), ruled_out=True
    )
    left, last, worse = race.finalists
    left.left = "another finalist sustains more when measured again"
    assert best_other(race) is last
    last.left = worse.left = "it missed an SLO when measured again on a fresh server"
    assert best_other(race) is left


def test_means_are_of_the_rounds_that_both_were_in() -> None:
    gone = side(2, [120.0] * 3, left="out of memory")
    race = RoundsResult(
        side(1, [100.0] * 3 + [50.0] * 7), (gone,), {gone.candidate: Ratio(1.2, 1.0, 1.4)}
    )
    found = gain_of(race, gone, rules())
    assert found is not None
    assert found.means is not None
    assert (found.means.best, found.means.current) == pytest.approx((120.0, 100.0))


@pytest.mark.parametrize("estimate", [0.9, 1.0, 1.02, 1.05, 1.1, 1.3])
def test_the_less_clear_it_is_the_more_rounds_it_would_take(estimate: float) -> None:
    def more(width: float, **confirm: Any) -> int:
        ratio = Ratio(estimate, estimate / width, estimate * width)
        race = a_race(ratio)
        found = to_know(race, race.finalists[0], rules(**confirm), 60.0)
        assert found is not None
        assert found.minutes == pytest.approx(found.rounds)
        return found.rounds

    assert 1 <= more(1.3) <= more(1.5) <= more(2.0)
    assert more(2.0) > 1
    assert more(2.0, rule_out=0.30, min_gain=0.0) <= more(2.0)


@pytest.mark.parametrize(
    ("ratio", "left"),
    [
        (Ratio(1.0, 0.9, math.inf), ""),  # it sustains all that can be sent
        (Ratio(1.0, 0.95, 1.05), ""),  # the other finalist gave no result
        (Ratio(1.05, 0.9, 1.2), "out of memory"),
        (Ratio(1.1, 0.9, 1.3), ""),  # just what is both worth a change and ruled out
    ],
)
def test_where_no_further_rounds_would_tell_none_are_named(ratio: Ratio, left: str) -> None:
    race = a_race(ratio)
    race.finalists[0].left = left
    assert to_know(race, race.finalists[0], rules(min_gain=0.1), 60.0) is None
