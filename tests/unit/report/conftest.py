from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from unit.report.synthetic import Toy, make_run

from tuner.report.data import ReportData, load

Made = Callable[..., ReportData]

#: A name and texts that would break out of any format that does not escape them.
NASTY = "m</script><img src=x onerror=alert(1)>|`*&amp;]]>"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Makes a synthetic run and reads it: ``made(status, **toy)``."""

    def make(status: str = "improved", **toy: object) -> ReportData:
        return load(make_run(tmp_path, Toy(**toy), status))  # type: ignore[arg-type]

    return make
