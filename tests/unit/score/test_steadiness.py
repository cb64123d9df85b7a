"""Whether a load could go on for ever: queues with a known saturation, simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from builders.measurements import synthetic_measurement

from tuner.load.course import correlated_requests, course_of
from tuner.load.latency import AnsweredRequests, figures_of, observe_open
from tuner.load.traffic.arrivals import poisson
from tuner.measurement.measurement import Arrivals, Course, LoadPoint, Measurement
from tuner.measurement.window import Window, window_for
from tuner.reason import Reason, ReasonKind
from tuner.score.judge import SloOutcome, Verdict, judge, judge_all, outcome_of, unsteadiness
from tuner.sentences import sentence
from tuner.spec.metrics import ERROR_RATE, P99_LATENCY
from tuner.spec.slo import Slo

Values = npt.NDArray[np.float64]
SECOND = 1e6


def answered_s(due_s: Values, service_s: Values) -> Values:
    """When one server answers, first come, first served (Lindley)."""
    done = np.cumsum(service_s)
    answers: Values = done + np.maximum.accumulate(due_s - (done - service_s))
    return answers


def measured(
    rate: float, seed: int, *, service_s: float = 0.01, bound_s: float = 1.0, worse: float = 0.0
) -> Measurement:
    """One server of 100/s under Poisson load; ``worse``: growth of its service time in the run."""
    window = window_for(
        [0.99], rate, window_s=3.0, max_window_s=20.0, warmup_s=0.5, latency_bound_s=bound_s
    )
    due_s = poisson(rate, (window.warmup_s, window.duration_s, window.tail_s + 2.0), seed)
    noise = 1.0 + 0.03 * np.random.default_rng(seed + 999).standard_normal(due_s.size)
    service = service_s * noise * (1.0 + worse * due_s / window.total_s)
    stamps = 1e9 * answered_s(due_s, service)
    requests = AnsweredRequests(
        (1e9 * due_s).astype(np.int64), stamps.astype(np.int64), int(1e9 * window.total_s) + 10**9
    )
    load = LoadPoint(Arrivals.POISSON, rate)
    return Measurement.of_all(figures_of(observe_open(requests, due_s, window), load, seed))


def p99(bound_s: float) -> Slo:
    return Slo(P99_LATENCY, 1e6 * bound_s, f"p99_latency <= {bound_s}s")


@pytest.mark.parametrize("excess", [1.05, 1.1, 1.2])
@pytest.mark.parametrize("bound_s", [0.5, 1.0, 2.0])
def test_a_load_above_saturation_never_passes(excess: float, bound_s: float) -> None:
    for seed in range(20):
        verdict = judge(p99(bound_s), measured(excess * 100, seed, bound_s=bound_s))
        assert verdict.verdict.outcome is SloOutcome.MISSED
        assert verdict.verdict is Verdict.FAIL or "%" in verdict.reason


def test_a_load_that_stands_is_hardly_ever_refused() -> None:
    """At 0.9 of saturation, where the queue has gone up and down a few times in the window."""
    refused = sum(bool(unsteadiness(measured(90.0, seed), SECOND)) for seed in range(100))
    assert refused <= 5


def batches_answered_s(due_s: Values, batch_s: float, most: int) -> Values:
    """When a model answers that takes up to so many of those that wait at once."""
    answers, free_s = np.empty_like(due_s), 0.0
    first = 0
    while first < due_s.size:
        begun_s = max(free_s, due_s[first])
        after = min(int(np.searchsorted(due_s, begun_s, side="right")), first + most)
        free_s = begun_s + batch_s
        answers[first:after] = free_s
        first = after
    return answers


@pytest.mark.parametrize(("requests", "of_saturation"), [(30, 0.5), (50, 0.5), (50, 0.8)])
def test_a_batch_under_way_at_the_end_of_few_requests_is_no_backlog(
    requests: int, of_saturation: float
) -> None:
    """Of 50 requests 43 were answered in time, for no other reason than when they came."""
    rate, window = 80.0 * of_saturation, Window(0.0, 0.5, deadline_s=0.0, tail_s=1.0)
    window = replace(window, duration_s=requests / rate)
    refused = 0
    for seed in range(200):
        due_s = poisson(rate, (window.warmup_s, window.duration_s, window.tail_s + 2.0), seed)
        stamps = 1e9 * batches_answered_s(due_s, 0.1, 8)
        requests_ = AnsweredRequests(
            (1e9 * due_s).astype(np.int64), stamps.astype(np.int64), int(1e9 * due_s[-1]) + 10**9
        )
        load = LoadPoint(Arrivals.POISSON, rate)
        refused += bool(
            unsteadiness(figures_of(observe_open(requests_, due_s, window), load, 0), SECOND)
        )
    assert refused <= 8


def test_a_fast_server_is_known_to_fall_behind_by_two_percent() -> None:
    above = [measured(1020.0, seed, service_s=1e-3) for seed in range(20)]
    assert all(unsteadiness(m, SECOND) for m in above)
    below = [measured(950.0, seed, service_s=1e-3) for seed in range(50)]
    assert sum(bool(unsteadiness(m, SECOND)) for m in below) <= 1


def test_a_server_that_becomes_slower_is_not_steady_though_it_answers_all() -> None:
    measurement = measured(30.0, 1, worse=1.5, bound_s=2.0)
    grows = unsteadiness(measurement, 0.1 * SECOND)
    assert grows is not None
    assert grows.kind is ReasonKind.LATENCY_GROWS_IN_WINDOW
    assert not unsteadiness(measured(30.0, 1, bound_s=2.0), 0.1 * SECOND)


def test_growth_far_from_its_bound_refuses_no_load() -> None:
    """A p99 of 4.6 ms of 50 was refused, since a mean of 1 ms grew by 62 % in the window."""
    growing = Course(growth=0.62, growth_error=0.1, relaxation_s=1.0)
    fast = replace(synthetic_measurement(100.0, 4.6e3), avg_latency_us=1e3, course=growing)
    assert judge(p99(0.05), fast).verdict is Verdict.PASS
    assert judge(p99(0.006), fast).verdict is Verdict.NOT_STEADY


def test_a_load_that_is_not_steady_meets_no_latency_and_0_errors_are_0_errors() -> None:
    verdicts = judge_all([p99(2.0), NO_ERRORS], measured(107.0, 3, bound_s=2.0))
    assert [r.verdict for r in verdicts] == [Verdict.NOT_STEADY, Verdict.PASS]
    assert outcome_of(verdicts) is not SloOutcome.MET
    assert outcome_of(judge_all([NO_ERRORS], measured(107.0, 3, bound_s=2.0))) is not SloOutcome.MET
    assert verdicts[0].why_unsteady is not None
    assert verdicts[0].reason == sentence(verdicts[0].why_unsteady)


def test_a_closed_loop_waits_for_its_answers_and_is_steady() -> None:
    growing = Course(growth=3.0, growth_error=0.1, relaxation_s=1.0)
    closed = synthetic_measurement(8, arrivals=Arrivals.CLOSED)
    opened = replace(closed, load=LoadPoint(Arrivals.POISSON, 8), course=growing)
    assert not unsteadiness(replace(closed, course=growing), closed.p99_latency_us)
    assert unsteadiness(opened, closed.p99_latency_us)


def test_a_recording_that_gets_busier_is_no_trend_of_the_server() -> None:
    growing = Course(growth=3.0, growth_error=0.1, relaxation_s=1.0)
    load = LoadPoint(Arrivals.RECORDING, 100.0)
    measurement = replace(synthetic_measurement(100.0), load=load, course=growing, due_per_s=100.0)
    measurement = replace(measurement, completed_count=300, duration_s=3.0)
    assert unsteadiness(measurement, 30_000.0) is None
    assert unsteadiness(replace(measurement, load=LoadPoint(Arrivals.POISSON, 100.0)), 30_000.0)
    behind = unsteadiness(replace(measurement, completed_count=270), 30_000.0)
    assert behind == Reason(ReasonKind.ANSWERS_BEHIND, facts={"answered_percent": 90.0})


def test_requests_refused_by_a_queue_are_no_backlog() -> None:
    refusing = synthetic_measurement(100.0, count=200, failed=100, duration_s=3.0)
    assert not unsteadiness(replace(refusing, due_per_s=100.0), SECOND)
    assert unsteadiness(replace(refusing, due_per_s=100.0, failed_count=0), SECOND)


class TestWhatAWindowRemembers:
    def test_independent_latencies_remember_nothing(self) -> None:
        values = np.random.default_rng(1).exponential(size=5000)
        assert correlated_requests(values) == pytest.approx(1.0, abs=0.2)

    def test_an_autoregression_remembers_as_long_as_its_formula_says(self) -> None:
        noise, values = np.random.default_rng(2).standard_normal(60_000), [0.0]
        for e in noise:
            values.append(0.9 * values[-1] + e)
        assert correlated_requests(np.array(values)) == pytest.approx(1.9 / 0.1, rel=0.15)

    def test_latencies_that_are_all_equal_remember_nothing(self) -> None:
        assert correlated_requests(np.full(100, 3.0)) == 1.0

    def test_few_requests_tell_no_course(self) -> None:
        assert course_of(np.ones(20), np.linspace(0, 1, 20), 1.0) is None


def test_a_stored_measurement_keeps_its_course() -> None:
    measurement = measured(50.0, 1)
    assert measurement.course is not None
    again = Measurement.from_json(measurement.to_json())
    assert again.course == measurement.course
    assert again.by_arrival_us is None
    older: dict[str, Any] = measurement.to_json()
    del older["course"]
    assert Measurement.from_json(older).course is None


def test_latencies_are_kept_in_the_order_of_arrival() -> None:
    window = Window(duration_s=1.0, warmup_s=0.0, deadline_s=9.0)
    due_s = np.array([0.1, 0.2, 0.3])
    requests = AnsweredRequests(
        (due_s * 1e9).astype(np.int64),
        ((due_s + np.array([0.03, 0.01, 0.02])) * 1e9).astype(np.int64),
        2 * 10**9,
    )
    seen = observe_open(requests, due_s, window)
    assert seen.by_arrival_us == pytest.approx([30e3, 10e3, 20e3])
    assert seen.latencies_us == pytest.approx([10e3, 20e3, 30e3])


NO_ERRORS = Slo(ERROR_RATE, 0.0, "error_rate <= 0%")
