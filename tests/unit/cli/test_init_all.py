"""`tune init REPOSITORY --all`: one spec for each model, and no model in two of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders.model_files import REPOSITORY

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.programs.run.series import names_in
from tuner.steps.job import Request


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(REPOSITORY, tmp_path / "models"))


def test_what_is_drafted_can_be_run_together_and_the_rest_is_told_why_not(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "empty").mkdir()
    assert guarded(cli, ["init", "models", "--all", "--image", "an-image"]) == 0
    said = capsys.readouterr().out
    specs = sorted(Path("specs").iterdir())
    assert [spec.stem for spec in specs] == ["bert-onnx", "emulated-accelerator", "nlp"]
    assert "left out tokenizer: it is searched with nlp\n" in said
    assert "left out nlp-bls: it shares models with nlp\n" in said
    assert "left out empty: " in said
    assert len(names_in(specs, Request(Path()), print)) == 3


def test_a_spec_that_exists_is_kept_unless_it_is_forced(repository: Path) -> None:
    Path("specs").mkdir()
    mine = Path("specs/nlp.yaml")
    mine.write_text("mine\n")
    assert guarded(cli, ["init", "models", "--all", "--image", "an-image"]) == 0
    assert mine.read_text() == "mine\n"
    assert guarded(cli, ["init", "models", "--all", "--image", "an-image", "--force"]) == 0
    assert mine.read_text() != "mine\n"
