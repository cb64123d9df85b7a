"""`tune models`, `tune plan` and `tune doctor`: what is printed, whatever is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.commands import Tune
from builders.messages_doctor import put_server
from builders.model_files import write_model

from tuner.cli.inspect_commands import lines_of
from tuner.run import plan as planning
from tuner.run.plan import DrawnPlan, Preview
from tuner.search.estimate import Estimate
from tuner.triton.doctor import run_checks

TENSORS = (
    'input { name: "x" data_type: TYPE_FP32 dims: 1 } '
    'output { name: "y" data_type: TYPE_FP32 dims: 1 }'
)
ENSEMBLE = (
    'platform: "ensemble" max_batch_size: 4 ' + TENSORS + " ensemble_scheduling { step { "
    'model_name: "%s" model_version: -1 input_map { key: "x" value: "x" } '
    'output_map { key: "y" value: "y" } } }'
)
DECOUPLED = "model_transaction_policy { decoupled: true }"
MODELS = {
    "broken": "max_batch_size: 8 }",
    "fast": f'backend: "python" max_batch_size: 8 dynamic_batching {{ }} {TENSORS}',
    "misfit": 'backend: "python" max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 } '
    + TENSORS,
    "over-broken": ENSEMBLE % "broken",
    "over-fast": ENSEMBLE % "fast",
    "over-misfit": ENSEMBLE % "misfit",
    "over-stream": ENSEMBLE.replace("max_batch_size: 4 ", "") % "stream",
    "single": f'backend: "python" {TENSORS}',
    "stream": f'backend: "python" {DECOUPLED} {TENSORS}',
    "talk": f'backend: "python" max_batch_size: 8 sequence_batching {{ }} {TENSORS}',
}


def make_repository(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(MODELS[name])
        if "python" in MODELS[name]:
            code = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
            (directory / name / "1" / "model.py").write_text(code)
    return directory


def rows_of(repository: Path, tune: Tune) -> dict[str, dict[str, Any]]:
    assert tune("models", repository, "--format", "json") == 0
    return {row["model"]: row for row in json.loads(tune.out)}


def test_every_model_has_a_row_with_what_can_be_tuned_or_why_not(
    tmp_path: Path, tune: Tune
) -> None:
    rows = rows_of(make_repository(tmp_path, *MODELS), tune)
    assert [*rows] == sorted(MODELS)
    tunable = {name: [*row["tunable"]] for name, row in rows.items() if row["tunable"]}
    alone = {name: [name] for name in ("fast", "single", "stream", "talk")}
    assert tunable == {**alone, "over-fast": ["fast"], "over-stream": ["stream"]}
    assert {"instance_group.count", "sequence_batching.oldest"} < {*rows["talk"]["tunable"]["talk"]}
    assert {"instance_group.count", "max_batch_size"} < {*rows["fast"]["tunable"]["fast"]}
    assert rows["single"]["tunable"] == {"single": ["instance_group.count"]}
    assert rows["fast"]["why_not"] == rows["over-fast"]["why_not"] == ""
    reasons = {
        "broken": "broken/config.pbtxt:1:",
        "misfit": "misfit/config.pbtxt:1:",
        "over-broken": "broken/config.pbtxt:1:",
        "over-misfit": "it needs misfit: ",
        "single": "max_batch_size is 0",
    }
    assert [n for n, reason in reasons.items() if reason not in rows[n]["why_not"]] == []


CALLING = """class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceRequest(model_name="single")]
"""


@pytest.mark.parametrize("link", ["config.pbtxt", "configs/a.pbtxt", "1/model.py"])
@pytest.mark.parametrize("where", ["elsewhere", "models/.git/config"])
def test_a_file_that_a_link_leads_to_out_of_the_repository_is_named_and_never_quoted(
    link: str, where: str, tmp_path: Path, tune: Tune
) -> None:
    repository = make_repository(tmp_path / "models", "single", "fast")
    (repository / "fast" / "1" / "model.py").write_text(CALLING)
    write_model(repository / "over", ENSEMBLE.replace("max_batch_size: 4 ", "") % "single")
    secret = tmp_path / where
    secret.parent.mkdir(exist_ok=True)
    secret.write_text('ghp_secret: "ghp_secret\nghp_secret')
    path = repository / "single" / link
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(secret)
    line = f"{path}:1: {'note' if link == '1/model.py' else 'error'}: "
    assert tune("lint", repository) == (0 if link == "1/model.py" else 2)
    assert line in tune.out
    assert str(secret) in tune.out
    assert "ghp_secret" not in tune.out + tune.err
    for form in ("text", "json"):
        tune("models", repository, "--format", form)
        assert "ghp_secret" not in tune.out + tune.err
    if link == "config.pbtxt":
        assert tune.out.count(str(secret)) == 3  # and what needs it


def test_a_config_that_kubernetes_mounted_or_another_model_has_is_read(
    tmp_path: Path, tune: Tune
) -> None:
    repository = make_repository(tmp_path / "models", "fast", "single")
    mounted, shared = repository / "fast", repository / "single" / "config.pbtxt"
    (mounted / "..2026_09_01").mkdir()
    (mounted / "config.pbtxt").rename(mounted / "..2026_09_01" / "config.pbtxt")
    (mounted / "..data").symlink_to("..2026_09_01")
    (mounted / "config.pbtxt").symlink_to("..data/config.pbtxt")
    shared.unlink()
    shared.symlink_to("../fast/config.pbtxt")
    assert tune("lint", repository) == 0
    assert tune("models", repository) == 0
    assert "which is not" not in tune.out


def test_models_lists_the_fields_that_init_drafts(tmp_path: Path, tune: Tune) -> None:
    repository = make_repository(tmp_path, "fast")
    row = rows_of(repository, tune)["fast"]
    arguments = ["init", "fast", "--repository", str(repository), "--output", "-"]
    assert tune(*arguments) == 0
    assert row["tunable"]["fast"] == [*yaml.safe_load(tune.out)["space"]]


def test_a_repository_without_a_tunable_model_has_nothing_to_search(
    tmp_path: Path, tune: Tune
) -> None:
    assert tune("models", make_repository(tmp_path, "broken", "misfit")) == 3
    assert "broken/config.pbtxt:1:" in tune.out
    assert "can be tuned" in tune.err
    (tmp_path / "empty" / "docs").mkdir(parents=True)
    assert tune("models", tmp_path / "empty") == 2
    assert tune("models", tmp_path / "absent") == 4


PLAN = DrawnPlan(
    effective_spec="model: toy\nserver:  # default\n",
    space_size=12,
    space_exact=True,
    estimate=Estimate(60.0, 30.0, 30.0),
    commands={"perf_analyzer": ["perf_analyzer", "-m", "toy"]},
    candidates=[Preview("instances 2", "-a\n+b\n", ())],
)


def plan(monkeypatch: pytest.MonkeyPatch, tune: Tune, *options: str) -> list[str]:
    monkeypatch.setattr(planning, "draw_plan", lambda *_: PLAN)
    assert tune("plan", "toy.yaml", *options) == 0
    return tune.out.splitlines()


def test_summary_comes_first_and_the_spec_only_on_request(
    monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    short = plan(monkeypatch, tune)
    verbose = plan(monkeypatch, tune, "-v")
    assert verbose[: len(short)] == short
    assert verbose[-2:] == ["model: toy", "server:  # default"]


def test_next_step_of_a_plan_keeps_the_values_that_were_set(
    monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    plan(monkeypatch, tune, "--set", "slo=[p99_latency <= 40ms]")
    assert "next:  tune run toy.yaml '--set=slo=[p99_latency <= 40ms]'\n" in tune.err


@pytest.mark.parametrize("options", [[], ["--format", "json"]])
def test_an_error_of_the_model_ends_a_plan_and_is_not_followed_by_a_run(
    monkeypatch: pytest.MonkeyPatch, tune: Tune, options: list[str]
) -> None:
    problem = "models/toy/1/model.py:3:1: TritonPythonModel has no execute"
    broken = replace(PLAN, problems=[problem])
    monkeypatch.setattr(planning, "draw_plan", lambda *_: broken)
    assert f"error     {problem}" in lines_of(broken)
    assert tune("plan", "toy.yaml", *options) == 2
    assert problem in tune.out
    assert "tune run" not in tune.err


@pytest.mark.parametrize(
    ("version", "warned"),
    [("2.51.0", True), ("2.59.0", True), ("2.59.1", False), ("2.60.0", False), ("odd", False)],
)
def test_a_server_with_public_holes_is_warned_of_and_fine_all_the_same(
    version: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_server(monkeypatch, version)
    _, check, *_ = run_checks({})
    assert (check.id, check.ok) == ("tritonserver", True)
    assert bool(check.fix) is warned


FULL_BATCH = f"""backend: "python"
max_batch_size: 32 {TENSORS}
instance_group {{ kind: KIND_CPU count: 1 }}
dynamic_batching {{ }}
model_warmup [ {{ name: "full batch" batch_size: 32
  inputs {{ key: "x" value {{ data_type: TYPE_FP32 dims: 1 random_data: true }} }} }} ]
