"""ONNX models on a real server, by the stand-in for NVIDIA's backend: what `tune` relies on.

Completion, defaults, refusals and their words are those of NVIDIA's backend on the same server.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import psutil
import pytest
from builders.onnx_models import ARGUMENT, encoder, perceptron, place, scaled
from builders.waits import wait_until
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tuner.errors import DeployRefusedError
from tuner.modelconfig.message import parse, to_load_json
from tuner.modelconfig.path import get, with_fields
from tuner.server.binaries import Installation
from tuner.server.control import Control
from tuner.space.experts import EXPERTS
from tuner.triton.local import LocalLauncher

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[3] / "model_repository" / "bert-onnx"
DEADLINE_S = 90.0
GROUP = "instance_group [ { count: 1 } ]\n"
SIZE = "max_batch_size: 4\n"
THREADS = 'parameters { key: "intra_op_thread_count" value { string_value: "%s" } }\n'
ACCELERATOR = (
    'optimization { execution_accelerators { cpu_execution_accelerator [ { name: "%s" } ] } }\n'
)
X = 'input [ { name: "x" data_type: TYPE_FP32 dims: [ 8 ] } ]\n'
Y = 'output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
OPTIONAL = """\
input [
  { name: "x" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "scale" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
#: Holds all that come at once together for a while, so that batches are sure to form.
JOINED = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 200000 }\n" + GROUP


@dataclass(frozen=True)
class Onnx:
    """A server with the stand-in, and the repository that it serves."""

    repository: Path
    log: Path
    control: Control
    client: InferenceServerClient
    pid: int

    def infer(self, model: str, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        inputs = [
            InferInput(name, list(a.shape), np_to_triton_dtype(a.dtype)).set_data_from_numpy(a)
            for name, a in arrays.items()
        ]
        result = self.client.infer(model, inputs, client_timeout=30)
        return {
            output.name: result.as_numpy(output.name) for output in result.get_response().outputs
        }

    def expected(self, model: str, version: int = 1, **arrays: np.ndarray) -> list[np.ndarray]:
        path = self.repository / model / str(version) / "model.onnx"
        return onnxruntime.InferenceSession(path).run(None, arrays)

    def refused(self, name: str, config: str | None) -> str:
        """The words for a config that is sent for a model, or for its own files."""
        with pytest.raises(DeployRefusedError) as refusal:
            self.control.load(name, config and to_load_json(parse(config)), DEADLINE_S)
        return refusal.value.message


@pytest.fixture(scope="module")
def onnx(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Onnx]:
    directory = tmp_path_factory.mktemp("onnx")
    repository = directory / "models"
    place(repository, "bare", perceptron())
    place(repository, "size", perceptron(), "max_batch_size: 16\n")
    place(repository, "full", perceptron(), "max_batch_size: 8\n" + X + Y)
    place(repository, "fixed", perceptron(batch=2))
    place(repository, "joined", encoder(), JOINED)
    place(repository, "optional", scaled(), 'backend: "onnxruntime"\n' + OPTIONAL + GROUP)
    shutil.copytree(EXAMPLE, repository / "bert-onnx")
    good = [path.name for path in repository.iterdir()]
    place(repository, "missing", None, 'backend: "onnxruntime"\n')
    place(repository, "cut-off", perceptron().SerializeToString()[:-100])
    launcher = LocalLauncher(installation, repository, args=(ARGUMENT,))
    log = directory / "server.log"
    with (
        launcher.launch((), log) as server,
        Control(server.endpoints) as control,
        InferenceServerClient(server.endpoints.grpc) as client,
    ):
        with ThreadPoolExecutor(2) as pool:  # each load waits for processes that start
            list(pool.map(lambda name: control.load(name, None, DEADLINE_S), good))
        yield Onnx(repository, log, control, client, server.pid)


def test_a_model_without_a_config_gets_a_size_tensors_a_batcher_and_two_instances(
    onnx: Onnx,
) -> None:
    config = onnx.control.running_config("bare")
    assert (config.backend, config.max_batch_size) == ("onnxruntime", 4)
    assert [(i.name, list(i.dims)) for i in config.input] == [("x", [8])]
    assert [(o.name, list(o.dims)) for o in config.output] == [("y", [4])]
    assert config.HasField("dynamic_batching")
    assert [group.count for group in config.instance_group] == [2]


def test_a_size_alone_turns_the_batcher_on_too(onnx: Onnx) -> None:
    config = onnx.control.running_config("size")
    assert config.max_batch_size == 16
    assert config.HasField("dynamic_batching")


def test_inputs_and_outputs_in_the_file_leave_all_as_it_is(onnx: Onnx) -> None:
    config = onnx.control.running_config("full")
    assert config.max_batch_size == 8
    assert not config.HasField("dynamic_batching")


def test_a_fixed_batch_is_no_batch_of_tritons(onnx: Onnx) -> None:
    config = onnx.control.running_config("fixed")
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert list(config.input[0].dims) == [2, 8]
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    np.testing.assert_allclose(
        onnx.infer("fixed", x=x)["y"], *onnx.expected("fixed", x=x), rtol=1e-5
    )


def test_an_open_length_stays_open(onnx: Onnx) -> None:
    config = onnx.control.running_config("joined")
    assert [list(tensor.dims) for tensor in config.input] == [[-1]]
    assert [list(tensor.dims) for tensor in config.output] == [[-1, 32], [32]]


@pytest.mark.parametrize("length", [5, 7])
def test_requests_of_one_length_are_joined_and_each_gets_its_response(
    onnx: Onnx, length: int
) -> None:
    random = np.random.default_rng(0)
    requests = [random.integers(0, 100, (1 + n % 2, length)) for n in range(6)]
    before = onnx.control.statistics("joined").execution_count
    with ThreadPoolExecutor(len(requests)) as clients:
        answers = list(clients.map(lambda ids: onnx.infer("joined", ids=ids), requests))
    assert onnx.control.statistics("joined").execution_count - before < len(requests)
    for ids, answer in zip(requests, answers, strict=True):
        every, pooled = onnx.expected("joined", ids=ids)
        np.testing.assert_allclose(answer["every"], every, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(answer["pooled"], pooled, rtol=1e-4, atol=1e-5)


def test_error_of_onnx_runtime_fails_the_request_and_not_the_model(onnx: Onnx) -> None:
    with pytest.raises(InferenceServerException, match=r"onnx runtime error \d+: .*Gather"):
        onnx.infer("joined", ids=np.array([[1, 2, 1000]]))
    assert onnx.infer("joined", ids=np.array([[1, 2, 3]]))["pooled"].shape == (1, 32)


def test_an_optional_input_may_be_left_out(onnx: Onnx) -> None:
    x = np.array([1, 2], np.float32)
    assert onnx.infer("optional", x=x)["y"].tolist() == [3, 6]
    assert onnx.infer("optional", x=x, scale=np.array([5], np.float32))["y"].tolist() == [5, 10]


def test_the_example_answers_with_its_latest_version_for_texts_of_any_length(onnx: Onnx) -> None:
    for length in (3, 128):
        ids = np.arange(length).reshape(1, length) % 500
        kinds = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        answer = onnx.infer("bert-onnx", input_ids=ids, **kinds)
        hidden, pooled = onnx.expected("bert-onnx", version=2, input_ids=ids, **kinds)
        np.testing.assert_allclose(answer["last_hidden_state"], hidden, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(answer["pooler_output"], pooled, rtol=1e-3, atol=1e-4)
    assert not onnx.control.running_config("bert-onnx").HasField("dynamic_batching")


def test_the_number_of_threads_is_that_of_the_parameter(onnx: Onnx) -> None:
    def instances() -> list[psutil.Process]:
        running = psutil.process_iter(["ppid", "cmdline"])
        ours = [process for process in running if process.info["ppid"] == onnx.pid]
        # one that just ended has no command line
        return [p for p in ours if "/models/full/" in "".join(p.info["cmdline"] or ())]

    def threads(count: str) -> int:
        config = 'backend: "onnxruntime"\n' + SIZE + X + Y + GROUP + THREADS % count
        onnx.control.load("full", to_load_json(parse(config)), DEADLINE_S)
        wait_until(lambda: len(instances()) == 1, DEADLINE_S)  # the one before takes time to end
        return instances()[0].num_threads()

    assert threads("4") - threads("1") == 3


KNOBS = EXPERTS["onnxruntime"].on_cpu | {
    path: rare.values for path, rare in EXPERTS["onnxruntime"].rare_on_cpu.items()
}


@pytest.mark.parametrize("path", KNOBS)
def test_each_drafted_knob_is_accepted_and_reads_back_as_requested(onnx: Onnx, path: str) -> None:
    file = parse('backend: "onnxruntime"\n' + SIZE + X + Y + GROUP)
    x = np.ones((1, 8), np.float32)
    for value in reversed(KNOBS[path]):  # back to the default
        wanted = with_fields(file, {path: None if value == "unset" else value})
        onnx.control.load("full", to_load_json(wanted), DEADLINE_S)
        assert get(onnx.control.running_config("full"), path) == get(wanted, path)
        np.testing.assert_allclose(
            onnx.infer("full", x=x)["y"], *onnx.expected("full", x=x), rtol=1e-5
        )


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("missing", None, "failed to stat file"),
        ("cut-off", None, "onnx runtime error 7: Load model from"),
        ("fixed", SIZE, "not support batching while non-zero max_batch_size is specified"),
        ("fixed", SIZE + X + Y, "the first dimension must be -1; but shape expected by the model "),
        ("bare", X + Y, "(shape [-1,8]) but the model configuration specifies 1 dimensions"),
        ("bare", SIZE + X + Y.replace("4", "5"), "making complete shape [-1,5]"),
        ("bare", SIZE + X.replace('"x"', '"z"') + Y, "input 'z', allowed inputs are: x"),
        ("bare", SIZE + X + Y.replace('"y"', '"z"'), "output 'z', allowed outputs are: y"),
        ("bare", SIZE + X.replace("FP32", "INT64"), "expects datatype TYPE_INT64 for input 'x'"),
        ("bare", THREADS % "none", "failed to convert 'none' to integral number"),
        ("bare", (THREADS % 2).replace("intra_op_thread_count", "execution_mode"), "are 0 or 1"),
        ("bare", ACCELERATOR % "OpenVINO", "unknown Execution Accelerator 'OpenVINO' is requested"),
    ],
)
def test_config_that_does_not_fit_the_model_is_refused_in_the_backends_words(
    onnx: Onnx, name: str, config: str | None, words: str
) -> None:
    sent = config and 'backend: "onnxruntime"\n' + GROUP + config
    assert words in onnx.refused(name, sent)


def test_the_log_says_who_answers(onnx: Onnx) -> None:
    assert "bare_0 is served by a stand-in for tests over ONNX Runtime" in onnx.log.read_text()
