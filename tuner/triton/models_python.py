"""The Python whose packages the models of a local server import."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError

_TIMEOUT_S = 60.0
#: What the stub of the wheel was built for. Under NumPy 2 tensors come out empty (seen).
_NUMPY = 1
#: Isolated, as the stub is: no PYTHONPATH, no packages of the user.
_ASK = ("-I", "-c", "from importlib.metadata import version; print(version('numpy'))")


def numpy_of_models(python: Path) -> str:
    """The version of the NumPy that Python models import.

    Raises:
        EnvironmentNotReadyError: There is none, or none that the stub can work with.
    """
    found = _asked(python)
    mend = f"{python} -m pip install 'numpy<{_NUMPY + 1}'"
    if not found:
        raise EnvironmentNotReadyError(f"Python models find no numpy: {python} has none", mend)
    if int(found.split(".")[0]) > _NUMPY:
        raise EnvironmentNotReadyError(
            f"Python models import numpy {found} ({python}), and this tritonserver's Python "
            f"backend was built for NumPy {_NUMPY}: models would receive and return EMPTY tensors, "
            "without any error",
            mend,
        )
    return found


def _asked(python: Path) -> str:
    """Empty where there is no NumPy."""
    try:
        done = subprocess.run(
            [str(python), *_ASK], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReadyError(
            f"{python} does not run: {error}", "install tune again, in a new virtual environment"
        ) from error
    return done.stdout.strip()
