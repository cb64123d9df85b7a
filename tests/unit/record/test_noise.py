"""How well the measurements of a run's own proof repeat."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from builders.measurements import P99_40MS, synthetic_server

from tuner.record.confirmation import Repeat, Role
from tuner.record.noise import noise_of, spread
from tuner.score.point import judge_point


def test_spread_finds_the_noise_it_was_made_with() -> None:
    random = np.random.default_rng(1)
    groups = [list(mean * (1 + 0.05 * random.standard_normal(4))) for mean in np.arange(50, 450)]
    count, cv = spread(groups)
    assert (count, cv) == (1600, pytest.approx(0.05, rel=0.03))


def test_spread_of_two_values_by_hand() -> None:
    # deviations of 1 % and -1 % from the mean, one degree of freedom
    assert spread([[99.0, 101.0]])[1] == pytest.approx(math.sqrt(2) * 0.01)


def test_spread_pools_what_was_repeated_and_passes_over_the_rest() -> None:
    # squares of 1 % twice and of 2 % twice, over one degree of freedom each
    count, cv = spread([[99.0, 101.0], [7.0], [], [0.0, 0.0], [98.0, 102.0]])
    assert (count, cv) == (4, pytest.approx(math.sqrt((2 * 0.01**2 + 2 * 0.02**2) / 2)))


@pytest.mark.parametrize("groups", [[], [[]], [[5.0]], [[1.0], [2.0]], [[0.0, 0.0]]])
def test_rows_without_repeats_have_no_spread(groups: list[list[float]]) -> None:
    assert spread(groups)[1] is None


def row(round_: int, candidate: str, level: float, capacity: float = 100.0) -> Repeat:
    point = judge_point([P99_40MS], synthetic_server(level, capacity))
    return Repeat(round_, 0, Role.CANDIDATE, candidate, point)


def test_the_noise_of_a_run_comes_from_what_it_repeated() -> None:
    rows = [
        *(row(n, "a", 95.0, capacity) for n, capacity in enumerate((100.0, 102.0, 98.0))),
        *(row(n, "a", 105.0, capacity) for n, capacity in enumerate((100.0, 102.0, 98.0))),
        row(0, "b", 95.0),
    ]
    noise = noise_of(rows)
    assert (noise.repeats, noise.rounds) == (6, 3)
    assert noise.throughput_cv == pytest.approx(0.0, abs=0.01)
    assert noise.p99_cv is not None
    assert noise.p99_cv > 0.05
    assert noise.capacity_cv == pytest.approx(0.02, rel=0.2)


def test_a_run_that_repeated_nothing_knows_no_noise() -> None:
    assert noise_of([]) is None
    assert noise_of([row(0, "a", 95.0), row(0, "b", 95.0)]) is None


def test_a_soak_repeats_nothing_since_its_load_was_chosen_by_the_rounds() -> None:
    rows = [row(n, "a", level, 100.0 + n) for n in range(2) for level in (95.0, 105.0)]
    assert noise_of([*rows, replace(rows[0], role=Role.SOAK)]) == noise_of(rows)
