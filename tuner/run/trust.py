"""Which parts of a stored run are trusted: the spec, if this user began the run, and its configs.

The files of a run cannot prove who began it, since their author may be someone else. So the user's
state directory has a list of the runs and series that this user began, with hashes of their specs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.plain import plain
from tuner.record.manifest import Choices, Manifest, resume_command
from tuner.record.reading import UnreadableFileError, read_json
from tuner.record.store import TRIALS, RunStore
from tuner.score.trial import Trial
from tuner.space.space import Space
from tuner.writing import write_json

#: Number of runs and series that the list keeps, the newest ones.
KEPT = 1000


def state_directory(environment: Mapping[str, str]) -> Path | None:
    """The user's state directory for tune, by the XDG specification; None: not defined."""
    home, state = (Path(environment.get(name, "")) for name in ("HOME", "XDG_STATE_HOME"))
    if state.is_absolute():
        return state / "triton-tune"
    return home / ".local" / "state" / "triton-tune" if home.is_absolute() else None


@dataclass(frozen=True)
class BegunRuns:
    """The list of the runs and series that this user began: one file for each, named by its id.

    Attributes:
        state: The user's state directory for tune; None: not defined.
    """

    state: Path | None

    @property
    def _directory(self) -> Path:
        if self.state is None:
            raise EnvironmentNotReadyError("neither $XDG_STATE_HOME nor $HOME names a directory")
        return self.state / "runs"

    def remember(self, run: Path, specs: Mapping[Path, str]) -> str:
        """Adds a run or series to the list, with the SHA-256 of each spec.

        Returns:
            A sentence about a failure, which does not stop the run; else empty.
        """
        try:
            directory = self._directory
            with suppress(OSError):  # the next line reports the error
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _of_this_user(directory):
                there = sorted(directory.glob("*.json"))
                for old in there[: max(len(there) - KEPT + 1, 0)]:
                    old.unlink(missing_ok=True)
                kept = {str(spec): sha256 for spec, sha256 in specs.items()}
                write_json(_entry_of(run, directory), {"specs": kept})
        except (OSError, EnvironmentNotReadyError) as error:
            why = error.message if isinstance(error, EnvironmentNotReadyError) else str(error)
            return (
                f"cannot record that you began this run ({plain(why)}): "
                "name its SPEC when you resume it"
            )
        return ""

    def why_unknown(self, run: Path, spec: Path, sha256: str) -> str:
        """Why the list does not show that this user began ``run`` with this spec; else empty."""
        try:
            with _of_this_user(self._directory) as directory:
                listed = read_json(_entry_of(run, directory), dict) or {}
        except FileNotFoundError:
            listed = {}
        except (OSError, EnvironmentNotReadyError, UnreadableFileError) as error:
            return f"named by a run, and the list of your runs cannot be read ({error})"
        specs = listed.get("specs")
        if isinstance(specs, dict) and specs.get(str(spec)) == sha256:
            return ""
        return f"named by a run that you did not begin: {self._directory} does not list it"


def _entry_of(run: Path, directory: Path) -> Path:
    return directory / f"{run.resolve().name}.json"


@contextmanager
def _of_this_user(directory: Path) -> Iterator[Path]:
    """The directory, if only this user can write into it; else raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise PermissionError(f"other users can write into {directory}")
        yield directory
    finally:
        os.close(descriptor)


def named_spec(manifest: Manifest) -> Path:
    """The path of a run's spec when the run began."""
    return Path(manifest.choices.directory) / manifest.spec_path


def spec_of(run: Path, begun: BegunRuns) -> Path:
    """The path of the spec of a run that this user began.

    Raises:
        SpecError: The directory is not a run, its spec was moved, or another user may have begun
            the run.
    """
    manifest = RunStore.open(run).manifest()
    path = named_spec(manifest)
    if not os.path.isfile(path):  # noqa: PTH113 (no error where the name is too long)
        raise SpecError(
            f"the spec of {manifest.run_id} is no longer at {plain(str(path))}",
            "give its new path (the run's manifest.json has its text as spec_text): "
            + resume_command(run, ["SPEC"], manifest.choices),
        )
    if where := untrusted(run, path, manifest.spec_sha256, begun):
        refuse_unnamed(f"the spec {path} is {where}", run, [path], manifest.choices)
    return path


def trusted_trials(store: RunStore, space: Space) -> list[Trial]:
    """The trials of a run, if all their configs are in the space of the spec.

    Other configs might select code that the spec does not allow.

    Raises:
        SpecError: The config of a trial is not in the space.
    """
    trials = store.trials()
    for trial in trials:
        if trial.candidate != space.current and not space.contains(trial.candidate):
            text = f"the config of trial {trial.number} is not in the space of the spec"
            raise SpecError(f"{store.directory / TRIALS}: {text}", "edited? start a new run")
    return trials


def untrusted(run: Path, spec: Path, sha256: str, begun: BegunRuns) -> str:
    """Why another user may have chosen the spec that a run or series names; else empty."""
    if spec.resolve().is_relative_to(run.resolve()):
        return "in the run's own directory"
    return begun.why_unknown(run, spec, sha256)


def refuse_unnamed(why: str, run: Path, specs: Sequence[Path], choices: Choices) -> NoReturn:
    """Raises SpecError with the complete command, in which the user names specs and options."""
    text = f"{plain(why)}: the run may come from someone else and could start other programs"
    full_command = resume_command(run, list(map(str, specs)), choices)
    raise SpecError(
        text, f"review the spec with `tune plan`; to resume, give the full command: {full_command}"
    )
