"""A series as it is kept on disk: a run for each of several specs, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.errors import SpecError
from tuner.facts import Facts
from tuner.run.manifest import Choices
from tuner.run.reading import read_as, read_json
from tuner.run.status import Status
from tuner.run.writing import write_json

SERIES = "series.json"
#: Exit codes, the worst first: a series ends with the worst of its runs.
WORST_FIRST = (130, 1, 4, 2, 3, 5, 13, 12, 10, 11, 0)


@dataclass(frozen=True)
class Member(Facts):
    """One spec of a series.

    Attributes:
        spec: Its path, from the directory of the choices.
        name: What the spec calls its models.
        run: Id of its run, which lies beside the series; empty before it is begun.
        status: How that ended; None before.
        exit_code: The one `tune run` would have ended with.
        error: Why it failed.
    """

    spec: str
    name: str
    run: str = ""
    status: Status | None = None
    exit_code: int | None = None
    error: str = ""

    @property
    def done(self) -> bool:
        """It has a result; what failed or was interrupted is tried again with the series."""
        return self.status not in (None, Status.FAILED, Status.INTERRUPTED)


@dataclass(frozen=True)
class Series(Facts):
    """The specs in their order, and what the command line chose for all of them."""

    created_at: str
    choices: Choices
    seed: int | None
    members: tuple[Member, ...]

    @property
    def exit_code(self) -> int:
        """The worst of those that have ended."""
        codes = {member.exit_code for member in self.members}
        return next((code for code in WORST_FIRST if code in codes), 0)


def read_series(directory: Path) -> Series:
    """The series in a directory.

    Raises:
        SpecError: There is none, or it is not as `tune` writes it.
    """
    path = directory / SERIES
    data = read_json(path, dict)
    if data is None:
        raise SpecError(f"{directory} is not a series: it has no {SERIES}")
    series = read_as(str(path), data, Series.from_json)
    if any(Path(member.run).name != member.run for member in series.members):
        raise SpecError(f"{path}: a run is named by its id", "start a series of your own")
    return series


def write_series(directory: Path, series: Series) -> None:
    """Keeps it: the old file or the new one, never half."""
    write_json(directory / SERIES, series.to_json())
