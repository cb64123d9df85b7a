"""How requests arrive: the kinds of arrivals of a spec."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from tuner.spec.fields import KIND, Count, Duration, PositiveNumber, SpecFile, Strict
from tuner.spec.units import Percent, Seconds

_MAX_RATE = Field(1e5, description="upper end of that search, per second")
_RATE = Field(None, description="requests per second to measure; default: search for the highest")
_Rates = Annotated[tuple[PositiveNumber, ...], Field(min_length=1)]


class ClosedArrivals(Strict):
    """Clients that send the next request when the last is answered."""

    kind: Literal["closed"] = KIND
    concurrency: Annotated[tuple[Count, ...], Field(min_length=1)] | None = Field(
        None, description="levels to measure; default: search for the highest that meets the SLOs"
    )
    max_concurrency: Count = Field(256, description="upper end of that search")
    restarts: Count = Field(
        3,
        description="times the load is started in each measurement, each for a part of the window: "
        "a closed loop settles into one of several modes",
    )


class PoissonArrivals(Strict):
    """Open loop: requests arrive at random times, whether or not the server keeps up."""

    kind: Literal["poisson"] = KIND
    rate: _Rates | None = _RATE
    max_rate: PositiveNumber = _MAX_RATE


class ConstantArrivals(Strict):
    """Open loop: requests at equal gaps, as cameras and sensors send them.

    Requests of many users come at random times and queue by chance, which these do not.
    """

    kind: Literal["constant"] = KIND
    rate: _Rates | None = _RATE
    max_rate: PositiveNumber = _MAX_RATE


#: Least number of busy times in a window: with fewer, the result depends on chance.
BUSY_TIMES = 30


class BurstArrivals(Strict):
    """Open loop: Poisson arrivals that switch between a calm and a busy rate by chance.

    A window is long enough for 30 busy times, on average.
    """

    kind: Literal["bursts"] = KIND
    rate: _Rates | None = Field(
        None, description="mean rates over calm and busy times; default: search for the highest"
    )
    max_rate: PositiveNumber = _MAX_RATE
    burst_ratio: Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)] = Field(
        5.0, description="busy rate over calm rate"
    )
    burst_share: Percent = Field(Percent(0.2), description="share of the time that is busy")
    burst_length: Duration = Field(
        Seconds(0.2), description="mean length of a busy time; lengths are exponential"
    )

    @field_validator("burst_share")
    @classmethod
    def _some_of_each(cls, share: Percent) -> Percent:
        if not 0 < share < 1:
            raise ValueError(f"must be above 0% and below 100%, not {share}")
        return share

    @property
    def cycle_s(self) -> float:
        """Mean seconds from one busy time to the next."""
        return float(self.burst_length) / float(self.burst_share)


class TraceArrivals(Strict):
    """Open loop: gaps between requests from a file, one per line in microseconds, rescaled."""

    kind: Literal["trace"] = KIND
    file: SpecFile = Field(description="gaps between requests in microseconds, one per line")
    rate: _Rates | None = Field(
        None, description="mean rates to rescale the trace to; default: search for the highest"
    )
    max_rate: PositiveNumber = _MAX_RATE


class RecordingArrivals(Strict):
    """Open loop: the requests of a recording, each at its own time; see docs/recordings.md.

    A measurement that is shorter replays stretches of it, the busiest one among them.
    """

    kind: Literal["recording"] = KIND
    file: SpecFile = Field(description="JSON lines, one for each request; tune record makes one")
    pace: _Rates | None = Field(
        None,
        description="times its own speed at which it is replayed, such as [1, 2]; default: its "
        "pattern in time stays, and the level says how many requests come",
    )
    rate: _Rates | None = Field(
        None,
        description="mean rates that the pattern is scaled to; default: search for the highest",
    )
    max_rate: PositiveNumber = _MAX_RATE


class SequenceArrivals(Strict):
    """Open loop: sequences of requests, for models with ``sequence_batching``.

    So many run at once, each on a separate clock; where one ends, the next begins. A request
    waits for the answer to the one before it, and that is part of its latency.
    """

    kind: Literal["sequences"] = KIND
    length: Count | None = Field(
        None,
        description="requests of a sequence; left out where requests come from a file of sequences",
    )
    longest: Count | None = Field(
        None, description="lengths are drawn evenly from length to this; default: all are the same"
    )
    interval: Duration = Field(description="from one request of a sequence to the next")
    count_output: str | None = Field(
        None,
        description="output of one number in which the model counts the requests of a sequence, "
        "from 1: an answer out of order is a failure; default: the order is kept, not checked",
    )
    rate: _Rates | None = Field(
        None,
        description="requests per second to measure; so many times interval is the number of "
        "sequences at once; default: search for the highest number of these",
    )
    max_rate: PositiveNumber = _MAX_RATE

    @property
    def lengths(self) -> tuple[int, int] | None:
        """The fewest and the most requests of a sequence; None: a file has the sequences."""
        return None if self.length is None else (self.length, self.longest or self.length)


ArrivalsSpec = Annotated[
    ClosedArrivals
    | PoissonArrivals
    | ConstantArrivals
    | BurstArrivals
    | TraceArrivals
    | RecordingArrivals
    | SequenceArrivals,
    Field(discriminator="kind"),
]
