"""The wheel with a tritonserver: installed, or downloaded once into the user's cache.

NVIDIA's wheel requires NumPy 1, which has no build for Python 3.13, so no extra of pyproject.toml
can include the wheel there. `tune` does not need NumPy 1 (`numpy2`): a command that needs a server
downloads the wheel without its dependencies.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.extras import Extra
from tuner.locking import Lock, lock
from tuner.machine.process import child

_REQUIREMENT = "nvidia-pytriton==0.7.0"
_SHA256 = "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df"
_SIZE = "55 MB, 150 MB unpacked"
_VARIABLE = "TUNE_FETCH_SERVER"
_OFF = ("0", "no", "off", "false")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_FETCHED_FOR = "3.13"
#: Installation commands by Python version; the wheel has no Python backend for later versions.
_COMMANDS = {
    "3.11": Extra.LOCAL.command,
    "3.12": Extra.LOCAL.command,
    _FETCHED_FOR: f"{sys.executable} -m pip install --no-deps {_REQUIREMENT}",
}
#: Makes an environment with the last Python that the wheel supports, in a checkout.
_PYTHON_3_13 = (
    f"pip install uv && uv venv --seed --python {_FETCHED_FOR} .venv-{_FETCHED_FOR} && "
    f". .venv-{_FETCHED_FOR}/bin/activate && pip install -e '.[local]'"
)
_PARTIAL = ".fetching-"
#: The reason in pip's warning about a lost connection.
_BROKEN = re.compile(r"connection broken by '(?:\w+\('<.*?>: )?(.*?)(?:'\))?': /")
_PROGRESS_PERIOD_S = 10.0
_POLL_S = 0.2


def install_hint() -> str:
    """How to install a tritonserver that runs here."""
    others = "name another tritonserver in the spec, or use server: {mode: docker}"
    command = _COMMANDS.get(PYTHON)
    if command is None:
        return (
            f"{_PYTHON_3_13} (the wheel of the server supports Python 3.11 to {_FETCHED_FOR}, not "
            f"{PYTHON}), {others}"
        )
    return f"install the wheels with {command} (x86-64 Linux, glibc 2.35 or newer), {others}"


def package(environment: Mapping[str, str]) -> Path | None:
    """Directory of the package `pytriton`, installed or downloaded, without importing it."""
    spec = find_spec("pytriton")
    if spec is not None and spec.origin:
        return Path(spec.origin).parent
    place = _cache_directory(environment)
    return place / "pytriton" if place is not None and _is_complete(place) else None


def missing_server(environment: Mapping[str, str]) -> EnvironmentNotReadyError:
    """The error if this machine has neither the wheel nor another tritonserver."""
    place = _cache_directory(environment)
    if place is None:
        return EnvironmentNotReadyError("no tritonserver found", install_hint())
    if _is_off(environment):
        message = f"no tritonserver found, and ${_VARIABLE} is {environment[_VARIABLE]}"
        return EnvironmentNotReadyError(message, install_hint())
    return EnvironmentNotReadyError(
        "no tritonserver found yet",
        "tune run, check and doctor download one when they first need it: "
        f"{_REQUIREMENT} ({_SIZE}) into {place}",
    )


def fetch(environment: Mapping[str, str], note: Callable[[str], None]) -> None:
    """Downloads the wheel into the user's cache, if this Python needs it and the user permits it.

    `package` ignores an incomplete download. If several processes need the wheel, one downloads it,
    and the others wait.

    Args:
        environment: Variables of this process; pip reads PIP_*.
        note: Receives lines about the download and its progress.

    Raises:
        EnvironmentNotReadyError: The wheel cannot be downloaded or stored.
    """
    place = _cache_directory(environment)
    if place is None or _is_off(environment):
        return
    if find_spec("pip") is None:
        raise EnvironmentNotReadyError(
            f"downloading the server needs pip, which {sys.prefix} lacks",
            f"uv pip install --python {sys.executable} --no-deps {_REQUIREMENT}",
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(place.parent, note):
            if not _is_complete(place):
                _fetch(place, environment, note)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"cannot store the server in {place.parent}: {(error.strerror or str(error)).lower()}",
            "free some space or make the directory writable, or name another in $XDG_CACHE_HOME",
        ) from error


def _cache_directory(environment: Mapping[str, str]) -> Path | None:
    """Directory of the downloaded wheel; None: this Python does not need a download.

    Source: the XDG Base Directory Specification, which ignores relative paths.
    """
    if PYTHON != _FETCHED_FOR:
        return None
    home = environment.get("HOME")
    cache = Path(environment.get("XDG_CACHE_HOME") or "")
    if not cache.is_absolute() and home:
        cache = Path(home) / ".cache"
    return cache / "triton-tune" / _REQUIREMENT.replace("==", "-") if cache.is_absolute() else None


def _is_off(environment: Mapping[str, str]) -> bool:
    return environment.get(_VARIABLE, "").lower() in _OFF


def _is_complete(place: Path) -> bool:
    """Whether all files of the wheel's RECORD exist with their sizes, and only this user can write.

    Programs that clean caches may have removed single files.
    """
    try:
        directory = place.stat()
        if directory.st_uid not in (os.geteuid(), 0) or directory.st_mode & 0o022:
            return False
        (record,) = place.glob("*.dist-info/RECORD")
        with record.open(newline="") as file:
            sizes = [(place / name, size) for name, _, size in csv.reader(file)]
        return all(path.stat().st_size == int(size) for path, size in sizes if size)
    except (OSError, ValueError):
        return False


@contextmanager
def _exclusive_lock(directory: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Waits until no other process downloads, and removes incomplete downloads."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        state = lock(descriptor)
        if state is Lock.BUSY:
            note("another tune process is downloading the server: waiting for it")
        while state is Lock.BUSY:
            time.sleep(_POLL_S)
            state = lock(descriptor)
        if state is Lock.ACQUIRED:
            for left in directory.glob(f"{_PARTIAL}*"):
                shutil.rmtree(left)
        yield
    finally:
        os.close(descriptor)


def _fetch(place: Path, environment: Mapping[str, str], note: Callable[[str], None]) -> None:
    note(
        f"downloading a tritonserver, once: {_REQUIREMENT} ({_SIZE}) into {place}; {_VARIABLE}=0 "
        "turns this off"
    )
    with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=place.parent) as name:
        unpacked = Path(name) / "unpacked"
        unpacked.mkdir(mode=0o700)
        _download(Path(name), environment, note)
        (wheel,) = Path(name).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                path = Path(archive.extract(entry, unpacked))
                if entry.external_attr >> 16 & 0o111:
                    path.chmod(0o755)
        if place.exists():
            shutil.rmtree(place)
        unpacked.rename(place)
    note("downloaded the tritonserver")


def _download(directory: Path, environment: Mapping[str, str], note: Callable[[str], None]) -> None:
    """Downloads the wheel into the directory with pip, which verifies its hash."""
    wanted = directory / "requirements.txt"
    wanted.write_text(f"{_REQUIREMENT} --hash=sha256:{_SHA256}\n")
    command = [
        # -P: ignore a pip.py in the working directory
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"),
        *("--require-hashes", "--no-input", "--disable-pip-version-check", "--progress-bar=raw"),
        *("--dest", str(directory), "--requirement", str(wanted)),
    ]
    output = list[str]()
    noted_s = time.monotonic()
    variables = {
        **environment,
        "TMPDIR": str(directory),
    }  # so that files of a killed pip are removed, too
    with child(command, env=variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                text = line.decode(errors="replace").strip()
                progress = re.fullmatch(r"Progress (\d+) of (\d+)", text)
                if progress is None:
                    output.append(text)
                if time.monotonic() - noted_s > _PROGRESS_PERIOD_S and (
                    progress or _BROKEN.search(text)
                ):
                    noted_s = time.monotonic()
                    progress_text = _megabytes(progress) if progress else _cause(output)
                    note(f"still downloading the server: {progress_text}")
        code = process.wait()
    if code:
        raise EnvironmentNotReadyError(
            f"cannot download the server: {_cause(output)}",
            f"install it by hand: {_COMMANDS[_FETCHED_FOR]} (x86-64 Linux, glibc 2.35 or newer)",
        )


def _megabytes(progress: re.Match[str]) -> str:
    done, size = (int(number) / 1e6 for number in progress.groups())
    return f"{done:.0f} of {size:.0f} MB"


def _cause(output: list[str]) -> str:
    """Why pip failed, as pip reports it; a lost connection is only in its warnings."""
    broken = [m[1] for m in map(_BROKEN.search, output) if m]
    errors = [line.removeprefix("ERROR: ") for line in output if line.startswith("ERROR: ")]
    words = (errors or ["pip gave no reason"])[-1]
    if broken and (not errors or "No matching distribution" in words):
        words = broken[-1]
    return "its sha256 is not the expected one" if "MATCH THE HASHES" in words else words
