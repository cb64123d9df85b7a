"""The throughput of a saturated config: an upper bound on the load that it sustains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

from pydantic import Field

from tuner.facts import Facts, is_empty
from tuner.measurement.measurement import Measurement, ServerStatistics
from tuner.score.capacity import SATURATED, NoResult
from tuner.spec.slo import Slo

#: Fewest answers from which a rate gives a bound.
FEWEST = 30
#: Two configs are not compared in rounds where the throughput of one, when saturated, is below the
#: load of the other divided by this: servers and searches err by some percent, not by three times.
FAR = 3.0
#: Batches that the start and end of a short look may have cut off.
_ENDS = 2


@dataclass(frozen=True)
class Saturated(Facts):
    """One look at a config with many requests in flight.

    Attributes:
        in_flight: The number of requests that was kept in flight.
        answered_per_s: Requests answered per second.
        at_most_per_s: Upper bound on the load that is sustained within the SLOs, in requests per
            second; None where the look gives no bound.
        batch_size: Inferences per request.
        models: The server's statistics of each served model, by name.
    """

    in_flight: int
    answered_per_s: float
    at_most_per_s: float | None
    batch_size: int = 1
    models: Annotated[Mapping[str, ServerStatistics], Field(exclude_if=is_empty)] = field(
        default_factory=dict
    )

    @property
    def too_much(self) -> NoResult | None:
        """The lowest load known to saturate the config; None where the look gives no bound."""
        if self.at_most_per_s is None:
            return None
        return NoResult(
            self.at_most_per_s / SATURATED, min(self.answered_per_s, self.at_most_per_s)
        )

    @classmethod
    def of(cls, look: Measurement, slos: Sequence[Slo]) -> Self:
        """The bound on open loops by ``look``, a measurement of a closed loop.

        While every SLO is met, an open loop has at most as many requests in flight as arrive within
        the latency bound (Little's law). With at least as many in flight, a server does not answer
        fewer. So there is no bound where the look had fewer requests in flight, too few answers,
        several streams or a disturbance.
        """
        rate, in_flight = look.requests_per_s, round(look.load.level)
        within_s = shortest_bound_s(slos)
        batches = [m.mean_batch_size or 1.0 for m in look.models.values()]
        cut_off = _ENDS * max(batches, default=1.0) / look.batch_size
        bounds = (
            look.completed_count >= FEWEST
            and rate * within_s <= in_flight
            and not (look.streams or look.disturbances)
        )
        at_most = (look.completed_count + cut_off) / look.duration_s
        return cls(in_flight, rate, at_most if bounds else None, look.batch_size, look.models)


def shortest_bound_s(slos: Sequence[Slo]) -> float:
    """The least time in seconds that an SLO allows a request; infinite without such an SLO."""
    return min((s.within_s for s in slos if s.metric.of_full_response), default=math.inf)
