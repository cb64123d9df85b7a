"""Whose turn it is, of several with shares."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.load.traffic.turns import STRETCH, by_chance, evenly, in_order

SHARES = [[0.7, 0.3], [0.5, 0.25, 0.25], [0.99, 0.01], [1 / 3, 1 / 3, 1 / 3]]


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("seed", range(5))
def test_any_hundred_requests_have_the_shares_within_two_points(
    shares: list[float], seed: int
) -> None:
    turns = by_chance(shares, 40 * STRETCH, seed)
    for stretch in turns.reshape(-1, STRETCH):
        counts = np.bincount(stretch, minlength=len(shares))
        assert counts.tolist() == pytest.approx([100.0 * share for share in shares], abs=2.0)


@pytest.mark.parametrize("seed", range(20))
def test_a_window_that_begins_anywhere_has_the_shares_within_two_points(seed: int) -> None:
    turns = by_chance([0.7, 0.3], 1000, seed)
    first = np.random.default_rng(seed).integers(0, 500)
    assert turns[first : first + 459].mean() == pytest.approx(0.3, abs=0.02)


def test_a_seed_gives_the_same_order_whatever_the_number_of_requests() -> None:
    assert by_chance([0.7, 0.3], 250, 1).tolist() == by_chance([0.7, 0.3], 999, 1)[:250].tolist()
    assert by_chance([0.7, 0.3], 250, 1).tolist() != by_chance([0.7, 0.3], 250, 2).tolist()
    assert by_chance([0.7, 0.3], 0, 1).tolist() == []


def test_an_order_of_chance_has_runs_as_real_traffic_has() -> None:
    """Of 30% about 0.3 * 0.7 of the requests begin a run, 9% follow one of their own."""
    turns = by_chance([0.7, 0.3], 10_000, 1)
    followed = ((turns[1:] == 1) & (turns[:-1] == 1)).mean()
    assert followed == pytest.approx(0.09, abs=0.01)
    assert ((evenly([0.7, 0.3], 10_000)[1:] == 1) & (evenly([0.7, 0.3], 9_999) == 1)).sum() == 0


def test_each_ones_requests_are_used_again_and_again() -> None:
    order = np.array([0, 1, 0, 0, 1])
    assert in_order([[b"a", b"b"], [b"c"]], order) == [b"a", b"c", b"b", b"a", b"c"]
