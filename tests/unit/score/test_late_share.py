"""The upper limit of the late share holds as often as it says, however alike neighbours are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement

from tuner.measurement.measurement import Measurement
from tuner.score.late_share import LateShare, late_share, measured_late_share, missed_by_chance

ALLOWED = 0.01
Latencies = np.ndarray


def independent(count: int) -> Callable[[np.random.Generator], Latencies]:
    return lambda rng: rng.exponential(1.0, count)


def queue(
    rate: float, service: float, seconds: float
) -> Callable[[np.random.Generator], Latencies]:
    """Poisson arrivals at one server of constant service time (Lindley's recursion), warmed up."""
    count = round(rate * seconds)
    early = count // 10

    def draw(rng: np.random.Generator) -> Latencies:
        step = service - rng.exponential(1.0 / rate, count + early)
        walk = np.cumsum(step) - step[0]
        return (walk - np.minimum.accumulate(walk) + service)[early:]

    return draw


def batching(
    rate: float, fixed: float, each: float, largest: int, seconds: float
) -> Callable[[np.random.Generator], Latencies]:
    """A server that takes all that wait, up to a largest batch."""
    count = round(rate * seconds)
    early = count // 10

    def draw(rng: np.random.Generator) -> Latencies:
        due = np.cumsum(rng.exponential(1.0 / rate, count + early))
        latency = np.empty(due.size)
        first, free = 0, 0.0
        while first < due.size:
            start = max(free, due[first])
            end = min(int(np.searchsorted(due, start, "right")), first + largest)
            free = start + fixed + each * (end - first)
            latency[first:end] = free - due[first:end]
            first = end
        return latency[early:]

    return draw


WORKLOADS = {
    "independent": independent(3000),
    "few and independent": independent(500),
    "a queue at 85%": queue(110.0, 0.85 / 110.0, 30.0),
    "a queue at 93%": queue(280.0, 0.93 / 280.0, 30.0),
    "a fast queue at 97%": queue(2600.0, 0.97 / 2600.0, 10.0),
    "batches to 8": batching(100.0, 0.02, 0.005, 8, 30.0),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_limit_is_above_the_true_share_as_often_as_it_says(name: str) -> None:
    draw = WORKLOADS[name]
    rng = np.random.default_rng(5)
    bound = float(np.quantile(np.concatenate([draw(rng) for _ in range(250)]), 1.0 - ALLOWED))
    covered = [late_share(draw(rng), bound).at_most >= ALLOWED for _ in range(200)]
    assert 0.88 <= np.mean(covered) <= 1.0


def test_independent_requests_count_nearly_in_full() -> None:
    share = late_share(np.random.default_rng(1).exponential(1.0, 30_000), -np.log(ALLOWED))
    assert share.share == pytest.approx(ALLOWED, rel=0.15)
    assert share.effective > 15_000
    assert share.at_most < 0.0125


def test_requests_of_a_queue_tell_less_than_as_many_independent_ones() -> None:
    """Interpreting them as independent covers the true share in half of the windows only."""
    draw = queue(280.0, 0.93 / 280.0, 30.0)
    rng = np.random.default_rng(2)
    effective = [late_share(draw(rng), 0.1).effective for _ in range(20)]
    assert np.median(effective) < 0.03 * 280 * 30


def test_a_window_without_a_late_request_does_not_show_that_none_is() -> None:
    calm = late_share(np.random.default_rng(3).exponential(1.0, 1000), 100.0)
    assert (calm.late, calm.share) == (0, 0.0)
    assert calm.at_most == pytest.approx(1.0 - 0.05 ** (1.0 / calm.effective))
    assert 0.002 < calm.at_most < 0.02


def test_unanswered_requests_are_late() -> None:
    latencies = np.full(1000, 1.0)
    latencies[::10] = np.inf
    share = late_share(latencies, 5.0)
    assert (share.requests, share.late) == (1000, 100)
    assert 0.1 < share.at_most < 0.13


@pytest.mark.parametrize("latency", [1.0, np.inf])
@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_a_handful_of_requests_shows_hardly_anything(count: int, latency: float) -> None:
    share = late_share(np.full(count, latency), 5.0)
    assert share.late == (0 if latency == 1.0 else count)
    assert 1.0 <= share.effective <= count
    assert share.at_most > 0.09


def test_no_request_has_no_share() -> None:
    with pytest.raises(ValueError, match="needs a request"):
        late_share(np.array([]), 1.0)


def test_late_share_survives_json() -> None:
    late = late_share(np.arange(100.0), 90.0)
    assert LateShare.from_json(late.to_json()) == late
    excluded = replace(late, left_out_s=3.4, with_left_out=0.2, machine_decides=True)
    assert LateShare.from_json(excluded.to_json()) == excluded


@pytest.mark.parametrize(
    ("with_stalls", "said"),
    [
        (80, "8% with the 3.4 s in which the machine paused: the machine decides this SLO"),
        (12, "1.2% with the 3.4 s in which the machine paused"),
        (None, "0.5% late"),
    ],
)
def test_excluded_stalls_are_reported_with_the_deciding_share(
    with_stalls: int | None, said: str
) -> None:
    quiet = np.where(np.arange(1000) < 5, 50e3, 10e3)
    with_all = None if with_stalls is None else np.where(np.arange(1000) < with_stalls, 50e3, 10e3)
    share = measured_late_share(
        replace(
            synthetic_measurement(),
            by_arrival_us=quiet,
            all_by_arrival_us=with_all,
            left_out_s=3.4,
        ),
        [P99_40MS],
    )
    assert share.text.startswith("0.5% late")
    assert "at most" not in share.text  # from so few independent requests it would be a guess
    assert said in share.text
    assert share.machine_decides is (with_stalls == 80)


def windows_with(late: int, count: int = 314) -> list[Measurement]:
    """Two windows with as many late requests each, at random places."""
    rng = np.random.default_rng(1)
    latencies = np.where(np.arange(count) < late, 41e3, 10e3)
    return [
        replace(synthetic_measurement(), by_arrival_us=rng.permutation(latencies)) for _ in range(2)
    ]


@pytest.mark.parametrize(("late", "by_chance"), [(0, True), (4, True), (20, False), (314, False)])
def test_miss_is_by_chance_where_the_long_run_may_meet_the_slo(late: int, by_chance: bool) -> None:
    assert missed_by_chance(P99_40MS, windows_with(late)) is by_chance


def test_miss_in_one_stall_is_by_chance() -> None:
    """Twenty late requests of one stall are about one independent one."""
    latencies = np.where(np.arange(600) // 10 == 30, 41e3, 10e3)
    window = replace(synthetic_measurement(), by_arrival_us=latencies)
    assert missed_by_chance(P99_40MS, [window, window])


def test_miss_without_single_latencies_and_of_another_slo_is_never_by_chance() -> None:
    assert not missed_by_chance(P99_40MS, [synthetic_measurement(p99_us=41e3)])
    assert not missed_by_chance(NO_ERRORS, windows_with(0))
