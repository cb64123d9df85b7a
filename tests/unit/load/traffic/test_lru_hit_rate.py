from __future__ import annotations

import numpy as np
import pytest

from tuner.load.traffic.repeats import lru_hit_rate, popularity, recency_of_draws


def test_a_uniform_distribution_hits_in_proportion_to_the_cache() -> None:
    assert lru_hit_rate(popularity(1000, 0.0), 250) == pytest.approx(0.25, abs=1e-3)


def test_no_room_never_hits_and_room_for_all_always() -> None:
    assert lru_hit_rate(popularity(10, 0.9), 0) == 0.0
    assert lru_hit_rate(popularity(10, 0.9), 10) == 1.0


@pytest.mark.parametrize(
    ("exponent", "capacity", "published"),
    [(0.8, 50, 0.14), (0.8, 500, 0.42), (0.99, 250, 0.54), (1.2, 2500, 0.96)],
)
def test_known_values_for_5000_inputs(exponent: float, capacity: int, published: float) -> None:
    assert lru_hit_rate(popularity(5000, exponent), capacity) == pytest.approx(published, abs=0.01)


@pytest.mark.parametrize("exponent", [0.3, 0.9, 1.4])
@pytest.mark.parametrize("capacity", [5, 60, 250])
def test_it_is_what_an_lru_cache_does(exponent: float, capacity: int) -> None:
    """The probability of what the cache holds is that of a hit; the mean over many draws."""
    probabilities = popularity(300, exponent)
    held = [
        probabilities[recency_of_draws(probabilities, seed)[-capacity:]].sum()
        for seed in range(300)
    ]
    assert lru_hit_rate(probabilities, capacity) == pytest.approx(np.mean(held), abs=0.015)
