"""How large the share of late requests is, and how large it may be after all.

Requests are late together. The *effective* number of requests is that of independent ones that
would tell as much, and the upper limit is computed from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tuner.facts import Facts
from tuner.measurement.measurement import Measurement
from tuner.score.judge import tails
from tuner.spec.slo import Slo
from tuner.spec.units import digits

if TYPE_CHECKING:  # numpy takes a tenth of a second to import
    import numpy as np
    import numpy.typing as npt

#: The limit is above the true share so often: in 90 to 99 of 100 windows of simulated queues.
CONFIDENCE = 0.95
#: With fewer effective requests the upper limit is not told.
ENOUGH = 300.0
#: Where the share with stalls is larger by this factor, the machine decides about the SLO.
DECIDES = 3.0
#: Rows of requests whose means tell how alike neighbours are (10 to 30: Schmeiser, Batch Size
#: Effects in the Analysis of Simulation Output, Operations Research 30, 1982).
BATCHES = 20
#: With a smaller share of late requests, this share of the slowest ones shows how alike neighbours
#: are: a handful of late ones does not, and slow ones come in longer rows than still slower ones.
SLOW = 0.04


def _empty(value: object) -> bool:
    return not value


@dataclass(frozen=True)
class LateShare(Facts):
    """What one window tells of the share of requests that are late in the long run.

    Attributes:
        requests: Due in the window.
        late: Of them, answered after the bound, refused, failed, or not answered.
        effective: As many independent requests would tell as much, at most ``requests``.
        at_most: Upper limit of the share in the long run, 0..1, with `CONFIDENCE` (one-sided).
        left_out_s: What of the window is not in the figures above: stalls of the machine.
        with_left_out: The share with that, 0..1.
        machine_decides: Stalls made so many more requests late that the SLO is missed for them.
    """

    requests: int
    late: int
    effective: float
    at_most: float
    left_out_s: Annotated[float, Field(exclude_if=_empty)] = 0.0
    with_left_out: Annotated[float, Field(exclude_if=_empty)] = 0.0
    machine_decides: Annotated[bool, Field(exclude_if=_empty)] = False

    @property
    def share(self) -> float:
        return self.late / self.requests

    @property
    def text(self) -> str:
        """`0.6 % late (at most 0.9 %)`; without the limit where it would be a guess."""
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
    """The late share of the stream in which most may be late; None where latencies are not known.

    ``relaxation_s``: how long the latency is correlated with its past, as far as any window showed.
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


def late_share(
    latencies_us: npt.NDArray[np.float64], bound_us: float, most_effective: float = math.inf
) -> LateShare:
    """The share of late requests of one window, with its upper limit.

    The interval of Korn and Graubard (Confidence intervals for proportions with small expected
    number of positive counts estimated from survey data, Survey Methodology 24, 1998): Clopper and
    Pearson's for the effective number of requests, which is their number over the design effect,
    and smaller still because that effect is itself estimated, from batch means (Law, Simulation
    Modeling and Analysis, ch. 9.5.3).

    Args:
        latencies_us: Of every request that was due in the window, in the order in which they were
            due; infinite for those refused, failed or never answered. At least one.
        most_effective: As many independent requests there are at most.

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
    if rows < 2 or share == 1.0:  # no ups and downs to learn from
        return float(min(rows, count)) or 1.0
    length = count // rows
    means = slow[count - rows * length :].reshape(rows, length).mean(axis=1)
    effect = length * float(means.var(ddof=1)) / (share * (1.0 - share))
    if effect <= 1.0:
        return float(count)
    quantiles = ndtri(CONFIDENCE) / stdtrit(rows - 1, CONFIDENCE)
    return max(count / effect * float(quantiles) ** 2, 1.0)


def _upper_limit(share: float, effective: float) -> float:
    """Clopper and Pearson's, of a number of independent requests that need not be whole."""
    from scipy.special import betaincinv

    late = share * effective
    if late >= effective:
        return 1.0
    return float(betaincinv(late + 1.0, effective - late, CONFIDENCE))
