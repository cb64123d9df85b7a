from __future__ import annotations

from pathlib import Path

import pytest
from builders.pages import Made
from builders.runs import Toy, make_run

from tuner.report.data import ReportData, load


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Makes a synthetic run and reads it: ``made(status, **toy)``."""

    def make(status: str = "improved", **toy: object) -> ReportData:
        return load(make_run(tmp_path, Toy(**toy), status))  # type: ignore[arg-type]

    return make
