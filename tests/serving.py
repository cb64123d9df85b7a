"""The models of a run, made from texts of configs."""

from __future__ import annotations

from pathlib import Path

from tuner.modelconfig.base import Base
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import Served, read_served


def served_one(file: ModelConfig | str, name: str = "m") -> Served:
    """One model, whose label is empty, that lies nowhere."""
    config = parse(file) if isinstance(file, str) else file
    nowhere = Path(name)
    files = ModelFiles(name, nowhere, nowhere / "config.pbtxt", "", True, "", (1,), "utf-8")
    return Served.of(Base.of_file(config), files)


def write_models(repository: Path, **configs: str) -> Path:
    """A repository with these models, each with an empty version."""
    for name, text in configs.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(text)
    return repository


def served_several(repository: Path, **configs: str) -> Served:
    """Models that are written into the repository, each under its own name."""
    return read_served(write_models(repository, **configs), {name: name for name in configs})
