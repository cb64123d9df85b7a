from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tuner.errors import LoadFailedError, SpecError
from tuner.load.traffic import arrivals
from tuner.load.traffic.arrivals import BurstShape, Shape, Times
from tuner.measurement.measurement import Arrivals, LoadPoint

SPANS = (0.5, 3.0, 2.5)
BURSTS = BurstShape()
GAPS = np.array([1.0, 2.0, 5.0, 90.0])
RATE = 200.0
SEEDED: dict[str, Callable[[int], Times]] = {
    "poisson": lambda seed: arrivals.poisson(RATE, SPANS, seed),
    "bursts": lambda seed: arrivals.bursts(RATE, SPANS, seed, BURSTS),
    "constant": lambda seed: arrivals.constant(RATE, SPANS, seed),
    "trace": lambda seed: arrivals.trace(GAPS, RATE, SPANS, seed),
    "step": lambda seed: arrivals.steps(RATE, SPANS, seed),
}


@pytest.mark.parametrize("kind", SEEDED)
def test_times_ascend_and_repeat_with_the_seed(kind: str) -> None:
    times = SEEDED[kind](7)
    assert np.all(np.diff(times) >= 0)
    assert times[0] >= 0
    assert np.array_equal(times, SEEDED[kind](7))
    assert not np.array_equal(times, SEEDED[kind](8))


@pytest.mark.parametrize("kind", ["poisson", "constant", "bursts"])
@pytest.mark.parametrize("seed", range(5))
def test_every_span_has_exactly_the_requested_rate(kind: str, seed: int) -> None:
    times = SEEDED[kind](seed)
    inside = (times >= 0.5) & (times < 3.5)
    assert inside.sum() == 600
    assert (times < 0.5).sum() == 100


@pytest.mark.parametrize("seed", range(5))
def test_runs_with_the_same_seed_have_the_same_ups_and_downs(seed: int) -> None:
    slow, fast = (arrivals.poisson(rate, (3.0,), seed) for rate in (200.0, 220.0))
    gaps = np.diff(slow) / np.diff(fast)[: slow.size - 1]
    assert np.ptp(gaps) < 1e-6
    assert gaps.mean() == pytest.approx(1.1, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_steps_offer_each_span_exactly_its_share_of_the_capacity(seed: int) -> None:
    times = arrivals.steps(RATE, SPANS, seed)
    counts = np.histogram(times, np.cumsum((0.0, *SPANS)))[0]
    assert counts.tolist() == [80, 720, 400]  # 80 %, 120 % and 80 % of 200/s


def test_constant_gaps_are_equal_across_spans() -> None:
    times = arrivals.constant(30.1, SPANS, seed=3)
    assert np.diff(times) == pytest.approx(1 / 30.1)
    assert times[-1] < sum(SPANS) <= times[-1] + 1 / 30.1 + 1e-9


def test_steps_are_poisson_inside_a_span() -> None:
    times = arrivals.steps(1000.0, (1.0, 20.0, 1.0), seed=1)
    gaps = np.diff(times[(times >= 1.0) & (times < 21.0)])
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)


def test_a_trace_keeps_its_shape_and_gets_the_mean_rate() -> None:
    gaps = np.array([1.0, 3.0] * 50)
    times = arrivals.trace(gaps, 100.0, (10.0,), seed=0)
    assert times.size == 1000
    assert times[-1] == pytest.approx(10.0)
    gaps_s = np.diff(times)
    assert gaps_s.max() / gaps_s.min() == pytest.approx(3.0)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(arrivals.poisson(1000.0, (20.0,), seed=1))
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)
    assert np.mean(gaps > 2e-3) == pytest.approx(np.exp(-2.0), abs=0.01)


def test_bursts_vary_more_than_poisson_over_tenths_of_a_second() -> None:
    def variance_to_mean(times: Times) -> float:
        counts = np.histogram(times, bins=500, range=(0.0, 50.0))[0]
        return float(counts.var() / counts.mean())

    assert variance_to_mean(arrivals.poisson(200.0, (50.0,), seed=2)) < 1.5
    assert variance_to_mean(arrivals.bursts(200.0, (50.0,), 2, BURSTS)) > 5.0


@pytest.mark.parametrize(("ratio", "share"), [(5.0, 0.2), (20.0, 0.05)])
def test_bursts_have_the_requested_ratio_and_share(ratio: float, share: float) -> None:
    times = arrivals.bursts(500.0, (2000.0,), 3, BurstShape(ratio, share, 0.5))
    rates = np.histogram(times, bins=40_000, range=(0.0, 2000.0))[0] / 0.05
    calm_per_s = 500.0 / (1.0 - share + ratio * share)
    middle = calm_per_s * (1.0 + ratio) / 2.0
    assert np.mean(rates > middle) == pytest.approx(share, rel=0.3)
    assert np.median(rates[rates < middle]) == pytest.approx(calm_per_s, rel=0.1)
    assert np.median(rates[rates > middle]) == pytest.approx(calm_per_s * ratio, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (Arrivals.POISSON, None),
        (Arrivals.CONSTANT, None),
        (Arrivals.BURSTS, BURSTS),
        (Arrivals.TRACE, GAPS),
        (Arrivals.STEP, None),
    ],
)
def test_a_load_point_has_its_arrivals(kind: Arrivals, shape: Shape | None) -> None:
    times_s = arrivals.arrivals_of(LoadPoint(kind, RATE), SPANS, 7, shape)
    assert np.array_equal(times_s, SEEDED[kind.value](7))


@pytest.mark.parametrize("kind", [Arrivals.CLOSED, Arrivals.TRACE, Arrivals.BURSTS])
def test_a_load_point_without_arrivals(kind: Arrivals) -> None:
    with pytest.raises(LoadFailedError, match=kind.value):
        arrivals.arrivals_of(LoadPoint(kind, RATE), SPANS, 7)


@pytest.mark.parametrize("made", [arrivals.poisson, arrivals.constant, arrivals.steps])
def test_there_is_always_an_arrival(made: Callable[..., Times]) -> None:
    assert made(0.01, (0.1, 1.0, 0.1), seed=0).size == 1


def test_written_gaps_are_integer_microseconds_whose_sum_does_not_drift(tmp_path: Path) -> None:
    path = tmp_path / "intervals"
    times = arrivals.poisson(30_000.0, (1.0,), seed=3)
    kept = arrivals.write_intervals(times, path)
    gaps = [int(line) for line in path.read_text().splitlines()]
    assert len(gaps) == times.size == 30_000
    assert min(gaps) >= 0
    assert np.abs(np.cumsum(gaps) / 1e6 - times).max() <= 0.5e-6 + 1e-12
    assert np.array_equal(kept, np.cumsum(gaps) / 1e6)


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("100\n250.5\n0\n")
    assert arrivals.read_trace(path).tolist() == [100.0, 250.5, 0.0]


def test_a_recording_in_place_of_a_trace_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text('{"due_s": 0}\n')
    with pytest.raises(SpecError, match=":1: not a gap in microseconds") as refused:
        arrivals.read_trace(tmp_path / "requests.jsonl")
    assert refused.value.hint == "a recording is of arrivals: {kind: recording}"
