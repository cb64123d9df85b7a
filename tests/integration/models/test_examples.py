"""Every example model loads on the embedded server as committed, and answers rightly."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from builders.strings import needs_strings
from builders.waits import wait_until
from tritonclient.grpc import InferenceServerClient, InferInput

from tuner.server.binaries import tritonserver
from tuner.server.control import Control
from tuner.server.server import Endpoints
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.integration, pytest.mark.long]

REPOSITORY = Path(__file__).parents[3] / "model_repository"
EXAMPLES = ("emulated-accelerator", "tiny-bert", "tokenizer", "classifier-head", "nlp", "nlp-bls")
LOAD_DEADLINE_S = 60.0

#: The committed configs join no requests; this lets Triton form batches.
BATCHED_BERT = """{
  "backend": "python", "max_batch_size": 32,
  "input": [{"name": "input_ids", "data_type": "TYPE_INT64", "dims": [16]},
            {"name": "attention_mask", "data_type": "TYPE_INT64", "dims": [16]}],
  "output": [{"name": "pooled", "data_type": "TYPE_FP32", "dims": [128]},
             {"name": "logits", "data_type": "TYPE_FP32", "dims": [2]}],
  "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
  "dynamic_batching": {"max_queue_delay_microseconds": 100000, "preferred_batch_size": [8]}
}"""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    with tritonserver(None, os.environ) as installation:
        launcher = LocalLauncher(installation, REPOSITORY)
        with launcher.launch([], tmp_path_factory.mktemp("models") / "server.log") as server:
            with Control(server.endpoints) as control:
                for model in EXAMPLES:
                    control.load(model, None, LOAD_DEADLINE_S)
            yield server.endpoints


@pytest.fixture
def client(endpoints: Endpoints) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(endpoints.grpc) as client:
        yield client


def infer(
    client: InferenceServerClient, model: str, arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    inputs = []
    for name, array in arrays.items():
        kind = {"float32": "FP32", "int64": "INT64", "object": "BYTES"}[array.dtype.name]
        inputs.append(InferInput(name, list(array.shape), kind).set_data_from_numpy(array))
    result = client.infer(model, inputs, client_timeout=30)
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def test_the_emulated_accelerator_answers(client: InferenceServerClient) -> None:
    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    answer = infer(client, "emulated-accelerator", {"x": x})
    np.testing.assert_array_equal(answer["y"], 2 * x + 1)


@pytest.mark.parametrize("inputs", [1, 16])
def test_the_emulated_accelerator_takes_its_time(
    client: InferenceServerClient, inputs: int
) -> None:
    x = np.zeros((inputs, 64), np.float32)
    costs_ms = (1 + 0.05 * inputs) + (4 + 0.2 * inputs)
    took_ms = list[float]()

    def takes_less_than_twice_as_long() -> bool:
        """The server and the client take time, too; more where other programs have the CPU."""
        start = time.perf_counter()
        infer(client, "emulated-accelerator", {"x": x})
        took_ms.append((time.perf_counter() - start) * 1e3)
        return len(took_ms) >= 15 and min(took_ms) < 2 * costs_ms

    wait_until(takes_less_than_twice_as_long)
    assert costs_ms <= min(took_ms)


def random_tokens(rows: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    mask = (np.arange(16) < random.integers(1, 17, (rows, 1))).astype(np.int64)
    return {"input_ids": random.integers(0, 1000, (rows, 16)), "attention_mask": mask}


def test_tiny_bert_answers_as_onnxruntime_does(client: InferenceServerClient) -> None:
    session = onnxruntime.InferenceSession(REPOSITORY / "tiny-bert" / "1" / "model.onnx")
    tokens = random_tokens(rows=3, seed=0)
    answer = infer(client, "tiny-bert", tokens)
    for name, expected in zip(("pooled", "logits"), session.run(None, tokens), strict=True):
        np.testing.assert_allclose(answer[name], expected, rtol=1e-4, atol=1e-5)
    assert answer["pooled"].shape == (3, 128)
    assert np.ptp(answer["logits"], axis=0).min() > 0.01  # it does depend on its input


def test_tiny_bert_ignores_what_is_masked(client: InferenceServerClient) -> None:
    tokens = random_tokens(rows=1, seed=1)
    tokens["attention_mask"][:] = np.arange(16) < 5
    other = {**tokens, "input_ids": tokens["input_ids"].copy()}
    other["input_ids"][:, 5:] = 7
    first, second = (infer(client, "tiny-bert", t)["logits"] for t in (tokens, other))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


def test_tiny_bert_answers_every_request_of_a_batch(
    client: InferenceServerClient, endpoints: Endpoints
) -> None:
    requests = [random_tokens(rows=1 + seed % 2, seed=seed) for seed in range(8)]
    alone = [infer(client, "tiny-bert", tokens)["pooled"] for tokens in requests]
    with Control(endpoints) as control:
        control.load("tiny-bert", BATCHED_BERT, LOAD_DEADLINE_S)
        before = control.statistics("tiny-bert").execution_count
        try:
            with ThreadPoolExecutor(8) as pool:
                together = list(pool.map(lambda t: infer(client, "tiny-bert", t), requests))
            executions = control.statistics("tiny-bert").execution_count - before
        finally:
            control.load("tiny-bert", None, LOAD_DEADLINE_S)
    assert executions < len(requests)
    for expected, answer in zip(alone, together, strict=True):
        np.testing.assert_allclose(answer["pooled"], expected, rtol=1e-4, atol=1e-5)


@needs_strings
def test_tokenizer_answers_with_padded_ids_and_masks(client: InferenceServerClient) -> None:
    vocabulary = (REPOSITORY / "tokenizer" / "1" / "vocab.txt").read_text().splitlines()
    texts = np.array([[b"The lazy dog jumped!"], [b"\xff"]], dtype=object)
    answer = infer(client, "tokenizer", {"text": texts})
    expected = ["[CLS]", "the", "lazy", "dog", "jump", "##ed", "!", "[SEP]"]
    ids = [vocabulary.index(piece) for piece in expected]
    assert answer["input_ids"].tolist() == [ids + [0] * 120, [2, 3] + [0] * 126]
    assert answer["attention_mask"].sum(axis=1).tolist() == [8, 2]
    assert answer["short_input_ids"].tolist() == [ids + [0] * 8, [2, 3] + [0] * 14]
    assert answer["short_attention_mask"].sum(axis=1).tolist() == [8, 2]


@needs_strings
def test_the_ensemble_answers_as_its_steps_one_after_the_other(
    client: InferenceServerClient,
) -> None:
    words = [b"the lazy dog", b"what a happy day this is", b"never again", b"!"]
    texts = np.array([[word] for word in words], dtype=object)
    tokens = infer(client, "tokenizer", {"text": texts})
    short = {n: tokens[f"short_{n}"] for n in ("input_ids", "attention_mask")}
    pooled = infer(client, "tiny-bert", short)["pooled"]
    expected = infer(client, "classifier-head", {"embedding": pooled})
    answer = infer(client, "nlp", {"text": texts})
    assert answer["sentiment_label"].tolist() == expected["label"].tolist()
    assert {label for [label] in answer["sentiment_label"].tolist()} <= {b"negative", b"positive"}
    np.testing.assert_allclose(answer["confidence"], expected["score"], rtol=1e-4)
    assert np.ptp(answer["confidence"]) > 0.01  # it does depend on the text
    assert (answer["confidence"] >= 0.5).all()


@needs_strings
def test_calling_model_labels_the_full_text(
    client: InferenceServerClient,
) -> None:
    long = b" ".join([b"the lazy dog is happy and never sad,"] * 12)
    words = [b"the lazy dog", long, b"", b"never again! " + long]
    texts = np.array([[word] for word in words], dtype=object)
    tokens = infer(client, "tokenizer", {"text": texts})
    means = []
    for ids, mask in zip(tokens["input_ids"], tokens["attention_mask"], strict=True):
        used = max(-(-mask.sum() // 16), 1) * 16
        passages = {"input_ids": ids[:used].reshape(-1, 16)}
        passages["attention_mask"] = mask[:used].reshape(-1, 16)
        means.append(infer(client, "tiny-bert", passages)["pooled"].mean(axis=0))
    expected = infer(client, "classifier-head", {"embedding": np.stack(means)})
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: infer(client, "nlp-bls", {"text": texts}), range(32)))
    for answer in answers:
        assert answer["sentiment_label"].tolist() == expected["label"].tolist()
        np.testing.assert_allclose(answer["confidence"], expected["score"], rtol=1e-4)
    assert len({*expected["score"].ravel().tolist()}) == len(words)
