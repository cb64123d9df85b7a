from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders.check_place import Place
from builders.workplace import Workplace

ROOT = Path(__file__).parents[3]
MODEL = "emulated-accelerator"


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Workplace:
    return Workplace(tmp_path, monkeypatch, capsys)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    text = (ROOT / "search_spaces" / "quickstart.yaml").read_text()
    # Of its own, since a check locks the model's directory, and other workers run tests too.
    models = tmp_path / "models"
    shutil.copytree(ROOT / "model_repository" / MODEL, models / MODEL)
    text = text.replace("../model_repository", str(models))
    return Place(tmp_path, monkeypatch, text)
