"""What every fleet does: each piece of work ends once, and a bench is gone with its fleet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.fleets import MISTAKE, ray_of_tests, versatile
from builders.waits import wait_until

from tuner.fleet import BenchPlace, Done, Fleet, Need, local_fleet
from tuner.machine.stop import Stop
from tuner.spec.mistakes import SpecMistakesError
from tuner.spec.slo import Slo

SAID: list[tuple[str, object]] = []
STOP = Stop()


@pytest.fixture(
    scope="module",
    params=["here", pytest.param("ray", marks=[pytest.mark.long, pytest.mark.integration])],
)
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    def heard(bench: str, what: object) -> None:
        SAID.append((bench, what))

    if request.param == "here":
        with local_fleet(heard, STOP) as here:
            yield here
        return
    with ray_of_tests(heard, STOP) as several:
        yield several


@pytest.fixture(autouse=True)
def _nothing_was_said(fleet: Fleet) -> Iterator[None]:
    yield
    for bench in fleet.benches():
        fleet.close(bench)
    SAID.clear()
    STOP.requested = False


def done_by(fleet: Fleet, what: str, value: object = None, log: Path | None = None) -> Done:
    if "bench" not in fleet.benches():
        fleet.open("bench", versatile, log, Need())
    fleet.submit("bench", (what, value))
    return fleet.next_done()


def test_a_bench_is_opened_once_and_closed_at_its_end(fleet: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "log"
    values = [done_by(fleet, "echo", number, log).value for number in range(3)]
    assert values == [0, 1, 2]
    assert fleet.benches() == ["bench"]
    fleet.close("bench")
    assert log.read_text().split() == ["opened", "closed"]
    assert fleet.benches() == []


def test_an_slo_is_the_same_on_both_ways(fleet: Fleet) -> None:
    slo = Slo.parse("p99_latency <= 40ms")
    back = done_by(fleet, "echo", slo).value
    assert back == slo
    assert back.metric is slo.metric
    assert back.metric.is_latency


def test_an_error_arrives_as_it_was_raised_and_the_bench_goes_on(fleet: Fleet) -> None:
    error = done_by(fleet, "mistaken").error
    assert isinstance(error, SpecMistakesError)
    assert error.mistakes == (MISTAKE,)
    assert (error.exit_code, error.message) == (2, str(MISTAKE))
    assert done_by(fleet, "echo", "on").value == "on"


def test_defect_in_a_bench_is_reported_with_its_place(fleet: Fleet) -> None:
    error = done_by(fleet, "divide", 0).error
    assert error is not None
    assert error.message.startswith("a defect of a bench: ZeroDivisionError")
    assert "fleets.py" in error.message


def test_words_of_a_bench_arrive_before_its_work_is_done(fleet: Fleet) -> None:
    done_by(fleet, "tell", "word")
    (first, place), *rest = SAID
    assert first == "bench"
    assert isinstance(place, BenchPlace)
    assert rest == [("bench", "word")]


def test_a_bench_hears_that_it_is_to_stop(fleet: Fleet) -> None:
    done_by(fleet, "echo")
    STOP.requested = True
    assert done_by(fleet, "stopped").value is True


def test_signals_reach_a_stop_in_a_bench(fleet: Fleet) -> None:
    assert done_by(fleet, "listen").value is True


def test_a_child_of_a_bench_ends_when_it_is_interrupted(fleet: Fleet) -> None:
    assert done_by(fleet, "end a child").value == -signal.SIGINT


def test_a_bench_closed_leaves_no_child(fleet: Fleet) -> None:
    pid = done_by(fleet, "start a child", 0.2).value
    assert Path(f"/proc/{pid}").exists()
    fleet.close("bench")
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
