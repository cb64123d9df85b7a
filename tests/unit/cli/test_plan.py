"""What `tune plan` prints, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.cli.inspect_commands import lines_of
from tuner.programs import plan as planning
from tuner.programs.plan import DrawnPlan, Preview
from tuner.steps.estimate import Estimate

PLAN = DrawnPlan(
    effective_spec="model: toy\nserver:  # default\n",
    space_size=12,
    space_exact=True,
    estimate=Estimate(60.0, 30.0, 30.0),
    commands={"perf_analyzer": ["perf_analyzer", "-m", "toy"]},
    candidates=[Preview("instances 2", "-a\n+b\n", ())],
)


def plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> list[str]:
    monkeypatch.setattr(planning, "draw_plan", lambda *_: PLAN)
    assert guarded(cli, ["plan", "toy.yaml", *options]) == 0
    out: str = capsys.readouterr().out
    return out.splitlines()


def test_the_summary_comes_first_and_the_spec_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = plan(monkeypatch, capsys)
    assert short == [
        "space     12 configs",
        f"time      {PLAN.estimate.text}",
        "",
        "candidate: instances 2",
        "  -a",
        "  +b",
        "",
        "perf_analyzer",
        "  perf_analyzer -m toy",
    ]
    whole = plan(monkeypatch, capsys, "-v")
    assert whole[: len(short)] == short
    assert whole[-2:] == ["model: toy", "server:  # default"]


@pytest.mark.parametrize("options", [[], ["--format", "json"]])
def test_an_error_of_the_model_ends_a_plan_and_is_not_followed_by_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    problem = "models/toy/1/model.py:3:1: TritonPythonModel has no execute"
    broken = replace(PLAN, problems=[problem])
    monkeypatch.setattr(planning, "draw_plan", lambda *_: broken)
    assert f"error     {problem}" in lines_of(broken)
    assert guarded(cli, ["plan", "toy.yaml", *options]) == 2
    shown = capsys.readouterr()
    assert problem in shown.out
    assert "tune run" not in shown.err
