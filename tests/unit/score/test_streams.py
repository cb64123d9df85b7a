"""Several streams in one measurement: each is held to its own SLOs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders.measurements import synthetic_figures, synthetic_measurement

from tuner.measurement.measurement import Measurement, ServerStatistics
from tuner.meter.again import missed_by_gaps
from tuner.score.capacity import LevelRange, saturated
from tuner.score.judge import SloOutcome, Verdict, judge
from tuner.score.late_share import measured_late_share
from tuner.score.next_load import next_load
from tuner.score.point import Point, judge_point
from tuner.spec.slo import Slo

FAST = replace(Slo.parse("p99_latency <= 40ms"), stream="fast")
SLOW = replace(Slo.parse("p99_latency <= 500ms"), stream="slow")
BESIDE = replace(Slo.parse("p99_latency <= 100ms"), stream="beside")
SLOS = (FAST, SLOW, BESIDE)


def a_mix(fast_us: float = 20e3, slow_us: float = 200e3, beside_us: float = 50e3) -> Measurement:
    """75/25 at 100/s, and a background of 10/s."""
    streams = {
        "fast": synthetic_figures(75.0, fast_us, count=2250, duration_s=30.0),
        "slow": synthetic_figures(25.0, slow_us, count=750, duration_s=30.0),
        "beside": synthetic_figures(10.0, beside_us, count=500, duration_s=30.0),
    }
    streams["beside"] = replace(streams["beside"], background=True)
    total = synthetic_measurement(100.0, max(fast_us, slow_us), count=3000, duration_s=30.0)
    return replace(total, streams=streams)


def test_load_passes_where_every_stream_meets_its_slos() -> None:
    point = judge_point(SLOS, a_mix())
    assert point.passed
    assert [r.stream for r in point.slo] == ["fast", "slow", "beside"]
    assert point.slo_utilisation == pytest.approx(0.5)  # fast and beside
    assert point.served_per_s == pytest.approx(100.0)


def test_a_mix_serves_no_more_than_its_stream_that_falls_behind() -> None:
    """Else a search below the saturation of one stream goes down in small steps."""
    mix = a_mix()
    half = replace(mix.streams["slow"], completed_count=375, due_per_s=25.0)
    total = replace(mix, completed_count=2625, streams={**mix.streams, "slow": half})
    point = judge_point(SLOS, total)
    assert point.served_per_s == pytest.approx(50.0)
    assert saturated(point)
    assert next_load([point], LevelRange(0.1, 1e5)) == pytest.approx(0.95 * 50.0)


def test_a_stream_of_few_requests_is_not_behind_by_chance() -> None:
    mix = a_mix()
    few = replace(mix.streams["slow"], completed_count=735, due_per_s=25.0)
    point = judge_point(SLOS, replace(mix, streams={**mix.streams, "slow": few}))
    assert point.served_per_s == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("missed", "times"),
    [("fast_us", 50e3), ("slow_us", 600e3), ("beside_us", 120e3)],
)
def test_one_stream_over_its_slo_fails_the_load(missed: str, times: float) -> None:
    point = judge_point(SLOS, a_mix(**{missed: times}))
    assert not point.passed
    assert point.slo_utilisation == pytest.approx({50e3: 1.25, 600e3: 1.2, 120e3: 1.2}[times])


def test_a_stream_of_which_no_request_was_due_has_no_verdict() -> None:
    mix = a_mix()
    streams = {name: m for name, m in mix.streams.items() if name != "slow"}
    point = judge_point(SLOS, replace(mix, streams=streams))
    assert point.slo[1].verdict is Verdict.NOT_ENOUGH_DATA
    assert point.outcome is SloOutcome.TOO_FEW


def test_too_few_answers_of_the_rarest_stream_leave_it_undecided() -> None:
    mix = a_mix()
    rare = synthetic_measurement(1.0, 20e3, count=100)
    point = judge_point(SLOS, replace(mix, streams={**mix.streams, "slow": rare}))
    assert point.outcome is SloOutcome.TOO_FEW
    assert not point.passed


def test_refusals_of_one_stream_count_against_that_stream_alone() -> None:
    mix = a_mix()
    refusing = replace(mix.streams["slow"], failed_count=30)
    mix = replace(mix, streams={**mix.streams, "slow": refusing}, failed_count=30)
    assert judge(SLOW, mix).verdict is Verdict.FAIL
    assert judge(FAST, mix).verdict is Verdict.PASS


def test_single_named_stream_is_judged_by_its_measurements() -> None:
    alone = synthetic_measurement(75.0, 30e3, count=2250, duration_s=30.0)
    point = judge_point([FAST], alone)
    assert point.passed
    assert point.slo_utilisation == pytest.approx(0.75)


def test_reading_is_of_the_requested_stream() -> None:
    point = judge_point(SLOS, a_mix())
    assert point.reading(FAST.metric, "fast") == 20e3
    assert point.reading(FAST.metric, "slow") == 200e3
    assert point.reading(FAST.metric) == 200e3


def test_the_share_of_late_requests_is_that_of_the_worst_stream() -> None:
    mix = a_mix()
    rng = np.random.default_rng(1)
    late = {"fast": 0.0, "slow": 0.04, "beside": 0.0}
    streams = {
        name: replace(
            m, by_arrival_us=np.where(rng.random(2000) < late[name], 1e9, rng.random(2000))
        )
        for name, m in mix.streams.items()
    }
    share = measured_late_share(replace(mix, streams=streams), SLOS)
    assert share.share == pytest.approx(0.04, abs=0.015)


def test_warming_stream_is_distinguished_from_a_slow_one() -> None:
    def starting(slow: int, in_gaps: int) -> Point:
        mix = a_mix()
        latencies = np.sort(np.where(np.arange(2000) < slow, 900e3, 20e3))
        outside = latencies[: latencies.size - in_gaps] if in_gaps else None
        slow_one = replace(
            mix.streams["slow"],
            latencies_us=latencies,
            outside_gaps_us=outside,
            p99_latency_us=float(latencies[1979]),
        )
        return judge_point(SLOS, replace(mix, streams={**mix.streams, "slow": slow_one}))

    assert not starting(100, 100).passed
    assert missed_by_gaps(SLOS, starting(100, 100))
    assert not missed_by_gaps(SLOS, starting(200, 100)), "others are late as well"
    assert not missed_by_gaps(SLOS, starting(100, 0))


def test_a_measurement_of_several_streams_survives_json() -> None:
    counted = ServerStatistics(5, 0, 5, 2, 1.0, 2.0, 3.0, 4.0)
    mix = replace(a_mix(), models={"a": counted, "b": counted})
    again = Measurement.from_json(mix.to_json())
    assert again == mix
    assert again.streams["beside"].background
    assert again.of("slow") == mix.streams["slow"]
    assert again.of("") is again
    assert again.of("none") is None
    point = judge_point(SLOS, mix)
    assert Point.from_json(point.to_json()) == point


def test_a_measurement_of_one_stream_is_stored_without_streams() -> None:
    counted = ServerStatistics(5, 0, 5, 2, 1.0, 2.0, 3.0, 4.0)
    one = replace(synthetic_measurement(), server=counted, models={"m": counted})
    stored = judge_point([Slo.parse("p99_latency <= 40ms")], one).to_json()
    assert {"streams", "background"}.isdisjoint(stored["measurement"])
    assert "stream" not in stored["slo"][0]
    assert Measurement.from_json(one.to_json()).models == one.models
