from __future__ import annotations

from pathlib import Path

import pytest
from unit.programs.check_place import Place

ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    text = (ROOT / "search_spaces" / "quickstart.yaml").read_text()
    text = text.replace("../model_repository", str(ROOT / "model_repository"))
    return Place(tmp_path, monkeypatch, text)
