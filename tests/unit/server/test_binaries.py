"""Which libraries a program lacks, asked without running the program."""

from __future__ import annotations

import struct
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tuner.errors import EnvironmentNotReadyError
from tuner.server import binaries

LOAD, INTERPRETER = 1, 3


def elf(path: Path, *segments: int) -> Path:
    """A 64-bit ELF file of headers only, with segments of these kinds."""
    header = bytearray(64)
    header[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<HHH", header, 52, 64, 56, len(segments))
    path.write_bytes(bytes(header) + b"".join(struct.pack("<I52x", kind) for kind in segments))
    path.chmod(0o755)
    return path


@pytest.fixture
def started_programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    started: list[str] = []

    def output_of(command: list[str], _: object) -> str:
        started.append(command[0])
        return "\tlibb64.so.0d => not found\n"

    monkeypatch.setattr(binaries, "_output_of", output_of)
    return started


def test_a_program_that_the_dynamic_linker_does_not_load_is_not_run(
    tmp_path: Path, started_programs: list[str]
) -> None:
    static = elf(tmp_path / "static", LOAD, LOAD)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nrm -rf /\n")
    short = tmp_path / "short"
    short.write_bytes(b"\x7fELF\x02")
    for program in (static, script, short):
        assert binaries._missing_libraries(program, {}) == []
    assert started_programs == []


def test_the_dynamic_linker_says_what_is_missing(
    tmp_path: Path, started_programs: list[str]
) -> None:
    program = elf(tmp_path / "dynamic", LOAD, INTERPRETER, LOAD)
    assert binaries._missing_libraries(program, {}) == ["libb64.so.0d"]
    assert started_programs == [str(program)]


def test_backends_beside_the_python_one_of_the_wheel_are_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    files = [f"python_backend_stubs/{ours}/triton_python_backend_stub"]
    files += [f"backends/{name}/libtriton_{name}.so" for name in ("python", "onnxruntime")]
    for file in files:
        (tmp_path / "server" / file).parent.mkdir(parents=True)
        (tmp_path / "server" / file).touch()
    monkeypatch.setattr(binaries, "_check_libraries", lambda *_: None)
    _, backends = binaries._wheel_surroundings(tmp_path / "server", tmp_path / "private", {})
    assert (backends / "onnxruntime" / "libtriton_onnxruntime.so").exists()
    assert (backends / "python" / "triton_python_backend_stub").exists()


def test_the_stub_gets_this_pythons_library_under_every_name_that_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stub of 3.13 asks for a copy in the wheel, which Debian's 3.13 cannot work with."""
    major, minor = sys.version_info[:2]
    copy, plain = f"libpython{major}-419a3a08.{minor}.so.1.0", f"libpython{major}.{minor}.so.1.0"
    server = tmp_path / "site-packages" / "pytriton" / "tritonserver"
    stub = f"python_backend_stubs/{major}.{minor}/triton_python_backend_stub"
    for file in (server / stub, server / "backends" / "python" / "utils.py"):
        file.parent.mkdir(parents=True)
        file.touch()
    (bundled := tmp_path / "site-packages" / "nvidia_pytriton.libs").mkdir()
    (bundled / copy).touch()
    monkeypatch.setattr(binaries, "_check_libraries", lambda *_: None)
    monkeypatch.setattr(binaries.sysconfig, "get_config_var", lambda _: str(tmp_path))
    monkeypatch.setattr(binaries.sys, "base_prefix", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match=f"lacks {plain}") as error:
        binaries._wheel_surroundings(server, tmp_path / "none", {})
    assert f"apt-get install libpython{major}.{minor}" in error.value.hint
    (tmp_path / plain).touch()
    variables, _ = binaries._wheel_surroundings(server, tmp_path / "private", {})
    first = Path(variables["LD_LIBRARY_PATH"].split(":")[0])
    assert {path.name: path.readlink() for path in first.iterdir()} == {
        plain: tmp_path / plain,
        copy: tmp_path / plain,
    }


SCRIPT = "#!/usr/bin/env python3\n"


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Exit codes of programs for an unknown option, by their parent directory; 99 else."""
    exit_codes: dict[str, int] = {}

    def run(command: list[str], _: object) -> tuple[int, str]:
        code = exit_codes.get(Path(command[0]).parent.name, 99)
        return code, "Perf Analyzer Version 0.0.0 (commit 3a49a23)\n"

    monkeypatch.setattr(binaries, "_run", run)
    return exit_codes


def script(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("packages", ["site-packages", "dist-packages"])
@pytest.mark.parametrize("linked", [False, True])
def test_perf_analyzer_is_the_program_of_its_package_and_not_the_script(
    packages: str, linked: bool, tmp_path: Path, codes: dict[str, int]
) -> None:
    """Debian's pip installs into dist-packages; pipx links the script into another directory."""
    codes["bin"] = 0
    command = script(tmp_path / "local" / "bin" / "perf_analyzer")
    directory = tmp_path / "local" / "lib" / "python3.13" / packages
    (directory / "perf_analyzer" / "bin").mkdir(parents=True)
    (directory / "perf_analyzer-2.60.0.dist-info").mkdir()
    program = elf(directory / "perf_analyzer" / "bin" / "perf_analyzer", INTERPRETER)
    if linked:
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "perf_analyzer").symlink_to(command)
        command = tmp_path / "links" / "perf_analyzer"
    with binaries.perf_analyzer(str(command), {"PATH": ""}) as installation:
        assert (installation.binary, installation.version) == (program, "2.60.0")


