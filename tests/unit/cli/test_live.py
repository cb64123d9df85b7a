"""The live view keeps to its terminal: what a user looks for is on it, whatever else is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from builders.candidates import candidate_of
from builders.events import CURRENT
from builders.measurements import P99_40MS, synthetic_server
from rich.console import Console

from tuner.cli.ui.live import LiveEvents
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.slo import Objective

LONG = candidate_of(
    {
        "instance_group.count": 3,
        "max_batch_size": 32,
        "dynamic_batching.preferred_batch_size": (8,),
        "dynamic_batching.max_queue_delay_microseconds": 4857,
    }
)


def trial(number: int, candidate: Candidate) -> Trial:
    point = judge_point([P99_40MS], synthetic_server(1789.0, 2000))
    score = score_points(Objective.goodput(), [point])
    return Trial(number, candidate, TrialState.MEASURED, points=(point,), score=score)


def screen(width: int, height: int, disturbances: int = 0) -> list[str]:
    """The lines of the view after fourteen trials, the last six with long configs."""
    terminal = io.StringIO()
    console = Console(file=terminal, width=width, height=height, color_system=None)
    events = LiveEvents(console)
    events.started(Path("results/r"), 24, 284_484)
    for number in range(14):
        candidate = LONG if number > 8 else CURRENT
        events.trial_started(number, candidate, CURRENT)
        for _ in range(disturbances):
            events.disturbed("Other processes took 33% of the machine's CPU.", 5.0)
        events.trial_finished(trial(number, candidate), trial(number, candidate))
    terminal.truncate(0)
    terminal.seek(0)
    console.print(events.view())
    return terminal.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 24)])
def test_trial_numbers_and_outcomes_are_complete_and_long_configs_are_cut(
    width: int, height: int
) -> None:
    lines = screen(width, height)
    assert all(len(line) <= width for line in lines)
    assert [int(line.split()[0]) for line in lines[:6]] == [8, 9, 10, 11, 12, 13]
    assert all("1,789/s, p99 latency" in line for line in lines[:6])
    assert [("…" in line) for line in lines[1:6]] == [width < 120] * 5


def test_disturbances_are_counted_on_one_line_and_leave_the_trials() -> None:
    lines = screen(80, 24, disturbances=3)
    assert [int(line.split()[0]) for line in lines[:6]] == [8, 9, 10, 11, 12, 13]
    assert sum("disturbance" in line for line in lines) == 1
    assert "measured again after a disturbance: 42 times" in lines


def test_view_of_what_failed_before_any_measurement_is_empty() -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, width=80, height=24, color_system=None)
    events = LiveEvents(Console(file=io.StringIO(), width=80))
    events.step("loading toy")
    events.__exit__(ValueError, ValueError("a mistake in the spec"), None)
    console.print(events.view(), end="")
    assert terminal.getvalue() == ""


def test_low_terminal_shows_fewer_trials_and_still_the_progress() -> None:
    lines = screen(80, 9)
    assert len(lines) < 9
    assert any("14/24 trials" in line for line in lines)
    assert lines[0].split()[0] == "10"
