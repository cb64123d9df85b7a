"""What the command line set for a run besides its spec, kept for when the run is resumed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tuner.facts import Facts
from tuner.hiding import HIDDEN


@dataclass(frozen=True)
class Choices(Facts):
    """Choices of the command line; None: as the spec says.

    Attributes:
        write: Write the winner into the repository.
        accept_unsoaked: Also one of which no soak could tell whether its load lasts.
        trials: Most configs to measure.
        storage: SQLAlchemy URL of the study, without its password; None: a file of the run.
        overrides: Values of the spec set instead, each as ``PATH=VALUE``.
        directory: Where the command line's relative paths begin.
    """

    write: bool = True
    trials: int | None = None
    time_budget_s: float | None = None
    storage: str | None = None
    directory: str = ""
    accept_unsoaked: Annotated[bool, Field(exclude_if=lambda given: not given)] = False
    overrides: Annotated[tuple[str, ...], Field(exclude_if=lambda given: not given)] = ()

    @property
    def lacks_a_password(self) -> bool:
        """The storage cannot be opened with what was kept of its URL."""
        return self.storage is not None and HIDDEN in self.storage

    @property
    def options(self) -> list[str]:
        """The options in the form `tune run` takes."""
        given = {"--trials": self.trials, "--storage": self.storage}
        time = None if self.time_budget_s is None else f"{self.time_budget_s:g}s"
        named = {**given, "--time-budget": time}
        options = [f"{name}={value}" for name, value in named.items() if value is not None]
        flags = {"--no-write": not self.write, "--accept-unsoaked": self.accept_unsoaked}
        options += [f"--set={override}" for override in self.overrides]
        return [*options, *(name for name, given in flags.items() if given)]


def resume_command(run: Path) -> str:
    """The command that continues a run with everything that was chosen for it."""
    return shlex.join(["tune", "run", "--resume", str(run)])
