"""model.onnx is what make_model.py makes."""

from __future__ import annotations

import pytest
from builders.model_files import REPOSITORY, import_file

DIRECTORY = REPOSITORY / "tiny-bert"
MODEL = DIRECTORY / "1" / "model.onnx"


def test_the_script_makes_the_committed_file(monkeypatch: pytest.MonkeyPatch) -> None:
    script = import_file(DIRECTORY / "make_model.py", monkeypatch)
    assert script.make(script.Size()).SerializeToString() == MODEL.read_bytes()


def test_another_seed_makes_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    script = import_file(DIRECTORY / "make_model.py", monkeypatch)
    assert script.make(script.Size(), seed=1).SerializeToString() != MODEL.read_bytes()


def test_tiny_bert_is_smaller_than_3_mib() -> None:
    assert MODEL.stat().st_size < 3 << 20
