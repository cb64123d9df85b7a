"""The CPUs that a real server's threads use: those of its start, whatever its models do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from builders.onnx_models import ARGUMENT, perceptron, place
from tritonclient.grpc import InferenceServerClient, InferInput

from tuner.server.binaries import Installation
from tuner.server.control import Control
from tuner.triton.local import LocalLauncher, LocalServer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU only"),
]

DEADLINE_S = 90.0
FIRST, LAST = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
ONNX = """\
backend: "onnxruntime"
max_batch_size: 4
instance_group [ { count: 1 } ]
input [ { name: "x" data_type: TYPE_FP32 dims: [ 8 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
THREADS = 'parameters { key: "intra_op_thread_count" value { string_value: "2" } }\n'
PYTHON = """\
backend: "python"
instance_group [ { count: 1 kind: KIND_CPU } ]
input [ { name: "x" data_type: TYPE_FP32 dims: [ 8, 16 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
PINS_ITSELF = f"""
import os, threading
import numpy as np
import triton_python_backend_utils as pb

def wait():
    os.sched_setaffinity(0, {{{LAST}}})
    pinned.set()
    threading.Event().wait()

pinned = threading.Event()

class TritonPythonModel:
    def initialize(self, args):
        threading.Thread(target=wait, daemon=True).start()
        pinned.wait()

    def execute(self, requests):
        y = pb.Tensor("y", np.zeros(2, np.float32))
        return [pb.InferenceResponse([y]) for _ in requests]
"""
#: Answers how long a prediction takes, and on how many CPUs the process may run.
LIGHTGBM = """
import os, time
import lightgbm
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        random = np.random.RandomState(0)
        x = random.standard_normal((500, 16))
        data = lightgbm.Dataset(x, x[:, 0], params={"verbose": -1})
        self.model = lightgbm.train({"verbose": -1, "num_threads": 1}, data, 20)

    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            took_s = []
            for _ in range(50):
                begun = time.perf_counter()
                self.model.predict(x)
                took_s.append(time.perf_counter() - begun)
            y = np.array([np.median(took_s), len(os.sched_getaffinity(0))], np.float32)
            answers.append(pb.InferenceResponse([pb.Tensor("y", y)]))
        return answers
"""


@contextmanager
def serving(
    installation: Installation, directory: Path, name: str, cpus: tuple[int, ...]
) -> Iterator[LocalServer]:
    launcher = LocalLauncher(installation, directory, args=(ARGUMENT,)).on(cpus)
    with launcher.launch([], directory.parent / "log") as server:
        with Control(server.endpoints) as control:
            control.load(name, None, DEADLINE_S)
        yield server


def masks(server: LocalServer) -> set[tuple[int, ...]]:
    """Those of all threads of the server and its children."""
    process = psutil.Process(server.pid)
    there = set[tuple[int, ...]]()
    for member in (process, *process.children(recursive=True)):
        for task in Path(f"/proc/{member.pid}/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                there.add(tuple(sorted(os.sched_getaffinity(int(task.name)))))
    return there


def python_model(repository: Path, name: str, code: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.py").write_text(code)
    (repository / name / "config.pbtxt").write_text(PYTHON)


def answer(server: LocalServer, name: str) -> Any:
    with InferenceServerClient(server.endpoints.grpc) as client:
        given = InferInput("x", [8, 16], "FP32").set_data_from_numpy(np.ones((8, 16), np.float32))
        return client.infer(name, [given], client_timeout=60).as_numpy("y")


def test_onnx_session_that_left_the_servers_cpus_is_put_back(
    installation: Installation, tmp_path: Path
) -> None:
    repository = tmp_path / "models"
    place(repository, "open", perceptron(), ONNX)
    with serving(installation, repository, "open", (FIRST,)) as server:
        assert masks(server) > {(FIRST,)}  # ONNX Runtime pins its threads to cores of the machine
        assert server.put_back() >= 1
        assert masks(server) == {(FIRST,)}
        assert server.put_back() == 0


def test_onnx_session_with_a_thread_count_stays_on_the_servers_cpus(
    installation: Installation, tmp_path: Path
) -> None:
    repository = tmp_path / "models"
    place(repository, "two", perceptron(), ONNX + THREADS)
    with serving(installation, repository, "two", (FIRST,)) as server:
        assert masks(server) == {(FIRST,)}
        assert server.put_back() == 0


def test_thread_of_a_model_that_pins_itself_is_put_back(
    installation: Installation, tmp_path: Path
) -> None:
    repository = tmp_path / "models"
    python_model(repository, "pins", PINS_ITSELF)
    with serving(installation, repository, "pins", (FIRST,)) as server:
        assert (LAST,) in masks(server)
        assert server.put_back() == 1
        assert masks(server) == {(FIRST,)}


def test_server_that_may_use_all_cpus_keeps_the_pins_of_its_models(
    installation: Installation, tmp_path: Path
) -> None:
    repository = tmp_path / "models"
    python_model(repository, "pins", PINS_ITSELF)
    with serving(installation, repository, "pins", ()) as server:
        assert server.put_back() == 0
        assert (LAST,) in masks(server)


def test_runtime_that_counts_its_threads_at_the_start_is_not_disturbed(
    installation: Installation, tmp_path: Path
) -> None:
    """A mask made narrower later makes LightGBM's predictions a hundred times slower."""
    pytest.importorskip("lightgbm")
    repository = tmp_path / "models"
    python_model(repository, "trees", LIGHTGBM)
    with serving(installation, repository, "trees", (FIRST,)) as server:
        before_s, count = answer(server, "trees")
        assert count == 1
        assert server.put_back() == 0
        after_s, _ = answer(server, "trees")
    assert after_s < 10 * before_s


def test_next_server_has_the_cpus_that_it_is_given(
    installation: Installation, tmp_path: Path
) -> None:
    repository = tmp_path / "models"
    place(repository, "two", perceptron(), ONNX + THREADS)
    masked = replace(installation, cpus=(FIRST,))
    launcher = LocalLauncher(masked, repository, args=(ARGUMENT,))
    with launcher.on(()).launch([], tmp_path / "log") as server:
        assert len(os.sched_getaffinity(server.pid)) > 1
    with launcher.launch([], tmp_path / "log") as server:
        assert os.sched_getaffinity(server.pid) == {FIRST}
