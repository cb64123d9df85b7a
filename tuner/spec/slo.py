"""SLO expressions: `p99_latency <= 60ms`, `error_rate <= 0%`, `throughput >= 300/s`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic_core import CoreSchema, core_schema

from tuner.spec.suggest import in_brackets
from tuner.spec.units import (
    BYTE_UNITS,
    LATENCY_UNITS,
    Bytes,
    quantity_pattern,
    read_quantity,
    shortened,
)


class Metric(Enum):
    """What can be bounded or minimised. Values are in the base unit named beside each."""

    P50_LATENCY = "p50_latency"  # microseconds
    P90_LATENCY = "p90_latency"  # microseconds
    P95_LATENCY = "p95_latency"  # microseconds
    P99_LATENCY = "p99_latency"  # microseconds
    AVG_LATENCY = "avg_latency"  # microseconds
    ERROR_RATE = "error_rate"  # 0..1
    THROUGHPUT = "throughput"  # inferences per second
    GPU_MEMORY = "gpu_memory"  # bytes

    @property
    def is_latency(self) -> bool:
        return self.value.endswith("_latency")

    @property
    def quantile(self) -> float | None:
        """0.99 for p99_latency; None for what is no percentile."""
        match = re.match(r"p(\d+)_", self.value)
        return int(match[1]) / 100 if match else None


class Comparison(Enum):
    AT_MOST = "<="
    AT_LEAST = ">="


#: What people call the metrics elsewhere (Model Analyzer, Prometheus, dashboards).
_ALIASES = {
    "p50": Metric.P50_LATENCY,
    "median": Metric.P50_LATENCY,
    "p90": Metric.P90_LATENCY,
    "p95": Metric.P95_LATENCY,
    "p99": Metric.P99_LATENCY,
    "latency": Metric.P99_LATENCY,
    "mean": Metric.AVG_LATENCY,
    "mean_latency": Metric.AVG_LATENCY,
    "latency_mean": Metric.AVG_LATENCY,
    "average_latency": Metric.AVG_LATENCY,
    "errors": Metric.ERROR_RATE,
    "failures": Metric.ERROR_RATE,
    "failure_rate": Metric.ERROR_RATE,
    "qps": Metric.THROUGHPUT,
    "rps": Metric.THROUGHPUT,
    "infer_per_s": Metric.THROUGHPUT,
    "goodput": Metric.THROUGHPUT,
    "memory": Metric.GPU_MEMORY,
    "gpu_used_memory": Metric.GPU_MEMORY,
    "vram": Metric.GPU_MEMORY,
}


@dataclass(frozen=True)
class Slo:
    """One bound; ``bound`` is in the metric's base unit. ``str()`` is the normalised text."""

    metric: Metric
    comparison: Comparison
    bound: float
    expression: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Reads ``METRIC <= VALUE``.

        Raises:
            ValueError: Not an SLO; the message says what is accepted.
        """
        match = re.fullmatch(r"([^\s<>=≤≥]+)\s*([<>=≤≥]+)\s*(\S.*)", text.strip())
        if match is None:
            found = shortened(text)
            raise ValueError(f"{found} is not METRIC <= VALUE, such as p99_latency <= 60ms")
        metric = parse_metric(match[1])
        comparison = _comparison(metric, match[2], match[3])
        return cls(metric, comparison, _bound(metric, match[3]), " ".join(text.split()))

    def met_by(self, value: float) -> bool:
        """Whether a reading in the metric's base unit is within the bound."""
        if self.comparison is Comparison.AT_MOST:
            return value <= self.bound
        return value >= self.bound

    def __str__(self) -> str:
        return f"{self.metric.value} {self.comparison.value} {_written(self.metric, self.bound)}"

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._of, serialization=core_schema.to_string_ser_schema(when_used="json")
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        return {
            "type": "string",
            "pattern": _PATTERN,
            "examples": ["p99_latency <= 60ms", "error_rate <= 0%", "gpu_memory <= 8GiB"],
        }

    @classmethod
    def _of(cls, value: object) -> Slo:
        if isinstance(value, Slo):
            return value
        if not isinstance(value, str):
            raise ValueError("an SLO is one line of text, such as p99_latency <= 60ms")  # noqa: TRY004
        return cls.parse(value)