def test_a_linked_perf_analyzer_comes_before_the_package_beside_its_link(
    tmp_path: Path, codes: dict[str, int]
) -> None:
    """NVIDIA's SDK image has its own, which docs/deploy/Dockerfile.sdk links into tune's venv."""
    venv = tmp_path / "venv" / "lib" / "python3.12" / "site-packages" / "perf_analyzer" / "bin"
    venv.mkdir(parents=True)
    elf(venv / "perf_analyzer", INTERPRETER)
    image = script(tmp_path / "image" / "bin" / "perf_analyzer")
    packages = tmp_path / "image" / "lib" / "python3.12" / "dist-packages"
    (packages / "perf_analyzer" / "bin").mkdir(parents=True)
    program = elf(packages / "perf_analyzer" / "bin" / "perf_analyzer", INTERPRETER)
    (tmp_path / "venv" / "bin").mkdir()
    link = tmp_path / "venv" / "bin" / "perf_analyzer"
    link.symlink_to(image)
    with binaries.perf_analyzer(str(link), {"PATH": ""}) as installation:
        assert installation.binary == program
    sibling = elf(tmp_path / "own", INTERPRETER)
    link.unlink()
    link.symlink_to(sibling)
    with binaries.perf_analyzer(str(link), {"PATH": ""}) as installation:
        assert (installation.binary, installation.version) == (link, "0.0.0 (commit 3a49a23)")


@pytest.mark.parametrize(("code", "refused"), [(0, True), (99, False)])
def test_a_script_that_loses_the_exit_code_of_perf_analyzer_is_refused(
    code: int, refused: bool, tmp_path: Path, codes: dict[str, int]
) -> None:
    command = script(tmp_path / "bin" / "perf_analyzer")
    codes["bin"] = code
    with (
        pytest.raises(EnvironmentNotReadyError, match="hides whether") if refused else nullcontext()
    ):
        with binaries.perf_analyzer(str(command), {"PATH": ""}) as program:
            assert program.binary == command


@pytest.mark.parametrize(
    ("named", "environment", "has"),
    [(None, {}, False), ("pa", {}, True), (None, {"TUNE_PERF_ANALYZER": "pa"}, True)],
)
def test_a_perf_analyzer_that_is_named_is_never_done_without(
    named: str | None, environment: dict[str, str], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries.sysconfig, "get_path", lambda _: "/no/such/directory")
    assert binaries.has_perf_analyzer(named, {"PATH": "", **environment}) is has
