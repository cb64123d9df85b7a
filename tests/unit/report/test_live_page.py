"""The page of a run that goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders.events import tell_a_run
from builders.pages import Made, page_of

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError
from tuner.report import html
from tuner.report.live_page import MOST_SHARE, LivePage, running


@dataclass
class Machine:
    """A clock, and what rendering takes of a CPU."""

    costs_s: float = 0.1
    now_s: float = 0.0
    cpu_s: float = 0.0
    rendered: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def page(self) -> LivePage:
        return LivePage(self.notes.append, self.render, lambda: self.now_s, lambda: self.cpu_s)

    def render(self, run: Path, how_far: str) -> None:
        assert run == Path("results/r")
        self.cpu_s += self.costs_s
        self.rendered.append(how_far)


def test_page_is_rendered_at_the_start_after_each_trial_and_each_round() -> None:
    machine = Machine(costs_s=0.0)
    tell_a_run(machine.page())
    assert machine.rendered == [
        "0 trials",
        "1 of 2 trials",
        "2 of 2 trials",
        "proving, round 1, instances 2",
    ]
    assert machine.notes == ["live page, refreshed after each trial: results/r/report.html"]


@pytest.mark.parametrize("costs_s", [0.05, 0.3, 2.0])
def test_page_costs_less_than_its_share_of_a_core(costs_s: float) -> None:
    machine = Machine(costs_s=costs_s)
    page = machine.page()
    page.started(Path("results/r"), 1000, None)
    for number in range(1000):
        machine.now_s += 10.0
        page.round_over(f"round {number}", None)  # type: ignore[arg-type]
    assert machine.cpu_s <= MOST_SHARE * machine.now_s + costs_s
    assert len(machine.rendered) > 10


def test_page_that_cannot_be_written_ends_with_a_note_and_the_run_goes_on() -> None:
    machine = Machine()

    def full(*_: object) -> None:
        raise EnvironmentNotReadyError("the disk is full")

    tell_a_run(LivePage(machine.notes.append, full))
    assert machine.notes[1:] == ["the live page is no longer refreshed: the disk is full"]


def test_page_of_a_run_that_goes_on_is_read_again_and_the_report_is_not(made: Made) -> None:
    data = made("killed")
    page = html.render(running(data, "12 of 40 trials"))
    assert '<meta http-equiv="refresh" content="5">' in page
    assert "Running: 12 of 40 trials, best so far about" in page
    assert "Interrupted" not in page
    assert 'http-equiv="refresh"' not in page_of(data)


def test_page_of_a_run_without_trials_says_that_it_runs(made: Made) -> None:
    data = made("killed", trials=1)
    page = html.render(running(data, "0 trials"))
    assert "Running: 0 trials" in page


def test_a_stop_while_the_page_is_rendered_stops_the_run() -> None:
    """A SIGTERM there was noted as the page's end, and the run went on to its own."""
    machine = Machine()

    def stopped(*_: object) -> None:
        raise InterruptedRunError("interrupted")

    with pytest.raises(InterruptedRunError):
        tell_a_run(LivePage(machine.notes.append, stopped))


def test_defect_of_the_page_does_not_end_the_run() -> None:
    machine = Machine()

    def defective(*_: object) -> None:
        raise KeyError("no such chart")

    tell_a_run(LivePage(machine.notes.append, defective))
    assert machine.notes[1:] == ["the live page is no longer refreshed: 'no such chart'"]
