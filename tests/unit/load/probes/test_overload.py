"""Overloads read from synthetic queues and curves: what was served, and when it was over.

How that is told is in `golden/messages/overloads.txt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from builders.measurements import P99_40MS, latency_slo, synthetic_figures, synthetic_measurement

from tuner.errors import LoadFailedError
from tuner.load.latency import AnsweredRequests, observe_open
from tuner.load.probes.overload import (
    SLICE_S,
    Overload,
    overload_of,
    overload_window,
    recovered_after,
)
from tuner.load.traffic.arrivals import arrivals_of
from tuner.measurement.measurement import (
    Arrivals,
    FailureReason,
    Failures,
    LoadPoint,
    Measurement,
    Slice,
)
from tuner.measurement.responses import percentile
from tuner.measurement.window import Window
from tuner.score.judge import judge
from tuner.spec.slo import Slo

WINDOW = overload_window(P99_40MS)
CAPACITY = 1000.0


def queue(service_s: float, capacity: float = CAPACITY, window: Window = WINDOW) -> Measurement:
    """A probe of a queue with one server and constant service, computed."""
    load = LoadPoint(Arrivals.STEP, capacity)
    spans = (window.warmup_s, window.duration_s, window.tail_s)
    due = arrivals_of(load, spans, seed=1)
    free, answered = 0.0, []
    for moment in due.tolist():
        free = max(free, moment) + service_s
        answered.append(free)
    seen = np.array(answered) <= window.total_s
    sent_ns, answered_ns = ((m[seen] * 1e9).astype(np.int64) for m in (due, np.array(answered)))
    observed = observe_open(
        AnsweredRequests(sent_ns, answered_ns, round(window.total_s * 1e9)), due, window
    )
    return replace(
        synthetic_measurement(capacity, percentile(observed.latencies_us, 0.99)),
        load=load,
        completed_count=observed.answered_count,
        latencies_us=observed.latencies_us,
        late_sends=0.0,
        slices=observed.slices,
    )


def probed(service_s: float) -> Overload:
    return overload_of(queue(service_s), WINDOW, P99_40MS)


def after(milliseconds: Sequence[float | None], refused: float = 0.0) -> list[Slice]:
    """Slices from the end of an overload of 2 s, 40 requests a slice."""
    return [
        Slice(
            start_s=2.0 + SLICE_S * k,
            due_per_s=0.0 if p99 is None else 160.0,
            answered_per_s=160.0,
            p99_latency_us=None if p99 is None else p99 * 1e3,
            refused_per_s=refused,
        )
        for k, p99 in enumerate(milliseconds)
    ]


class TestWindow:
    def test_a_probe_takes_about_four_seconds(self) -> None:
        assert WINDOW.total_s == pytest.approx(4.06)
        assert (WINDOW.warmup_s, WINDOW.duration_s) == (1.0, 1.0)
        assert WINDOW.slice_s == SLICE_S

    def test_a_longer_latency_needs_a_longer_overload(self) -> None:
        window = overload_window(Slo.parse("p99_latency <= 900ms"))
        assert window.duration_s == 4.0  # whole slices, more than twice the latency
        assert window.tail_s == pytest.approx(8.0 + 1.35)


class TestAQueue:
    def test_that_serves_its_capacity_works_off_the_backlog_in_the_time_it_took(self) -> None:
        overload = probed(1.0 / CAPACITY)
        assert overload.asked_per_s == 1200.0
        assert overload.served_per_s == pytest.approx(1000.0, abs=5.0)
        assert overload.p99_latency_us == pytest.approx(200_000.0, rel=0.2)  # 200 requests wait
        assert overload.late_share > 0.7
        assert overload.recovered_after_s == pytest.approx(1.0, abs=0.5)

    def test_that_could_do_much_more_never_misses(self) -> None:
        overload = probed(0.0002)
        assert (overload.late_share, overload.recovered_after_s) == (0.0, 0.0)
        assert not overload.missed
        assert f"(p99 {overload.p99_latency_us / 1e3:.3g} ms, 0% late)" in overload.sentence

    def test_that_cannot_even_do_the_calm_rate_does_not_recover(self) -> None:
        overload = probed(1.0 / 700.0)
        assert overload.recovered_after_s is None
        assert overload.late_share == 1.0

    def test_is_seen_from_where_it_had_settled_to_where_answers_may_still_come(self) -> None:
        overload = probed(0.0002)
        assert overload.slices[0].start_s == -0.5
        assert overload.slices[-1].start_s + SLICE_S == 3.0
        assert overload.watched_s == 2.0


class TestRefused:
    def test_requests_are_late_and_no_part_of_the_percentile(self) -> None:
        kept_up = queue(0.0002)
        timed_out = {FailureReason.TIMED_OUT: Failures(600, 21e3, 300e3)}
        measurement = replace(kept_up, failed_count=600, rejected_count=600, failures=timed_out)
        overload = overload_of(measurement, WINDOW, P99_40MS)
        assert overload.late_share == overload.rejected_share == pytest.approx(600 / 1800)
        assert overload.p99_latency_us == kept_up.p99_latency_us
        assert ", 33.3% refused" in overload.sentence
        assert overload.failures == timed_out

    def test_slices_are_not_in_time(self) -> None:
        refusing, calm = after([20] * 3, refused=16.0), after([20] * 13)[3:]
        assert recovered_after([*refusing, *calm], 2.0, 40_000.0) == 0.75


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([20] * 16, 0.0),
        ([300, 200, 100, 50, *[20] * 12], 1.0),
        ([300] * 16, None),
        ([*[300] * 15, 20], 3.75),  # just in time
        ([20, 20, 300, 300, *[20] * 12], 1.0),  # relapsed
        ([300, *[20] * 5, 50, *[20] * 9], 0.25),  # one slice in ten may be late
        ([20, 300] * 8, None),  # in and out
        ([None, 300, None, 20, None, *[20] * 5], 0.75),  # without requests: neither
        ([None] * 16, None),
    ],
)
def test_recovered_when_it_is_in_time_and_stays_so(
    curve: Sequence[float | None], expected: float | None
) -> None:
    before = [Slice(1.75, 160.0, 160.0, 900_000.0)]  # does not count
    assert recovered_after([*before, *after(curve)], 2.0, 40_000.0) == expected


def test_the_expression_is_the_one_verdicts_have() -> None:
    p90 = Slo.parse("p90_latency <= 0.02s")
    for slo in (P99_40MS, p90):
        verdict = overload_of(queue(0.0002), WINDOW, slo).slo
        assert verdict == str(slo) == judge(slo, synthetic_measurement()).expression


def test_an_overload_of_a_mix_is_judged_by_the_stream_that_the_slo_is_about() -> None:
    slo = replace(P99_40MS, stream="tight")
    calm, late = synthetic_figures(80.0, 20e3), synthetic_figures(20.0, 90e3)
    slices = (Slice(0.0, 20.0, 20.0, 90e3), Slice(2.5, 20.0, 20.0, 20e3))
    streams = {"loose": late, "tight": replace(calm, slices=slices)}
    mix = replace(synthetic_measurement(100.0, 90e3), streams=streams)
    window = overload_window(slo)
    overload = overload_of(mix, window, slo)
    assert (overload.late_share, overload.p99_latency_us) == (0.0, 20e3)
    assert overload_of(mix, window, replace(P99_40MS, stream="tight", bound=15e3)).late_share > 0.3
    assert overload.capacity_per_s == 100.0
    assert window.bounds == (latency_slo(0.99, slo.bound / 1e6, "tight"),)
    with pytest.raises(LoadFailedError):
        overload_of(mix, window, replace(P99_40MS, stream="loose"))
