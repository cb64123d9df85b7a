"""A run as values: lines of `--progress json`, items of `tuner.start_run`."""

from __future__ import annotations

import json
from pathlib import Path

from builders.events import tell_a_run

from tuner.progress.events import Silent, Tee
from tuner.progress.run_events import EventKind, RunEvent, RunEvents


def events_of_a_run() -> list[RunEvent]:
    events = list[RunEvent]()
    now_s = iter(range(100))
    watcher = RunEvents(events.append, clock=lambda: float(next(now_s)))
    tell_a_run(watcher)
    watcher.ended(Path("results/r"), "improved", 0)
    return events


def test_each_event_has_its_kind_its_time_and_only_what_applies_to_it() -> None:
    first, phase, *_, last = [event.to_json() for event in events_of_a_run()]
    assert first == {
        "event": "started",
        "at_s": 1.0,
        "run": "results/r",
        "trials": 2,
        "space_size": 12,
    }
    assert phase == {"event": "phase", "at_s": 2.0, "text": "searching"}
    assert last == {
        "event": "ended",
        "at_s": 11.0,
        "run": "results/r",
        "state": "improved",
        "exit_code": 0,
    }


def test_trial_has_its_change_its_figures_and_why_it_failed() -> None:
    good, failed = [e.to_json() for e in events_of_a_run() if e.kind is EventKind.TRIAL]
    assert (good["state"], good["best"], good["met_slos"]) == ("measured", True, True)
    assert good["throughput_infer_per_s"] > 800
    assert good["fields"] == {}
    assert failed["fields"] == {"instance_group.count": 2}
    assert failed["text"] == "no GPU\nsecond line"
    assert "throughput_infer_per_s" not in failed


def test_every_event_is_one_line_of_json() -> None:
    lines = [json.dumps(event.to_json()) for event in events_of_a_run()]
    assert all("\n" not in line for line in lines)
    assert [json.loads(line)["event"] for line in lines[:3]] == [
        "started",
        "phase",
        "trial started",
    ]


def test_tee_reports_to_each_watcher_in_order() -> None:
    heard = list[str]()

    class Watcher(Silent):
        def __init__(self, name: str) -> None:
            self.name = name

        def note(self, text: str) -> None:
            heard.append(f"{self.name}: {text}")

    Tee(Watcher("a"), Watcher("b")).note("hello")
    assert heard == ["a: hello", "b: hello"]
