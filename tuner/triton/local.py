"""tritonserver as a child process on free ports of 127.0.0.1, with a mirror of the repository.

A Python model creates ``__pycache__`` next to its code. That would change the user's repository,
and Triton would reload the model in full at the next change of instances, instead of updating it in
place, since its version directory changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import psutil

from tuner.errors import EnvironmentNotReadyError
from tuner.machine import process
from tuner.machine.cpus import put_back
from tuner.machine.process import ADDRESS, PREFIX, free_ports, private_directory
from tuner.modelconfig.files import ModelFiles, versions
from tuner.server.binaries import Installation
from tuner.server.health import SERVICES, endpoints_at, ready_server
from tuner.server.server import NO_VARIABLES, PROTOCOLS, Endpoints, Place, Variables, key_arguments
from tuner.server.shared_memory import SHM, shared_region, shm_names
from tuner.spec.fields import Gpus
from tuner.spec.paths import CONFIG_NAME
from tuner.spec.server import ServerMode
from tuner.triton.needs import backend_directory, backends_of, refuse_lacking
from tuner.writing import open_run_file

_TMP = Path("/tmp")  # noqa: S108 - where Triton's Python backend works, whatever $TMPDIR is
#: The names that its mkdtemp gives; each directory holds one numbered directory per environment.
_ENVIRONMENTS = "python_env_" + 6 * "[0-9A-Za-z]"
#: Of processes that see all processes of the machine (PROC_PID_INIT_INO in Linux).
_FIRST_NAMESPACE = Path("pid:[4026531836]")
_CLOCK_S = 1.0  # times of processes and files come from different clocks


def find_backends(models: Iterable[ModelFiles], args: Iterable[str], installed: Path | None) -> str:
    """Checks that a local server has the backends of the models; returns their names.

    Args:
        args: Arguments of the server, which may name a directory of backends.
        installed: The server's own directory of backends; None: not known.

    Raises:
        EnvironmentNotReadyError: A backend is neither in these directories nor beside its model.
    """
    directories = [path for path in (backend_directory(args), installed) if path is not None]
    if not directories:
        return "in the default directory of this tritonserver"
    has = {
        place.name
        for directory in directories
        for place in directory.glob("*")
        if any(place.glob(f"libtriton_{place.name}*.so")) or (place / "model.py").is_file()
    }
    return refuse_lacking(backends_of(models), has, "this tritonserver", ServerMode.LOCAL)


@contextmanager
def _joined(named: Path | None, installed: Path | None) -> Iterator[list[str]]:
    """An argument with a directory that joins both: Triton takes only one directory."""
    if named is None or installed is None:
        yield []
        return
    with private_directory() as both:
        for backend in (*named.glob("*"), *installed.iterdir()):
            if not (both / backend.name).exists():
                (both / backend.name).symlink_to(backend.resolve())
        yield [f"--backend-directory={both}"]


@dataclass(frozen=True)
class LocalServer:
    """A tritonserver process; see `tuner.server.server.Server`."""

    endpoints: Endpoints
    pid: int
    _process: subprocess.Popen[bytes]
    _log: Path
    _log_start: int
    _repository: Path
    _cpus: tuple[int, ...] = ()

    def alive(self) -> bool:
        return self._process.poll() is None

    def log_tail(self, lines: int = 40) -> str:
        return in_repository(process.tail(self._log, lines, self._log_start), self._repository)

    def put_back(self) -> int:
        return put_back(self.pid, self._cpus) if self._cpus else 0


@dataclass(frozen=True)
class LocalLauncher:
    """Starts the installed tritonserver; see `tuner.server.server.ServerLauncher`.

    The server gets a mirror of the repository, so that it writes nothing into the repository.

    Attributes:
        args: Arguments from the spec; a candidate's follow, and override them.
        gpus: GPUs that the server may see.
        start_timeout_s: A server that is not ready in time counts as hung.
        restricted: Protocols that need the server's key.
        shares: Its servers read the inputs of requests from shared memory.
        models: Names of the served models; None: all of the repository.
    """

    installation: Installation
    repository: Path
    args: tuple[str, ...] = ()
    gpus: Gpus = "all"
    start_timeout_s: float = 60.0
    restricted: tuple[str, ...] = PROTOCOLS
    shares: bool = False
    models: tuple[str, ...] | None = None
    restartable: ClassVar[bool] = True
    place: ClassVar[Place] = Place.HERE

    @property
    def python(self) -> Path | None:
        return self.installation.python

    def command_line(self) -> list[str]:
        backends = Path("BACKENDS") if self.python else self.installation.backend_directory
        public = replace(
            self.installation, backend_directory=backends
        )  # the wheel's directory is private
        return replace(self, installation=public).command(
            (), repository=self.repository, ports=(0, 0, 0), shm_prefix="PREFIX", key="KEY"
        )

    def version(self) -> str:
        return self.installation.version

    def check_backends(self, models: Sequence[ModelFiles]) -> str:
        return find_backends(models, self.args, self.installation.backend_directory)

    def command(
        self,
        server_args: Sequence[str],
        *,
        repository: Path,
        ports: Sequence[int],
        shm_prefix: str,
        key: str | None = None,
    ) -> list[str]:
        """The command line of a server; ``ports``: in the order of `SERVICES`."""
        directories = {
            "--backend-directory": self.installation.backend_directory,
            "--cache-directory": self.installation.cache_directory,
        }
        return [
            str(self.installation.binary),
            f"--model-repository={repository}",
            "--model-control-mode=explicit",
            *(f"{flag}={path}" for flag, path in directories.items() if path is not None),
            *(f"--{service}-address={ADDRESS}" for service in SERVICES),
            *(f"--{s}-port={port}" for s, port in zip(SERVICES, ports, strict=True)),
            f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
            *key_arguments(key, self.restricted),
            *self.args,
            *server_args,
        ]

    def on(self, cpus: tuple[int, ...]) -> LocalLauncher:
        return replace(self, installation=replace(self.installation, cpus=cpus))

    def launch(
        self, server_args: Sequence[str], log: Path, environment: Variables = NO_VARIABLES
    ) -> AbstractContextManager[LocalServer]:
        start = partial(self._running, server_args, log, environment)
        return ready_server(start, self.start_timeout_s)

    @contextmanager
    def _running(
        self,
        server_args: Sequence[str],
        log: Path,
        environment: Variables,
        key: str | None,
    ) -> Iterator[LocalServer]:
        with ExitStack() as stack:
            output = stack.enter_context(open_run_file(log))
            log_start = output.seek(0, os.SEEK_END)
            shm_prefix = stack.enter_context(shm_names())
            shared = stack.enter_context(shared_region(shm_prefix)) if self.shares else None
            settled = {server for server in _python_servers() if _has_stub(server)}
            stack.callback(_remove_environments, settled, {*_TMP.glob(_ENVIRONMENTS)})
            repository = stack.enter_context(mirror_of(self.repository, self.models))
            installed = self.installation.backend_directory
            backends = stack.enter_context(_joined(backend_directory(self.args), installed))
            with free_ports(len(SERVICES)) as ports:
                command = self.command(
                    (*server_args, *backends),
                    repository=repository,
                    ports=ports,
                    shm_prefix=shm_prefix,
                    key=key,
                )
            running = stack.enter_context(
                process.child(
                    command,
                    env=self.environment(environment),
                    stdout=output,
                    leftovers=[f"{SHM}/{shm_prefix}*", str(repository)],
                    cpus=self.installation.cpus,
                )
            )
            endpoints = endpoints_at(ports, key, shared)
            yield LocalServer(
                endpoints,
                running.pid,
                running,
                log,
                log_start,
                self.repository,
                self.installation.cpus,
            )

    def environment(self, more: Variables) -> Mapping[str, str]:
        """The environment of a server's process; ``more`` overrides other variables."""
        variables = {**self.installation.environment, **more}
        if self.gpus != "all":
            visible = "" if self.gpus == "none" else ",".join(map(str, self.gpus))
            variables["CUDA_VISIBLE_DEVICES"] = visible
        return {name: value for name, value in variables.items() if value is not None}


