"""Runs that go on side by side, as a terminal and a log show them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tuner.cli.ui.live import LiveRuns
from tuner.cli.ui.plain import PlainRuns
from tuner.cli.ui.words import progress_text
from tuner.progress.events import Outlook
from tuner.progress.follower import RunProgress
from tuner.progress.posted import PostedEvents

HALF = RunProgress("trial 3", 6, 3, 412.04, Outlook(95.0, 1.31))


def test_progress_is_one_line() -> None:
    line = "3/6 trials, best 412/s, 1.31x as good as current, verdict in about 1:40"
    assert progress_text(HALF) == line
    assert progress_text(RunProgress()) == ""


def test_a_log_has_a_line_for_each_trial_and_note_and_none_for_what_is_done_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = PlainRuns(0)
    for what in (RunProgress("searching", 6), HALF, HALF, "a note", None):
        lines("toy", what)
    assert capsys.readouterr().err == f"toy: {progress_text(HALF)}\ntoy: a note\n"
    quiet = PlainRuns(-1)
    quiet("toy", "a note")
    assert capsys.readouterr().err == ""


def test_the_live_view_has_a_row_for_each_run_that_goes_on() -> None:
    console = Console(file=io.StringIO(), width=80, height=4, force_terminal=True)
    runs = LiveRuns(console)
    for number in range(3):
        runs(f"model-{number}", RunProgress(f"trial {number}", 6, number))
    runs("model-1", None)
    with console.capture() as output:
        console.print(runs.view())
    assert output.get().splitlines() == [
        "model-0  0/6 trials  trial 0",
        "model-2  2/6 trials  trial 2",
    ]


def test_progress_of_a_remote_run_is_posted_once() -> None:
    posts = list[object]()
    events = PostedEvents(posts.append)
    for _ in range(2):
        events.phase("searching")
    events.note("a note")
    assert posts == [RunProgress("searching"), "a note"]
