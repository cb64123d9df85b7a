"""Both ways of watching a run, over a whole little run that was never measured."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from builders.candidates import candidate_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_server
from rich.console import Console

from tuner.cli.console import PlainEvents, outcome_text
from tuner.cli.live import LiveEvents
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.spec.slo import Objective
from tuner.steps.events import Events

CURRENT = candidate_of({"instance_group.count": 1})
OTHER = candidate_of({"instance_group.count": 2})


def tell_a_run(events: Events) -> None:
    point = judge_point([P99_40MS, NO_ERRORS], synthetic_server(900, 1000))
    score = score_points(Objective.goodput(), [point])
    good = Trial(0, CURRENT, TrialState.MEASURED, points=(point,), score=score)
    events.started(Path("results/r"), 2, 12)
    events.phase("searching")
    events.trial_started(0, CURRENT, CURRENT)
    events.measured(point)
    events.trial_finished(good, good)
    events.trial_started(1, OTHER, CURRENT)
    events.note("something worth a line")
    events.trial_finished(Trial(1, OTHER, TrialState.FAILED, reason="no GPU\nsecond line"), good)
    events.phase("confirming")
    events.round_over("round 1, instances 2", point)


def test_plain_lines_tell_every_trial_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    tell_a_run(PlainEvents(1))
    out, err = capsys.readouterr()
    assert out == ""
    assert "1/2  trial 0  current config  ->  900/s within the SLOs" in err
    assert "instances 2  ->  failed: no GPU" in err
    assert "second line" not in err


def test_plain_lines_go_on_while_the_winner_is_measured_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_a_run(PlainEvents())
    assert "round 1, instances 2: 900/s ok, p99_latency 25.8 ms" in capsys.readouterr().err
    tell_a_run(PlainEvents(-1))
    assert "round 1" not in capsys.readouterr().err


def test_what_takes_long_is_told_again_each_half_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now_s = [0.0]
    events = PlainEvents(clock=lambda: now_s[0])
    events.phase("soaking the winner")
    for now_s[0] in (15.0, 31.0, 45.0, 50.0, 62.0, 70.0):
        events.tick()
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [f"[{at}] still at it: soaking the winner" for at in ("00:31", "01:02")]


def test_a_config_out_of_the_race_is_told_with_what_it_stands() -> None:
    points = [judge_point([P99_40MS], synthetic_server(level, 500)) for level in (900.0, 400.0)]
    score = score_points(Objective.goodput(), points[:1])
    lost = Trial(1, OTHER, TrialState.PRUNED, points=tuple(points), score=score)
    assert outcome_text(lost).startswith("cannot win: 900/s missed, p99_latency 2")
    assert outcome_text(lost).endswith("; it sustains 400/s")
    screen = io.StringIO()
    with LiveEvents(Console(file=io.StringIO(), width=90)) as events:
        events.started(Path("results/r"), 2, 12)
        events.trial_started(1, OTHER, CURRENT)
        events.trial_finished(lost, None)
        Console(file=screen, width=90, color_system=None).print(events.view())
    assert "cannot win: misses 900/s" in screen.getvalue()


def test_the_live_view_shows_progress_best_and_failures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LiveEvents() as events:
        tell_a_run(events)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2 trials" in err
    assert "best" in err
    assert "no GPU" in err


def test_the_live_view_fits_a_narrow_terminal_and_tells_each_margin() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=60, color_system=None)
    with LiveEvents(Console(file=io.StringIO(), width=60)) as events:
        tell_a_run(events)
        console.print(events.view())
    lines = screen.getvalue().splitlines()
    first = ["0", "1", "failed", "best", "p99_latency", "0:00", "round"]
    assert [line.split()[0] for line in lines] == first
    assert lines[4].strip().startswith("p99_latency <= 40ms: 25.8 ms, 35.6% left; error_")
    assert max(map(len, lines)) <= 60


def test_a_config_that_misses_everywhere_is_told_by_its_lowest_load() -> None:
    late = [judge_point([P99_40MS], synthetic_server(rate, 900)) for rate in (2000, 1200)]
    score = score_points(Objective.goodput(), late)
    text = outcome_text(Trial(0, OTHER, TrialState.MEASURED, points=tuple(late), score=score))
    assert text.startswith("misses the SLOs at every load tried, down to 1200/s: p99_latency ")
