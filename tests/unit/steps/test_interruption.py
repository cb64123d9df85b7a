"""A signal may come up inside any library, which makes an error of its own of it."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import InterruptedRunError
from tuner.steps.stop import explain_error


def wrapped(error: Exception) -> Exception:
    """As SQLAlchemy and Optuna do it: another error, raised while this one was handled."""
    try:
        try:
            raise error
        except Exception:
            raise RuntimeError("an exception is raised during the commit") from None
    except RuntimeError as made:
        return made


def test_an_interruption_is_found_behind_the_error_of_a_library() -> None:
    stopped = InterruptedRunError("stopped by a signal")
    assert explain_error(wrapped(stopped), Path()) is stopped
    assert explain_error(stopped, Path()) is stopped


def test_any_other_error_stays_what_it_is() -> None:
    defect = wrapped(ValueError("a defect"))
    assert explain_error(defect, Path()) is defect
