"""A run on disk: append-only trials, synced before the next one starts.

A reader may open a run at any time, also one that was killed: a torn last line is dropped, and
overwritten when the run is resumed. Several runs that were started together are a series.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from tuner.errors import EnvironmentNotReadyError, SpecError, TunerError
from tuner.facts import Facts
from tuner.locking import Lock, lock
from tuner.measurement.measurement import Rejected, Stage
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Repeat
from tuner.record.earlier import reasons_of_earlier, trial_of_earlier, with_data
from tuner.record.manifest import Choices, Manifest
from tuner.record.reading import (
    UnreadableFileError,
    read_as,
    read_bytes,
    read_json,
    read_rows,
    torn_line,
)
from tuner.record.result_schema import Result, WrittenFacts, read_result
from tuner.record.status import Status
from tuner.score.trial import Trial
from tuner.spec.units import count_text
from tuner.writing import (
    explained,
    open_run_file,
    run_subdirectory,
    sync_directory,
    write_bytes,
    write_json,
    write_text,
)

_Value = TypeVar("_Value")

MANIFEST = "manifest.json"
TRIALS = "trials.jsonl"
#: Below `RunStore.logs`.
SERVER_LOG = "server.log"
CONFIRMATION = "confirmation.jsonl"
REJECTED = "rejected.jsonl"
RESULT = "result.json"
STUDY = "study.db"
BEST = "best"
SERIES = "series.json"
LOCK = ".lock"
_BLOCK_BYTES = 64 * 1024


def new_run_id(model: str, now: datetime | None = None) -> str:
    """Sorts by time, names the model, never twice the same."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{model}-{secrets.token_hex(2)}"


