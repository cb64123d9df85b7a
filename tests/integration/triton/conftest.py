"""A real tritonserver for the tests of this directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.triton_repository import make_repository

from tuner.server.binaries import Installation, tritonserver
from tuner.triton.local import LocalLauncher


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    with tritonserver(None, os.environ) as program:
        yield program


@pytest.fixture
def launcher(installation: Installation, tmp_path: Path) -> LocalLauncher:
    return LocalLauncher(installation, make_repository(tmp_path))
