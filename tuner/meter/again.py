"""Repetitions of measurements: in which situations, how many at most, and at which cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, assert_never

from tuner.errors import ServerGoneError
from tuner.load.validity import client_kept_up
from tuner.load.watch.machine import taken_percent
from tuner.measurement.measurement import Figures, LoadPoint, Measurement, Rejected, Stage
from tuner.measurement.window import Window, lengthen
from tuner.reason import Reason, ReasonKind
from tuner.score.judge import SloOutcome, behind_share, judge_all, outcome_of
from tuner.score.point import Point
from tuner.sentences import sentence
from tuner.spec.slo import Slo
from tuner.spec.units import digits


def missed_by_gaps(slos: Sequence[Slo], point: Point) -> bool:
    """Whether an SLO was missed only because of a few gaps in which nothing was answered."""
    from tuner.load.latency import latency_figures

    def outside_gaps(figures: Figures) -> dict[str, Any]:
        """The figures that change without the requests that waited in a gap."""
        rest = figures.outside_gaps_us
        if rest is None or not rest.size:
            return {}
        counted = {"completed_count": rest.size, "course": None, "due_per_s": None}
        return {**latency_figures(rest), **counted}

    measured = point.measurement
    gaps = any(m.outside_gaps_us is not None for m in (measured, *measured.streams.values()))
    if point.outcome is not SloOutcome.MISSED or measured.disturbances or not gaps:
        return False
    streams = {n: replace(part, **outside_gaps(part)) for n, part in measured.streams.items()}
    later = judge_all(slos, replace(measured, **outside_gaps(measured), streams=streams))
    return outcome_of(later) is not SloOutcome.MISSED


#: Seconds to wait before a disturbed measurement is repeated: disturbances come in bursts.
PAUSE_S = 5.0
#: Largest ratio of unanswered requests to CPU time, both shares, that a disturbance explains.
EXPLAINS = 3.0
#: A load generator that fell behind in a longer window, in seconds, without a disturbance, would
#: fall behind again.
LONG_S = 60.0


class RepeatReason(NamedTuple):
    """A situation in which measurements are repeated.

    Attributes:
        at_most: Most repetitions.
        costs: The cost of one repetition, in words.
    """

    situation: str
    at_most: int
    costs: str


BEHIND = RepeatReason("the load generator fell behind", 1, "as much again")
DISTURBED = RepeatReason(
    "an SLO was missed beside a disturbance", 1, f"{PAUSE_S:.0f} s, and as much again"
)
WARMING_UP = RepeatReason(sentence(Reason(ReasonKind.ONLY_GAPS_MISS)), 2, "as much again")
TOO_FEW = RepeatReason("too few answers for a verdict", 1, "a longer window, up to `max_window`")
UNDECIDED = RepeatReason("ended early without need", 1, "a fresh server, and the full window")
TOO_HIGH = RepeatReason("a first load was too high for a result", 4, "a lower load")
SERVER_DIED = RepeatReason(
    "the server died", 1, "a fresh server, and trial or round from its start"
)
NEAR_MISS = RepeatReason("the load to beat was nearly sustained", 1, "the load of the incumbent")
#: The first two share one repetition; all measurements of a deployment share those of the third.
TABLE = (BEHIND, DISTURBED, WARMING_UP, TOO_FEW, UNDECIDED, TOO_HIGH, SERVER_DIED, NEAR_MISS)


#: A repetition with at least this share of the first disturbance counts as equally disturbed.
AS_MUCH = 0.75


@dataclass
class LastingDisturbance:
    """A disturbance that outlasts repetitions, so that repeating is of no use.

    Attributes:
        taken_percent: The largest percentage of the machine's CPU time that it used; None while no
            disturbance lasted.
    """

    taken_percent: float | None = None

    def learn(self, first: Measurement, second: Measurement) -> str:
        """Compares a measurement with its repetition; a sentence if the disturbance lasts."""
        before, after = taken_percent(first), taken_percent(second)
        if not (first.disturbances and second.disturbances) or after < AS_MUCH * before:
            return ""
        self.taken_percent = max(before, after)
        return (
            f"The repetition was disturbed as much ({digits(after, 2)}% of the machine): from now "
            "on only a greater disturbance repeats a measurement; the proof takes it into account"
        )

    def explains(self, measured: Measurement) -> bool:
        """Whether the lasting disturbance explains the disturbance of a measurement."""
        lasts = self.taken_percent
        return lasts is not None and AS_MUCH * taken_percent(measured) <= lasts


def why_again(point: Point, lasting: LastingDisturbance) -> RepeatReason | None:
    """Why a measurement is repeated; None where it counts.

    A sustained rate counts despite a disturbance, since no disturbance makes a server faster.
    """
    measured = point.measurement
    if not client_kept_up(measured):
        return BEHIND if measured.disturbances or measured.duration_s < LONG_S else None
    if measured.disturbances and not lasting.explains(measured):
        unanswered_percent = 100.0 * (behind_share(measured) or 0.0)
        explained = unanswered_percent <= EXPLAINS * taken_percent(measured)
        match point.outcome:
            case SloOutcome.MET:
                counts = measured.load.arrivals.open_loop
            case SloOutcome.MISSED:
                counts = False
            case SloOutcome.TOO_FEW:
                counts = True  # a repetition would have too few answers, too
            case _:
                assert_never(point.outcome)
        if explained and not counts:
            return DISTURBED
    return None


#: Least factor by which a window with too few answers is lengthened, unless less gives enough.
LONGER = 1.1
#: A longer window allows for answers at this share of the rate so far: the next may be slower.
UNLUCKY = 0.9

#: The window of a measurement by its load and the expected requests per second, None: not known.
WindowAt = Callable[[LoadPoint, float | None], Window]


def longer_window(
    point: Point, window: Window, window_at: WindowAt, rate: float | None
) -> Window | None:
    """A longer window after too few answers: long enough, or the longest that is allowed.

    None where there were enough answers, or no longer window is allowed.

    ``rate``: the expected requests per second; None where it is not known.
    """
    counts = [(r.answered or 0, r.needed) for r in point.slo if r.needed]
    if point.outcome is not SloOutcome.TOO_FEW or not counts:
        return None
    share = min(max(answered, 1) / needed for answered, needed in counts)
    load = point.measurement.load
    rarer = replace(load, level=load.level * share / 2) if load.arrivals.open_loop else load
    most_s = window_at(rarer, None if rate is None else rate * share / 2).duration_s
    longer_s = min(window.duration_s / (UNLUCKY * share), most_s)
    enough = longer_s >= min(LONGER, 1.0 / share) * window.duration_s
    return lengthen(window, longer_s) if enough else None


def idle(seconds: float, checkpoint: Callable[[], None]) -> None:
    """Waits; ``checkpoint`` raises when the user wants to stop."""
    until = time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0.0:
        checkpoint()
        time.sleep(min(left_s, 1.0))


class Attempts:
    """Attempts that each begin with a deployment: a further one after each in which a server died.

    Use ``for attempt in Attempts(note):`` with ``with attempt:`` inside. ``note`` receives the
    error message of a server that died; the last attempt raises the error.

    Attributes:
        made: The number of attempts so far.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.made = 0
        self._note = note
        self._died = True

    def __iter__(self) -> Iterator[Attempts]:
        while self._died:
            self.made, self._died = self.made + 1, False
            yield self

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, ServerGoneError) and self.made <= SERVER_DIED.at_most:
            self._died = True
            self._note(error.message)
        return self._died


