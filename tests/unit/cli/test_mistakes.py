"""The mistakes that a newcomer made, again: each is told with its place and what to do about it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.model_files import write_model
from builders.workplace import MODEL, Workplace


def test_mistakes_around_a_run_that_is_emulated(workplace: Workplace, tmp_path: Path) -> None:
    tune, repository = workplace.tune, workplace.config.parents[1]
    assert isinstance(tune, Tune)

    def expect_error(code: int, words: str, *arguments: object) -> None:
        assert tune(*arguments) == code, tune.err
        assert words in tune.err + tune.out
        assert "Traceback" not in tune.err

    rollback = ("rollback", MODEL, "--repository", repository)
    expect_error(2, "nothing to restore: tune never wrote", *rollback)
    assert tune("run", "my spec.yaml", "--progress", "none") == 0
    run, written = workplace.store.directory, workplace.config.read_text()
    (tmp_path / "elsewhere").mkdir()
    expect_error(2, "did you mean run --on ray?", "worker", run)
    expect_error(2, "is not a run: it has no manifest.json", "report", "elsewhere")
    expect_error(
        4, f"no model directory elsewhere/{MODEL}", "apply", run, "--repository", "elsewhere"
    )
    workplace.config.write_text(f"{written}# mine\n")
    expect_error(13, "nothing was written", "apply", run)
    expect_error(13, "--force` replaces it", *rollback)
    workplace.config.write_text(written)
    expect_error(0, "restored: ", *rollback)
    expect_error(0, "already restored: ", *rollback)
    expect_error(0, "Better, taken back", "report")


def test_stream_of_a_model_that_is_not_listed_is_a_mistake_of_the_spec(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(Path("models/m"), 'backend: "python"', "class TritonPythonModel: ...")
    Path("spec.yaml").write_text(
        "repository: models\nslo: [p99_latency <= 40ms]\n"
        "models: {m: {space: {instance_group.count: {int: [1, 4]}}}}\n"
        "streams:\n  a: {model: m, share: 50%}\n  b: {model: n, share: 50%}\n"
    )
    assert tune("plan", "spec.yaml") == 2
    assert "spec.yaml:6:14: streams.b.model: " in tune.err


@pytest.mark.parametrize("dims", ["4", '"4"', "[4, y]", "[[4]]", "[{dims: 4, share: 50%}]"])
def test_a_wrong_shape_hides_no_other_mistake_and_is_no_defect_of_ours(
    dims: str, tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = (
        'backend: "python" max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 4 } '
        'output { name: "y" data_type: TYPE_FP32 dims: 4 }'
    )
    write_model(Path("models/m"), config, "class TritonPythonModel: ...")
    Path("spec.yaml").write_text(
        "model: m\nrepository: models\nslo: [p99_latency <= 40ms]\n"
        f"workload: {{inputs: {{kind: random, shapes: {{x: {dims}}}}}}}\n"
        "space: {instance_group.count: {int: [1, 4]}, no_such_field: {choice: [1, 2]}}\n"
    )
    assert tune("plan", "spec.yaml") == 2
    assert "spec.yaml:4:" in tune.err
    assert "no_such_field" in tune.err


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("apply 'a result'", "tune report 'a result'"),
        ("run 'a directory'", "tune run 'a directory' --slo 'p99_latency <= 50ms'"),
        ("models 'a directory'", "tune lint 'a directory'"),
        ("lint 'a directory/a model'", "tune lint '{here}/a directory' --model 'a model'"),
        (
            "init --from-model-analyzer 'a spec.yaml'",
            "tune plan 'a spec.yaml'   then   tune run 'a spec.yaml'",
        ),
        (
            "init --from-model-analyzer 'many models.yaml'",
            "--from-model-analyzer 'many models.yaml'",
        ),
    ],
)
def test_a_command_that_an_error_advises_can_be_pasted(
    command: str, advice: str, tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a result").mkdir()
    Path("a result/result.json").write_text("{}")
    write_model(Path("a directory/a model"), "max_batch_size: oops", "class TritonPythonModel: ...")
    Path("a spec.yaml").write_text("model: m\nslo: [p99_latency <= 40ms]\n")
    Path("many models.yaml").write_text("profile_models: [m, n, '*']\n")
    assert tune(*shlex.split(command)) != 0
    assert advice.format(here=tmp_path) in tune.err
