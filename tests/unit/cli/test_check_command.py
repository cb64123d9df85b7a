from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from builders.checks import facts
from builders.commands import Tune
from builders.runs import Toy, make_run

from tuner.cli import COMMANDS, cli
from tuner.cli.check_command import annotation_lines
from tuner.report.check_document import benchmark, open_metrics
from tuner.run.checks import read_check
from tuner.run.status import CheckStatus

#: Commands that read and tell; the others do something.
READING = ("doctor", "plan", "run", "check", "report", "compare", "size", "lint", "models")


@pytest.mark.parametrize("name", READING)
def test_every_reading_command_can_tell_it_as_json(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)  # type: ignore[attr-defined]
    (option,) = (p for p in command.params if p.name == "output_format")
    assert "json" in option.type.choices


def test_no_command_is_forgotten_by_that() -> None:
    assert set(COMMANDS) - set(READING) == {
        *("init", "worker", "apply", "rollback", "schema", "completion")
    }


def make_check(results: Path, status: CheckStatus = CheckStatus.FINE, **changes: Any) -> Path:
    directory = results / "20250302-020000-toy-check-ab12"
    directory.mkdir(parents=True)
    check = facts(status, **changes)
    (directory / "check.json").write_text(check.model_dump_json())
    (directory / "manifest.json").write_text("{}")
    return directory


def test_what_fails_is_an_error_and_what_is_told_a_warning() -> None:
    assert annotation_lines(facts(CheckStatus.FINE)) == []
    (warning,) = annotation_lines(facts(CheckStatus.WORSE))
    assert warning.startswith("::warning title=tune check%3A worse,file=a spec.yaml,line=1::")
    (error,) = annotation_lines(facts(CheckStatus.REGRESSION, exit_code=12))
    assert error.startswith("::error ")


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
    assert "proposes nothing" in tune.err


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
    assert json.loads(out)["a"]["status"] == "Improved"
    assert tune(*arguments, "--format", "md") == 0
    assert tune.out.startswith("## Two runs: side by side\n")
    assert tune(*arguments) == 0
    assert "Current config kept" in tune.out


def test_a_run_that_is_none_is_a_usage_error(tmp_path: Path, tune: Tune) -> None:
    assert tune("compare", "a", "b", "--output", tmp_path) == 2
    assert "there is no run 'a'" in tune.err


def test_a_check_also_writes_metrics_and_benchmarks_whatever_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    directory = make_check(tmp_path, CheckStatus.REGRESSION, exit_code=12)
    found = SimpleNamespace(directory=directory, facts=read_check(directory))
    monkeypatch.setattr("tuner.programs.check.check.check", lambda *_, **__: found)
    node, chart = tmp_path / "node", tmp_path / "chart.json"
    node.mkdir()
    (node / "tune.prom").write_text("of the night before\n")
    written = ["--metrics", str(node / "tune.prom"), "--benchmark", str(chart)]
    assert tune("check", "a spec.yaml", *written) == 12
    assert (node / "tune.prom").read_text() == open_metrics(found.facts)
    assert chart.read_text() == benchmark(found.facts)
    assert [file.name for file in node.iterdir()] == ["tune.prom"]
    assert tune("check", "a spec.yaml", "--metrics", chart / "tune.prom") == 4
    assert "regression" in tune.out
