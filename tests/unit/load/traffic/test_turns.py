"""Whose turn it is, of several with shares."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.load.traffic.turns import by_chance, evenly, in_order

SHARES = [[0.7, 0.3], [0.5, 0.25, 0.25], [0.99, 0.01], [1 / 3, 1 / 3, 1 / 3]]


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("seed", range(3))
def test_each_span_of_a_run_has_the_shares_to_one_request(shares: list[float], seed: int) -> None:
    counts = [30, 459, 77]
    spans = np.split(by_chance(shares, counts, seed), np.cumsum(counts)[:-1])
    for span, count in zip(spans, counts, strict=True):
        per_stream = np.bincount(span, minlength=len(shares))
        assert per_stream.tolist() == pytest.approx([count * share for share in shares], abs=1.0)


def test_a_seed_gives_the_same_order_and_nearly_the_same_at_a_higher_level() -> None:
    one = by_chance([0.7, 0.3], [100, 459], 1)
    assert one.tolist() == by_chance([0.7, 0.3], [100, 459], 1).tolist()
    assert one.tolist() != by_chance([0.7, 0.3], [100, 459], 2).tolist()
    more = by_chance([0.7, 0.3], [559, 900], 1)[:559]
    assert (more == one).mean() > 0.95
    assert by_chance([0.7, 0.3], [0], 1).tolist() == []


def test_an_order_of_chance_has_the_runs_of_real_traffic() -> None:
    """Of 30% drawn freely 9% of the requests follow one of their own; evenly mixed none does."""

    def followed(turns: object) -> float:
        order = np.asarray(turns)
        return float(((order[1:] == 1) & (order[:-1] == 1)).mean())

    assert followed(by_chance([0.7, 0.3], [10_000], 1)) == pytest.approx(0.09, abs=0.01)
    assert followed(evenly([0.7, 0.3], 10_000)) == 0.0


def test_each_ones_requests_are_used_again_and_again() -> None:
    order = np.array([0, 1, 0, 0, 1])
    assert in_order([[b"a", b"b"], [b"c"]], order) == [b"a", b"c", b"b", b"a", b"c"]
