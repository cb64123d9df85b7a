"""The rounds of a check: the config in the repository, each time on a fresh server.

A round is that of a confirmation (`tuner.confirm.rounds`), so that what is compared with the
accepted result was found in the same way: same seeds, so the same arrivals, and where loads are
searched the capacity. Each round has the arrivals of the accepted result's and is compared with it,
which leaves out the ups and downs that both saw. The rounds are looked at twice, as there: when
`check.rounds` of them are over, and, where that leaves it open, after as many again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tuner.bench.evaluate import LoadPlan
from tuner.bench.protocol import Bench
from tuner.bench.stepping import FromAbove
from tuner.confirm.confirm import Role, Row
from tuner.confirm.looks import LOOKS
from tuner.confirm.regression import Change, Held, change_of, held
from tuner.confirm.rounds import Contender, Entrant, fixed_round, searched_round
from tuner.errors import ClientLimitError
from tuner.run.baseline import Baseline
from tuner.score.judge import tightest_latency, value_of
from tuner.score.point import Point
from tuner.score.ratio import ERROR, Ratio, paired_ratio, two_sample_ratio
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.spec.objective import Goal
from tuner.steps.events import Events
from tuner.steps.lengths import refuse_too_slow
from tuner.steps.looking import Start, highest_that_holds, rough_capacity

#: Servers on which no load tried met the SLOs, each of several, before that is believed.
HOPELESS = 2


@dataclass(frozen=True)
class Checking:
    """Collaborators of the rounds.

    Attributes:
        baseline: What is compared with; None when there is nothing to compare with.
        arrivals: Seed of the first round's where there is no accepted result to take them from.
        all_rounds: Measure as many as there may be: the result is to be accepted.
        record: Stores a measurement at once.
    """

    spec: Spec
    plan: LoadPlan
    bench: Bench
    events: Events
    current: Candidate
    baseline: Baseline | None
    arrivals: int
    all_rounds: bool
    record: Callable[[Row], None]

    @property
    def seed(self) -> int:
        """Of the first round's arrivals: the accepted result's, so that rounds are pairs."""
        theirs = None if self.baseline is None else self.baseline.arrivals
        return self.arrivals if theirs is None else theirs


@dataclass(frozen=True)
class Checked:
    """What the rounds gave.

    Attributes:
        held: One point a round, at the load that must be stood.
        any_load: That is any load at all: each round's highest that met the SLOs.
        level: The load at which every SLO was met in every round; None when there was none.
        expected: Where the capacity seems to be, as a load.
        compared: What ``values`` are, as in `result.json`.
        values: One a round; empty when the metric was not measured in each.
        ratio: Against the baseline, above 1 is better; None without one.
        arrivals: Seed of the first round's.
        client_limit: What the load generator could not send: ``values`` are then at least so much.
    """

    held: tuple[Point, ...]
    any_load: bool
    level: float | None
    expected: float
    compared: str
    values: tuple[float, ...]
    ratio: Ratio | None
    arrivals: int
    client_limit: str | None = None

    @property
    def slos(self) -> Held:
        return held(self.held)


def checked(step: Checking) -> Checked:
    """Measures round after round until the check is decided.

    Raises:
        TrialError: The config cannot be served, or gives no measurement.
        InterruptedRunError: The user stopped it.
    """
    start = _start(step)
    contender = Contender(Entrant(step.current, start.level))
    stood: list[Point] = []
    limits: list[ClientLimitError] = []
    rounds = step.spec.check.rounds
    for number in range(rounds * LOOKS):
        if number == rounds and not step.all_rounds and not _open(step, contender, stood):
            break
        if _hopeless(step, contender, start):
            break
        step.events.phase(f"round {number + 1}")
        stood.append(_round(step, contender, number, start, limits))
    limit = limits[-1].message if limits else None
    return replace(_checked(step, contender, stood), client_limit=limit)


def _start(step: Checking) -> Start:
    """Where the baseline was, else where the capacity seems to be."""
    listed, baseline = step.plan.listed, step.baseline
    if listed is not None:
        return Start(_listed_level(step, listed))
    if baseline is not None:
        return Start(baseline.expected)
    step.events.phase("looking for the capacity")
    step.bench.deploy(step.current)
    bound, refuse = tightest_latency(step.spec.slo), partial(refuse_too_slow, step.spec, step.plan)
    return rough_capacity(step.bench, step.plan, step.seed, bound, refuse)


def _listed_level(step: Checking, listed: Sequence[float]) -> float:
    """The load to hold it to: `check.at`, the baseline's, or the highest that holds now."""
    if step.spec.check.at is not None:
        return step.spec.check.at
    if step.baseline is not None and step.baseline.level in listed:
        return step.baseline.level
    if len(listed) == 1:
        return listed[0]
    step.events.phase("looking for the highest load that holds")
    step.bench.deploy(step.current)
    return highest_that_holds(step.bench, listed, step.seed)