"""
TOO_FEW = (
    "max_batch_size 8: the warm-up sample 'full batch' has 32 rows ({}/config.pbtxt:5:37: "
    "model_warmup[0].batch_size)"
)


@pytest.mark.parametrize(
    ("sizes", "code", "said"),
    [
        ("8, 32", 3, "error: the space holds nothing but the current config: "),
        ("8, 32, 64", 0, "note      not tried: "),
    ],
)
def test_batches_smaller_than_a_warm_up_sample_are_neither_drafted_nor_planned(
    sizes: str, code: int, said: str, tmp_path: Path, tune: Tune
) -> None:
    model = tmp_path / "models" / "scorer"
    write_model(model, FULL_BATCH, "class TritonPythonModel:\n    def execute(self, r): ...\n")
    assert tune("init", "scorer", "--repository", str(model.parent), "--output", "-") == 0
    assert yaml.safe_load(tune.out)["space"]["max_batch_size"] == {"choice": [32, 64]}
    spec = tmp_path / "spec.yaml"
    space = f"space: {{max_batch_size: {{choice: [{sizes}]}}}}\nslo: [p99_latency <= 40ms]\n"
    remote = "server: {mode: remote, http: 'h:1', grpc: 'h:2'}"  # none is started to plan
    spec.write_text(f"model: scorer\nrepository: {model.parent}\n{remote}\n{space}")
    assert tune("plan", str(spec)) == code
    assert said + TOO_FEW.format(model) in tune.out + tune.err
