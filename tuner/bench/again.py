"""What is measured again: in which situation, how often at most, and what that costs.

A measurement that cannot be believed is made once more, and the better one of the two counts. The
confirmation adds rounds and soaks of its own. What does not count is passed on, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tuner.errors import ServerGoneError
from tuner.load.validity import client_kept_up
from tuner.load.watch.machine import taken_percent
from tuner.measurement.measurement import Measurement, Rejected, Stage
from tuner.score.judge import behind_share, judge_all, passes
from tuner.score.point import Point
from tuner.spec.slo import Slo

#: The start is one part in so many of the requests; the rest is enough for a verdict.
START = 3


def missed_while_warming_up(slos: Sequence[Slo], point: Point) -> bool:
    """An SLO was missed, and would not have been without the start of the window.

    A busy period at the start looks the same, so this is a reason to measure again, not for a
    verdict.
    """
    import numpy as np

    from tuner.load.latency import latency_figures

    def settled(measurement: Measurement) -> Measurement:
        latencies_us = measurement.by_arrival_us
        if latencies_us is None:
            return measurement
        rest = np.sort(latencies_us[latencies_us.size // START :])
        figures = {**latency_figures(rest), "completed_count": rest.size}
        return replace(measurement, **figures, course=None, due_per_s=None)

    if point.passed:
        return False
    whole = point.measurement
    streams = {name: settled(stream) for name, stream in whole.streams.items()}
    later = replace(settled(whole), streams=streams)
    return passes(judge_all(slos, later))


#: How long to wait before a disturbed measurement is repeated: what disturbs comes in bursts.
PAUSE_S = 5.0
#: A disturbance explains that this many times as much was not answered as it took of the machine.
EXPLAINS = 3.0
#: A client that falls behind for so long on a calm machine would do so again.
LONG_S = 60.0


class Again(NamedTuple):
    """A row of the table."""

    situation: str
    at_most: int
    costs: str


BEHIND = Again("the load generator fell behind", 1, "as much again")
DISTURBED = Again(
    "an SLO was missed beside a disturbance", 1, f"{PAUSE_S:.0f} s, and as much again"
)
WARMING_UP = Again("only the start of a loaded model's first window missed", 1, "as much again")
TOO_FEW = Again("too few answers for a verdict", 1, "a longer window, up to `max_window`")
UNDECIDED = Again("ended early without need", 1, "a fresh server, and the whole window")
TOO_HIGH = Again("a first load was too high for a result", 4, "a lower load")
SERVER_DIED = Again("the server died", 1, "a fresh server, and trial or round from its start")
NEAR_MISS = Again("the load to beat was nearly sustained", 1, "the incumbent's own load")
UNEVEN = Again("others took more beside one side of a round", 1, "that side's round")
#: The first three share one repetition.
TABLE = (
    *(BEHIND, DISTURBED, WARMING_UP, TOO_FEW, UNDECIDED, TOO_HIGH, SERVER_DIED, NEAR_MISS),
    UNEVEN,
)


def why_again(slos: Sequence[Slo], point: Point, *, first: bool) -> Again | None:
    """Why a measurement is made once more; None where it counts as it is.

    Nothing that disturbs makes a server faster, so a rate that was sustained counts, and so does a
    miss by more than the disturbance explains. ``first``: of a model that was just loaded.
    """
    found = point.measurement
    if not client_kept_up(found):
        return BEHIND if found.disturbances or found.duration_s < LONG_S else None
    if found.disturbances:
        unanswered_percent = 100.0 * (behind_share(found) or 0.0)
        explained = unanswered_percent <= EXPLAINS * taken_percent(found)
        if explained and not ((point.passed and found.load.arrivals.open_loop) or point.undecided):
            return DISTURBED
    return WARMING_UP if first and missed_while_warming_up(slos, point) else None


class Attempts:
    """Attempts that each begin with a deployment: another one where the server died in the last.

    ``for attempt in Attempts(note):``, and in it ``with attempt:``. ``note`` receives what is told
    of a server that died; the last one's death is raised.

    Attributes:
        made: So far.
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
    """The one to believe of two of the same load: if both are disturbed, the less disturbed one."""
    if not (client_kept_up(first) and client_kept_up(second)):
        return first if client_kept_up(first) else second
    disturbed = [bool(m.disturbances) * taken_percent(m) for m in (first, second)]
    return first if disturbed[0] < disturbed[1] else second


def doubt_about(measurement: Measurement) -> str:
    """Why a measurement is to be repeated; empty when it can be believed."""
    if not client_kept_up(measurement):
        return "the load generator could not keep up"
    return " ".join(measurement.disturbances)


class Rejects:
    """Follows the measurements of one candidate after the other; ``sink`` keeps the rejected."""

    def __init__(self, sink: Callable[[Rejected], None]) -> None:
        self._sink = sink
        self._candidate_key = ""
        self._kept: list[Measurement] = []
        self.stage = Stage.SEARCH

    def begin(self, candidate_key: str) -> None:
        """Another candidate, or the same one again: earlier measurements are settled."""
        self._candidate_key = candidate_key
        self._kept = []

    def keep(self, measurement: Measurement) -> None:
        """It counts, if the trial comes to its end."""
        self._kept.append(measurement)

    def reject(self, reason: str, measurement: Measurement) -> None:
        self.failed(reason, measurement.load.level, measurement.wall_s, measurement)

    def failed(
        self, reason: str, level: float, wall_s: float, measurement: Measurement | None = None
    ) -> None:
        """Passes on a measurement that does not count."""
        self._sink(Rejected(reason, self._candidate_key, level, wall_s, self.stage, measurement))

    def trial_lost(self, reason: str) -> None:
        """Rejects all that a failed trial measured; a confirmation has stored its rows."""
        if self.stage is Stage.SEARCH:
            for measurement in self._kept:
                self.reject(f"its trial ended without a result: {reason}", measurement)
        self._kept = []
