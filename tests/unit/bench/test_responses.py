"""What a spec asks of decoupled models, and of others, is refused with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.serving import write_models

from tuner.bench.job import Request, prepare
from tuner.bench.tools import choose_generator
from tuner.errors import SpecError
from tuner.load.generators import OWN_CLIENT

TENSORS = """
backend: "python" max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
"""
MODELS = {"plain": TENSORS, "speech": f"{TENSORS}model_transaction_policy {{ decoupled: true }}"}


def spec_of(tmp_path: Path, text: str) -> Request:
    write_models(tmp_path / "models", **MODELS)
    path = tmp_path / "spec.yaml"
    path.write_text(f"repository: models\n{text}")
    return Request(spec=path)


SPEECH = """\
model: speech
slo: [{slo}]
workload: {{protocol: {protocol}}}
objective: {objective}
space: {{instance_group.count: {{choice: [1, 2]}}}}
"""


@pytest.mark.parametrize("until", ["first", "last"])
def test_an_slo_on_either_response_makes_a_job_for_our_own_client(
    tmp_path: Path, until: str
) -> None:
    text = SPEECH.format(
        slo=f"p99_{until}_response <= 1s",
        protocol="grpc",
        objective=f"minimize p90_{until}_response at 20/s",
    )
    choice = choose_generator(prepare(spec_of(tmp_path, text)))
    assert choice.kind is OWN_CLIENT


@pytest.mark.parametrize(
    ("slo", "protocol", "objective", "said"),
    [
        (
            "p99_latency <= 1s",
            "grpc",
            "maximize goodput",
            (
                r"spec.yaml:3:7: slo\[0\]: speech is decoupled: it may answer a request many "
                "times; write p99_first_response or p99_last_response"
            ),
        ),
        (
            "p99_last_response <= 1s",
            "grpc",
            "minimize avg_latency at 20/s",
            r"spec.yaml:5:\d+: objective: speech is decoupled.*avg_first_response or avg_last",
        ),
        (
            "p99_last_response <= 1s",
            "http",
            "maximize goodput",
            (
                r"spec.yaml:4:\d+: workload.protocol: speech is decoupled: it answers through gRPC "
                "streams only; write grpc"
            ),
        ),
    ],
)
def test_what_a_decoupled_model_does_not_have_is_refused_at_its_place(
    tmp_path: Path, slo: str, protocol: str, objective: str, said: str
) -> None:
    text = SPEECH.format(slo=slo, protocol=protocol, objective=objective)
    with pytest.raises(SpecError, match=said):
        prepare(spec_of(tmp_path, text))


def test_a_model_that_answers_once_has_one_latency(tmp_path: Path) -> None:
    text = """\
models: {plain: {space: {instance_group.count: {choice: [1, 2]}}}, speech: {}}
streams:
  plain: {model: plain, share: 50%, slo: [p90_first_response <= 1s]}
  speech: {model: speech, share: 50%, slo: [p90_first_response <= 1s]}
"""
    with pytest.raises(SpecError) as caught:
        prepare(spec_of(tmp_path, text))
    (line,) = caught.value.message.splitlines()
    assert "plain is not decoupled: it answers a request once; write p90_latency" in line
    assert "spec.yaml:4:" in line


def test_at_the_top_of_a_mix_an_slo_is_one_that_every_stream_has(tmp_path: Path) -> None:
    text = """\
slo: [p90_latency <= 1s]
models: {plain: {space: {instance_group.count: {choice: [1, 2]}}}, speech: {}}
streams: {plain: {model: plain, share: 50%}, speech: {model: speech, share: 50%}}
"""
    with pytest.raises(SpecError, match="speech is decoupled"):
        prepare(spec_of(tmp_path, text))
