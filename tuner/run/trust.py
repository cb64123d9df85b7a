"""What a run may choose: the spec of one that this user began, and configs that a spec allows.

Nothing inside a run can say who began it: whoever made the run chose all of it. The user's own
state directory has a list of the runs and series begun here, each with its specs and their hashes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
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

#: A command that goes on with a run, or joins it, in which its user names the specs.
Command = Callable[[Path, Sequence[str], Choices], str]
#: The newest that the list keeps.
KEPT = 1000


def state_directory(environment: Mapping[str, str]) -> Path | None:
    """The directory for this user's state of tune, by the XDG rules; None: there is none."""
    home, state = (Path(environment.get(name, "")) for name in ("HOME", "XDG_STATE_HOME"))
    if state.is_absolute():
        return state / "triton-tune"
    return home / ".local" / "state" / "triton-tune" if home.is_absolute() else None


@dataclass(frozen=True)
class BegunRuns:
    """The list of the runs and series that this user began: a file for each, by its id.

    Attributes:
        state: The user's directory for state of tune; None: the environment names none.
    """

    state: Path | None

    @property
    def _directory(self) -> Path:
        if self.state is None:
            raise EnvironmentNotReadyError("neither $XDG_STATE_HOME nor $HOME names a directory")
        return self.state / "runs"

    def remember(self, run: Path, specs: Mapping[Path, str]) -> str:
        """Lists a run or series with its specs and their hashes.

        Returns:
            Where that failed, a sentence about it, since the run goes on; else empty.
        """
        try:
            directory = self._directory
            with suppress(OSError):  # opening it says why
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _of_this_user(directory):
                there = sorted(directory.glob("*.json"))
                for old in there[: max(len(there) - KEPT + 1, 0)]:
                    old.unlink(missing_ok=True)
                kept = {str(spec): sha256 for spec, sha256 in specs.items()}
                write_json(directory / f"{run.resolve().name}.json", {"specs": kept})
        except (OSError, EnvironmentNotReadyError) as error:
            why = error.message if isinstance(error, EnvironmentNotReadyError) else str(error)
            return (
                f"that this run was begun here could not be recorded ({plain(why)}): "
                "name its SPEC when you resume it"
            )
        return ""

    def why_unknown(self, run: Path, spec: Path, sha256: str) -> str:
        """Why it is not certain that this user began ``run`` with this spec; else empty."""
        try:
            with _of_this_user(self._directory) as directory:
                listed = read_json(directory / f"{run.resolve().name}.json", dict) or {}
        except FileNotFoundError:
            listed = {}
        except (OSError, EnvironmentNotReadyError, UnreadableFileError) as error:
            return f"named by a run, and the list of runs begun here cannot be read ({error})"
        specs = listed.get("specs")
        if isinstance(specs, dict) and specs.get(str(spec)) == sha256:
            return ""
        return f"named by a run that was not begun here: {self._directory} does not list it"


@contextmanager
def _of_this_user(directory: Path) -> Iterator[Path]:
    """The same directory, where nobody else may have written into it; else OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise PermissionError(f"others than this user may write into {directory}")
        yield directory
    finally:
        os.close(descriptor)


def named_spec(manifest: Manifest) -> Path:
    """The spec that a run says it was started with, at the path it had then."""
    return Path(manifest.choices.directory) / manifest.spec_path


def spec_of(run: Path, begun: BegunRuns, command: Command = resume_command) -> Path:
    """The spec that a run was started with, where this user began it.

    ``command``: what to say in its place where the spec is to be named.

    Raises:
        SpecError: It is not a run, its spec has moved, or somebody else may have chosen that.
    """
    manifest = RunStore.open(run).manifest()
    path = named_spec(manifest)
    if not os.path.isfile(path):  # noqa: PTH113 (no error where the name is too long)
        raise SpecError(
            f"the spec of {manifest.run_id} is no longer at {plain(str(path))}",
            "name it where it lies now (its text is kept in the run's manifest.json as spec_text): "
            + command(run, ["SPEC"], manifest.choices),
        )
    if where := untrusted(run, path, manifest.spec_sha256, begun):
        refuse_unnamed(f"the spec {path} is {where}", run, [path], manifest.choices, command)
    return path


def trusted_trials(store: RunStore, space: Space) -> list[Trial]:
    """The trials of a run; a config may choose code, and the spec says which there are.

    Raises:
        SpecError: The config of one is not in the space of the spec.
    """
    trials = store.trials()
    for trial in trials:
        if trial.candidate != space.current and not space.contains(trial.candidate):
            text = f"the config of trial {trial.number} is not in the space of the spec"
            raise SpecError(f"{store.directory / TRIALS}: {text}", "edited? start a new run")
    return trials


def untrusted(run: Path, spec: Path, sha256: str, begun: BegunRuns) -> str:
    """Why somebody else may have chosen the spec that a run or series names; else empty."""
    if spec.resolve().is_relative_to(run.resolve()):
        return "in the run's own directory"
    return begun.why_unknown(run, spec, sha256)


def refuse_unnamed(
    why: str,
    run: Path,
    specs: Sequence[Path],
    choices: Choices,
    command: Command = resume_command,
) -> NoReturn:
    """SpecError with the whole command, in which the user gives what no run is asked for."""
    text = f"{plain(why)}: the run may come from someone else and could start other programs"
    full_command = command(run, list(map(str, specs)), choices)
    raise SpecError(
        text, f"look at it with `tune plan`; if you mean it, give all of it: {full_command}"
    )
