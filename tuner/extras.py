"""The parts of the installation that only some commands need, and the error for a missing one.

`pip install triton-tune` brings what reads, plans and reports. What measures and searches is
imported at its first use and comes with an extra of pyproject.toml.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tuner.errors import EnvironmentNotReadyError


class Extra(Enum):
    """An extra of pyproject.toml."""

    RUN = "run"
    LOCAL = "local"
    MODEL_ANALYZER = "model-analyzer"
    GPU = "gpu"
    RAY = "ray"
    PICTURE = "picture"

    @property
    def command(self) -> str:
        """Installs it where this runs; pip looks nothing up for a tune that is there already."""
        return f"{sys.executable} -m pip install 'triton-tune[{self.value}]'"


#: What an extra brings that is imported without asking whether it is there.
MODULES: Mapping[Extra, tuple[str, ...]] = {
    Extra.RUN: ("docker", "grpc", "optuna", "pandas", "requests", "scipy", "sqlalchemy"),
    Extra.MODEL_ANALYZER: ("model_analyzer",),
    Extra.RAY: ("ray",),
    Extra.PICTURE: ("matplotlib",),
}


def lacking(extra: Extra) -> EnvironmentNotReadyError | None:
    """The error where an extra, or a part of it, is not installed; None where it is."""
    missing = [name for name in MODULES[extra] if find_spec(name) is None]
    return _missing_modules(missing, extra) if missing else None


def explain_import(error: Exception) -> EnvironmentNotReadyError | None:
    """The error for an import that failed since an extra is missing; None for any other error."""
    if isinstance(error, ModuleNotFoundError):
        for extra, names in MODULES.items():
            if error.name in names:
                return _missing_modules([error.name], extra)
    return None


def _missing_modules(missing: list[str], extra: Extra) -> EnvironmentNotReadyError:
    are = "is" if len(missing) == 1 else "are"
    return EnvironmentNotReadyError(
        f"this needs {', '.join(missing)}, which {are} not installed", extra.command
    )


class Deferred:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value
