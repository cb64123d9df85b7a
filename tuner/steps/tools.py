"""The programs of a run: found on this machine, and seen to run."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from tuner import __version__
from tuner.machine.host import NOT_SPLIT, Cores, Host, read_host
from tuner.modelconfig.backends import is_ensemble
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin, numpy_of_models
from tuner.server.server import ServerLauncher
from tuner.steps.job import Job
from tuner.triton.launchers import cores_of, server_launcher
from tuner.triton.local import LocalLauncher, find_backends


@dataclass(frozen=True)
class Programs:
    """What was found on this machine and seen to run.

    Attributes:
        launcher: Starts servers the way the spec says.
        server_version: What its servers are, as exactly as that is known.
    """

    launcher: ServerLauncher
    perf_analyzer: Installation
    host: Host
    server_version: str
    cores: Cores = NOT_SPLIT

    def versions(self) -> dict[str, str]:
        return {
            "tune": __version__,
            "tritonserver": self.server_version,
            "perf_analyzer": self.perf_analyzer.version,
            "optuna": version("optuna"),
            "python": platform.python_version(),
        }

    def fingerprint(self) -> str:
        return self.host.fingerprint(self.server_version, self.cores)


@contextmanager
def find_programs(job: Job, environment: Mapping[str, str]) -> Iterator[Programs]:
    """Finds the programs the job needs and runs each once.

    The server gets the spec's arguments except those the search owns, which come with each
    candidate.

    Raises:
        EnvironmentNotReadyError: One is missing or does not run here, or would serve nonsense.
    """
    server = job.spec.server.model_copy(update={"args": job.space.server_args})
    spec = job.spec.model_copy(update={"server": server})
    models = job.served.models.values()
    with (
        server_launcher(spec, [model.name for model in models], environment) as launcher,
        _load_program(job, environment) as program,
    ):
        if isinstance(launcher, LocalLauncher):
            files = [model.files for model in models]
            find_backends(files, launcher.args, launcher.installation.backend_directory)
        in_python = any(
            model.base.file.backend in ("", "python") and not is_ensemble(model.base.file)
            for model in models
        )
        if launcher.python is not None and in_python:
            numpy_of_models(launcher.python)
        cores = cores_of(spec)
        client = replace(program, cpus=cores.load)
        yield Programs(launcher, client, read_host(environment), launcher.version(), cores)


@contextmanager
def _load_program(job: Job, environment: Mapping[str, str]) -> Iterator[Installation]:
    """perf_analyzer, or this Python, which runs our own client, where there is none."""
    if not job.has_perf_analyzer:
        yield Installation(Path(sys.executable), "none", Origin.PATH, environment)
        return
    with binaries.perf_analyzer(job.spec.workload.perf_analyzer, environment) as found:
        yield found
