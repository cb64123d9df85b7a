"""The command line starts fast only while this package imports what it needs when it needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

CODE = """
import sys
import tuner.modelconfig.edit, tuner.modelconfig.files, tuner.lint.repository
import tuner.modelconfig.message, tuner.modelconfig.rules
print(*sorted({"tritonclient", "grpc", "google.protobuf", "numpy"} & set(sys.modules)))
"""


def test_importing_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
