from __future__ import annotations

import pytest
from builders.commands import Tune


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Tune:
    return Tune(capsys)
