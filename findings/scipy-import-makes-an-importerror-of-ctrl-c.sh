#!/usr/bin/env bash
# scipy 1.17.0 with numpy 1.26.4: Ctrl-C (any exception of a signal handler) inside the import of one of
# scipy's modules in C is printed to stderr and replaced by an ImportError without a cause: these modules
# import numpy once more, and any failure of that is said to be a missing numpy. A program that imports
# scipy where it first needs it takes Ctrl-C there for a broken installation.
# Seen: "ImportError: numpy._core.multiarray failed to import", __cause__ and __context__ are None.
. "$(dirname "$0")/common.sh"
install numpy==1.26.4 scipy==1.17.0
"$tmp/venv/bin/python" - <<'PYTHON' || fail "KeyboardInterrupt arrives, or is the cause"
import signal
import sys

import numpy  # noqa: F401 - imported whole before

signal.signal(signal.SIGINT, signal.default_int_handler)


def press_once(frame, event, _):
    """Presses Ctrl-C while a module of scipy in C imports numpy's."""
    if event == "call" and frame.f_code.co_name == "_find_and_load" and frame.f_locals["name"].startswith("numpy._core"):
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)


sys.setprofile(press_once)
try:
    from scipy.linalg import _fblas  # noqa: F401
except KeyboardInterrupt:
    print("KeyboardInterrupt")
except ImportError as error:
    print(repr(error), "cause:", error.__cause__, "context:", error.__context__)
    if "failed to import" in str(error) and error.__cause__ is None and error.__context__ is None:
        sys.exit(0)
sys.exit(1)
PYTHON
