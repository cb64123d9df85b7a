from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.measurements import latency_slo
from builders.messages_measuring import measured

from tuner.load.latency import within_bounds
from tuner.load.perf_analyzer.generator import RunFiles, command_line, interval_ms, load_s
from tuner.load.setup import LoadTarget, StreamRequests
from tuner.load.validity import client_kept_up, warnings_about
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import (
    Arrivals,
    FailureReason,
    Failures,
    LoadPoint,
    Measurement,
    ServerStatistics,
)
from tuner.measurement.window import Window, lowest_rate, window_for
from tuner.reason import Reason
from tuner.server.server import Endpoints
from tuner.spec.metrics import requests_needed
from tuner.spec.slo import Slo
from tuner.spec.workload import Protocol

WINDOW = Window(duration_s=3.0, warmup_s=0.5, deadline_s=30.0, tail_s=0.1)
ENDPOINTS = Endpoints("127.0.0.1:8000", "127.0.0.1:8001", "127.0.0.1:8002")


def poisson(rate: float) -> LoadPoint:
    return LoadPoint(Arrivals.POISSON, rate)


def test_a_measurement_survives_json() -> None:
    server = ServerStatistics(5, 0, 5, 2, 1.0, 2.0, 3.0, 4.0, batch_stats=((2, 1, 10), (3, 1, 20)))
    complete = measured(
        server=server,
        host=HostUse(cpu_percent=10.0, cache_entries=3),
        unanswered_count=2,
        failed_count=3,
        rejected_count=2,
        failures={
            FailureReason.TIMED_OUT: Failures(2, 51e3, 0.3e6),
            FailureReason.OTHER: Failures(1, 9e3, 9e3),
        },
        batch_size=4,
        warnings=(Reason.of_text("One."),),
        command=("perf_analyzer", "-m", "m"),
        latencies_us=np.array([1.0, 2.0]),
    )
    back = Measurement.from_json(json.loads(json.dumps(complete.to_json())))
    assert back == complete
    assert back.latencies_us is None


def test_a_good_measurement_has_no_warnings() -> None:
    assert warnings_about(measured()) == ()
    assert client_kept_up(measured())


def test_too_few_requests_are_reported_for_the_percentile_of_the_slo() -> None:
    few, bounds = measured(completed_count=43), [latency_slo(0.9, 0.04), latency_slo(0.5, 0.01)]
    assert len(warnings_about(few, bounds)) == 1
    assert warnings_about(measured(completed_count=44), bounds) == ()
    assert warnings_about(replace(few, within_bounds=False), bounds) == ()  # a miss is shown by few


@pytest.mark.parametrize("fields", [{"sent_per_s": 150.0}, {"late_sends": 0.12}])
def test_a_client_that_was_behind_did_not_keep_up(fields: dict[str, Any]) -> None:
    """What held it is told in `golden/messages/measurements.txt`."""
    assert not client_kept_up(measured(**fields))


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({"within_bounds": True}, True),
        ({"within_bounds": True, "sent_per_s": 197.0}, True),
        ({"within_bounds": True, "sent_per_s": 195.0}, False),
        ({"within_bounds": False}, False),  # the miss may be the client's
        ({"within_bounds": None}, False),
        ({"within_bounds": False, "p99_latency_us": 85_000.0}, True),  # hardly the client's
    ],
)
def test_late_sends_spoil_no_measurement_that_met_its_slos(
    fields: dict[str, Any], counts: bool
) -> None:
    """A p99 of 2 ms against a bound of 80 ms, on a machine whose hypervisor takes 10 %."""
    late = {"late_sends": 0.06, "send_lag_p99_us": 2_050.0, "p99_latency_us": 2_400.0}
    measurement = measured(**{**late, **fields})
    assert client_kept_up(measurement) is counts
    assert (warnings_about(measurement) == ()) is counts


@pytest.mark.parametrize(
    ("bounds", "lost", "expected"),
    [
        ((), 0, None),
        ((latency_slo(0.99, 0.000_099),), 0, True),
        ((latency_slo(0.99, 0.000_098_9),), 0, False),
        ((latency_slo(0.99, 0.000_099), latency_slo(0.5, 0.000_049)), 0, False),
        ((latency_slo(0.99, 1.0),), 1, True),
        ((latency_slo(0.99, 1.0),), 2, False),  # 2 of 102 were refused
    ],
)
def test_whether_a_measurement_met_what_slos_bound(
    bounds: tuple[Slo, ...], lost: int, expected: bool | None
) -> None:
    assert within_bounds(np.arange(1.0, 101.0), lost, bounds) is expected


def test_trace_can_be_slower_in_the_window_than_in_total() -> None:
    assert client_kept_up(measured(load=LoadPoint(Arrivals.TRACE, 200.0), sent_per_s=150.0))
    assert not client_kept_up(measured(sent_per_s=150.0))


