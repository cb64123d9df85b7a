"""What a signal does at which moment, also inside a library that makes an error of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuner.errors import InterruptedRunError
from tuner.machine.stop import Stop, explain_error


@contextmanager
def listening() -> Iterator[tuple[Stop, list[str]]]:
    said: list[str] = []
    stop = Stop(said.append)
    with stop.listening():
        yield stop, said


def test_one_ctrl_c_takes_effect_after_the_measurement_and_only_once() -> None:
    with listening() as (stop, said):
        stop.checkpoint()
        signal.raise_signal(signal.SIGINT)
        assert len(said) == 1
        with pytest.raises(InterruptedRunError):
            stop.checkpoint()
        stop.checkpoint()  # by who stores the run's end
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert len(said) == 1


@pytest.mark.parametrize("before", [[], [signal.SIGINT]])
@pytest.mark.parametrize("now", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_or_a_sigterm_stops_at_once(
    before: list[signal.Signals], now: signal.Signals
) -> None:
    with listening() as (stop, _):
        for number in before or ([signal.SIGINT] if now == signal.SIGINT else []):
            signal.raise_signal(number)
        with pytest.raises(InterruptedRunError):
            signal.raise_signal(now)
        signal.raise_signal(now)  # children are being killed: not again
        stop.checkpoint()


def test_ctrl_c_when_all_is_measured_lets_the_run_end() -> None:
    with listening() as (stop, said):
        stop.measured()
        signal.raise_signal(signal.SIGINT)
    assert len(said) == 1


def test_ctrl_c_during_the_last_measurement_takes_effect_after_it() -> None:
    with listening() as (stop, _):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(InterruptedRunError):
            stop.measured()


def test_signals_are_whose_they_were_before() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(n) for n in numbers]
    with listening():
        assert [signal.getsignal(n) for n in numbers] != before
    assert [signal.getsignal(n) for n in numbers] == before


def wrapped(error: Exception) -> Exception:
    """As SQLAlchemy and Optuna do it: another error, raised while this one was handled."""
    try:
        try:
            raise error
        except Exception:
            raise RuntimeError("an exception is raised during the commit") from None
    except RuntimeError as made:
        return made


def test_interruption_is_detected_behind_the_error_of_a_library() -> None:
    stopped = InterruptedRunError("interrupted")
    assert explain_error(wrapped(stopped), Path()) is stopped
    assert explain_error(stopped, Path()) is stopped


def test_any_other_error_stays_what_it_is() -> None:
    defect = wrapped(ValueError("a defect"))
    assert explain_error(defect, Path()) is defect
