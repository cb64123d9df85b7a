"""Specs of several copies of the emulated accelerator, and what a series of them left."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from builders.jobs import SPEC
from builders.model_files import REPOSITORY, shipped_config, write_model
from builders.runs import Toy, make_run

from tuner.record.manifest import Choices
from tuner.record.series import Member, Series, write_series
from tuner.record.status import Status

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
    (file,) = results.glob("*/series.json")
    return file.parent


def ended_series(results: Path) -> Path:
    """Of a run that improved and one that was interrupted, both made up."""
    ends = (Status.IMPROVED, Status.INTERRUPTED)
    runs = [make_run(results, Toy(trials=3), status.value).name for status in ends]
    improved, interrupted = [
        Member("toy.yaml", "toy", run, status) for run, status in zip(runs, ends, strict=True)
    ]
    members = (improved, replace(interrupted, exit_code=130))
    directory = results / "20250301-090000-series"
    write_series(directory, Series("2025-03-01T09:00:00+00:00", Choices(), None, members))
    return directory


def runs_of(results: Path) -> list[str]:
    """The models of all runs there are, with those that were begun twice there twice."""
    return sorted(json.loads(m.read_text())["name"] for m in results.glob("*/manifest.json"))
