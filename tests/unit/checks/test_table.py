"""One table of checks: every command asks it, and every mistake is in one answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.commands import called
from builders.model_files import write_model

from tuner.checks.table import CHECKS, refuse_draft
from tuner.errors import EnvironmentNotReadyError
from tuner.prepare.job import Request, prepare
from tuner.spec.mistakes import SpecMistakesError

MODEL = """\
backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
"""
SPEC = """\
model: m
repository: models
slo: [p99_latency <= 40ms]
workload:
  window: 9s
  max_window: 3s
  inputs: {kind: random, shapes: {x: [5]}}
space:
  instance_group.count: {int: [1, 4]}
  max_batch_sizes: {choice: [4, 8]}
  parameters.mode: {choice: [fast, 3.5.1]}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "models" / "m", MODEL)
    path = Path("spec.yaml")
    path.write_text(SPEC)
    return path


def test_mistakes_of_the_spec_and_of_its_models_are_in_one_answer(spec: Path) -> None:
    with pytest.raises(SpecMistakesError) as error:
        prepare(Request(spec=spec))
    assert [(m.line, m.where) for m in error.value.mistakes] == [
        (6, "workload.max_window"),
        (7, "workload.inputs.shapes.x"),
        (10, "space.max_batch_sizes"),
    ]


def test_name_that_is_no_field_is_one_mistake(spec: Path) -> None:
    """The spec's own rules and those of the space see it."""
    spec.write_text(SPEC.replace("max_batch_sizes", "batch_size").replace("9s", "2s"))
    with pytest.raises(SpecMistakesError) as error:
        prepare(Request(spec=spec))
    assert [m.line for m in error.value.mistakes] == [7, 10]
    assert "unknown field 'batch_size' (did you mean max_batch_size?)" in error.value.message


def test_wrong_value_in_the_spec_does_not_hide_what_is_wrong_with_the_models(spec: Path) -> None:
    spec.write_text(SPEC.replace("9s", "soon").replace("p99_latency <= 40ms", "p99_latency"))
    with pytest.raises(SpecMistakesError) as error:
        prepare(Request(spec=spec))
    assert [m.line for m in error.value.mistakes] == [3, 5, 7, 10]


@pytest.mark.parametrize("command", ["plan", "run", "check"])
def test_every_command_refuses_the_same_mistakes(command: str, spec: Path) -> None:
    code, _, err = called(command, str(spec))
    assert code == 2
    for line in (6, 7, 10):
        assert f"spec.yaml:{line}:" in err


def test_draft_is_refused_for_what_a_plan_would_refuse(spec: Path) -> None:
    with pytest.raises(SpecMistakesError) as error:
        refuse_draft(spec, SPEC, {})
    assert len(error.value.mistakes) == 3


def test_every_missing_model_is_reported_with_its_place(spec: Path) -> None:
    spec.write_text(
        "repository: models\nslo: [p99_latency <= 40ms]\n"
        "models:\n  n: {space: {instance_group.count: {int: [1, 2]}}}\n  mm: {}\n"
        "streams:\n  a: {model: n, share: 50%}\n  b: {model: mm, share: 50%}\n"
    )
    with pytest.raises(SpecMistakesError) as error:
        prepare(Request(spec=spec))
    assert [(m.line, m.where) for m in error.value.mistakes] == [(4, "models.n"), (5, "models.mm")]


def test_missing_repository_alone_is_the_environment_s(spec: Path) -> None:
    spec.write_text(SPEC.replace("models", "nowhere").replace("9s", "2s"))
    with pytest.raises(EnvironmentNotReadyError, match=r"spec.yaml:2:1: .*nowhere"):
        prepare(Request(spec=spec))


def test_no_check_is_in_the_table_twice() -> None:
    rules = [check.rule for check in CHECKS]
    assert len(rules) == len({*rules})


@pytest.mark.parametrize("name", ["", "3", "[m]", "models/m", "../m"])
def test_name_that_no_model_has_is_one_mistake(spec: Path, name: str) -> None:
    right = "model: m\nrepository: models\nslo: [p99_latency <= 40ms]\n"
    spec.write_text(f"{right}space: {{instance_group.count: {{int: [1, 4]}}}}\n")
    prepare(Request(spec=spec))
    spec.write_text(spec.read_text().replace("model: m", f"model: {name}"))
    with pytest.raises(SpecMistakesError) as error:
        prepare(Request(spec=spec))
    assert [(m.line, m.where) for m in error.value.mistakes] == [(1, "model")]


def test_tolerance_of_an_output_that_no_model_has_is_refused(spec: Path) -> None:
    right = "model: m\nrepository: models\nslo: [p99_latency <= 40ms]\n"
    right += "space: {instance_group.count: {int: [1, 4]}}\n"
    spec.write_text(f"{right}confirm: {{tolerances: {{y: 0.1}}}}\n")
    prepare(Request(spec=spec))
    spec.write_text(f"{right}confirm: {{tolerances: {{Y: 0.1}}}}\n")
    with pytest.raises(SpecMistakesError, match=r"has an output Y \(did you mean y\?\)") as error:
        prepare(Request(spec=spec))
    assert [m.where for m in error.value.mistakes] == ["confirm.tolerances.Y"]


SHARED = """\
model: m
repository: models
slo: [p99_latency <= 40ms]
space: {instance_group.count: {int: [1, 4]}}
workload: {shared_memory: system, shared_outputs: true}
"""


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("", "", ""),
        ('"python"', '"python" model_transaction_policy { decoupled: true }', "m is decoupled"),
        ("dims: [ 1 ]", "dims: [ -1 ]", "no output of m has a fixed size"),
        ('"y" data_type: TYPE_FP32', '"y" data_type: TYPE_STRING', "no output of m has a fixed"),
    ],
)
def test_outputs_that_shared_memory_cannot_hold_are_refused(
    before: str, after: str, words: str, spec: Path
) -> None:
    Path("models/m/config.pbtxt").write_text(MODEL.replace(before, after))
    latency = "p99_last_response" if "decoupled" in words else "p99_latency"
    spec.write_text(SHARED.replace("p99_latency", latency))
    if not words:
        prepare(Request(spec=spec))
        return
    with pytest.raises(SpecMistakesError, match=words) as error:
        prepare(Request(spec=spec))
    assert [m.where for m in error.value.mistakes] == ["workload.shared_outputs"]
