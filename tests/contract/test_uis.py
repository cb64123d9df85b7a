"""What every way to show progress must do, whatever a run reports: `tuner.cli.ui.UIS`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from builders.candidates import candidate_of
from builders.events import CURRENT, OTHER, tell_a_run
from builders.measurements import P99_40MS, synthetic_server
from builders.obeyed import HOSTILE, obeyed
from builders.reasons import said

from tuner.cli.ui import UIS, progress_option
from tuner.errors import EnvironmentNotReadyError
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.progress.events import Events, Outlook
from tuner.progress.follower import RunProgress
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.slo import Objective

SHOWING = [name for name in UIS if name != "none"]
Printed = pytest.CaptureFixture[str]


def printed(captured: Printed) -> str:
    """All that was printed, in words: JSON's escapes are undone."""
    out, err = captured.readouterr()
    texts = [json.dumps(json.loads(line), ensure_ascii=False) for line in out.splitlines()]
    return click.unstyle("\n".join([*texts, err]))


def hostile(events: Events) -> None:
    candidate = candidate_of({f"parameters.{HOSTILE}": HOSTILE})
    events.started(Path(f"results/{HOSTILE}"), 2, 3)
    events.phase(HOSTILE)
    events.step(HOSTILE)
    events.note(HOSTILE)
    events.disturbed(HOSTILE, 5.0)
    events.trial_started(0, candidate, Candidate())
    events.trial_finished(Trial(0, candidate, TrialState.FAILED, reason=said(HOSTILE)), None)


def before_anything(events: Events) -> None:
    """Out of order: a check has no trials, and a resumed run may begin with its proof."""
    events.outlook(Outlook(-1.0))
    events.loading(LoadPoint(Arrivals.POISSON, 20.0), 50.0)
    events.round_over("round 1", judge_point([P99_40MS], synthetic_server(900, 1000)))


def test_the_option_offers_each_way_and_auto() -> None:
    def command() -> None: ...

    option = progress_option(click.command()(command)).params[0]
    assert isinstance(option.type, click.Choice)
    assert [*option.type.choices] == ["auto", *UIS]


@pytest.mark.parametrize("name", UIS)
def test_every_event_is_taken(name: str) -> None:
    with UIS[name](1).run(details=True) as events:
        for event, method in inspect.getmembers(Events, inspect.isfunction):
            if not event.startswith("_"):
                named = list(inspect.signature(method).parameters)[1:]
                inspect.signature(getattr(events, event)).bind(*named)
        for follow in (before_anything, tell_a_run):
            follow(events)
        events.ended(Path("results/r"), "improved", 0)


@pytest.mark.parametrize("name", SHOWING)
@pytest.mark.parametrize(
    "fact",
    ["results/r", "instances 2", "900", "no GPU", "something worth a line"],
)
def test_every_fact_a_user_needs_is_printed(name: str, fact: str, capsys: Printed) -> None:
    with UIS[name](0).run() as events:
        tell_a_run(events)
    assert fact in printed(capsys)


@pytest.mark.parametrize("name", SHOWING)
def test_rounds_of_a_check_are_printed(name: str, capsys: Printed) -> None:
    with UIS[name](0).run() as events:
        before_anything(events)
    assert "round 1" in printed(capsys)


@pytest.mark.parametrize("name", UIS)
def test_only_json_prints_on_stdout_and_none_prints_nothing(name: str, capsys: Printed) -> None:
    ui = UIS[name](0)
    with ui.run() as events:
        tell_a_run(events)
    with ui.runs() as view:
        view("toy", RunProgress("trial 3", 6, 3))
    out, err = capsys.readouterr()
    assert bool(out) is ui.prints_json is (name == "json")
    assert bool(err) is (name in ("live", "plain"))


@pytest.mark.parametrize("name", SHOWING)
@pytest.mark.parametrize("follow", [hostile, before_anything])
def test_no_text_is_obeyed_where_a_line_is_broken_either(
    name: str, follow: Callable[[Events], None], capsys: Printed
) -> None:
    with UIS[name](1).run(details=True) as events:
        follow(events)
    with UIS[name](1).runs() as view:
        view(HOSTILE, RunProgress(HOSTILE, 6, 3))
        view(HOSTILE, HOSTILE)
    out, err = capsys.readouterr()
    assert obeyed(out) == []
    assert obeyed(err.replace("\x1b[?25l", "").replace("\x1b[?25h", "")) == []


@pytest.mark.parametrize("name", UIS)
def test_an_error_passes_through(name: str, capsys: Printed) -> None:
    def fail() -> None:
        with UIS[name](0).run() as events:
            events.phase("searching")
            raise EnvironmentNotReadyError("no engine answers", "start one")

    with pytest.raises(EnvironmentNotReadyError, match="no engine answers"):
        fail()
    out, _ = capsys.readouterr()
    if UIS[name](0).prints_json:
        last = json.loads(out.splitlines()[-1])
        assert (last["event"], last["state"], last["exit_code"]) == ("ended", "failed", 4)


@pytest.mark.parametrize("name", SHOWING)
def test_runs_side_by_side_are_distinguished_until_they_end(name: str, capsys: Printed) -> None:
    with UIS[name](0).runs() as view:
        for model in ("toy", "other"):
            view(model, RunProgress("trial 3", 6, 3, 412.0, Outlook(95.0, 1.31)))
            view(model, "a note")
        view("toy", None)
        view("other", None)
    text = printed(capsys)
    assert "toy" in text
    assert "other" in text
    assert text.count("a note") == 2


@pytest.mark.parametrize("name", ["live", "plain"])
def test_warnings_of_measurements_come_once_each_at_the_end(name: str, capsys: Printed) -> None:
    point = judge_point([P99_40MS], synthetic_server(900, 1000))
    with UIS[name](0).run(details=True) as events:
        for count in (313, 385):
            warned = replace(point.measurement, warnings=(said(f"only {count} requests"),))
            events.measured(replace(point, measurement=warned))
    assert "note, 2 times: only 313 requests" in printed(capsys)


@pytest.mark.parametrize("name", ["live", "plain"])
def test_trial_of_another_bench_is_printed_with_its_changes(name: str, capsys: Printed) -> None:
    """With several benches another trial may have begun before one ends."""
    point = judge_point([P99_40MS], synthetic_server(900, 1000))
    score = score_points(Objective.goodput(), [point])
    third = candidate_of({"instance_group.count": 3})
    with UIS[name](0).run() as events:
        events.started(Path("results/r"), 2, 12)
        events.trial_started(1, OTHER, CURRENT)
        events.trial_started(2, third, CURRENT)
        events.trial_finished(Trial(1, OTHER, TrialState.MEASURED, (point,), score), None)
    lines = [line for line in printed(capsys).splitlines() if "900/s" in line]
    assert lines
    assert "instances 2" in lines[0]
    assert "instances 3" not in lines[0]


def test_a_quiet_log_prints_less_and_less(capsys: Printed) -> None:
    printed = []
    for verbosity in (1, 0, -1, -2):
        with UIS["plain"](verbosity).run() as events:
            tell_a_run(events)
        printed.append(len(capsys.readouterr().err.splitlines()))
    assert printed == sorted(printed, reverse=True)
    assert len({*printed}) == 4
    assert printed[-1] == 0
