from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from builders.checks import facts
from builders.commands import Tune
from builders.runs import Toy, make_run
from builders.triton_repository import make_repository

from tuner.cli import COMMANDS, cli
from tuner.errors import (
    EnvironmentNotReadyError,
    InterruptedRunError,
    TooManyFailedTrialsError,
)
from tuner.record.checks import read_check
from tuner.record.status import CheckStatus
from tuner.report.check_document import open_metrics

#: Commands that read and tell; the others do something.
READING = ("doctor", "plan", "run", "check", "report", "compare", "size", "lint", "models")


@pytest.mark.parametrize("name", READING)
def test_every_reading_command_can_tell_it_as_json(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)  # type: ignore[attr-defined]
    (option,) = (p for p in command.params if p.name == "output_format")
    assert "json" in option.type.choices


def test_no_command_is_forgotten_by_that() -> None:
    assert set(COMMANDS) - set(READING) == {
        *("init", "record", "apply", "rollback", "schema", "completion")
    }


def make_check(results: Path, status: CheckStatus = CheckStatus.FINE, **changes: Any) -> Path:
    directory = results / "20250302-020000-toy-check-ab12"
    directory.mkdir(parents=True)
    check = facts(status, **changes)
    (directory / "check.json").write_text(check.model_dump_json())
    (directory / "manifest.json").write_text("{}")
    return directory


def test_report_renders_a_check_again_and_lists_it_beside_runs(tmp_path: Path, tune: Tune) -> None:
    check = make_check(tmp_path)
    make_run(tmp_path, Toy(trials=5), "kept")
    assert tune("report", "--output", tmp_path, "--format", "json") == 0
    rows = json.loads(tune.out)
    assert [row["status"] for row in rows] == ["kept", "check: fine"]
    assert tune("report", check.name, "--output", tmp_path, "--format", "json") == 0
    assert json.loads(tune.out)["status"] == "fine"
    assert (check / "report.md").is_file()
    assert tune("report", check, "--format", "patch") == 2


@pytest.mark.parametrize(
    "command",
    ["compare {run} {check}", "size {check} --rate 5", "apply {check}", "run --resume {check}"],
)
def test_a_check_is_not_taken_for_a_run(command: str, tmp_path: Path, tune: Tune) -> None:
    run, check = make_run(tmp_path, Toy(trials=5)), make_check(tmp_path)
    assert tune(*command.format(run=run, check=check).split()) == 2
    assert f"'{check}' is a check: name a run of `tune run`" in tune.err


@pytest.mark.parametrize(("form", "start"), [("pr", "## toy: a better"), ("patch", "diff --git ")])
def test_report_prints_the_proposal_alone(
    tmp_path: Path, tune: Tune, form: str, start: str
) -> None:
    run = make_run(tmp_path, Toy(trials=14))
    assert tune("report", run, "--format", form) == 0
    assert tune.out.startswith(start)
    assert (run / "best" / "proposal.patch").is_file()


def test_runs_are_compared_by_id_and_directory(tmp_path: Path, tune: Tune) -> None:
    a, b = make_run(tmp_path, Toy(trials=14)), make_run(tmp_path, Toy(trials=14), "kept")
    arguments = ["compare", a.name, str(b), "--output", str(tmp_path)]
    assert tune(*arguments, "--format", "json") == 0
    out = tune.out
    assert json.loads(out)["a"]["status"] == "Better"
    assert tune(*arguments, "--format", "md") == 0
    assert tune.out.startswith("## ")
    assert tune(*arguments) == 0
    assert "Kept" in tune.out


CODE = 'tune_check_exit_code{model="%s",spec="%s"} %s\n'


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    """The metrics of the night before."""
    file = tmp_path / "node" / "tune.prom"
    file.parent.mkdir()
    file.write_text(CODE % ("toy", "s", "0.0"))
    return file


def ends_with(
    monkeypatch: pytest.MonkeyPatch, directory: Path, error: BaseException | None = None
) -> None:
    """Makes `tune check` render a check's directory, and then return or raise."""

    def check(request: Any, events: Any, report: Any, **_: Any) -> Any:
        report(directory)
        if error is not None:
            raise error
        return read_check(directory)

    monkeypatch.setattr("tuner.check.check.check", check)


def test_a_check_also_writes_metrics_whatever_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune, metrics: Path
) -> None:
    directory = make_check(tmp_path, CheckStatus.REGRESSION, exit_code=12)
    ends_with(monkeypatch, directory)
    assert tune("check", "a spec.yaml", "--metrics", metrics) == 12
    assert metrics.read_text() == open_metrics(read_check(directory))
    assert [file.name for file in metrics.parent.iterdir()] == ["tune.prom"]


def test_metrics_that_no_exporter_reads_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.setattr("tuner.check.check.check", pytest.fail)
    for name in ("foo.txt", "prom"):
        assert tune("check", "a spec.yaml", "--metrics", tmp_path / name) == 2
        assert "does not end in .prom" in tune.err
    assert [*tmp_path.iterdir()] == []


def test_unwritable_metrics_are_reported_beside_the_exit_code_of_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    ends_with(monkeypatch, make_check(tmp_path, CheckStatus.REGRESSION, exit_code=12))
    (tmp_path / "a file").touch()
    nowhere = tmp_path / "a file" / "tune.prom"
    assert tune("check", "a spec.yaml", "--metrics", nowhere) == 12
    assert "regression" in tune.out
    assert f"{nowhere}" in tune.err


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EnvironmentNotReadyError("the server is gone"), CheckStatus.FAILED, 4),
        (ValueError("a defect"), CheckStatus.FAILED, 1),
        (TooManyFailedTrialsError("all failed"), CheckStatus.FAILED, 5),
        (InterruptedRunError("interrupted"), CheckStatus.INTERRUPTED, 130),
        (KeyboardInterrupt(), CheckStatus.INTERRUPTED, 130),
        (EnvironmentNotReadyError("the disk is full"), CheckStatus.FINE, 4),
    ],
    ids=repr,
)
def test_the_metrics_of_a_check_that_broke_off_have_the_exit_code_of_the_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tune: Tune,
    metrics: Path,
    error: BaseException,
    status: CheckStatus,
    code: int,
) -> None:
    nothing = {"values": [], "slo": [], "ratio": None, "exit_code": status.exit_code}
    ends_with(monkeypatch, make_check(tmp_path, status, **nothing), error)
    assert tune("check", "s", "--metrics", metrics) == code
    text = metrics.read_text()
    assert CODE % ("<b>toy</b>", "a spec.yaml", float(code)) in text
    assert f'status="{status.value}"}} 1.0' in text


def test_of_a_check_without_any_result_the_metrics_have_the_exit_code_alone(
    tmp_path: Path, tune: Tune, metrics: Path
) -> None:
    arguments = ["--metrics", str(metrics)]
    assert tune("check", "no.yaml", *arguments) == 2
    (sample,) = [line for line in metrics.read_text().splitlines() if line[0] != "#"]
    assert sample + "\n" == CODE % ("", "no.yaml", 2.0)
    spec = tmp_path / "s.yaml"
    repository = make_repository(tmp_path)
    text = f"model: doubler\nrepository: {repository}\nslo: [p99_latency <= 40ms]\n"
    spec.write_text(text + "space: {max_batch_size: {choice: [4, 8]}}\nserver: {binary: /none}\n")
    assert tune("check", spec, *arguments) == 4
    assert CODE % ("doubler", spec, 4.0) in metrics.read_text()
