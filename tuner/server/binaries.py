"""Finds tritonserver and perf_analyzer, and the environment that they need.

The order of the search: the path in the spec, ``$TUNE_TRITONSERVER`` or ``$TUNE_PERF_ANALYZER``,
PATH, ``/opt/tritonserver/bin`` (NVIDIA's images), the wheels (`wheel`). Each program is checked by
running it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.machine.process import Priority, private_directory
from tuner.server import log, wheel
from tuner.server.elf import has_dynamic_linker
from tuner.server.numpy2 import SHIM
from tuner.server.wheel import PYTHON, install_hint
from tuner.spec.mistakes import listed, path_meant

_CONTAINER_BIN = Path("/opt/tritonserver/bin")
_RUN_TIMEOUT_S = 60.0  # the first start on a machine with GPUs takes seconds
_NO_LIBRARY = (
    f"the Python at {sys.base_prefix} has no shared library: install it (Debian: "
    f"`apt-get install libpython{PYTHON}`), or use a Python built with --enable-shared "
    "(pyenv: PYTHON_CONFIGURE_OPTS)"
)


class Origin(Enum):
    """The place where a binary was found."""

    SPEC = "the spec"
    VARIABLE = "the environment variable"
    PATH = "PATH"
    CONTAINER = "/opt/tritonserver"
    WHEEL = "the wheel"

    def words(self, variable: str) -> str:
        """The place in words; ``variable``: name of the environment variable."""
        return f"${variable}" if self is Origin.VARIABLE else self.value


@dataclass(frozen=True)
class Installation:
    """A program that was verified to run.

    Attributes:
        version: Its version, as it reports it.
        origin: The place where it was found.
        environment: Environment variables for its processes.
        backend_directory: Value of ``--backend-directory``; None: the server's default is right.
        cache_directory: Value of ``--cache-directory``; None: the server's default is right.
        python: The Python whose packages Python models import; None: the server's own.
        cpus: Numbers of the CPUs that its processes may use; empty: any.
        priority: Scheduling priority of its processes.
    """

    binary: Path
    version: str
    origin: Origin
    environment: Mapping[str, str] = field(repr=False)
    backend_directory: Path | None = None
    cache_directory: Path | None = None
    python: Path | None = None
    cpus: tuple[int, ...] = ()
    priority: Priority = Priority.NORMAL


@contextmanager
def tritonserver(named: str | None, environment: Mapping[str, str]) -> Iterator[Installation]:
    """Finds a tritonserver; its private directories exist while the context is open.

    Args:
        named: The path in the spec; None: search for the program.
        environment: Variables of this process and those that the spec adds for the server.

    Raises:
        EnvironmentNotReadyError: There is no tritonserver, or it does not run here.
    """
    binary, origin = _find_tritonserver(named, environment)
    root = binary.resolve().parents[1]
    is_wheel = (root / "python_backend_stubs").is_dir()
    with private_directory() as private:
        if is_wheel:
            variables, backend_directory = _wheel_surroundings(root, private, environment)
        else:
            variables, backend_directory = dict(environment), root / "backends"
        with _named_by(origin, "TUNE_TRITONSERVER"):
            _check_libraries(binary, variables)
            version = _server_version(binary, variables, private)
        caches = root / "caches"
        yield Installation(
            binary=binary,
            version=version,
            origin=origin,
            environment=variables,
            backend_directory=backend_directory if backend_directory.is_dir() else None,
            cache_directory=caches if caches.is_dir() else None,
            python=Path(sys.executable) if is_wheel else None,
        )


@contextmanager
def perf_analyzer(named: str | None, environment: Mapping[str, str]) -> Iterator[Installation]:
    """Finds a perf_analyzer; arguments and errors as for `tritonserver`.

    The wheel's binary needs two libraries that most machines lack. The server's wheel has them
    under other names, so a private directory gets links to them.
    """
    program, origin = _find_perf_analyzer(named, environment)
    binary = _behind(program)
    with private_directory() as private:
        # Otherwise gRPC connects even to 127.0.0.1 through a proxy of the environment.
        known = environment.get("no_proxy") or environment.get("NO_PROXY")
        local = ",".join([*([known] if known else []), "127.0.0.1", "localhost"])
        variables = {**environment, "no_proxy": local}
        _link_missing(_missing_libraries(binary, variables), private, wheel.package(environment))
        variables["LD_LIBRARY_PATH"] = _joined([private], environment.get("LD_LIBRARY_PATH"))
        with _named_by(origin, "TUNE_PERF_ANALYZER"):
            _check_libraries(binary, variables)
            output = _output_of([str(binary), "--version"], variables)
            version = re.search(r"Perf Analyzer Version (0\.0\.0 \(.*?\)|\S+)", output)
            if not version:
                raise EnvironmentNotReadyError(
                    f"{binary} is not NVIDIA's perf_analyzer: it answered {output[:80]!r}",
                    install_hint(),
                )
            _refuse_lost_exit_codes(binary, variables)
        yield Installation(binary, _release(binary) or version[1], origin, variables)


def _release(binary: Path) -> str:
    """The version of the package perf-analyzer, whose program reports 0.0.0; empty for others."""
    packages = binary.resolve().parent.parent.parent
    for metadata in packages.glob("perf_analyzer-*.dist-info"):
        return metadata.name.removeprefix("perf_analyzer-").removesuffix(".dist-info")
    return ""


def _refuse_lost_exit_codes(binary: Path, environment: Mapping[str, str]) -> None:
    """Refuses a script that does not pass on perf_analyzer's exit code (99 for a bad option)."""
    if has_dynamic_linker(binary):
        return
    code, _ = _run([str(binary), "--no-such-option"], environment)
    if code == 0:
        raise EnvironmentNotReadyError(
            f"{binary} is a script that hides whether perf_analyzer failed: it ends with 0 for an "
            "unknown option",
            "name the program that it starts, e.g. site-packages/perf_analyzer/bin/perf_analyzer",
        )


