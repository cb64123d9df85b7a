"""Files of models: those of the examples imported, which are no package, and others written."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2] / "model_repository"


def shipped_config(model: Path) -> str:
    """A model's config as it was before any run wrote there, as the quickstart does."""
    backups = model.glob(".config.pbtxt.tune.*.bak")
    oldest = min(backups, key=lambda path: path.stat().st_mtime_ns, default=model / "config.pbtxt")
    return oldest.read_text()


def copy_examples(repository: Path, *names: str) -> Path:
    """Copies these example models, or all of them, as they were before any run wrote there."""
    for name in names or (config.parent.name for config in REPOSITORY.glob("*/config.pbtxt")):
        ignore = shutil.ignore_patterns(".config.pbtxt.tune.*", "__pycache__")
        shutil.copytree(REPOSITORY / name, repository / name, ignore=ignore)
        (repository / name / "config.pbtxt").write_text(shipped_config(REPOSITORY / name))
    return repository


def write_model(model: Path, config: str, code: str = "") -> None:
    """A model's directory with its config and one version: code, or nothing."""
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)
    if code:
        (model / "1" / "model.py").write_text(code)


def import_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Executes a Python file as a module that is known only for this test."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def model_module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A model.py, without the library that Triton's stub gives it."""
    monkeypatch.setitem(
        sys.modules, "triton_python_backend_utils", ModuleType("triton_python_backend_utils")
    )
    return import_file(REPOSITORY / name / "1" / "model.py", monkeypatch)
