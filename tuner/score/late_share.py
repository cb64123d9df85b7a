"""The share of late requests, with an upper limit for the long run.

Late requests come in groups. The *effective* number of requests is the number of independent
requests that would give the same accuracy; the upper limit is computed from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tuner.facts import Facts, is_empty
from tuner.measurement.measurement import Measurement
from tuner.score.judge import TAIL, tails
from tuner.spec.slo import Slo
from tuner.spec.units import digits

if TYPE_CHECKING:  # numpy takes a tenth of a second to import
    import numpy as np
    import numpy.typing as npt

#: Probability that the limit is above the true share: in simulated queues, 0.90 to 0.99.
CONFIDENCE = 0.95
#: With fewer effective requests the upper limit is not reported.
ENOUGH = 300.0
#: Where stalls multiply the late share by more than this, the machine decides about the SLO.
DECIDES = 3.0
#: Batches of successive requests, for the method of batch means (10 to 30: Schmeiser, Batch Size
#: Effects in the Analysis of Simulation Output, Operations Research 30, 1982).
BATCHES = 20
#: With a smaller share of late requests, this share of the slowest ones gives the correlation: few
#: late ones would not. Slow requests come in longer groups than still slower ones, so this errs on
#: the safe side.
SLOW = 0.04


@dataclass(frozen=True)
class LateShare(Facts):
    """The share of late requests in one window, with an upper limit for the long run.

    Attributes:
        requests: The number of requests due in the window.
        late: How many of them were answered after the bound, refused, failed or never answered.
        effective: The number of independent requests with the same accuracy, at most ``requests``.
        at_most: Upper limit of the share in the long run, 0 to 1, with `CONFIDENCE` (one-sided).
        left_out_s: Seconds of the window that the figures above leave out: stalls of the machine.
        with_left_out: The share with the requests due in stalls, 0 to 1.
        machine_decides: Stalls alone made so many requests late that the SLO is missed.
    """

    requests: int
    late: int
    effective: float
    at_most: float
    left_out_s: Annotated[float, Field(exclude_if=is_empty)] = 0.0
    with_left_out: Annotated[float, Field(exclude_if=is_empty)] = 0.0
    machine_decides: Annotated[bool, Field(exclude_if=is_empty)] = False

    @property
    def share(self) -> float:
        return self.late / self.requests

    @property
    def text(self) -> str:
        """`0.6% late (at most 0.9%)`; without the limit below `ENOUGH` effective requests."""
        share, at_most = (digits(100.0 * part, 2) for part in (self.share, self.at_most))
        known = f" (at most {at_most}%)" if self.effective >= ENOUGH else ""
        said = f"{share}% late{known}"
        if not self.left_out_s:
            return said
        total, out_s = digits(100.0 * self.with_left_out, 2), digits(self.left_out_s, 2)
        said = f"{said}; {total}% with the {out_s} s in which the machine paused"
        return f"{said}: the machine decides this SLO" if self.machine_decides else said


def measured_late_share(
    measurement: Measurement, slos: Sequence[Slo], relaxation_s: float = 0.0
) -> LateShare | None:
    """The late share of the stream with the highest upper limit relative to its SLO.

    None without an SLO on the tail, or where the latency of each request is not known.

    ``relaxation_s``: the longest relaxation time of the latency in any window, in seconds; 0: not
    known.
    """
    most = math.inf if relaxation_s <= 0.0 else measurement.duration_s / (2.0 * relaxation_s)
    shares = []
    for tail in tails(slos):
        stream = measurement.of(tail.stream)
        if stream is None or stream.by_arrival_us is None:
            continue
        allowed = 1.0 - (tail.metric.quantile or 0.0)
        share = late_share(stream.by_arrival_us, tail.bound, most)
        if stream.all_by_arrival_us is not None:
            total = float((stream.all_by_arrival_us > tail.bound).mean())
            share = replace(share, left_out_s=stream.left_out_s, with_left_out=total)
            share = replace(share, machine_decides=total > max(DECIDES * share.share, allowed))
        shares.append((share.at_most / allowed, share))
    return max(shares, key=lambda pair: pair[0])[1] if shares else None


def missed_by_chance(slo: Slo, windows: Sequence[Measurement]) -> bool:
    """Whether chance may explain that windows at one load missed an SLO on the latency's tail.

    It may where the long run may have no more late requests than the SLO allows. False where the
    latency of each request is not known, and for any other SLO.
    """
    quantile = slo.metric.quantile or 0.0
    streams = [window.of(slo.stream) for window in windows]
    latencies = [None if stream is None else stream.by_arrival_us for stream in streams]
    known = [each for each in latencies if each is not None]
    if quantile < TAIL or len(known) < len(windows):
        return False
    shares = [late_share(each, slo.bound) for each in known]
    late = sum(share.share * share.effective for share in shares)
    return _lower_limit(late, sum(s.effective for s in shares)) <= 1.0 - quantile


def late_share(
    latencies_us: npt.NDArray[np.float64], bound_us: float, most_effective: float = math.inf
) -> LateShare:
    """The share of late requests of one window, with its upper limit.

    The limit is that of Korn and Graubard (Confidence intervals for proportions with small expected
    number of positive counts estimated from survey data, Survey Methodology 24, 1998): Clopper and
    Pearson's for the effective number of requests. The effective number is the number of requests
    divided by the design effect, which is estimated from batch means (Law, Simulation Modeling and
    Analysis, ch. 9.5.3), and is reduced further because of that estimate's error.

    Args:
        latencies_us: The latency in microseconds of every request due in the window, in the order
            in which they were due, shape (requests,); infinite for a request that was refused,
            failed or never answered. At least one.
        bound_us: A request with a higher latency, in microseconds, is late.
        most_effective: Upper bound on the effective number.

    Raises:
        ValueError: There is no request.
    """
    requests = latencies_us.size
    if requests == 0:
        raise ValueError("a share of late requests needs a request")
    late = int((latencies_us > bound_us).sum())
    effective = max(min(_effective(latencies_us, bound_us), most_effective), 1.0)
    return LateShare(requests, late, effective, _upper_limit(late / requests, effective))


def _effective(latencies_us: npt.NDArray[np.float64], bound_us: float) -> float:
    import numpy as np
    from scipy.special import ndtri, stdtrit

    count = latencies_us.size
    rows = min(BATCHES, count // 2)
    slow = latencies_us > bound_us
    if slow.mean() < SLOW:
        rank = count - max(round(SLOW * count), 1)
        slow = latencies_us >= np.partition(latencies_us, rank)[rank]
    share = float(slow.mean())
    if rows < 2 or share == 1.0:  # without variation there is no correlation to estimate
        return float(min(rows, count)) or 1.0
    length = count // rows
    means = slow[count - rows * length :].reshape(rows, length).mean(axis=1)
    effect = length * float(means.var(ddof=1)) / (share * (1.0 - share))
    if effect <= 1.0:
        return float(count)
    quantiles = ndtri(CONFIDENCE) / stdtrit(rows - 1, CONFIDENCE)
    return max(count / effect * float(quantiles) ** 2, 1.0)


def _upper_limit(share: float, effective: float) -> float:
    """Clopper and Pearson's upper limit, for a number of requests that need not be whole."""
    from scipy.special import betaincinv

    late = share * effective
    if late >= effective:
        return 1.0
    return float(betaincinv(late + 1.0, effective - late, CONFIDENCE))


def _lower_limit(late: float, effective: float) -> float:
    """Clopper and Pearson's lower limit, for numbers of requests that need not be whole."""
    from scipy.special import betaincinv

    if late <= 0.0:
        return 0.0
    return float(betaincinv(late, effective - late + 1.0, 1.0 - CONFIDENCE))