@contextmanager
def _named_by(origin: Origin, variable: str) -> Iterator[None]:
    """Adds who named the program to the error of a program that does not work."""
    try:
        yield
    except EnvironmentNotReadyError as error:
        if origin in (Origin.SPEC, Origin.VARIABLE):
            who = origin.words(variable)
            hint = f"correct {who}" if error.hint == install_hint() else error.hint
            raise EnvironmentNotReadyError(f"{error.message} (named by {who})", hint) from error
        raise


def refuse_missing(name: str, named: str, environment: Mapping[str, str]) -> None:
    """Checks that the program that a spec names exists; runs nothing.

    Raises:
        EnvironmentNotReadyError: There is no such program here.
    """
    _find(name, "", named, environment, None)


def backends_beside(named: str, environment: Mapping[str, str]) -> Path | None:
    """The directory of a named tritonserver's backends; None if not known. Runs nothing."""
    program = shutil.which(named, path=environment.get("PATH", ""))
    beside = program and Path(program).resolve().parent.parent / "backends"
    return beside if beside and beside.is_dir() else None


def has_tritonserver(named: str | None, environment: Mapping[str, str]) -> bool:
    """Whether a tritonserver is installed, or one is named."""
    try:
        _find_tritonserver(named, environment)
    except EnvironmentNotReadyError:
        return bool(named or environment.get("TUNE_TRITONSERVER"))
    return True


def fetch_tritonserver(
    named: str | None, environment: Mapping[str, str], note: Callable[[str], None]
) -> None:
    """Downloads a tritonserver if none is installed; see `wheel.fetch`."""
    if not has_tritonserver(named, environment):
        wheel.fetch(environment, note)


def has_perf_analyzer(named: str | None, environment: Mapping[str, str]) -> bool:
    """Whether a perf_analyzer is installed, or one is named."""
    try:
        _find_perf_analyzer(named, environment)
    except EnvironmentNotReadyError:
        return bool(named or environment.get("TUNE_PERF_ANALYZER"))
    return True


def _behind(script: Path) -> Path:
    """The program behind the script of the package perf-analyzer; else the path itself.

    The script hides signals and CPU time of the program, and always exits with 0 (release 2.60).
    """
    if has_dynamic_linker(script):
        return script
    prefix = script.resolve().parent.parent
    for packages in prefix.glob("lib/python3*/*-packages"):  # Debian's pip: dist-packages
        program = packages / "perf_analyzer" / "bin" / "perf_analyzer"
        if os.access(program, os.X_OK):
            return program
    return script


def _find_tritonserver(named: str | None, environment: Mapping[str, str]) -> tuple[Path, Origin]:
    package = wheel.package(environment)
    installed = package and package / "tritonserver" / "bin" / "tritonserver"
    installation = _find("tritonserver", "TUNE_TRITONSERVER", named, environment, installed)
    if installation is None:
        raise wheel.missing_server(environment)
    return installation


def _find_perf_analyzer(named: str | None, environment: Mapping[str, str]) -> tuple[Path, Origin]:
    installed = Path(sysconfig.get_path("scripts")) / "perf_analyzer"
    installation = _find("perf_analyzer", "TUNE_PERF_ANALYZER", named, environment, installed)
    if installation is None:
        raise EnvironmentNotReadyError("no perf_analyzer found", install_hint())
    return installation


def _find(
    name: str,
    variable: str,
    named: str | None,
    environment: Mapping[str, str],
    installed: Path | None,
) -> tuple[Path, Origin] | None:
    for path, origin in ((named, Origin.SPEC), (environment.get(variable), Origin.VARIABLE)):
        if path:
            executable = shutil.which(path, path=environment.get("PATH", ""))
            if not executable:
                near = path_meant(Path(path), lambda p: p.is_file() and os.access(p, os.X_OK))
                raise EnvironmentNotReadyError(
                    f"no executable {path} ({name} named by {origin.words(variable)})",
                    near or "correct the path",
                )
            return Path(executable).absolute(), origin
    if on_path := shutil.which(name, path=environment.get("PATH", "")):
        return Path(on_path).absolute(), Origin.PATH
    for candidate, origin in ((_CONTAINER_BIN / name, Origin.CONTAINER), (installed, Origin.WHEEL)):
        if candidate is not None and os.access(candidate, os.X_OK):
            return candidate, origin
    return None


