"""A small job on a real server: short windows, one load level, so that a run takes seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders.e2e_workplace import MODEL, REPOSITORY, Workplace


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    shutil.copytree(REPOSITORY / MODEL, tmp_path / "repository" / MODEL)
    return Workplace(tmp_path)
