"""What a worker starts for somebody else's run: its own programs, unless its user trusts the run.

The spec comes out of a study, and whoever may write to the storage may have written it. What it
names to be started, mounted or put into an environment runs as the worker's user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import SpecError
from tuner.spec.environment import ServerVariable
from tuner.spec.model import Server, Spec

#: Of the spec's server, what says which code runs, where it is not the default.
_SERVER = ("binary", "args", "environment", "image", "mounts")
#: Of a model's config, what says which code runs.
_CODE = (
    "backend",
    "cc_model_filenames",
    "default_model_filename",
    "model_operations",
    "parameters.EXECUTION_ENV_PATH",
    "platform",
    "runtime",
)


def refuse_strange_programs(spec: Spec, *, trusted: bool, own_repository: bool) -> None:
    """SpecError listing what the offered spec would have this machine run.

    Args:
        spec: As the run offers it.
        trusted: The worker's user said that the run is trusted.
        own_repository: The worker's user named the model repository.
    """
    strange = [] if trusted else list(_strange(spec, own_repository=own_repository))
    if strange:
        raise SpecError(
            "the run's spec says what this machine is to run, and whoever may write to the storage "
            "may have written it:\n" + "\n".join(f"  {line}" for line in strange),
            "where all of it is yours, join with --trust; docs/security.md says whom that trusts",
        )


def with_own_values(server: Server) -> Server:
    """The same with each hidden value of the environment taken from the worker's own variable."""
    variables = {
        name: v if v.taken_from is not None else ServerVariable(taken_from=name)
        for name, v in server.environment.items()
    }
    return server.model_copy(update={"environment": variables})


def _strange(spec: Spec, *, own_repository: bool) -> Iterator[str]:
    default = Server()
    for name in _SERVER:
        value = getattr(spec.server, name)
        if value != getattr(default, name):
            yield f"server.{name}: {_shown(value)}"
    if spec.workload.perf_analyzer is not None:
        yield f"workload.perf_analyzer: {spec.workload.perf_analyzer}"
    for path in (path for model in spec.models.values() for path in model.space):
        if path.startswith(_CODE):
            yield f"space: {path}, which says what code a model runs"
    foreign = any(not _is_own(spec.repository / model.name) for model in spec.models.values())
    if not own_repository and foreign:
        yield f"repository: {spec.repository}, which is not this user's; or name it: --repository"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        taken = {k: f"${v.taken_from}" for k, v in value.items() if isinstance(v, ServerVariable)}
        return ", ".join(f"{k}: {v}" for k, v in {**value, **taken}.items())
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _is_own(directory: Path) -> bool:
    """Owned by this user or root, and writable by nobody else: a model is code. Missing counts."""
    try:
        status = directory.stat()
    except OSError:
        return True  # reported later, where it is needed
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o002
