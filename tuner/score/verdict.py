"""Does a measurement meet the SLOs? Pass, fail, or why that cannot be said; never a silent pass."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from tuner.facts import Facts
from tuner.spec.metrics import parse_metric


class Verdict(Enum):
    PASS = "pass"
    FAIL = "fail"
    NOT_STEADY = "not steady"  # within its bound, in a state that does not last
    NOT_ENOUGH_DATA = "not enough data"

    @property
    def missed(self) -> bool:
        """Whether the load is known to be too much."""
        return self in (Verdict.FAIL, Verdict.NOT_STEADY)


#: Worst first.
_ORDER = (Verdict.FAIL, Verdict.NOT_STEADY, Verdict.NOT_ENOUGH_DATA, Verdict.PASS)


@dataclass(frozen=True)
class SloResult(Facts):
    """One SLO held against one measurement.

    ``value`` and ``bound`` are in the metric's base unit (microseconds, 0..1, per second, bytes);
    ``value`` is None when it was not measured. ``margin`` is the distance to the bound as a share
    of it, negative when missed (0.25 = a quarter of the bound is left). ``reason`` says why a
    load was not steady. ``stream``: whose requests it is about.
    """

    expression: str
    metric: Annotated[str, AfterValidator(lambda name: parse_metric(name).name)]
    bound: float
    value: float | None
    verdict: Verdict
    margin: float | None
    reason: str = ""
    stream: Annotated[str, Field(exclude_if=lambda name: not name)] = ""


def rank(verdict: Verdict) -> int:
    """For sorting, the worst first."""
    return _ORDER.index(verdict)


def severity(result: SloResult) -> tuple[int, float]:
    """For sorting: the worst verdict first, of equal ones that with the least margin."""
    return rank(result.verdict), 0.0 if result.margin is None else result.margin