def _wheel_surroundings(
    root: Path, private: Path, environment: Mapping[str, str]
) -> tuple[dict[str, str], Path]:
    """Environment and backend directory for the server of the wheel.

    The Python backend expects its stub next to its library, but the wheel has the stubs, one for
    each Python, in another directory: a private directory gets copies of both (not links, which the
    server refuses for backends written in Python). The stub imports the packages of the first
    Python on PATH (it ignores PYTHONPATH), and needs that Python's shared library. The stub for
    3.13 loads the library by the name of the wheel's copy, which is too old for the standard
    library of other 3.13 releases; a link replaces the copy.
    """
    stubs = root / "python_backend_stubs"
    stub = stubs / PYTHON / "triton_python_backend_stub"
    if not stub.exists():
        have = listed(sorted(p.name for p in stubs.iterdir()))
        raise EnvironmentNotReadyError(
            f"this tritonserver has no Python backend for Python {PYTHON} (it has {have})",
            install_hint(),
        )
    backend = private / "backends" / "python"
    libraries = private / "lib"
    backend.mkdir(parents=True)
    libraries.mkdir()
    for file in [stub, *(f for f in (root / "backends" / "python").iterdir() if f.is_file())]:
        shutil.copy(file, backend)
    with (backend / "triton_python_backend_utils.py").open("a") as utils:
        utils.write(SHIM)
    bundled = root.parents[1] / "nvidia_pytriton.libs"
    library = f"libpython{PYTHON}.so.1.0"
    copies = [copy.name for copy in bundled.glob(f"libpython3-*.{sys.version_info.minor}.so.1.0")]
    places = (sysconfig.get_config_var("LIBDIR") or "", f"{sys.base_prefix}/lib")
    files = [file for p in places if (file := Path(p) / library).exists()]
    for name in [library, *copies] if files else ():
        (libraries / name).symlink_to(files[0])
    if copies and not files:  # without copies, the dynamic linker reports it
        raise EnvironmentNotReadyError(f"{stub} lacks {library}", _NO_LIBRARY)
    for other in (root / "backends").iterdir():
        if other.name != backend.name:
            (backend.parent / other.name).symlink_to(other)
    variables = dict(environment)
    variables["PATH"] = _joined([Path(sys.executable).parent], environment.get("PATH"))
    variables["LD_LIBRARY_PATH"] = _joined([libraries, bundled], environment.get("LD_LIBRARY_PATH"))
    _check_libraries(stub, variables)
    return variables, backend.parent


def _missing_libraries(binary: Path, environment: Mapping[str, str]) -> list[str]:
    """Libraries and versions that the dynamic linker does not find, as ``ldd`` shows them.

    Empty for a program without a dynamic linker, which the query would run.
    """
    if not has_dynamic_linker(binary):
        return []
    output = _output_of([str(binary)], {**environment, "LD_TRACE_LOADED_OBJECTS": "1"})
    libraries = re.findall(r"^\s*(\S+) => not found", output, re.MULTILINE)
    versions = re.findall(r"version `(\S+)' not found", output)
    return sorted({*libraries, *versions})


def _check_libraries(binary: Path, environment: Mapping[str, str]) -> None:
    missing = _missing_libraries(binary, environment)
    if not missing:
        return
    if any(name.startswith("libpython") for name in missing):
        hint = _NO_LIBRARY
    elif any(name.startswith("GLIBC") for name in missing):
        hint = "this system's C library is too old for it; use a newer system or the docker mode"
    else:
        hint = install_hint()
    raise EnvironmentNotReadyError(f"{binary} lacks {listed(missing)}", hint)


def _link_missing(names: Sequence[str], directory: Path, package: Path | None) -> None:
    """Links libraries of the server's wheel (libb64-98cb6333.so.0d) under their usual names."""
    if package is None:
        return
    bundled = package.parent / "nvidia_pytriton.libs"
    for name in names:
        stem, _, suffix = name.partition(".so")
        for file in bundled.glob(f"{stem}-*.so{suffix}*"):
            (directory / name).symlink_to(file)
            break


def _server_version(binary: Path, environment: Mapping[str, str], private: Path) -> str:
    """The version that the server logs when it is started without a repository, and exits."""
    off = [f"--allow-{service}=false" for service in ("http", "grpc", "metrics")]
    command = [str(binary), f"--model-repository={private / 'none'}", *off]
    output = _output_of(command, environment)
    version = re.search(r"server_version\s*\|\s*(\S+)", output)
    if not version:
        raise EnvironmentNotReadyError(
            f"{binary} does not start: {log.failure(output)}", install_hint()
        )
    return version[1]


def _output_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    return _run(command, environment)[1]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and output of a program, which must exit within a minute."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_RUN_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReadyError(
            f"{command[0]} does not run: {error}", install_hint()
        ) from error
    return done.returncode, done.stdout.decode(errors="replace")


def _joined(first: Sequence[str | Path], rest: str | None) -> str:
    return os.pathsep.join([*map(str, first), *([rest] if rest else [])])
