"""Which libraries a program lacks, asked without running the program."""

from __future__ import annotations

import struct
import sys
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
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    started: list[str] = []

    def output_of(command: list[str], _: object) -> str:
        started.append(command[0])
        return "\tlibb64.so.0d => not found\n"

    monkeypatch.setattr(binaries, "_output_of", output_of)
    return started


def test_a_program_that_the_dynamic_linker_does_not_load_is_not_run(
    tmp_path: Path, asked: list[str]
) -> None:
    static = elf(tmp_path / "static", LOAD, LOAD)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nrm -rf /\n")
    short = tmp_path / "short"
    short.write_bytes(b"\x7fELF\x02")
    for program in (static, script, short):
        assert binaries._missing_libraries(program, {}) == []
    assert asked == []


def test_the_dynamic_linker_says_what_is_missing(tmp_path: Path, asked: list[str]) -> None:
    program = elf(tmp_path / "dynamic", LOAD, INTERPRETER, LOAD)
    assert binaries._missing_libraries(program, {}) == ["libb64.so.0d"]
    assert asked == [str(program)]


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
    copy, own = f"libpython{major}-419a3a08.{minor}.so.1.0", f"libpython{major}.{minor}.so.1.0"
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
    with pytest.raises(EnvironmentNotReadyError, match=f"lacks {own}") as error:
        binaries._wheel_surroundings(server, tmp_path / "none", {})
    assert f"apt-get install libpython{major}.{minor}" in error.value.hint
    (tmp_path / own).touch()
    variables, _ = binaries._wheel_surroundings(server, tmp_path / "private", {})
    first = Path(variables["LD_LIBRARY_PATH"].split(":")[0])
    assert {path.name: path.readlink() for path in first.iterdir()} == {
        own: tmp_path / own,
        copy: tmp_path / own,
    }


def test_the_program_is_measured_with_and_not_the_script_of_its_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script of perf-analyzer 2.60 keeps signals to itself, and always ends with 0."""
    said = "Perf Analyzer Version 0.0.0 (commit 3a49a23)\n"
    monkeypatch.setattr(binaries, "_output_of", lambda *_: said)
    (script := tmp_path / "bin" / "perf_analyzer").parent.mkdir()
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    with binaries.perf_analyzer(str(script), {"PATH": ""}) as found:
        assert found.binary == script
    wheel = tmp_path / "lib" / "python3.13" / "site-packages" / "perf_analyzer" / "bin"
    wheel.mkdir(parents=True)
    program = elf(wheel / "perf_analyzer", INTERPRETER)
    with binaries.perf_analyzer(str(script), {"PATH": ""}) as found:
        assert (found.binary, found.version) == (program, "0.0.0 (commit 3a49a23)")
    own = elf(tmp_path / "bin" / "own", INTERPRETER)
    with binaries.perf_analyzer(str(own), {"PATH": ""}) as found:
        assert found.binary == own


@pytest.mark.parametrize(
    ("named", "environment", "has"),
    [(None, {}, False), ("pa", {}, True), (None, {"TUNE_PERF_ANALYZER": "pa"}, True)],
)
def test_a_perf_analyzer_that_is_named_is_never_done_without(
    named: str | None, environment: dict[str, str], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries.sysconfig, "get_path", lambda _: "/no/such/directory")
    assert binaries.has_perf_analyzer(named, {"PATH": "", **environment}) is has