class RunStore:
    """The directory of one run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def create(cls, parent: Path, run_id: str) -> RunStore:
        """A new run.

        Raises:
            EnvironmentNotReadyError: Nothing can be written there.
        """
        directory = parent / run_id
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise EnvironmentNotReadyError(
                f"the directory {parent} cannot be made: {why}", "name another with --output"
            ) from error
        with explained(directory):
            (directory / "logs").mkdir(parents=True)
            sync_directory(parent)
        return cls(directory)

    @classmethod
    def open(cls, directory: Path) -> RunStore:
        """A run that exists; SpecError when it is none."""
        if read_bytes(directory / MANIFEST) is None:
            only_result = os.path.lexists(directory / RESULT)
            listed = "name a directory under results/; `tune report` without one lists them"
            raise SpecError(
                f"{directory} is not a run: it has no {MANIFEST}",
                f"all there is: tune report {directory}" if only_result else listed,
            )
        return cls(directory)

    @property
    def run_id(self) -> str:
        return self.directory.name

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The run's lock, held by the process that adds to it.

        Raises:
            SpecError: Somebody else does.
            EnvironmentNotReadyError: It cannot be written, or its logs would go elsewhere.
        """
        run_subdirectory(self.directory, "logs")
        with written_by_one(self.directory):
            yield

    def append_trial(self, trial: Trial) -> None:
        self._append(TRIALS, trial.to_json())

    def trials(self) -> list[Trial]:
        return [read_as(place, row, _trial) for place, row in self._rows(TRIALS)]

    def append_confirmation(self, repeat: Repeat) -> None:
        self._append(CONFIRMATION, repeat.to_json())

    def confirmation(self) -> list[Repeat]:
        return [read_as(place, row, _repeat) for place, row in self._rows(CONFIRMATION)]

    def cut_confirmation(self, kept: int) -> None:
        """Rejects all but the first rows: what an interrupted round left is not evidence."""
        rows = self.confirmation()
        for repeat in rows[kept:]:
            self.append_rejected(_abandoned(repeat))
        lines = (_line(repeat.to_json()) for repeat in rows[:kept])
        write_text(self.directory / CONFIRMATION, "".join(lines))

    def append_rejected(self, rejected: Rejected) -> None:
        self._append(REJECTED, rejected.to_json())

    def rejected(self) -> list[Rejected]:
        return [read_as(place, row, _rejected) for place, row in self._rows(REJECTED)]

    def torn(self) -> tuple[str, ...]:
        """What reading the run leaves out, since a file was cut short: a sentence for each file."""
        names = (TRIALS, CONFIRMATION, REJECTED)
        return tuple(filter(None, (torn_line(self.directory / name) for name in names)))

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_json(self.directory / MANIFEST, manifest)

    def manifest(self) -> Manifest:
        path = self.directory / MANIFEST
        return read_as(str(path), read_json(path, dict) or {}, Manifest.from_json)

    def write_result(self, result: Result) -> None:
        write_json(self.directory / RESULT, result.to_json())

    def result(self) -> Result | None:
        """How the run ended; None where it left no result.

        Raises:
            UnreadableFileError: It is no JSON, or does not follow version 1.
        """
        return read_result(self.directory / RESULT)

    def full_result(self) -> Result | None:
        """The same for a run that goes on; None too where a power cut has torn the file."""
        try:
            read_json(self.directory / RESULT, dict)
        except UnreadableFileError:
            return None
        return self.result()

    def add_written(self, written: WrittenFacts) -> None:
        """Adds to the result what was written later; keys of later versions stay."""
        stored = read_json(self.directory / RESULT, dict) or {}
        write_json(self.directory / RESULT, {**stored, "written": written.to_json()})

    def write_best(
        self, configs: Mapping[str, bytes], server_args: Sequence[str], variables: Sequence[str]
    ) -> None:
        """What to serve: the configs by model, as they would be written, and what a start needs."""
        best = run_subdirectory(self.directory, BEST)
        for label, config in configs.items():
            write_bytes(run_subdirectory(best, label) / "config.pbtxt", config)
        write_text(best / "server_args.txt", "".join(f"{a}\n" for a in server_args))
        write_text(best / "environment.txt", "".join(f"{v}\n" for v in variables))

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        path = self.directory / name
        with open_run_file(path) as file, explained(path):
            file.truncate(_end_of_lines(file))  # a line left incomplete by a kill is cut
            file.write(_line(row).encode())
            file.flush()
            os.fsync(file.fileno())

    def _rows(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        return read_rows(self.directory / name)


def find_newest(
    results: Path, name: str, read: Callable[[RunStore], _Value | None]
) -> _Value | None:
    """What ``read`` finds in the newest run of a name; those that it cannot read are passed over.

    It may get runs of other names that contain this one, and checks.
    """
    for directory in sorted(results.glob(f"*-{escape(name)}-*"), reverse=True):
        try:
            value = read(RunStore.open(directory))
        except (TunerError, OSError, LookupError, TypeError, ValueError):
            continue
        if value is not None:
            return value
    return None


@contextmanager
def written_by_one(directory: Path) -> Iterator[None]:
    """Holds a directory's lock; SpecError where another tune does."""
    with open_run_file(directory / LOCK) as file:
        if lock(file.fileno()) is Lock.BUSY:
            raise SpecError(
                f"{directory} is being written by another tune",
                "wait for it, or start a run of your own",
            )
        yield


def _end_of_lines(file: BinaryIO) -> int:
    """The offset just after the last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(end - _BLOCK_BYTES, 0)
        file.seek(start)
        if (offset := file.read(end - start).rfind(b"\n")) >= 0:
            return start + offset + 1
        end = start
    return 0


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n"


def _repeat(row: dict[str, Any]) -> Repeat:
    return Repeat.from_json(with_data(row))


def _rejected(row: dict[str, Any]) -> Rejected:
    return Rejected.from_json(with_data(reasons_of_earlier(row, "reason")))


def _trial(row: dict[str, Any]) -> Trial:
    trial = Trial.from_json(with_data(trial_of_earlier(row)))
    best = None if trial.score is None else trial.score.best_point
    if best is not None and not 0 <= best < len(trial.points):
        raise ValueError(f"score.best_point is {best} of {count_text(len(trial.points), 'point')}")
    return trial


def _abandoned(repeat: Repeat) -> Rejected:
    measurement = repeat.point.measurement
    return Rejected(
        Reason(ReasonKind.PROOF_INTERRUPTED),
        repeat.candidate_key,
        measurement.load.level,
        measurement.wall_s,
        Stage.CONFIRMATION,
        measurement,
    )


#: Exit codes, the worst first: a series ends with the worst of its runs.
WORST_FIRST = (130, 1, 4, 2, 3, 5, 13, 12, 10, 11, 0)


@dataclass(frozen=True)
class Member(Facts):
    """One spec of a series.

    Attributes:
        spec: Its path, from the directory of the choices.
        name: What the spec calls its models.
        run: Id of its run, which lies beside the series; empty before it is begun.
        spec_sha256: Identifies what was in it when the series was started.
        exit_code: The one `tune run` would have ended with; None before it ended.
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
        """It has a result; what failed or was interrupted is tried again with the series."""
        return self.status not in (None, Status.FAILED, Status.INTERRUPTED)


@dataclass(frozen=True)
class Series(Facts):
    """The specs in their order, and what the command line chose for all of them.

    Attributes:
        fingerprint: Of the machine that it was started on.
    """

    created_at: str
    choices: Choices
    seed: int | None
    members: tuple[Member, ...]
    fingerprint: str = ""

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