def parse_metric(name: str) -> Metric:
    """The metric called ``name``; raises ValueError with the name that was probably meant."""
    names = [metric.value for metric in Metric]
    if name in names:
        return Metric(name)
    bare = re.sub(r"^perf_|_(us|ms|s)$", "", name.lower())
    turned = re.sub(r"^latency_(\w+)$", r"\1_latency", bare)
    alias = _ALIASES.get(bare) or (Metric(turned) if turned in names else None)
    if alias is not None:
        raise ValueError(f"unknown metric '{name}' (did you mean {alias.value}?)")
    percentile = re.match(r"p([\d.]+)", bare)
    if percentile and f"p{percentile[1]}" not in _ALIASES:
        raise ValueError(f"'{name}' is not measured: percentiles are p50, p90, p95 and p99")
    known = ", ".join(names)
    raise ValueError(f"unknown metric '{name}'{in_brackets(name, names)}; metrics are {known}")


def requests_needed(metric: Metric) -> int:
    """Fewest requests from which 99 % confidence in this percentile is possible; 1 for others.

    With no request over the bound, ``n >= ln(0.01) / ln(quantile)``: 459 for p99. Source:
    early stopping in MLPerf Inference's rules.
    """
    quantile = metric.quantile
    return 1 if quantile is None else math.ceil(math.log(0.01) / math.log(quantile))


def tail_shares(slos: Iterable[Slo]) -> list[float]:
    """The shares of requests that upper bounds on percentiles are about: 0.99 for p99."""
    bounded = (s.metric.quantile for s in slos if s.comparison is Comparison.AT_MOST)
    return [share for share in bounded if share is not None]


def _comparison(metric: Metric, sign: str, bound: str) -> Comparison:
    wanted = Comparison.AT_LEAST if metric is Metric.THROUGHPUT else Comparison.AT_MOST
    if sign == wanted.value:
        return wanted
    advice = f"write {metric.value} {wanted.value} {bound}"
    if sign in (">=", ">", "<=", "<") and sign[0] != wanted.value[0]:
        sense = "at least" if wanted is Comparison.AT_LEAST else "at most"
        raise ValueError(f"{metric.value} is good when it is {sense} a bound: {advice}")
    raise ValueError(f"'{sign}' is not used here: {advice}")


def _bound(metric: Metric, text: str) -> float:
    if metric.is_latency:
        value, accepted = read_quantity(text, LATENCY_UNITS), "a time such as 500us, 60ms or 1.5s"
    elif metric is Metric.ERROR_RATE:
        value, accepted = _share(text), "a share such as 0%, 0.5% or 0.005"
    elif metric is Metric.THROUGHPUT:
        value, accepted = read_quantity(text, {"/s": Decimal(1)}), "a rate such as 300/s"
    else:
        value, accepted = read_quantity(text, BYTE_UNITS), "a size such as 8GiB or 500MB"
    if value is None:
        raise ValueError(f"{metric.value} is bounded by {accepted}, not {shortened(text)}")
    if float(value) == 0 and metric is not Metric.ERROR_RATE:
        raise ValueError(f"a bound of {text} on {metric.value} says nothing")
    return float(value)


def _share(text: str) -> Decimal | None:
    """0..1; a bare number must be below 1, where it cannot be taken for percent."""
    percent = read_quantity(text, {"%": Decimal("0.01")})
    bare = read_quantity(text, {"": Decimal(1)})
    if percent is not None:
        return percent if percent <= 1 else None
    return bare if bare is not None and bare < 1 else None


def _written(metric: Metric, bound: float) -> str:
    exact = Decimal(repr(bound))
    if metric is Metric.GPU_MEMORY:
        return str(Bytes(bound))
    if metric is Metric.ERROR_RATE:
        return f"{_plain(exact * 100)}%"
    if metric is Metric.THROUGHPUT:
        return f"{_plain(exact)}/s"
    unit = max((u for u, f in LATENCY_UNITS.items() if exact >= f or u == "us"), key=_latency_size)
    return f"{_plain(exact / LATENCY_UNITS[unit])}{unit}"


def _latency_size(unit: str) -> Decimal:
    return LATENCY_UNITS[unit]


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


_PATTERN = (
    rf"^\s*((p50|p90|p95|p99|avg)_latency\s*<=\s*{quantity_pattern(LATENCY_UNITS)}"
    r"|error_rate\s*<=\s*(\d+(\.\d+)? ?%|0(\.\d+)?)"
    r"|throughput\s*>=\s*\d+(\.\d+)? ?/s"
    rf"|gpu_memory\s*<=\s*{quantity_pattern(BYTE_UNITS)})\s*$"
)
