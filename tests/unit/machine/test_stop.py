"""What a signal does at which moment, also inside a library that makes an error of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        try:
            stop.checkpoint()
        except InterruptedRunError:
            stop.checkpoint()  # by code that stores the run's end
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
        else:
            raise AssertionError("the checkpoint let a stopped run go on")
        assert len(said) == 1


@pytest.mark.parametrize("before", [[], [signal.SIGINT]])
@pytest.mark.parametrize("now", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_or_a_sigterm_stops_at_once(
    before: list[signal.Signals], now: signal.Signals
) -> None:
    with listening() as (stop, _):
        for number in before or ([signal.SIGINT] if now == signal.SIGINT else []):
            signal.raise_signal(number)
        try:
            signal.raise_signal(now)
        except InterruptedRunError:
            signal.raise_signal(now)  # children are being killed: not again
            stop.checkpoint()
        else:
            raise AssertionError("the signal did not stop the run")


@pytest.mark.parametrize("now", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_that_a_library_catches_is_raised_at_the_next_checkpoint(
    now: signal.Signals,
) -> None:
    with listening() as (stop, _):
        for number in (signal.SIGINT, now, now):
            with suppress(Exception):
                signal.raise_signal(number)
        with pytest.raises(InterruptedRunError):
            stop.checkpoint()


def lose_an_interruption(stop: Stop) -> None:
    """Fails as code in C does that an interruption reaches: with an error of its own."""
    with stop.listening():
        with suppress(Exception):
            signal.raise_signal(signal.SIGTERM)
        lost = ImportError("numpy._core.multiarray failed to import")
        assert isinstance(stop.explain(lost, Path()), InterruptedRunError)
        raise lost


def test_an_error_that_code_in_c_makes_of_an_interruption_is_the_interruption() -> None:
    with pytest.raises(InterruptedRunError):
        lose_an_interruption(Stop())


def fail(stop: Stop, error: Exception) -> None:
    with stop.listening():
        assert stop.explain(error, Path()) is error
        raise error


def test_without_a_stop_an_error_stays_what_it_is() -> None:
    with pytest.raises(ImportError, match="scipy"):
        fail(Stop(), ImportError("no module named scipy"))


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
