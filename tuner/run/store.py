"""A run on disk: append-only trials, synced before the next one starts.

A reader may open a run at any time, also one that was killed: a torn last line is dropped, and
overwritten when the run is resumed.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.run.rejected import Rejected, Stage
from tuner.run.trial import Point, Trial

MANIFEST = "manifest.json"
TRIALS = "trials.jsonl"
CONFIRMATION = "confirmation.jsonl"
REJECTED = "rejected.jsonl"
RESULT = "result.json"
STUDY = "study.db"


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
        directory = parent / run_id
        (directory / "logs").mkdir(parents=True)
        return cls(directory)

    @classmethod
    def open(cls, directory: Path) -> RunStore:
        """A run that exists; SpecError when it is none."""
        if not (directory / MANIFEST).is_file():
            raise SpecError(
                f"{directory} is not a run: it has no {MANIFEST}",
                "name a directory under results/; `tune report` without one lists them",
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
        """Held by whoever adds to the run; a second writer is refused."""
        with (self.directory / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SpecError(
                    f"{self.directory} is being written by another tune",
                    "wait for it, or start a run of your own",
                ) from None
            yield

    def append_trial(self, trial: Trial) -> None:
        self._append(TRIALS, trial.to_json())

    def trials(self) -> list[Trial]:
        return [Trial.from_json(row) for row in self._rows(TRIALS)]

    def append_confirmation(self, row: Mapping[str, Any]) -> None:
        self._append(CONFIRMATION, row)

    def confirmation(self) -> list[dict[str, Any]]:
        return self._rows(CONFIRMATION)

    def clear_confirmation(self) -> None:
        """Confirmation is measured in one go: what a killed one left is not evidence."""
        for row in self.confirmation():
            self.append_rejected(_abandoned(row))
        (self.directory / CONFIRMATION).unlink(missing_ok=True)

    def append_rejected(self, rejected: Rejected) -> None:
        self._append(REJECTED, rejected.to_json())

    def rejected(self) -> list[Rejected]:
        return [Rejected.from_json(row) for row in self._rows(REJECTED)]

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_json(self.directory / MANIFEST, manifest)

    def manifest(self) -> dict[str, Any]:
        return self._read(MANIFEST)

    def write_result(self, result: Mapping[str, Any]) -> None:
        write_json(self.directory / RESULT, result)

    def result(self) -> dict[str, Any] | None:
        return self._read(RESULT) if (self.directory / RESULT).is_file() else None

    def write_best(self, config_text: str, server_args: tuple[str, ...]) -> None:
        """What to serve: the config as it would be written, and the flags it needs."""
        write_text(self.directory / "best" / "config.pbtxt", config_text)
        write_text(
            self.directory / "best" / "server_args.txt", "".join(f"{a}\n" for a in server_args)
        )

    def _read(self, name: str) -> dict[str, Any]:
        data = json.loads((self.directory / name).read_text(encoding="utf-8"))
        assert isinstance(data, dict)
        return data

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        path = self.directory / name
        line = json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n"
        with path.open("a+b") as file:
            file.truncate(_whole_lines(path))
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def _rows(self, name: str) -> list[dict[str, Any]]:
        path = self.directory / name
        if not path.is_file():
            return []
        whole = path.read_bytes()[: _whole_lines(path)]
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _abandoned(row: Mapping[str, Any]) -> Rejected:
    measurement = Point.from_json(row["point"]).measurement
    return Rejected(
        "the confirmation it belongs to was interrupted",
        row["candidate_key"],
        measurement.load.level,
        measurement.wall_s,
        Stage.CONFIRMATION,
        measurement,
    )


def _whole_lines(path: Path) -> int:
    """Bytes up to and with the last newline: what a kill in mid-write leaves behind is cut."""
    return path.read_bytes().rfind(b"\n") + 1


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """The old file or the new one, never half."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)
