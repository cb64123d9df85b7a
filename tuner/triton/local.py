"""tritonserver as a child process on free ports of 127.0.0.1, over a mirror of the repository.

A Python model leaves ``__pycache__`` next to its code. That would change the user's repository,
and to Triton a changed version directory is a changed model: the next change of instances would
be a full reload instead of an update in place.
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
_ENVIRONMENTS = "python_env_*"
_CLOCK_S = 1.0  # processes and files are dated by different clocks


def find_backends(models: Iterable[ModelFiles], args: Iterable[str], installed: Path | None) -> str:
    """The models' backends, in the directory that is ``installed`` or that ``args`` name.

    Raises:
        EnvironmentNotReadyError: One is neither there nor beside its model.
    """
    directories = [path for path in (backend_directory(args), installed) if path is not None]
    if not directories:
        return "wherever this tritonserver looks for them"
    has = {
        place.name
        for directory in directories
        for place in directory.glob("*")
        if any(place.glob(f"libtriton_{place.name}*.so")) or (place / "model.py").is_file()
    }
    return refuse_lacking(backends_of(models), has, "this tritonserver", ServerMode.LOCAL)


@contextmanager
def _joined(named: Path | None, installed: Path | None) -> Iterator[list[str]]:
    """An argument for the named backends and, beside them, the installed ones: Triton takes one."""
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

    The server is given a mirror of the repository, so that nothing is written into the real one.

    Attributes:
        args: Arguments from the spec; a candidate's come after them and win.
        start_timeout_s: A server that is not ready by then counts as hung.
        restricted: What the server does only for a client that has its key.
        shares: Its servers read the inputs of requests from memory that they share.
        models: Names of those that are served; None: all of the repository.
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
        public = replace(self.installation, backend_directory=backends)  # the wheel's are private
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
        """The exact command line."""
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
        """The variables of a server's process."""
        variables = {**self.installation.environment, **more}
        if self.gpus != "all":
            visible = "" if self.gpus == "none" else ",".join(map(str, self.gpus))
            variables["CUDA_VISIBLE_DEVICES"] = visible
        return {name: value for name, value in variables.items() if value is not None}


def _remove_environments(settled: Set[psutil.Process], there: Set[Path]) -> None:
    """Removes what this user's Python backends have made and, killed, left behind.

    A server that is ended politely does so itself, which takes it seconds. What was ``there``
    before, or a living one may have made, stays. Servers that were ``settled`` had made theirs.
    """
    living = _python_servers()
    for path in {*_TMP.glob(_ENVIRONMENTS)} - there:
        with suppress(OSError):
            made, owner = path.lstat().st_mtime, path.lstat().st_uid
            theirs = any(living[server] < made + _CLOCK_S for server in living.keys() - settled)
            if owner == os.geteuid() and not theirs:
                shutil.rmtree(path)


def _python_servers() -> dict[psutil.Process, float]:
    """When each server with the Python backend that lives began."""
    created_s = {}
    for running in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if "libtriton_python.so" in Path(f"/proc/{running.pid}/maps").read_text():
                created_s[running] = running.create_time()
    return created_s


def _has_stub(server: psutil.Process) -> bool:
    """Whether a Python model runs, and so its backend has made its directory."""
    with suppress(psutil.Error):
        return any(child.name().startswith("triton_python") for child in server.children())
    return False


_BYTECODE = "__pycache__"
#: Of the models that are served: a link for each takes seconds by then.
MOST_FILES = 50_000


@contextmanager
def mirror_of(repository: Path, models: Collection[str] | None = None) -> Iterator[Path]:
    """Directories like the repository's, with links to its files, for as long as it is open.

    A directory that a model links to (a data set, weights) stays one link, unless it holds Python
    code; so does one that may not be read.

    Args:
        models: Names of those that are served; None: all. Any other stays one link.

    Raises:
        EnvironmentNotReadyError: The models have too many files.
    """
    with private_directory() as private:
        mirror = private / "models"
        _mirror(repository.resolve(), mirror, (), models, iter(range(MOST_FILES)))
        yield mirror


def _is_used(entry: Path, models: Collection[str]) -> bool:
    """A served model, or a directory that is no model: it may hold code that models share."""
    is_model = entry.is_symlink() or bool(versions(entry)) or (entry / CONFIG_NAME).exists()
    return entry.name in models or not is_model


def in_repository(words: str, repository: Path) -> str:
    """A server's words with the repository's own path for that of a mirror."""
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
        # Python cannot make a directory of this name, and goes on without.
        (target / _BYTECODE).touch()


def _is_followed(directory: Path, depth: int, models: Collection[str] | None) -> bool:
    """Whether a directory is mirrored; it is 1 deep for a model, 2 for its versions."""
    if depth == 1:
        return models is None or _is_used(directory, models)
    is_version = depth == 2 and directory.name.isdecimal()
    return not directory.is_symlink() or is_version or _has_code(directory)


def _has_code(link: Path) -> bool:
    """Whether Python code is where a link leads."""
    return any(link.glob("*.py")) or any(link.glob("*/__init__.py"))
