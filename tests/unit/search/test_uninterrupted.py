"""A signal in a block is heard at its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from tuner.search.study.uninterrupted import uninterrupted


class StoppedError(Exception):
    pass


@pytest.fixture
def stopping() -> Iterator[None]:
    """SIGTERM raises, as it does in a run."""

    def heard(number: int, _: object) -> None:
        raise StoppedError

    before = signal.signal(signal.SIGTERM, heard)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_is_heard_once_the_block_is_over(stopping: None) -> None:
    done = []
    with pytest.raises(StoppedError):  # noqa: PT012
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        done.append("never")
    assert done == ["inner", "outer"]
    with pytest.raises(StoppedError):
        signal.raise_signal(signal.SIGTERM)


def test_an_error_of_the_block_is_not_lost_without_a_signal(stopping: None) -> None:
    with pytest.raises(KeyError), uninterrupted():
        raise KeyError


def test_other_threads_do_without() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]
