"""`tune run` on several models that are served together: an ensemble, and a mix of two models."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from builders.e2e_workplace import MODEL, REPOSITORY, Workplace
from builders.strings import needs_strings

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

#: An emulated model: what a batch of n takes is written in its parameters.
CONFIG = """\
name: "{name}"
backend: "python"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 64 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 64 ] }} ]
{costs}
instance_group [ {{ count: 1 kind: KIND_CPU }} ]   # one is where it starts
"""
#: A step that instances make faster, then one that batches do. Both are needed to get far.
PIPE = """\
name: "pipe"
platform: "ensemble"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 64 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 64 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "prepare"
      model_version: -1
      input_map { key: "x" value: "x" }
      output_map { key: "y" value: "prepared" }
    },
    {
      model_name: "compute"
      model_version: -1
      input_map { key: "x" value: "prepared" }
      output_map { key: "y" value: "y" }
    }
  ]
}
"""
PIPE_SPEC = """\
model: pipe
repository: repository
workload:
  arrivals: {kind: closed, concurrency: [8], restarts: 1}
  window: 1s
  warmup: 200ms
slo: [p90_latency <= 300ms]
objective: maximize goodput
models:
  prepare: {space: {instance_group.count: {choice: [1, 4]}}}
  compute: {space: {dynamic_batching: {choice: [off, on]}}}
budget: {trials: 4}
confirm: {finalists: 1, rounds: 3, soak: 3s}
"""
PAIR_SPEC = """\
repository: repository
models:
  light: {space: {dynamic_batching: {choice: [off, on]}}}
  heavy: {space: {dynamic_batching: {choice: [off, on]}}}
streams:
  often: {model: light, share: 75%, slo: [p90_latency <= 100ms]}
  seldom: {model: heavy, share: 25%, slo: [p90_latency <= 200ms]}
workload:
  arrivals: {kind: poisson, rate: [80, 250]}
  window: 1s
  warmup: 200ms
objective: maximize goodput
budget: {trials: 4}
confirm: {finalists: 1, rounds: 3, soak: 3s}
"""
#: Whom nlp-bls asks. Batches that begin 100 ms later are worse beyond doubt, which is soon told.
CALLEES = ("tiny-bert", "tokenizer", "classifier-head")
BLS_SPEC = """\
model: nlp-bls
repository: repository
workload:
  arrivals: {kind: closed, concurrency: [4], restarts: 1}
  window: 1s
  warmup: 200ms
slo: [p90_latency <= 2s]
objective: maximize goodput
models:
  nlp-bls: {calls: [tokenizer, tiny-bert, classifier-head]}
  tiny-bert:
    space:
      dynamic_batching: {choice: [off, on]}
      dynamic_batching.max_queue_delay_microseconds: {choice: [100000]}
