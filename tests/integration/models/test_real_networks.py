"""Networks with real weights: drafted, planned, and served with ONNX Runtime's own answers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from lay_out import NETWORKS, TUNED, check, environment, lay_out, tune
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import np_to_triton_dtype

from tuner.server.binaries import tritonserver
from tuner.server.control import Control
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.integration, pytest.mark.long]

DEADLINE_S = 60.0
#: What pip says where nobody answers.
UNREACHABLE = "after connection broken"
RANDOM = np.random.default_rng(0)
#: Of each network one inference, in a batch of one.
REQUESTS = {
    "magika": {"bytes": RANDOM.integers(0, 257, (1, 2048), np.int32)},
    "opennsfw": {"input:0": 255 * RANDOM.random((1, 224, 224, 3), np.float32) - 110},
    "text-detector": {"x": RANDOM.standard_normal((1, 3, 160, 320), np.float32)},
    "angle-classifier": {"x": RANDOM.standard_normal((1, 3, 48, 192), np.float32)},
}
Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("real")
    try:
        lay_out(directory)
    except subprocess.CalledProcessError as error:
        if UNREACHABLE in error.stderr:
            pytest.skip(f"no package registry: {error.stderr}")
        raise
    return directory


@pytest.fixture(scope="module")
def client(laid_out: Path) -> Iterator[InferenceServerClient]:
    with tritonserver(None, environment(laid_out)) as installation:
        launcher = LocalLauncher(installation, laid_out / "models")
        with (
            launcher.launch([], laid_out / "server.log") as server,
            Control(server.endpoints) as control,
            InferenceServerClient(server.endpoints.grpc) as client,
        ):
            for name in TUNED:
                control.load(name, None, DEADLINE_S)
            yield client


def answer(client: InferenceServerClient, model: str, tensors: Tensors) -> Tensors:
    inputs = [
        InferInput(name, list(a.shape), np_to_triton_dtype(a.dtype)).set_data_from_numpy(a)
        for name, a in tensors.items()
    ]
    result = client.infer(model, inputs, client_timeout=30)
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def computed(laid_out: Path, model: str, tensors: Tensors) -> Tensors:
    """What ONNX Runtime itself makes of them."""
    session = onnxruntime.InferenceSession(laid_out / "models" / model / "1" / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, tensors), strict=True))


def assert_close(outputs: Tensors, expected: Tensors) -> None:
    assert outputs.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-3, atol=1e-5)


def test_the_committed_specs_are_what_init_drafts(laid_out: Path) -> None:
    assert check(laid_out) == []


@pytest.mark.parametrize("name", TUNED)
def test_plan_of_each_network_shows_candidates(laid_out: Path, name: str) -> None:
    command = tune("plan", f"{name}.yaml")
    done = subprocess.run(
        command, cwd=laid_out, env=environment(laid_out), check=True, capture_output=True, text=True
    )
    assert "candidate: " in done.stdout
    assert 'key: "intra_op_thread_count"' in done.stdout


@pytest.mark.parametrize("name", NETWORKS)
def test_a_lone_request_gets_the_answer_of_onnx_runtime(
    client: InferenceServerClient, laid_out: Path, name: str
) -> None:
    assert_close(answer(client, name, REQUESTS[name]), computed(laid_out, name, REQUESTS[name]))


def test_the_pipeline_answers_as_its_networks_do(
    client: InferenceServerClient, laid_out: Path
) -> None:
    image = REQUESTS["text-detector"]["x"]
    output = computed(laid_out, "text-detector", {"x": image})["sigmoid_0.tmp_0"]
    line = answer(client, "cut-line", {"image": image, "map": output})["line"]
    (angle,) = computed(laid_out, "angle-classifier", {"x": line}).values()
    assert_close(answer(client, "ocr", {"image": image}), {"map": output, "angle": angle})


def test_the_line_is_where_the_detector_sees_text(client: InferenceServerClient) -> None:
    image = np.zeros((1, 3, 96, 384), np.float32)
    seen = np.zeros((1, 1, 96, 384), np.float32)
    image[..., 24:72, 100:292] = np.arange(192)
    seen[..., 24:72, 100:292] = 0.9
    line = answer(client, "cut-line", {"image": image, "map": seen})["line"]
    np.testing.assert_array_equal(line, image[..., 24:72, 100:292])
