"""A measurement that cannot be believed is repeated, as often as that may help."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tuner.bench.rejects import Rejects, doubt_about
from tuner.bench.timebook import Phase, TimeBook
from tuner.errors import ClientLimitError, InterruptedRunError, TrialError
from tuner.load.validity import client_behind, client_kept_up, left_out
from tuner.load.watch.disturbance import stolen_from
from tuner.load.watch.sampler import SPELL_PERCENT
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.score.point import judge_point
from tuner.spec.slo import Slo

#: Pauses before each further measurement while there is steal time. It comes in bursts of seconds
#: to minutes and shows only under load, so that an idle machine does not show whether it is over.
PAUSES_S = (5.0, 15.0, 40.0)

#: A window this long is repeated once, and once more after the last pause. A client that falls
#: behind for so long on a calm machine would do so again: not repeated.
LONG_S = 60.0

#: One measurement under a load.
_Put = Callable[[LoadPoint, Window, int], Measurement]


class Repeating:
    """Measures until it can be believed, within bounds.

    A doubtful measurement is repeated at once, unless that did not help the last time. If steal
    time made the client fall behind, or may have caused a missed SLO (steal never makes a server
    faster), the next measurement waits for the burst to pass (`PAUSES_S`). That holds for bursts
    left out of a window too: queues that they built up may outlast them. If the client was behind
    every time, there is no result. Otherwise the least disturbed measurement counts. Misses are
    not waited for again until a burst has passed.

    Args:
        put: Makes one measurement.
        rejects: Receives those that do not count.
        note: Receives the reason for waiting.
        checkpoint: Called while waiting; raises when the run is to stop.
        book: Records the seconds of waiting.
    """

    def __init__(
        self,
        put: _Put,
        slos: Sequence[Slo],
        rejects: Rejects,
        note: Callable[[str], None],
        checkpoint: Callable[[], None],
        book: TimeBook,
    ) -> None:
        self._put = put
        self._slos = slos
        self._rejects = rejects
        self._note = note
        self._checkpoint = checkpoint
        self._book = book
        self._in_vain = False  # the last measurement and its repetition were both disturbed
        self._waited_in_vain = False  # there is much steal time, and all pauses did not help

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        """One measurement, repeated where it is in doubt.

        Raises:
            ClientLimitError: The client could not keep up.
            TrialError: No usable result.
        """
        made = [self._put(load, window, seed)]
        pauses = [*PAUSES_S] if window.duration_s < LONG_S else [*PAUSES_S[-1:]]
        try:
            while self._doubtful(made):
                if len(made) > 1:
                    if not (pauses and self._worth_waiting(made[-1])):
                        break
                    self._pause(made[-1], pauses.pop(0))
                made.append(self._put(load, window, seed))
        except ClientLimitError:
            if not any(map(client_kept_up, made)):
                self._reject(made)
                raise
        except (TrialError, InterruptedRunError):
            self._reject(made)
            raise
        return self._best_of(made, waited=not pauses)

    def _doubtful(self, made: Sequence[Measurement]) -> bool:
        """Whether the last measurement must be repeated."""
        last = made[-1]
        if len(made) > 1:
            return not client_kept_up(last) or self._missed_by_steal(last)
        if not client_kept_up(last):
            return last.duration_s < LONG_S or bool(last.disturbances)
        if self._missed_by_steal(last):
            return not self._waited_in_vain
        return bool(doubt_about(last)) and not self._in_vain

    def _missed_by_steal(self, measurement: Measurement) -> bool:
        """An SLO was missed, perhaps because of a burst of steal time."""
        point = judge_point(self._slos, measurement)
        missed = not (point.passed or point.undecided)
        return missed and _taken(measurement) > SPELL_PERCENT

    def _worth_waiting(self, measurement: Measurement) -> bool:
        if not client_kept_up(measurement):
            return bool(stolen_from(measurement.host))
        return not self._waited_in_vain

    def _best_of(self, made: Sequence[Measurement], *, waited: bool) -> Measurement:
        """The one that was disturbed least; of several, the last.

        ``waited``: as long as is allowed.
        """
        usable = [m for m in made if client_kept_up(m)]
        if not usable:
            self._reject(made)
            raise client_behind(made[-1])
        best = min(reversed(usable), key=lambda m: (bool(doubt_about(m)), _taken(m)))
        self._reject([m for m in made if m is not best])
        self._in_vain = bool(doubt_about(best))
        self._waited_in_vain = (waited or self._waited_in_vain) and _taken(best) > SPELL_PERCENT
        return best

    def _reject(self, made: Sequence[Measurement]) -> None:
        for measurement in made:
            self._rejects.reject(doubt_about(measurement) or left_out(measurement), measurement)

    def _pause(self, measurement: Measurement, pause_s: float) -> None:
        """Idles, so that whatever takes the CPU may end; a request to stop is heeded."""
        behind = not client_kept_up(measurement)
        what = "the load generator could not keep up" if behind else "an SLO was missed"
        why = stolen_from(measurement.host) or left_out(measurement)
        self._note(f"{what}. {why} Measured again in {pause_s:.0f} s")
        until = time.monotonic() + pause_s
        with self._book.phase(Phase.WAITING):
            while (left_s := until - time.monotonic()) > 0.0:
                self._checkpoint()
                time.sleep(min(left_s, 1.0))


def _taken(measurement: Measurement) -> float:
    """Percent of the machine that the hypervisor took; all of it where bursts were left out."""
    left_s, out_s = measurement.duration_s, measurement.left_out_s
    stolen = measurement.host.stolen_cpu_percent or 0.0
    return (stolen * left_s + 100.0 * out_s) / (left_s + out_s)