def better_of(first: Measurement, second: Measurement) -> Measurement:
    """The better of two measurements of one load: the first only if less disturbed."""
    if not (client_kept_up(first) and client_kept_up(second)):
        return first if client_kept_up(first) else second
    disturbed = [bool(m.disturbances) * taken_percent(m) for m in (first, second)]
    return first if disturbed[0] < disturbed[1] else second


def doubt_about(measurement: Measurement) -> Reason:
    """Why a measurement that was repeated does not count."""
    if not client_kept_up(measurement):
        return Reason(ReasonKind.LOAD_NOT_SENT)
    return Reason(ReasonKind.DISTURBED, causes=measurement.disturbances)


class Rejects:
    """Measurements of the deployed candidate; ``sink`` receives those that do not count."""

    def __init__(self, sink: Callable[[Rejected], None]) -> None:
        self._sink = sink
        self._candidate_key = ""
        self._kept: list[Measurement] = []
        self.stage = Stage.SEARCH

    def begin(self, candidate_key: str) -> None:
        """Begins a deployment: earlier measurements are no longer rejected."""
        self._candidate_key = candidate_key
        self._kept = []

    def keep(self, measurement: Measurement) -> None:
        """Keeps a measurement, which counts unless its trial fails."""
        self._kept.append(measurement)

    def reject(self, reason: Reason, measurement: Measurement) -> None:
        self.failed(reason, measurement.load.level, measurement.wall_s, measurement)

    def failed(
        self, reason: Reason, level: float, wall_s: float, measurement: Measurement | None = None
    ) -> None:
        """Reports a measurement that does not count, or an attempt without a result."""
        self._sink(Rejected(reason, self._candidate_key, level, wall_s, self.stage, measurement))

    def trial_lost(self, reason: Reason) -> None:
        """Rejects the measurements of a failed trial; those of a proof are stored, and count."""
        if self.stage is Stage.SEARCH:
            lost = Reason(ReasonKind.TRIAL_LOST, causes=(reason,))
            for measurement in self._kept:
                self.reject(lost, measurement)
        self._kept = []
