"""Numbers with units as people write them, the same in every format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite

from tuner.measurement.measurement import LoadPoint
from tuner.report.blocks import Tone
from tuner.score.judge import SloOutcome, SloResult, Verdict, too_few_text
from tuner.spec.metrics import METRICS, RATE, SHARE, SIZE, THROUGHPUT, TIME, Better, Unit
from tuner.spec.units import bytes_parts, bytes_text, digits, digits_beside

NOTHING = "-"

_MANY_TIMES = 9  # above this many bounds, a multiple is clearer than a percentage

VERDICTS = {
    Verdict.PASS: (Tone.GOOD, "met"),
    Verdict.FAIL: (Tone.BAD, "missed"),
    Verdict.NOT_STEADY: (Tone.BAD, "not steady"),
    Verdict.NOT_ENOUGH_DATA: (Tone.UNSURE, SloOutcome.TOO_FEW.value),
}


def latency_text(microseconds: float | None, most: int = 3) -> str:
    if microseconds is None or not isfinite(microseconds):
        return NOTHING
    number, unit = _latency_parts(microseconds, most)
    return f"{number} {unit}"


def _latency_parts(microseconds: float, most: int = 3) -> tuple[str, str]:
    if microseconds >= 1e6:
        return digits(microseconds / 1e6, most), "s"
    if microseconds >= 1e3:
        return digits(microseconds / 1e3, most), "ms"
    return f"{microseconds:.0f}", "us"


def rate_text(per_second: float | None, at_least: bool = False) -> str:
    if per_second is None:
        return NOTHING
    known = f"{per_second:,.0f}/s" if per_second >= 100 else f"{digits(per_second)}/s"
    return f"at least {known}" if at_least else known


def load_text(load: LoadPoint) -> str:
    if not load.arrivals.open_loop:
        return str(load)
    return rate_text(load.level)


def seconds_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def share_text(share: float | None) -> str:
    return NOTHING if share is None else f"{digits(share * 100)}%"


_TEXTS: Mapping[Unit, Callable[[float], str]] = {
    TIME: latency_text,
    SHARE: share_text,
    RATE: rate_text,
    SIZE: lambda size: bytes_text(int(size)),
}


def metric_text(metric: str, value: float | None) -> str:
    """A value in its metric's base unit, as people write it; a rate for an unknown ``metric``."""
    if value is None:
        return NOTHING
    return _TEXTS[METRICS.get(metric, THROUGHPUT).unit](value)


def result_text(result: SloResult) -> str:
    """The value, with more digits if it would otherwise read like the bound without being equal."""
    return beside_bound(result, result.value)


def beside_bound(result: SloResult, value: float | None) -> str:
    """Another value of the same metric, such as another round's, in the same way."""
    text, bound = metric_text(result.metric, value), metric_text(result.metric, result.bound)
    if text != bound or value == result.bound or value is None:
        return text
    if METRICS[result.metric].is_latency:
        longer = (latency_text(value, most) for most in range(4, 10))
        return next((candidate for candidate in longer if candidate != bound), text)
    if METRICS[result.metric].unit is SHARE:
        return f"{digits_beside(100.0 * value, 100.0 * result.bound)}%"
    if METRICS[result.metric].unit is RATE:
        return f"{digits_beside(value, result.bound, 4)}/s"
    return text


def value_and_bound(result: SloResult) -> str:
    """`38.1 of 40 ms`, `1.2 s of 40 ms`, `120/s for 100/s`: a common unit appears once."""
    metric = METRICS[result.metric]
    value, bound = result_text(result), metric_text(result.metric, result.bound)
    unit = _unit(metric.unit, result.bound)
    if unit and result.value is not None and unit == _unit(metric.unit, result.value):
        value = value[: -len(f" {unit}")]
    return f"{value} {'of' if metric.better is Better.LOWER else 'for'} {bound}"


def _unit(unit: Unit, value: float) -> str:
    """The unit after a space; empty if the text of the value has none."""
    if not isfinite(value):
        return ""
    if unit is TIME:
        return _latency_parts(value)[1]
    return bytes_parts(int(value))[1] if unit is SIZE else ""


def verdict_word(result: SloResult) -> str:
    """`met`, `missed`, `not steady`, or `too few answers (290 of 299)`."""
    few = result.verdict.outcome is SloOutcome.TOO_FEW
    return too_few_text([result]) if few else VERDICTS[result.verdict][1]


def verdict_text(result: SloResult) -> str:
    """`not steady: answered 95.2% of what was due`."""
    word = verdict_word(result)
    return f"{word}: {result.reason}" if result.reason else word


def margin_text(result: SloResult) -> str:
    if result.margin is None:
        return NOTHING
    if result.bound == 0:
        return "none allowed" if result.margin >= 0 else f"{share_text(-result.margin)} too many"
    if result.margin <= -_MANY_TIMES:
        return f"{digits(1 - result.margin, 2)} times the bound"
    if result.margin < 0:
        return f"missed by {share_text(-result.margin)}"
    return f"{share_text(result.margin)} left"


def time_text(iso: str) -> str:
    """A time as people write it: `24 Nov 2026, 21:29 UTC`."""
    try:
        time = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    zone = time.tzname() or ""
    return f"{time.day} {time:%b %Y, %H:%M} {zone}".rstrip()