def _remove_environments(settled: Set[psutil.Process], there: Set[Path]) -> None:
    """Removes environment directories that killed Python backends of this user have left.

    A server that ends normally removes them itself, which takes seconds. Directories stay that a
    living server may have created, also in another container that shares /tmp.

    Args:
        settled: Servers that had created their directories before this server started.
        there: Directories that existed before this server started.
    """
    left = {*_TMP.glob(_ENVIRONMENTS)} - (set() if _sees_all_of_tmp() else there)
    living = _python_servers()  # looked for last: each of them may have made one of those
    for path in left:
        with suppress(OSError):
            made, owner = path.lstat().st_mtime, path.lstat().st_uid
            makers = living.keys() if path in there else living.keys() - settled
            theirs = any(living[server] < made + _CLOCK_S for server in makers)
            is_tritons = all(environment.name.isdigit() for environment in path.iterdir())
            if owner == os.geteuid() and is_tritons and not theirs:
                shutil.rmtree(path)


def _sees_all_of_tmp() -> bool:
    """Whether all processes that use this /tmp are visible: not if a container has mounted it."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").readlink() == _FIRST_NAMESPACE or not _TMP.is_mount()
    return False


def _python_servers() -> dict[psutil.Process, float]:
    """Start times of the running servers with the Python backend, in seconds since the epoch."""
    created_s = {}
    for running in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if "libtriton_python.so" in Path(f"/proc/{running.pid}/maps").read_text():
                created_s[running] = running.create_time()
    return created_s


def _has_stub(server: psutil.Process) -> bool:
    """Whether a server runs a Python model, so that its backend has created its directory."""
    with suppress(psutil.Error):
        return any(child.name().startswith("triton_python") for child in server.children())
    return False


_BYTECODE = "__pycache__"
#: Most files of the served models; the links for that many take seconds.
MOST_FILES = 50_000


@contextmanager
def mirror_of(repository: Path, models: Collection[str] | None = None) -> Iterator[Path]:
    """A mirror of the repository while the context is open: directories with links to its files.

    A directory that a model links to (a data set, weights) becomes one link, unless it contains
    Python code; so does a directory that cannot be read.

    Args:
        models: Names of the served models; None: all. Any other model becomes one link.

    Raises:
        EnvironmentNotReadyError: The models have too many files.
    """
    with private_directory() as private:
        mirror = private / "models"
        _mirror(repository.resolve(), mirror, (), models, iter(range(MOST_FILES)))
        yield mirror


def _is_used(entry: Path, models: Collection[str]) -> bool:
    """Whether an entry is a served model, or a directory with code that models may share."""
    is_model = entry.is_symlink() or bool(versions(entry)) or (entry / CONFIG_NAME).exists()
    return entry.name in models or not is_model


def in_repository(words: str, repository: Path) -> str:
    """A server's message, with the path of the repository in place of the mirror's."""
    return re.sub(rf"[^\s'\"]*/{PREFIX}\w+/models(?=/)", lambda _: str(repository), words)


def _mirror(
    source: Path,
    target: Path,
    ancestors: tuple[Path, ...],
    models: Collection[str] | None,
    room: Iterator[int],
) -> None:
    target.mkdir()
    ancestors = (*ancestors, source)
    for entry in source.iterdir():
        if next(room, None) is None:
            raise EnvironmentNotReadyError(
                f"{ancestors[:2][-1]}: with it, there are more than {MOST_FILES} files and "
                "directories (links followed), too many to mirror for each start of a server",
                "move data out of the model's directory, and link to it from a version's directory",
            )
        copy = target / entry.name
        if entry.name == _BYTECODE:
            continue
        if not os.access(entry, os.R_OK | os.X_OK) or not entry.is_dir():
            copy.symlink_to(entry)
        elif (real := entry.resolve()) in ancestors:
            continue
        elif not _is_followed(entry, len(ancestors), models):
            copy.symlink_to(real)
        else:
            _mirror(real, copy, ancestors, models, room)
    if any(target.glob("*.py")):
        # With this file, Python cannot create the directory, and works without.
        (target / _BYTECODE).touch()


def _is_followed(directory: Path, depth: int, models: Collection[str] | None) -> bool:
    """Whether to mirror a directory, not link it; ``depth``: 1 for a model, 2 for a version."""
    if depth == 1:
        return models is None or _is_used(directory, models)
    is_version = depth == 2 and directory.name.isdecimal()
    return not directory.is_symlink() or is_version or _has_code(directory)


def _has_code(link: Path) -> bool:
    """Whether the target of a link contains Python code."""
    return any(link.glob("*.py")) or any(link.glob("*/__init__.py"))
