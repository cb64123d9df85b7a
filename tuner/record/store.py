"""A run on disk: append-only trials, each synced before the next one starts.

A reader may open any run, also one in progress or a killed one: it skips an incomplete last line,
which a resumed run overwrites.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, SpecError, TunerError
from tuner.locking import Lock, lock
from tuner.measurement.measurement import Rejected, Stage
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Repeat
from tuner.record.earlier import reasons_of_earlier, trial_of_earlier, with_data
from tuner.record.manifest import Manifest
from tuner.record.reading import (
    UnreadableFileError,
    read_as,
    read_bytes,
    read_json,
    read_rows,
    torn_line,
)
from tuner.record.result_schema import Result, WrittenFacts, read_result
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
LOCK = ".lock"
_BLOCK_BYTES = 64 * 1024


def new_run_id(model: str, now: datetime | None = None) -> str:
    """A new id: unique, starts with the time, and names the model."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{model}-{secrets.token_hex(2)}"


class RunStore:
    """The directory of one run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def create(cls, parent: Path, run_id: str) -> RunStore:
        """Makes the directory of a new run.

        Raises:
            EnvironmentNotReadyError: The directory cannot be written.
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
        """Opens the directory of an existing run; SpecError if it is not one."""
        if read_bytes(directory / MANIFEST) is None:
            hint = "name a directory under results/; `tune report` without one lists them"
            if os.path.lexists(directory / RESULT):
                hint = f"show its result with: tune report {shlex.quote(str(directory))}"
            raise SpecError(f"{directory} is not a run: it has no {MANIFEST}", hint)
        return cls(directory)

    @property
    def run_id(self) -> str:
        return self.directory.name

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the run for the process that adds to it.

        Raises:
            SpecError: Another process has the lock.
            EnvironmentNotReadyError: The run cannot be written, or its logs are behind a link.
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
        """Rejects all but the first ``kept`` rows: an interrupted round is no evidence."""
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
        """A sentence for each file that was cut short, about the text that reading skips."""
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
        """How the run ended; None if it left no result.

        Raises:
            UnreadableFileError: It is not JSON, or does not follow version 1.
        """
        return read_result(self.directory / RESULT)

    def full_result(self) -> Result | None:
        """The result, for a run that continues; also None if a power cut damaged the file."""
        try:
            read_json(self.directory / RESULT, dict)
        except UnreadableFileError:
            return None
        return self.result()

    def add_written(self, written: WrittenFacts) -> None:
        """Adds a later write to the result; keys of later versions stay."""
        stored = read_json(self.directory / RESULT, dict) or {}
        write_json(self.directory / RESULT, {**stored, "written": written.to_json()})

    def write_best(
        self, configs: Mapping[str, bytes], server_args: Sequence[str], variables: Sequence[str]
    ) -> None:
        """Writes what to serve: each model's config, and the winner's arguments and variables."""
        best = run_subdirectory(self.directory, BEST)
        for label, config in configs.items():
            write_bytes(run_subdirectory(best, label) / "config.pbtxt", config)
        write_text(best / "server_args.txt", "".join(f"{a}\n" for a in server_args))
        write_text(best / "environment.txt", "".join(f"{v}\n" for v in variables))

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        path = self.directory / name
        with open_run_file(path) as file, explained(path):
            file.truncate(_end_of_lines(file))  # cuts a line that a kill left incomplete
            file.write(_line(row).encode())
            file.flush()
            os.fsync(file.fileno())

    def _rows(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        return read_rows(self.directory / name)


def find_newest(
    results: Path, name: str, read: Callable[[RunStore], _Value | None]
) -> _Value | None:
    """What ``read`` returns for the newest run of a name; skips runs that cannot be read.

    ``read`` may also receive checks, and runs of other names that contain this name.
    """
    for directory in sorted(results.glob(f"*-{escape(name)}-*"), reverse=True):
        try:
            value = read(RunStore.open(directory))
        except InterruptedRunError:  # a signal, not the run
            raise
        except (TunerError, OSError, LookupError, TypeError, ValueError):
            continue
        if value is not None:
            return value
    return None


@contextmanager
def written_by_one(directory: Path) -> Iterator[None]:
    """Locks a directory; SpecError if another tune has the lock."""
    with open_run_file(directory / LOCK) as file:
        if lock(file.fileno()) is Lock.BUSY:
            raise SpecError(
                f"another tune is writing {directory}",
                "wait until it ends, or start another run",
            )
        yield


def _end_of_lines(file: BinaryIO) -> int:
    """The offset just after the last complete line."""
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
