from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from tuner.load.traffic import repeats


def lru_after(order: repeats.Order, capacity: int) -> list[int]:
    """What an LRU cache holds after an order of requests, the least recent first."""
    cache: OrderedDict[int, None] = OrderedDict()
    for item in order.tolist():
        cache.pop(item, None)
        cache[item] = None
        if len(cache) > capacity:
            cache.popitem(last=False)
    return list(cache)


@pytest.mark.parametrize("exponent", [0.0, 0.9, 2.0])
def test_samples_follow_the_distribution(exponent: float) -> None:
    probabilities = repeats.popularity(5, exponent)
    shares = np.bincount(repeats.sample(probabilities, 50_000, seed=1), minlength=5) / 50_000
    weights = np.arange(1, 6) ** -exponent
    assert probabilities == pytest.approx(weights / weights.sum())
    assert shares == pytest.approx(probabilities, abs=0.01)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("seed", [1, 2])
def test_duplicates_name_inputs_that_were_sent_before(share: float, seed: int) -> None:
    order = repeats.duplicate(share, 20_000, seed)
    highest = np.maximum.accumulate(order)
    new = np.diff(highest, prepend=-1)
    assert order[0] == 0
    assert set(new.tolist()) <= {0, 1}  # new ones in turn, the others not above them
    assert 1 - new.mean() == pytest.approx(share, abs=0.01)


def test_a_repeat_may_be_of_any_request_before_it() -> None:
    """With one new input followed by repeats of all there are, half of those have two."""
    ages = []
    for seed in range(300):
        order = repeats.duplicate(0.5, 41, seed)
        if order[40] <= order[:40].max():
            ages.append(int(np.flatnonzero(order[:40] == order[40])[0]))
    assert min(ages) < 5
    assert max(ages) > 30


@pytest.mark.parametrize("capacity", [1, 10, 60, 200])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_recency_of_draws_is_the_content_of_an_lru_cache(capacity: int, exponent: float) -> None:
    """The same share of the traffic is in it, whether it saw all draws or only each input once."""
    probabilities = repeats.popularity(200, exponent)
    ends, shortcuts = [], []
    for seed in range(40):
        long = repeats.sample(probabilities, 12_000, seed)
        ends.append(probabilities[lru_after(long, capacity)].sum())
        once = repeats.recency_of_draws(probabilities, seed)
        assert sorted(once.tolist()) == list(range(200))
        shortcuts.append(probabilities[lru_after(once, capacity)].sum())
    assert np.mean(shortcuts) == pytest.approx(np.mean(ends), abs=0.03)


@pytest.mark.parametrize("capacity", [1, 3, 7, 30])
def test_recency_of_a_log_is_exactly_the_content_of_an_lru_cache(capacity: int) -> None:
    log = repeats.sample(repeats.popularity(30, 0.5), 500, seed=3)
    assert lru_after(repeats.recency_of_log(log), capacity) == lru_after(log, capacity)


def test_a_uniform_distribution_hits_in_proportion_to_the_cache() -> None:
    assert repeats.lru_hit_rate(repeats.popularity(1000, 0.0), 250) == pytest.approx(0.25, abs=1e-3)


def test_no_room_never_hits_and_room_for_all_always() -> None:
    assert repeats.lru_hit_rate(repeats.popularity(10, 0.9), 0) == 0.0
    assert repeats.lru_hit_rate(repeats.popularity(10, 0.9), 10) == 1.0


@pytest.mark.parametrize(
    ("exponent", "capacity", "published"),
    [(0.8, 50, 0.14), (0.8, 500, 0.42), (0.99, 250, 0.54), (1.2, 2500, 0.96)],
)
def test_known_values_for_5000_inputs(exponent: float, capacity: int, published: float) -> None:
    assert repeats.lru_hit_rate(repeats.popularity(5000, exponent), capacity) == pytest.approx(
        published, abs=0.01
    )


@pytest.mark.parametrize("exponent", [0.3, 0.9, 1.4])
@pytest.mark.parametrize("capacity", [5, 60, 250])
def test_hit_rate_is_that_of_an_lru_cache(exponent: float, capacity: int) -> None:
    """The probability of what the cache holds is that of a hit; the mean over many draws."""
    probabilities = repeats.popularity(300, exponent)
    hit_rates = [
        probabilities[repeats.recency_of_draws(probabilities, seed)[-capacity:]].sum()
        for seed in range(300)
    ]
    assert repeats.lru_hit_rate(probabilities, capacity) == pytest.approx(
        np.mean(hit_rates), abs=0.015
    )
