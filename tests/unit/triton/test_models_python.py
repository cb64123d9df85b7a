"""The NumPy that Python models import: the wheel's stub knows the first one only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import the_one
from docker.errors import DockerException

from tuner.bench import tools as programs
from tuner.bench.job import Request, prepare
from tuner.errors import EnvironmentNotReadyError
from tuner.modelconfig.files import ModelFiles
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin, numpy_of_models
from tuner.spec.server import ServerSpec
from tuner.triton import doctor
from tuner.triton.local import LocalLauncher

PYTHON = Path("/venv/bin/python")
QUICKSTART = Path(__file__).parents[3] / "search_spaces" / "quickstart.yaml"


@pytest.fixture
def numpy_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the version that the Python of models answers with."""

    def set_to(version: str) -> None:
        monkeypatch.setattr(binaries, "_asked", lambda _: version)

    return set_to


def installation(python: Path | None) -> Installation:
    return Installation(Path("/t"), "2.51.0", Origin.WHEEL, {}, python=python)


@contextmanager
def given(found: Any) -> Iterator[Any]:
    yield found


def test_numpy_1_is_fine(numpy_is: Callable[[str], None]) -> None:
    numpy_is("1.26.4")
    assert numpy_of_models(PYTHON) == "1.26.4"


@pytest.mark.parametrize(("version", "said"), [("2.0.0", "EMPTY ones"), ("", "find no numpy")])
def test_another_is_refused_with_the_command_that_mends_it(
    version: str, said: str, numpy_is: Callable[[str], None]
) -> None:
    numpy_is(version)
    with pytest.raises(EnvironmentNotReadyError, match=said) as error:
        numpy_of_models(PYTHON)
    assert error.value.hint == "/venv/bin/python -m pip install 'numpy<2'"


def test_an_engine_that_does_not_answer_is_told_in_the_systems_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = FileNotFoundError(2, "No such file or directory")

    def refused(**_: object) -> None:
        told = f"Error while fetching server API version: {('Connection aborted.', missing)}"
        raise DockerException(told)

    monkeypatch.setattr("docker.from_env", refused)
    (check,) = doctor._docker(ServerSpec(), {}, tuple)
    assert check.found == (
        "no container engine answers at the default socket: No such file or directory"
    )


def test_the_doctor_is_told(
    monkeypatch: pytest.MonkeyPatch, numpy_is: Callable[[str], None]
) -> None:
    numpy_is("2.1.3")
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: given(installation(PYTHON)))
    server, numpy, _ = doctor._tritonserver(ServerSpec(), {}, tuple)
    assert (server.ok, numpy.ok, numpy.id) == (True, False, "numpy")
    assert "pip install" in numpy.mend
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: given(installation(None)))
    assert (
        len(doctor._tritonserver(ServerSpec(), {}, tuple)) == 2
    )  # models have the server's own Python


def test_the_doctor_asks_for_no_numpy_where_tensors_pass_by_dlpack(
    monkeypatch: pytest.MonkeyPatch, numpy_is: Callable[[str], None]
) -> None:
    numpy_is("2.1.3")
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: given(installation(PYTHON)))
    job = prepare(Request(spec=QUICKSTART))
    served = job.served.models.values
    assert not doctor._tritonserver(ServerSpec(), {}, served)[1].ok
    monkeypatch.setattr(ModelFiles, "takes_arrays", lambda _: False)
    assert doctor._tritonserver(ServerSpec(), {}, served)[1].ok


def test_doctor_and_run_tell_of_a_backend_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = replace(installation(None), backend_directory=tmp_path)
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: given(ours))
    job = prepare(Request(spec=QUICKSTART))
    _, backends = doctor._tritonserver(ServerSpec(), {}, job.served.models.values)
    assert (backends.id, backends.ok) == ("backends", False)
    assert "--backend-directory" in backends.mend
    launcher = LocalLauncher(ours, tmp_path)
    monkeypatch.setattr(programs, "server_launcher", lambda *_: given(launcher))
    monkeypatch.setattr(binaries, "perf_analyzer", lambda *_: given(ours))
    with (
        pytest.raises(EnvironmentNotReadyError, match="needs the python backend"),
        programs.find_programs(job, {}),
    ):
        pass


def test_a_run_of_a_python_model_is_refused_and_of_another_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numpy_is: Callable[[str], None]
) -> None:
    numpy_is("2.1.3")
    launcher = LocalLauncher(installation(PYTHON), tmp_path)
    monkeypatch.setattr(programs, "server_launcher", lambda *_: given(launcher))
    monkeypatch.setattr(programs, "read_host", lambda _: None)
    monkeypatch.setattr(binaries, "perf_analyzer", lambda *_: given(installation(None)))
    job = prepare(Request(spec=QUICKSTART))
    with pytest.raises(EnvironmentNotReadyError, match="EMPTY"), programs.find_programs(job, {}):
        pass
    the_one(job.served.models).base.file.backend = "onnxruntime"
    with programs.find_programs(job, {}) as found:
        assert found.launcher is launcher
