"""`tune models`: a row for each model, whatever is wrong with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.cli import cli
from tuner.cli.boundary import guarded

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


def rows_of(repository: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert guarded(cli, ["models", str(repository), "--format", "json"]) == 0
    return {row["model"]: row for row in json.loads(capsys.readouterr().out)}


def test_every_model_has_a_row_with_what_can_be_tuned_or_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(make_repository(tmp_path, *MODELS), capsys)
    assert [*rows] == sorted(MODELS)
    tunable = {name: [*row["tunable"]] for name, row in rows.items() if row["tunable"]}
    assert tunable == {"fast": ["fast"], "over-fast": ["fast"], "single": ["single"]}
    assert {"instance_group.count", "max_batch_size"} < {*rows["fast"]["tunable"]["fast"]}
    assert rows["single"]["tunable"] == {"single": ["instance_group.count"]}
    assert rows["fast"]["why_not"] == rows["over-fast"]["why_not"] == ""
    reasons = {
        "broken": "broken/config.pbtxt:1:",
        "misfit": "misfit/config.pbtxt:1:",
        "over-broken": "broken/config.pbtxt:1:",
        "over-misfit": "it needs misfit: ",
        "over-stream": "stream is decoupled",
        "single": "max_batch_size is 0",
        "stream": "stream is decoupled",
        "talk": "sequence_batching",
    }
    assert [n for n, reason in reasons.items() if reason not in rows[n]["why_not"]] == []


def test_the_table_has_backend_versions_and_batching(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = make_repository(tmp_path, "broken", "fast", "over-fast", "talk")
    shutil.copytree(repository / "fast" / "1", repository / "fast" / "3")
    assert guarded(cli, ["models", str(repository)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    start = head.index("what can be tuned")
    assert [line[:start].split() for line in lines] == [
        ["broken", "1"],
        ["fast", "python", "1,", "3", "up", "to", "8,", "dynamic"],
        ["over-fast", "ensemble", "1", "up", "to", "4"],
        ["talk", "python", "1", "sequences"],
    ]
    assert lines[0][start:].startswith("nothing")
    assert lines[1][start:].startswith("instances, max batch, delay")


def test_it_lists_what_init_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = make_repository(tmp_path, "fast")
    row = rows_of(repository, capsys)["fast"]
    arguments = ["init", "fast", "--repository", str(repository), "--output", "-"]
    assert guarded(cli, arguments) == 0
    assert row["tunable"]["fast"] == [*yaml.safe_load(capsys.readouterr().out)["space"]]


def test_a_repository_without_a_tunable_model_has_nothing_to_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(cli, ["models", str(make_repository(tmp_path, "broken", "talk"))]) == 3
    shown = capsys.readouterr()
    assert "sequence_batching" in shown.out
    assert "can be tuned" in shown.err
    (tmp_path / "empty" / "docs").mkdir(parents=True)
    assert guarded(cli, ["models", str(tmp_path / "empty")]) == 2
    assert guarded(cli, ["models", str(tmp_path / "absent")]) == 4
