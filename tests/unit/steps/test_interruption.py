"""A signal may come up inside any library, which makes an error of its own of it."""

from __future__ import annotations

import pytest

from tuner.errors import InterruptedRunError
from tuner.pipeline import _stopped_by


def test_an_interruption_is_found_behind_the_error_of_a_library() -> None:
    stopped = InterruptedRunError("stopped by a signal")
    with pytest.raises(RuntimeError) as wrapped:
        try:
            raise stopped
        except InterruptedRunError:
            raise RuntimeError("an exception is raised during the commit") from None
    assert _stopped_by(wrapped.value) is stopped
    assert _stopped_by(stopped) is stopped


def test_any_other_error_stays_what_it_is() -> None:
    assert _stopped_by(RuntimeError("a defect")) is None
