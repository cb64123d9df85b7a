"""The models of a run, made from texts of configs."""

from __future__ import annotations

from pathlib import Path

from builders.model_files import write_model

from tuner.modelconfig.base import Base
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import Served, ServedModel, read_served


def served_one(config: str | ModelConfig | Base, name: str = "m") -> Served:
    """One model that lies nowhere."""
    text = config if isinstance(config, str) else ""
    base = config if isinstance(config, Base) else Base.of_file(parse(text) if text else config)
    return Served.of(base, _nowhere(name, text))


def served_named(**configs: str) -> Served:
    """Several that lie nowhere, each under its own name, parts before parents."""
    models = {}
    for name, text in configs.items():
        base = Base.of_file(parse(text))
        parts = tuple(step.model_name for step in base.file.ensemble_scheduling.step)
        models[name] = ServedModel(name, _nowhere(name, text), base, parts)
    return Served(models)


def _nowhere(name: str, text: str) -> ModelFiles:
    path = Path(name) / "config.pbtxt"
    return ModelFiles(name, path.parent, path, text, "", (1,), "utf-8")


def write_models(repository: Path, **configs: str) -> Path:
    """A repository with these models, each with an empty version."""
    for name, text in configs.items():
        write_model(repository / name, text)
    return repository


def served_several(repository: Path, **configs: str) -> Served:
    """Models that are written into the repository, each under its own name."""
    return read_served(write_models(repository, **configs), configs)