def _hopeless(step: Checking, contender: Contender, start: Start) -> bool:
    """Where any load will do, and none did on server after server: more would say the same."""
    if not _any_load(step):
        return False
    enough = HOPELESS - start.missed
    return len(contender.rounds) >= enough and not any(r.passed for r in contender.rounds)


def _any_load(step: Checking) -> bool:
    return step.plan.listed is None and step.spec.check.at is None


def _round(
    step: Checking,
    contender: Contender,
    number: int,
    start: Start,
    limits: list[ClientLimitError],
) -> Point:
    """Adds a round to ``contender``; the point at the load that must be stood.

    ``limits`` gets what the load generator could not send.
    """
    step.bench.deploy(step.current, fresh=True)
    order = 0

    def measure(level: float) -> Point:
        nonlocal order
        try:
            point = step.bench.measure(level, step.seed + number)
        except ClientLimitError as error:
            limits.append(error)
            raise
        step.record(Row(number, order, Role.CURRENT, step.current, point))
        order += 1
        return point

    at = step.spec.check.at
    known_to_miss = start.missed and number == 0 and _any_load(step)
    if step.plan.listed is not None or known_to_miss:
        contender.rounds.append(fixed_round(measure, start.level))
        return contender.rounds[-1].stood
    stood = None if at is None else measure(at)
    above = FromAbove(
        lambda level: searched_round(measure, level, step.plan.levels), step.plan.levels
    )
    contender.rounds.append(above.result(contender.expected_level()))
    if limits:
        step.events.note(f"the load generator is the limit, not the model: {limits[-1]}")
    return stood or contender.rounds[-1].stood


def _open(step: Checking, contender: Contender, stood: Sequence[Point]) -> bool:
    """Whether more rounds may decide what these did not."""
    if held(stood) is Held.UNCLEAR:
        return True
    ratio = _checked(step, contender, stood).ratio
    limits = step.spec.check
    return (
        held(stood) is Held.MET
        and ratio is not None
        and change_of(ratio, limits.warn, limits.fail) is Change.INCONCLUSIVE
    )


def _checked(step: Checking, contender: Contender, stood: Sequence[Point]) -> Checked:
    compared, values = _compared(step, contender)
    all_passed = all(r.passed for r in contender.rounds)
    return Checked(
        held=tuple(stood),
        any_load=_any_load(step),
        level=contender.credited_level if all_passed else None,
        expected=contender.expected_level(),
        compared=compared,
        values=values,
        ratio=_ratio(step, compared, values, contender.entrant.level),
        arrivals=step.seed,
    )


def _compared(step: Checking, contender: Contender) -> tuple[str, tuple[float, ...]]:
    """What a confirmation compares, of each round: the metric that is minimised, or capacity."""
    metric = step.spec.objective.metric
    if metric is None:
        name = "throughput" if step.plan.listed else "capacity"
        return name, tuple(contender.capacities())
    readings = [value_of(metric, r.stood.measurement) for r in contender.rounds]
    known = tuple(v for v in readings if v is not None)
    return metric.name, known if len(known) == len(readings) else ()


def _ratio(
    step: Checking, compared: str, values: Sequence[float], level: float | None
) -> Ratio | None:
    baseline = step.baseline
    if baseline is None or baseline.compared != compared:
        return None
    if step.plan.listed is not None and baseline.level != level:
        return None  # what is served at another load says nothing
    if not values or min(*values, *baseline.values) <= 0.0:
        return None
    now, then = tuple(values), baseline.values
    if step.spec.objective.goal is Goal.MINIMIZE:
        now, then = then, now  # less is better
    if baseline.arrivals != step.seed or not step.plan.arrivals.open_loop:
        return two_sample_ratio(now, then, ERROR / LOOKS)  # a closed loop has no arrivals to share
    rounds = min(len(now), len(then))
    return paired_ratio(now[:rounds], then[:rounds], ERROR / LOOKS)
