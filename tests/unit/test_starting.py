"""A run that a Python program starts."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from builders.workplace import Workplace

import tuner
from tuner.errors import InterruptedRunError, SpecError


def test_run_yields_its_events_and_then_has_a_result_and_tables(workplace: Workplace) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with tuner.start_run("my spec.yaml", write=False) as started:
        events = list(started)
    assert [events[0].kind.value, events[-1].kind.value] == ["step", "ended"]
    trials = [e for e in events if e.kind.value == "trial"]
    result = started.result()
    assert result.status.value == events[-1].state == "improved"
    assert result.written is None
    frames = started.frames()
    assert list(frames.trials["trial"]) == [t.trial for t in trials]
    assert started.directory is not None
    assert (started.directory / "report.html").exists()
    assert signal.getsignal(signal.SIGINT) is handler
    assert workplace.bench.deployed


def test_mistake_of_a_spec_is_raised_to_whoever_iterates(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("model: [")
    started = tuner.start_run(tmp_path / "spec.yaml", output=tmp_path / "results")
    with pytest.raises(SpecError, match=r"spec\.yaml:1"):
        list(started)
    with pytest.raises(SpecError):
        started.result()
    with pytest.raises(RuntimeError, match="no directory"):
        started.frames()


def test_run_that_is_left_early_is_stopped_and_can_be_resumed(workplace: Workplace) -> None:
    with tuner.start_run("my spec.yaml", write=False) as started:
        for event in started:
            if event.kind.value == "trial":
                break
    with pytest.raises(InterruptedRunError):
        started.result()
    assert started.directory is not None
    again = tuner.start_run("my spec.yaml", write=False, resume=started.directory)
    assert again.result().status.value == "improved"
    assert workplace.results.exists()
