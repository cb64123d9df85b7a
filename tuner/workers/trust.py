"""What a worker starts for somebody else's run: its own programs, unless its user trusts the run.

The spec comes out of a study, and whoever may write to the storage may have written it. What it
names to be started, mounted or put into an environment runs as the worker's user.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import SpecError
from tuner.modelconfig.path_steps import may_choose_code
from tuner.spec.model import Spec
from tuner.spec.server import ServerSpec, ServerVariable

#: Of the spec's server, what says which code runs, where it is not the default.
_SERVER = ("binary", "args", "environment", "image", "mounts")


def refuse_strange_programs(spec: Spec, *, trusted: bool, own_repository: bool) -> None:
    """SpecError listing what the offered spec would have this machine run.

    ``trusted``: the worker's user said that the run is. ``own_repository``: that user named the
    model repository.
    """
    strange = [] if trusted else list(_strange(spec, own_repository=own_repository))
    if strange:
        raise SpecError(
            "the run's spec says what this machine is to run, and whoever may write to the storage "
            "may have written it:\n" + "\n".join(f"  {line}" for line in strange),
            "where all of it is yours, join with --trust; docs/security.md says whom that trusts",
        )


def with_own_values(server: ServerSpec) -> ServerSpec:
    """The same with each hidden value of the environment taken from the worker's own variable."""
    variables = {
        name: v if v.taken_from is not None else ServerVariable(taken_from=name)
        for name, v in server.environment.items()
    }
    return server.model_copy(update={"environment": variables})


def _strange(spec: Spec, *, own_repository: bool) -> Iterator[str]:
    default = ServerSpec()
    for name in _SERVER:
        value = getattr(spec.server, name)
        if value != getattr(default, name):
            yield f"server.{name}: {_shown(value)}"
    if spec.workload.perf_analyzer is not None:
        yield f"workload.perf_analyzer: {spec.workload.perf_analyzer}"
    for path in (path for model in spec.models.values() for path in model.space):
        if may_choose_code(path):
            yield f"space: {path}, which may say what code a model runs"
    strange = None if own_repository else next(_changed_by_others(spec.repository.absolute()), None)
    if strange is not None:
        yield f"repository: others may change {strange}; or name it: --repository"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        taken = {k: f"${v.taken_from}" for k, v in value.items() if isinstance(v, ServerVariable)}
        return ", ".join(f"{k}: {v}" for k, v in {**value, **taken}.items())
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _changed_by_others(repository: Path) -> Iterator[Path]:
    """What of it, or on the way to it from ``/``, is not this user's and root's alone.

    A model is code. Links count where they are and where they lead. A sticky directory on the way
    is fine, since what lies in it can only be replaced by its owner.
    """
    waiting, seen = [(repository, True)], set()
    while waiting:
        path, inside = waiting.pop()
        if path != path.parent:
            waiting.append((path.parent, False))
        try:
            status = path.lstat()
            mode, key = status.st_mode, (status.st_dev, status.st_ino, inside)
            if key in seen:
                continue
            seen.add(key)
            if stat.S_ISLNK(mode):
                waiting.append((path.parent / path.readlink(), inside))
                mode = 0  # anybody's, but only its owner's to replace
            elif inside and stat.S_ISDIR(mode):
                waiting += [(entry, True) for entry in path.iterdir()]
        except OSError as error:
            if error.errno != errno.ENOENT or path == repository:  # else a link to nothing
                yield path
            continue
        open_to_others = mode & 0o022 and (inside or not mode & stat.S_ISVTX)
        if open_to_others or status.st_uid not in (os.geteuid(), 0):
            yield path
