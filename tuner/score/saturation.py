"""What a config answers when it is saturated: an upper bound on the load that it sustains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

from pydantic import Field

from tuner.facts import Facts
from tuner.measurement.measurement import Measurement, ServerStatistics
from tuner.score.capacity import SATURATED, NoResult
from tuner.spec.slo import Slo

#: Fewer answers say too little of a rate.
FEWEST = 30
#: A short look may have cut off a batch at either end.
_ENDS = 2


@dataclass(frozen=True)
class Saturated(Facts):
    """One look at a config that always had many requests to answer.

    Attributes:
        in_flight: So many requests were always sent and not yet answered.
        answered_per_s: Requests.
        at_most_per_s: Requests a second; no more is sustained within the SLOs. None where the look
            bounds nothing.
        batch_size: Inferences in one request.
        models: What the server counted of every model it serves, by name.
    """

    in_flight: int
    answered_per_s: float
    at_most_per_s: float | None
    batch_size: int = 1
    models: Annotated[Mapping[str, ServerStatistics], Field(exclude_if=lambda m: not m)] = field(
        default_factory=dict
    )

    @property
    def too_much(self) -> NoResult | None:
        """A load that it cannot answer; None where the look bounds nothing."""
        if self.at_most_per_s is None:
            return None
        return NoResult(
            self.at_most_per_s / SATURATED, min(self.answered_per_s, self.at_most_per_s)
        )

    @classmethod
    def of(cls, look: Measurement, slos: Sequence[Slo]) -> Self:
        """What a closed loop shows of open ones.

        Below its capacity an open loop has no more requests in flight than it brings in the longest
        time that an SLO allows (Little's law). A server with at least as many to choose from
        answers no less.
        """
        rate, in_flight = look.requests_per_s, round(look.load.level)
        within_s = min((s.bound / 1e6 for s in slos if s.metric.of_full_response), default=math.inf)
        batches = [m.mean_batch_size or 1.0 for m in look.models.values()]
        cut_off = _ENDS * max(batches, default=1.0) / look.batch_size
        bounds = (
            look.completed_count >= FEWEST
            and rate * within_s <= in_flight
            and not (look.streams or look.disturbances)
        )
        at_most = (look.completed_count + cut_off) / look.duration_s
        return cls(in_flight, rate, at_most if bounds else None, look.batch_size, look.models)