budget: {trials: 2}
confirm: {finalists: 1, rounds: 3, soak: 0s}
"""


@pytest.fixture
def served(tmp_path: Path) -> Workplace:
    (tmp_path / "repository").mkdir()
    return Workplace(tmp_path)


def place(workplace: Workplace, name: str, **costs: object) -> Path:
    """An emulated model; its config."""
    directory = workplace.directory / "repository" / name
    shutil.copytree(REPOSITORY / MODEL / "1", directory / "1")
    lines = (
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in costs.items()
    )
    config = directory / "config.pbtxt"
    config.write_text(CONFIG.format(name=name, costs="\n".join(lines)))
    return config


def improved(workplace: Workplace, spec: str) -> dict[str, Any]:
    """The result of a run that writes a winner."""
    (workplace.directory / "spec.yaml").write_text(spec)
    done = workplace.tune("run", "spec.yaml")
    assert done.returncode == 0, done.stderr
    result = workplace.result()
    assert result["status"] == "improved"
    return result


def take_back(workplace: Workplace, name: str) -> None:
    back = workplace.tune("rollback", name, "--repository", "repository")
    assert back.returncode == 0, back.stderr


def test_the_steps_of_an_ensemble_are_tuned_together_written_as_one_and_taken_back(
    served: Workplace,
) -> None:
    nothing = {"exclusive_base_ms": 0, "exclusive_per_request_ms": 0}
    configs = [
        place(served, "prepare", overlap_base_ms=0, overlap_per_request_ms=10, **nothing),
        place(served, "compute"),
    ]
    pipe = served.directory / "repository" / "pipe"
    (pipe / "1").mkdir(parents=True)
    (pipe / "1" / ".gitkeep").touch()
    (pipe / "config.pbtxt").write_text(PIPE)
    before = [config.read_bytes() for config in configs]
    result = improved(served, PIPE_SPEC)
    assert result["winner"]["candidate"]["models"] == {
        "prepare": {"instance_group.count": 4},
        "compute": {"dynamic_batching": True},
    }
    assert result["gain"]["ratio"]["low"] > 1.02
    prepare, compute = (config.read_text() for config in configs)
    assert "count: 4" in prepare
    assert "# one is where it starts" in prepare
    assert "dynamic_batching" in compute
    assert (pipe / "config.pbtxt").read_text() == PIPE
    assert (pipe / "1" / ".gitkeep").exists()
    report = (served.run / "report.md").read_text()
    assert "Where the time goes" in report
    assert re.search(r"current config: at 8 concurrent .* in prepare", report, re.IGNORECASE)
    assert served.children() == []

    take_back(served, "pipe")
    assert [config.read_bytes() for config in configs] == before


@needs_strings
def test_a_model_whose_code_asks_others_is_drafted_with_them_and_they_are_tuned_under_its_load(
    served: Workplace,
) -> None:
    for name in ("nlp-bls", *CALLEES):
        shutil.copytree(REPOSITORY / name, served.directory / "repository" / name)
    draft = served.tune("init", "nlp-bls", "--repository", "repository", "--output", "-")
    assert f"calls: [{', '.join(CALLEES)}]" in draft.stdout
    (served.directory / "spec.yaml").write_text(BLS_SPEC)
    done = served.tune("run", "spec.yaml")
    assert served.result()["status"] == "kept", done.stderr
    seen = [trial["points"][-1]["measurement"] for trial in served.trials()]
    delayed, current = sorted(m["throughput_infer_per_s"] for m in seen)
    assert current > 1.5 * delayed
    for measured in seen:
        calls = measured["models"]["nlp-bls"]["success_count"]
        for name in CALLEES:  # one text a request; counted a sample apart at each end
            assert measured["models"][name]["success_count"] == pytest.approx(calls, rel=0.3, abs=3)
    assert served.result()["baseline"]["bottleneck"]["model"] in ("nlp-bls", *CALLEES)
    assert served.children() == []


def test_two_models_on_one_device_are_tuned_for_their_mix_each_within_its_slo(
    served: Workplace,
) -> None:
    configs = [
        place(served, "light", device="shared"),
        place(
            served,
            "heavy",
            device="shared",
            exclusive_base_ms=12,
            exclusive_per_request_ms=0.5,
        ),
    ]
    before = [config.read_bytes() for config in configs]
    result = improved(served, PAIR_SPEC)
    assert result["model"] == "light+heavy"
    assert all(b"dynamic_batching" in config.read_bytes() for config in configs)
    trial = max(served.trials(), key=lambda t: (t["score"] or {}).get("value") or 0.0)
    streams = trial["points"][-1]["measurement"]["streams"]
    answered = {name: s["throughput_infer_per_s"] for name, s in streams.items()}
    assert answered["often"] / sum(answered.values()) == pytest.approx(0.75, abs=0.05)
    assert 0 < streams["often"]["p90_latency_us"] <= 100_000
    assert 0 < streams["seldom"]["p90_latency_us"] <= 200_000

    take_back(served, "heavy")
    assert [config.read_bytes() for config in configs] == before
