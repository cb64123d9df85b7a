"""A series on disk: several runs that were started together, in the order of their specs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.errors import SpecError
from tuner.facts import Facts
from tuner.record.manifest import Choices
from tuner.record.reading import read_as, read_json
from tuner.record.status import Status
from tuner.writing import write_json

SERIES = "series.json"
#: Exit codes, the worst first: a series ends with the worst of its runs.
WORST_FIRST = (130, 1, 4, 2, 3, 5, 13, 12, 10, 11, 0)


@dataclass(frozen=True)
class Member(Facts):
    """One spec of a series.

    Attributes:
        spec: Path of the spec, relative to the directory of the choices.
        name: Name of the models in the spec.
        run: Id of its run, whose directory is beside the series; empty before it starts.
        spec_sha256: Hash of the spec when the series started.
        exit_code: The exit code that `tune run` would have had; None before the run ended.
    """

    spec: str
    name: str
    run: str = ""
    status: Status | None = None
    exit_code: int | None = None
    error: str = ""
    spec_sha256: str = ""

    @property
    def done(self) -> bool:
        """Whether the run has a result; resuming repeats failed and interrupted runs."""
        return self.status not in (None, Status.FAILED, Status.INTERRUPTED)


@dataclass(frozen=True)
class Series(Facts):
    """The specs of a series in their order, and the command line's choices for all of them.

    Attributes:
        fingerprint: Hash of the machine that the series started on.
    """

    created_at: str
    choices: Choices
    seed: int | None
    members: tuple[Member, ...]
    fingerprint: str = ""

    @property
    def exit_code(self) -> int:
        """The worst exit code of the runs that have ended."""
        codes = {member.exit_code for member in self.members}
        return next((code for code in WORST_FIRST if code in codes), 0)


def read_series(directory: Path) -> Series:
    """The series in a directory.

    Raises:
        SpecError: There is no series, or the file is not as `tune` writes it.
    """
    path = directory / SERIES
    data = read_json(path, dict)
    if data is None:
        raise SpecError(f"{directory} is not a series: it has no {SERIES}")
    series = read_as(str(path), data, Series.from_json)
    if any(Path(member.run).name != member.run for member in series.members):
        raise SpecError(f"{path}: a run is named by its id", "start another series")
    return series


def write_series(directory: Path, series: Series) -> None:
    """Writes the series: the file is the old one or the complete new one."""
    write_json(directory / SERIES, series.to_json())
