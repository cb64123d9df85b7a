"""Specs of several copies of the emulated accelerator, and what a series of them left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from builders.jobs import SPEC
from builders.model_files import REPOSITORY, shipped_config, write_model

MODEL = "emulated-accelerator"


def make_specs(directory: Path, count: int) -> list[str]:
    """A model of its own for each spec."""
    repository = directory / "my repository"
    (directory / "specs").mkdir(exist_ok=True)
    for number in range(count):
        name = f"model-{number:02d}"
        shipped = shipped_config(REPOSITORY / MODEL)
        write_model(repository / name, shipped.replace(MODEL, name))
        shutil.copytree(REPOSITORY / MODEL / "1", repository / name / "1", dirs_exist_ok=True)
        text = SPEC.format(repository="../my repository").replace(MODEL, name)
        text += "search: {strategy: random}\nbudget: {trials: 2}\n"
        (directory / "specs" / f"{name}.yaml").write_text(text)
    return [f"model-{number:02d}" for number in range(count)]


def series_in(results: Path) -> Path:
    (found,) = results.glob("*/series.json")
    return found.parent


def runs_of(results: Path) -> list[str]:
    """The models of all runs there are, with those that were begun twice there twice."""
    return sorted(json.loads(m.read_text())["name"] for m in results.glob("*/manifest.json"))
