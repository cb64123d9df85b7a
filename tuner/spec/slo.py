"""SLO expressions: `p99_latency <= 60ms`, `error_rate <= 0%`, `throughput >= 300/s`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS, SHARE, Better, Metric, parse_metric
from tuner.spec.units import AsText, shorten


@dataclass(frozen=True)
class Slo(AsText):
    """One bound; ``bound`` is in the metric's base unit. ``str()`` is the normalised text.

    Attributes:
        stream: The stream it is about, of several; "" for all requests, or the server.
    """

    metric: Metric
    bound: float
    expression: str = field(default="", compare=False)
    stream: str = ""

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Reads ``METRIC <= VALUE``.

        Raises:
            ValueError: Not an SLO; the message says what is accepted.
        """
        match = re.fullmatch(r"([^\s<>=≤≥]+)\s*([<>=≤≥]+)\s*(\S.*)", text.strip())
        if match is None:
            found = shorten(text)
            raise ValueError(f"{found} is not METRIC <= VALUE, such as p99_latency <= 60ms")
        metric = parse_metric(match[1])
        _refuse_other_sign(metric, match[2], match[3])
        return cls(metric, _bound(metric, match[3]), " ".join(text.split()))

    def about(self, stream: str) -> Slo:
        """The same bound for the requests of one stream."""
        return replace(self, stream=stream)

    def holds_for(self, stream: str) -> bool:
        """Whether it is about the requests of a stream: its own, or all."""
        return self.stream in ("", stream)

    def met_by(self, value: float) -> bool:
        """Whether a reading in the metric's base unit is within the bound."""
        if self.metric.better is Better.LOWER:
            return value <= self.bound
        return value >= self.bound

    def __str__(self) -> str:
        bound = self.metric.unit.written(Decimal(repr(self.bound)))
        return of_stream(self.stream, f"{self.metric.name} {self.metric.better.value} {bound}")

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {
            "type": "string",
            "pattern": _pattern(),
            "examples": ["p99_latency <= 60ms", "error_rate <= 0%", "gpu_memory <= 8GiB"],
        }

    @classmethod
    def of(cls, value: object) -> Slo:
        if isinstance(value, Slo):
            return value
        if not isinstance(value, str):
            raise ValueError("an SLO is one line of text, such as p99_latency <= 60ms")  # noqa: TRY004
        return cls.parse(value)


def tail_shares(slos: Iterable[Slo]) -> list[float]:
    """The shares of requests that upper bounds on percentiles are about: 0.99 for p99."""
    return [slo.metric.quantile for slo in slos if slo.metric.quantile is not None]


def _refuse_other_sign(metric: Metric, sign: str, bound: str) -> None:
    wanted = metric.better
    if sign == wanted.value:
        return
    advice = f"write {metric.name} {wanted.value} {bound}"
    if sign in (">=", ">", "<=", "<") and sign[0] != wanted.value[0]:
        sense = "at least" if wanted is Better.HIGHER else "at most"
        raise ValueError(f"{metric.name} must be {sense} its bound: {advice}")
    raise ValueError(f"'{sign}' is not used here: {advice}")


def _bound(metric: Metric, text: str) -> float:
    value = metric.unit.read(text)
    if value is None:
        accepted = metric.unit.accepted
        raise ValueError(f"{metric.name} is bounded by {accepted}, not {shorten(text)}")
    if float(value) == 0 and metric.unit is not SHARE:
        raise ValueError(f"a bound of {text} on {metric.name} is meaningless")
    return float(value)


def _pattern() -> str:
    bounds = (rf"{m.name}\s*{m.better.value}\s*{m.unit.pattern}" for m in METRICS.values())
    return rf"^\s*({'|'.join(bounds)})\s*$"
