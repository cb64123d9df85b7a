"""Numbers with their units as people write them, the same in every format."""

from __future__ import annotations

from math import isfinite

from tuner.score.verdict import SloResult, Verdict
from tuner.space.words import bytes_text
from tuner.spec.slo import Metric

NOTHING = "-"

VERDICTS = {
    Verdict.PASS: "met",
    Verdict.FAIL: "missed",
    Verdict.NOT_ENOUGH_DATA: "not enough data",
}


def latency_text(microseconds: float | None) -> str:
    if microseconds is None or not isfinite(microseconds):
        return NOTHING
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3g} s"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.3g} ms"
    return f"{microseconds:.0f} us"


def rate_text(per_second: float | None) -> str:
    if per_second is None:
        return NOTHING
    return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.3g}/s"


def seconds_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def share_text(share: float | None) -> str:
    return NOTHING if share is None else f"{share * 100:.3g} %"


def metric_text(metric: str, value: float | None) -> str:
    """A value in its metric's base unit, as people write it."""
    if value is None:
        return NOTHING
    if metric.endswith("_latency"):
        return latency_text(value)
    if metric == Metric.ERROR_RATE.value:
        return share_text(value)
    if metric == Metric.GPU_MEMORY.value:
        return bytes_text(int(value))
    return rate_text(value)


def margin_text(result: SloResult) -> str:
    if result.margin is None:
        return NOTHING
    if result.bound == 0:
        return "none allowed" if result.margin >= 0 else f"{share_text(-result.margin)} too many"
    if result.margin < 0:
        return f"missed by {share_text(-result.margin)}"
    return f"{share_text(result.margin)} left"


def count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
