"""A measurement that cannot be believed is made again, as often as may help."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tuner.bench.rejects import Rejects, doubt_about
from tuner.errors import ClientLimitError, InterruptedRunError, TrialError
from tuner.load.validity import client_behind, client_kept_up
from tuner.load.watch.disturbance import stolen_from
from tuner.load.watch.sampler import SPELL_PERCENT
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.score.point import judge_point
from tuner.spec.slo import Slo

#: Before each further measurement while the hypervisor takes CPU: it comes in spells of seconds to
#: minutes, and shows only under load, so that nothing can be learnt by looking on.
PAUSES_S = (5.0, 15.0, 40.0)

#: One measurement under a load.
_Put = Callable[[LoadPoint, Window, int], Measurement]


class Repeating:
    """Measures until it can be believed, within bounds.

    What is in doubt is repeated at once, unless that did not help the last time. Where the
    hypervisor took so much that the client fell behind, or an SLO was missed and may not have been
    (what is taken from a server never helps it), the spell is waited for, `PAUSES_S`. A client
    that was behind all the while gives no result. Of the others the one counts that was disturbed
    least; misses are not waited for again until a spell has passed.

    Args:
        put: Makes one measurement.
        rejects: Gets those that do not count.
        note: Told why it is waited.
        checkpoint: Called while waiting; raises when the run is to stop.
    """

    def __init__(
        self,
        put: _Put,
        slos: Sequence[Slo],
        rejects: Rejects,
        note: Callable[[str], None],
        checkpoint: Callable[[], None],
    ) -> None:
        self._put = put
        self._slos = slos
        self._rejects = rejects
        self._note = note
        self._checkpoint = checkpoint
        self._in_vain = False  # what disturbed the last measurement disturbed its repetition too
        self._waited_in_vain = False  # the hypervisor takes much, and took it after all pauses

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        """One measurement, made again where it is in doubt.

        Raises:
            ClientLimitError: The client could not keep up.
            TrialError: No usable result.
        """
        made = [self._put(load, window, seed)]
        pauses = [*PAUSES_S]
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
        return self._best_of(made)

    def _doubtful(self, made: Sequence[Measurement]) -> bool:
        """Whether the last one asks for another."""
        last = made[-1]
        if len(made) > 1:
            return not client_kept_up(last) or self._robbed(last)
        if client_kept_up(last) and self._in_vain:
            return self._robbed(last) and not self._waited_in_vain
        return bool(doubt_about(last))

    def _robbed(self, measurement: Measurement) -> bool:
        """An SLO was missed, perhaps since the hypervisor took as much as in a spell."""
        point = judge_point(self._slos, measurement)
        missed = not (point.passed or point.undecided)
        return missed and _taken(measurement) > SPELL_PERCENT

    def _worth_waiting(self, measurement: Measurement) -> bool:
        if not client_kept_up(measurement):
            return bool(stolen_from(measurement.host))
        return not self._waited_in_vain

    def _best_of(self, made: Sequence[Measurement]) -> Measurement:
        """The one that was disturbed least, of several the last."""
        usable = [m for m in made if client_kept_up(m)]
        if not usable:
            self._reject(made)
            raise client_behind(made[-1])
        best = min(reversed(usable), key=lambda m: (bool(doubt_about(m)), _taken(m)))
        self._reject([m for m in made if m is not best])
        self._in_vain = bool(doubt_about(best))
        waited = self._waited_in_vain or len(made) > 1 + len(PAUSES_S)
        self._waited_in_vain = waited and _taken(best) > SPELL_PERCENT
        return best

    def _reject(self, made: Sequence[Measurement]) -> None:
        for measurement in made:
            self._rejects.reject(doubt_about(measurement), measurement)

    def _pause(self, measurement: Measurement, pause_s: float) -> None:
        """Idle, so that whoever takes the CPU may be done; a stop is heeded."""
        behind = not client_kept_up(measurement)
        what = "the load generator could not keep up" if behind else "an SLO was missed"
        why = stolen_from(measurement.host)
        self._note(f"{what}. {why} Measured again in {pause_s:.0f} s")
        until = time.monotonic() + pause_s
        while (left_s := until - time.monotonic()) > 0.0:
            self._checkpoint()
            time.sleep(min(left_s, 1.0))


def _taken(measurement: Measurement) -> float:
    return measurement.host.stolen_cpu_percent or 0.0
