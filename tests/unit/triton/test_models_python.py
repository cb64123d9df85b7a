"""The NumPy that Python models import: the wheel's stub was built for the first one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders.candidates import the_one

from tuner.errors import EnvironmentNotReadyError
from tuner.modelconfig.served import ServedModel, read_served
from tuner.prepare import tools as programs
from tuner.prepare.job import Request, prepare
from tuner.server import binaries, numpy2
from tuner.server.binaries import Installation, Origin
from tuner.server.numpy2 import SHIM, in_python, numpy_of_models
from tuner.spec.server import ServerSpec
from tuner.triton import doctor
from tuner.triton.local import LocalLauncher

PYTHON = Path("/venv/bin/python")
QUICKSTART = Path(__file__).parents[3] / "search_spaces" / "quickstart.yaml"


@pytest.fixture
def numpy_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the version that the Python of models answers with."""

    def set_to(version: str) -> None:
        monkeypatch.setattr(numpy2, "_numpy_version", lambda _: version)

    return set_to


def installation(python: Path | None) -> Installation:
    return Installation(Path("/t"), "2.51.0", Origin.WHEEL, {}, python=python)


@contextmanager
def given(value: Any) -> Iterator[Any]:
    yield value


def served(tmp_path: Path, kind: str, backend: str = "python") -> list[ServedModel]:
    (tmp_path / "m" / "1").mkdir(parents=True)
    tensors = f'input {{ name: "x" data_type: TYPE_{kind} dims: [1] }}'
    config = f'name: "m"\nbackend: "{backend}"\n{tensors} {tensors.replace("input", "output")}\n'
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    (tmp_path / "m" / "1" / "model.py").write_text("class TritonPythonModel: ...\n")
    return [*read_served(tmp_path, ["m"]).models.values()]


@pytest.mark.parametrize(
    ("version", "kind"), [("1.26.4", "FP32"), ("1.26.4", "STRING"), ("2.5.5", "FP32")]
)
def test_numbers_go_with_every_numpy_and_strings_with_the_first(
    version: str, kind: str, tmp_path: Path, numpy_is: Callable[[str], None]
) -> None:
    numpy_is(version)
    assert numpy_of_models(PYTHON, served(tmp_path, kind)) == version


def test_strings_of_another_backend_are_none_of_its_business(tmp_path: Path) -> None:
    assert in_python(served(tmp_path, "STRING", "onnxruntime")) == []


class StubTensor:
    """The stub's tensor, as far as the backend's own text deals with it; emulated."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self.name, self.array = name, array

    @classmethod
    def from_dlpack(cls, name: str, capsule: object) -> StubTensor:
        class Holder:
            def __dlpack__(self, **_: object) -> object:
                return capsule

            def __dlpack_device__(self) -> tuple[int, int]:
                return 1, 0

        return cls(name, np.from_dlpack(Holder()).copy())

    def __dlpack__(self, **_: object) -> object:
        if self.array.dtype == object:
            raise BufferError("TYPE_BYTES tensors cannot be converted to DLPack.")
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Any:
    tensor = type("Tensor", (StubTensor,), {})
    made = SimpleNamespace(Tensor=tensor, TritonModelException=BufferError)
    monkeypatch.setitem(sys.modules, "c_python_backend_utils", made)
    exec(SHIM.replace('int(np.__version__.split(".")[0]) > 1', "True"), {"np": np})
    return made


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float16).reshape(3, 4).T,
        read_only(np.arange(3, dtype=np.int8)),
        np.array(5, dtype=np.uint64),
        np.zeros((0, 4), np.float32),
    ],
    ids=["not contiguous", "read-only", "a scalar", "empty"],
)
def test_under_numpy_2_tensors_pass_an_emulated_stub_unchanged(
    array: np.ndarray[Any, Any], stub: Any
) -> None:
    tensor = stub.Tensor("y", array)
    received = tensor.as_numpy()
    np.testing.assert_array_equal(received, array)
    assert (tensor.name, received.dtype, received.shape) == ("y", array.dtype, array.shape)
    assert received.flags.writeable


def test_under_numpy_2_a_model_with_strings_is_refused_with_the_reason(stub: Any) -> None:
    texts = np.array([b"a"], dtype=object)
    with pytest.raises(BufferError, match="NumPy 1"):
        stub.Tensor("y", texts)
    received = stub.Tensor.from_dlpack("x", np.zeros(1).__dlpack__())
    received.array = texts
    with pytest.raises(BufferError, match="NumPy 1"):
        received.as_numpy()


def test_doctor_reports_the_numpy_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numpy_is: Callable[[str], None]
) -> None:
    numpy_is("2.1.3")
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: given(installation(PYTHON)))
    server, numpy, _ = doctor._tritonserver(ServerSpec(), {}, tuple)
    assert (server.ok, numpy.ok, numpy.id) == (True, True, "numpy")
    assert numpy.found == "2.1.3 (/venv/bin/python), so without strings"
    models = served(tmp_path, "STRING")
    server, numpy, _ = doctor._tritonserver(ServerSpec(), {}, lambda: models)
    assert (server.ok, numpy.ok) == (True, False)
    assert numpy.fix
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: given(installation(None)))
    assert (
        len(doctor._tritonserver(ServerSpec(), {}, tuple)) == 2
    )  # models have the server's own Python


def test_doctor_and_run_tell_of_a_backend_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = replace(installation(None), backend_directory=tmp_path)
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: given(ours))
    job = prepare(Request(spec=QUICKSTART))
    _, backends = doctor._tritonserver(ServerSpec(), {}, job.served.models.values)
    assert (backends.id, backends.ok) == ("backends", False)
    assert "--backend-directory" in backends.fix
    launcher = LocalLauncher(ours, tmp_path)
    monkeypatch.setattr(programs, "server_launcher", lambda *_: given(launcher))
    monkeypatch.setattr(binaries, "perf_analyzer", lambda *_: given(ours))
    with (
        pytest.raises(EnvironmentNotReadyError, match="python"),
        programs.find_programs(job, {}),
    ):
        pass


def test_a_run_of_a_python_model_with_strings_is_refused_and_of_another_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numpy_is: Callable[[str], None]
) -> None:
    numpy_is("2.1.3")
    launcher = LocalLauncher(installation(PYTHON), tmp_path)
    monkeypatch.setattr(programs, "server_launcher", lambda *_: given(launcher))
    monkeypatch.setattr(programs, "host_of", lambda *_: None)
    monkeypatch.setattr(binaries, "perf_analyzer", lambda *_: given(installation(None)))
    job = prepare(Request(spec=QUICKSTART))
    model = the_one(job.served.models).base
    with programs.find_programs(job, {}) as ready:
        assert ready.launcher is launcher
    model.completed.input[0].data_type = 13  # TYPE_STRING
    with pytest.raises(EnvironmentNotReadyError, match="strings"), programs.find_programs(job, {}):
        pass
    model.file.backend = "onnxruntime"
    with programs.find_programs(job, {}) as ready:
        assert ready.launcher is launcher


def test_the_doctor_fetches_a_server_where_it_may_tell_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetched: list[Any] = []
    monkeypatch.setattr(binaries, "fetch_tritonserver", lambda *words: fetched.append(words))
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: given(installation(None)))
    doctor._tritonserver(ServerSpec(), {"A": "b"}, tuple)
    assert fetched == []
    doctor._tritonserver(ServerSpec(binary="own"), {"A": "b"}, tuple, print)
    assert fetched == [("own", {"A": "b"}, print)]
