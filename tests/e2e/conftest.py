"""A small job on a real server: short windows, one load level, so that a run takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.e2e_workplace import MODEL, Workplace
from builders.model_files import copy_examples


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    copy_examples(tmp_path / "repository", MODEL)
    return Workplace(tmp_path)
