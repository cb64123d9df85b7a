"""Programs are found in the stated order and checked by running them."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from tuner.errors import EnvironmentNotReadyError
from tuner.server.binaries import Origin, has_perf_analyzer, perf_analyzer, tritonserver

pytestmark = pytest.mark.integration

NO_PATH = {**os.environ, "PATH": ""}


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


HAS_PERF_ANALYZER = pytest.mark.skipif(
    not has_perf_analyzer(None, NO_PATH), reason="no perf_analyzer for this Python and this glibc"
)


@HAS_PERF_ANALYZER
def test_programs_of_the_wheels_run() -> None:
    with tritonserver(None, NO_PATH) as server, perf_analyzer(None, NO_PATH) as generator:
        assert (server.origin, server.version) == (Origin.WHEEL, "2.51.0")
        assert generator.origin is Origin.WHEEL
        assert re.fullmatch(r"2\.\d+\.\d+", generator.version)
        assert generator.binary.read_bytes().startswith(b"\x7fELF")
        assert server.backend_directory is not None
        assert (server.backend_directory / "python" / "triton_python_backend_stub").exists()
        assert server.cache_directory is not None
        assert (server.cache_directory / "local").is_dir()
        private = server.backend_directory
    assert not private.exists()


@HAS_PERF_ANALYZER
def test_the_spec_comes_before_the_variable_and_the_variable_before_path(tmp_path: Path) -> None:
    with perf_analyzer(None, NO_PATH) as wheel:
        binary = wheel.binary
    places = {}
    for name in ("spec", "variable", "path"):
        (tmp_path / name).mkdir()
        places[name] = tmp_path / name / "perf_analyzer"
        places[name].symlink_to(binary)
    environment = {
        "PATH": str(places["path"].parent),
        "TUNE_PERF_ANALYZER": str(places["variable"]),
    }
    with perf_analyzer(str(places["spec"]), environment) as program:
        assert (program.binary, program.origin) == (places["spec"], Origin.SPEC)
    with perf_analyzer(None, environment) as program:
        assert (program.binary, program.origin) == (places["variable"], Origin.VARIABLE)
    del environment["TUNE_PERF_ANALYZER"]
    with perf_analyzer(None, environment) as program:
        assert (program.binary, program.origin) == (places["path"], Origin.PATH)


def test_custom_server_uses_the_directories_beside_it(tmp_path: Path) -> None:
    for name in ("bin", "backends"):
        (tmp_path / name).mkdir()
    custom = script(tmp_path / "bin" / "tritonserver", "echo '| server_version | 9.9.9 |'; exit 1")
    with tritonserver(str(custom), os.environ) as server:
        assert server.version == "9.9.9"
        assert server.backend_directory == tmp_path / "backends"
        assert server.cache_directory is None
        assert server.environment == dict(os.environ)


def test_a_named_program_that_is_missing_is_never_replaced_by_another() -> None:
    with pytest.raises(EnvironmentNotReadyError, match=r"no executable /no/such.*the spec"):
        with tritonserver("/no/such/tritonserver", os.environ):
            pass
    with pytest.raises(EnvironmentNotReadyError, match=r"named by \$TUNE_TRITONSERVER"):
        with tritonserver(None, {"TUNE_TRITONSERVER": "/no/such/tritonserver"}):
            pass


def test_programs_that_are_something_else_are_refused(tmp_path: Path) -> None:
    fake = script(tmp_path / "perf_analyzer", "echo hello")
    with pytest.raises(EnvironmentNotReadyError, match="not NVIDIA's perf_analyzer") as refused:
        with perf_analyzer(str(fake), os.environ):
            pass
    assert refused.value.hint == "correct the spec"
    with pytest.raises(EnvironmentNotReadyError, match=r"\(named by \$TUNE_PERF_ANALYZER\)"):
        with perf_analyzer(None, {**os.environ, "TUNE_PERF_ANALYZER": str(fake)}):
            pass
    version = "echo 'Perf Analyzer Version 0.0.0 (commit 3a4)'"
    fake = script(tmp_path / "perf_analyzer", version)
    with pytest.raises(EnvironmentNotReadyError, match="hides whether perf_analyzer failed"):
        with perf_analyzer(str(fake), os.environ):
            pass
    fake = script(tmp_path / "perf_analyzer", f"{version}; [ $1 = --version ] || exit 99")
    with perf_analyzer(str(fake), os.environ) as program:
        assert program.version == "0.0.0 (commit 3a4)"
    fake = script(tmp_path / "tritonserver", "echo 'error: cannot find my files'; exit 1")
    said = r"does not start: cannot find my files \(named by \$TUNE_TRITONSERVER\)"
    with pytest.raises(EnvironmentNotReadyError, match=said) as refused:
        with tritonserver(None, {**os.environ, "TUNE_TRITONSERVER": str(fake)}):
            pass
    assert refused.value.hint == "correct $TUNE_TRITONSERVER"
