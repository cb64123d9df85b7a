"""Messages during a run, in a log and in the live view."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path

import click
from builders.candidates import candidate_of
from builders.checks import facts
from builders.events import CURRENT, OTHER, tell_a_run
from builders.measurements import P99_40MS, synthetic_server
from builders.refusals import Case
from rich.console import Console

from tuner.cli.check_command import annotation_lines
from tuner.cli.ui.live import LiveEvents
from tuner.cli.ui.plain import PlainEvents
from tuner.cli.ui.words import outcome_text
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.progress.events import Outlook
from tuner.reason import Reason
from tuner.record.status import CheckStatus
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.spec.slo import Objective


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def live(tell: Callable[[LiveEvents, Clock], object], *at_s: float, width: int = 100) -> Case:
    """The view at each of these times."""

    def case(_: Path) -> str:
        screen, clock = io.StringIO(), Clock()
        console = Console(file=screen, width=width, color_system=None)
        with LiveEvents(Console(file=io.StringIO(), width=width), clock=clock) as events:
            tell(events, clock)
            for clock.now_s in at_s:
                console.print(events.view())
        return "\n".join(line.rstrip() for line in screen.getvalue().splitlines())

    return case


def log(tell: Callable[[PlainEvents], object], *at_s: float) -> Case:
    """The log where each of these times is looked whether it is quiet for long."""

    def case(_: Path) -> str:
        err, clock = io.StringIO(), Clock()
        with redirect_stderr(err):
            events = PlainEvents(clock=clock)
            tell(events)
            for clock.now_s in at_s:
                events.say_if_quiet()
        return click.unstyle(err.getvalue())

    return case


def trial(capacity: float, *levels: float, state: TrialState = TrialState.MEASURED) -> Trial:
    """Of which the first load decides where it is lost."""
    points = [judge_point([P99_40MS], synthetic_server(level, capacity)) for level in levels]
    judged = points[:1] if state is TrialState.PRUNED else points
    score = score_points(Objective.goodput(), judged)
    return Trial(1, OTHER, state, points=tuple(points), score=score)


LOST = trial(500, 900.0, 400.0, state=TrialState.PRUNED)


def lose(events: LiveEvents, _: Clock) -> None:
    events.started(Path("results/r"), 2, 12)
    events.trial_started(1, OTHER, CURRENT)
    events.trial_finished(LOST, None)


def gain(events: LiveEvents, clock: Clock) -> None:
    best = trial(1000, 900)
    events.started(Path("results/r"), 12, 12)
    events.outlook(Outlook(400.0))
    events.trial_started(1, OTHER, CURRENT)
    clock.now_s = 45.0
    events.outlook(Outlook(300.0, 2.4))
    events.trial_finished(best, best)
    events.trial_started(2, candidate_of({"instance_group.count": 3}), CURRENT)
    events.measured(best.points[0])
    events.loading(LoadPoint(Arrivals.POISSON, 918.0), 3.2)


def soak(events: PlainEvents | LiveEvents, _: object = None) -> None:
    """Twice disturbed before it, and of few requests."""
    events.phase("soaking the winner")
    few = "Only {} requests: too few to prove a p99 (459 needed at least)."
    for count in (313, 385):
        events.disturbed("Other processes took 33% of the machine's CPU.", 5.0)
        point = judge_point([P99_40MS], synthetic_server(900, 1000))
        warned = replace(point.measurement, warnings=(Reason.of_text(few.format(count)),))
        events.measured(replace(point, measurement=warned))
    events.step("starting Triton")
    events.loading(LoadPoint(Arrivals.POISSON, 372.0), 30.0)


def soak_in_a_log(_: Path) -> str:
    err, clock = io.StringIO(), Clock()
    with redirect_stderr(err), PlainEvents(1, clock=clock) as events:
        soak(events)
        clock.now_s = 31.0
        events.say_if_quiet()
    return click.unstyle(err.getvalue())


def check(events: LiveEvents, clock: Clock) -> None:
    point = judge_point([P99_40MS], synthetic_server(900, 1000))
    events.phase("serving toy")
    events.step("loading toy")
    for number in (1, 2):
        events.phase(f"round {number} of at most 10")
        events.measured(point)
        events.round_over(f"round {number}", point)
        events.outlook(Outlook(75.0))


def load_long(events: PlainEvents) -> None:
    events.trial_started(3, OTHER, CURRENT)
    events.outlook(Outlook(250.0, 14.7, at_least=True))
    events.loading(LoadPoint(Arrivals.POISSON, 20.0), 50.0)


def watching() -> dict[str, Case]:
    statuses = (CheckStatus.FINE, CheckStatus.WORSE, CheckStatus.REGRESSION)
    codes = dict.fromkeys(statuses, 0) | {CheckStatus.REGRESSION: 12}
    return {
        "a phase takes long, in a log": log(
            lambda events: events.phase("soaking the winner"), 15.0, 31.0, 45.0, 50.0, 62.0, 70.0
        ),
        "a load takes long, in a log": log(load_long, 31.0),
        "a soak, in a log": soak_in_a_log,
        "a soak, live": live(soak, 12.0, width=80),
        "a check, live": live(check, 3.0, width=80),
        "a server starts, live": live(lambda events, _: events.step("loading toy"), 1.0),
        "a config is out of the race": lambda _: outcome_text(LOST).full,
        "a config is out of the race, live": live(lose, 0.0, width=90),
        "a config misses everywhere": lambda _: outcome_text(trial(900, 2000, 1200)).full,
        "a narrow terminal": live(lambda events, _: tell_a_run(events), 0.0, width=60),
        "the verdict comes nearer, and is late": live(gain, 60.0, 320.0, 400.0),
        **{
            f"a check that ended as {status.value}, for CI": lambda _, s=status: annotation_lines(
                facts(s, exit_code=codes[s])
            )
            for status in statuses
        },
    }