@pytest.mark.parametrize(
    ("share", "over", "expected"),
    [
        (0.90, 0, 44),
        (0.95, 0, 90),
        (0.99, 0, 459),
        (0.99, 1, 662),
        (0.99, 5, 1307),
        (0.99, 20, 3304),
        (0.999, 0, 4603),
    ],
)
def test_requests_needed_match_the_published_rule(share: float, over: int, expected: int) -> None:
    assert requests_needed(share, over) == expected


def test_a_window_is_as_long_as_its_percentile_needs() -> None:
    def seconds(shares: list[float], rate: float | None) -> float:
        return window_for(shares, rate, window_s=3.0, max_window_s=20.0, warmup_s=0.5).duration_s

    assert seconds([0.99], 1000.0) == 3.0
    assert seconds([0.5, 0.99], 100.0) == pytest.approx(1.05 * 4.59)
    assert seconds([0.99], 10.0) == 20.0
    assert seconds([0.99], None) == seconds([], 100.0) == 3.0
    assert seconds([], 1.0) == pytest.approx(10.5)  # a mean needs some requests too


@pytest.mark.parametrize(
    ("bound_s", "window_s", "warmup_s"), [(0.04, 3.0, 0.5), (0.1, 3.0, 0.5), (1.0, 10.0, 2.0)]
)
def test_window_and_warm_up_are_long_beside_the_latency_slo(
    bound_s: float, window_s: float, warmup_s: float
) -> None:
    """In windows of 3 s loads of 1.2 times the saturation were within a bound of a second."""
    for longest_s in (5.0, 600.0):
        window = window_for(
            [0.99],
            1000.0,
            window_s=3.0,
            max_window_s=longest_s,
            warmup_s=0.5,
            latency_bound_s=bound_s,
        )
        assert (window.duration_s, window.warmup_s) == (window_s, warmup_s)


def test_in_a_closed_loop_no_queue_can_grow_and_a_window_is_as_short_as_the_spec_says() -> None:
    lengths = {"window_s": 1.0, "max_window_s": 600.0, "warmup_s": 0.2, "latency_bound_s": 1.0}
    window = window_for([0.9], 800.0, **lengths, open_loop=False)
    assert (window.duration_s, window.warmup_s) == (1.0, 0.2)


def test_the_lowest_rate_that_is_judged_fills_the_longest_window() -> None:
    assert lowest_rate([0.99, 0.5], 600.0) == pytest.approx(1.05 * 459 / 600)
    assert lowest_rate([0.9], 600.0) == pytest.approx(1.05 * 44 / 600)
    assert lowest_rate([], 600.0) < 0.05


def test_the_tail_is_longer_than_the_latency_bound() -> None:
    window = window_for(
        [0.99], 1000.0, window_s=3.0, max_window_s=20.0, warmup_s=0.5, latency_bound_s=2.0
    )
    assert window.tail_s > 2.0
    assert window.deadline_s > window.total_s + 10.0


@pytest.mark.parametrize("total_s", [0.1, 1.0, 3.6, 20.0])
def test_three_windows_cover_the_load(total_s: float) -> None:
    assert total_s <= load_s(interval_ms(total_s)) < total_s + 0.03


def test_stored_command_lines_of_load_generators_have_their_options() -> None:
    files = RunFiles(Path("in.json"), Path("gaps"), Path("out.csv"), Path("export.json"))
    to = LoadTarget(ENDPOINTS, Protocol.GRPC), StreamRequests("m", batch_size=4)
    line = command_line(Path("/bin/pa"), *to, poisson(200.0), WINDOW, files)
    assert line[:7] == ["/bin/pa", "-m", "m", "-u", "127.0.0.1:8001", "-i", "grpc"]
    options = dict(pairwise(line))
    assert options["--request-intervals"] == "gaps"
    assert options["--measurement-interval"] == "1006"
    assert options["-b"] == "4"
    assert options["--profile-export-file"] == "export.json"
    assert "--async" in line
    assert "--concurrency-range" not in line


def test_a_closed_loop_over_http() -> None:
    files = RunFiles(Path("in.json"), Path("gaps"), Path("out.csv"), Path("export.json"))
    to = LoadTarget(ENDPOINTS, Protocol.HTTP), StreamRequests("m")
    closed = LoadPoint(Arrivals.CLOSED, 16)
    line = command_line(Path("/bin/pa"), *to, closed, WINDOW, files)
    options = dict(pairwise(line))
    assert (options["-u"], options["-i"]) == ("127.0.0.1:8000", "http")
    assert options["--concurrency-range"] == "16"
    assert "--request-intervals" not in line
