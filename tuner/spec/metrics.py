"""The metrics that an SLO bounds and an objective minimises: one entry in a table each.

Parsing, judging, formatting, the trials' CSV and the JSON Schema read this table.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from tuner.spec.mistakes import in_brackets
from tuner.spec.units import BYTE_UNITS, LATENCY_UNITS, Bytes, quantity_pattern, read_quantity

#: A percentile needs enough requests for this confidence (299 for p99), or it gets no verdict.
#: That is enough for a search, which only ranks configs; a claim rests on 459 requests.
RANKING = 0.95


class Better(Enum):
    """Which values are good; the sign is the one of a bound."""

    LOWER = "<="
    HIGHER = ">="


class Scope(Enum):
    """To what a bound at the top of a spec applies, where there are several streams."""

    STREAM = "each stream by itself"
    TOTAL = "all streams together"
    SERVER = "the server"


class Until(Enum):
    """The end of a latency, which starts when the request was due."""

    ANSWER = "the answer"
    FIRST = "the first response"  # of a decoupled model, which may send many
    LAST = "the last response"


@dataclass(frozen=True, eq=False)
class Unit:
    """How a bound is written.

    Attributes:
        accepted: The accepted texts, in words, for messages.
        pattern: The accepted texts as a regular expression (ECMA and Python).
        read: Converts a text to a number in the base unit; None where the text is not accepted.
        written: Converts a number in the base unit to text, exactly.
        axis: Unit of an axis, and the factor from the base unit to it.
    """

    accepted: str
    pattern: str
    read: Callable[[str], Decimal | None]
    written: Callable[[Decimal], str]
    axis: tuple[str, float]

    def __reduce__(self) -> tuple[Callable[[str], Unit], tuple[str]]:
        """The one there is: it is compared by identity, in other processes too."""
        return _unit, (self.accepted,)


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric that SLOs can bound or objectives minimize, in the base unit of ``unit``.

    Attributes:
        reading: Attribute path in a `Measurement`, such as `host.gpu_memory_used_bytes`. Without
            that attribute, a percentile is computed from the latencies of the requests.
        quantile: 0.99 for p99_latency; None for a metric that is no percentile.
        aliases: Names of the metric elsewhere (Model Analyzer, Prometheus, dashboards).
        not_minimised: Why no objective can minimize the metric, and what to write instead.
        scope: To what a bound at the top of a spec applies.
        until: The end of a latency.
    """

    name: str
    unit: Unit
    reading: str
    better: Better = Better.LOWER
    quantile: float | None = None
    aliases: tuple[str, ...] = ()
    not_minimised: str = ""
    scope: Scope = Scope.STREAM
    until: Until = Until.ANSWER

    def __reduce__(self) -> tuple[Callable[[str], Metric], tuple[str]]:
        """The one there is, like a `Unit`."""
        return parse_metric, (self.name,)

    @property
    def is_latency(self) -> bool:
        return self.unit is TIME

    @property
    def of_full_response(self) -> bool:
        """Whether the metric is a latency until the complete response."""
        return self.is_latency and self.until is not Until.FIRST

    @property
    def ranked(self) -> str:
        """The attribute path in a `Measurement` of the ascending latencies behind a percentile."""
        return {Until.FIRST: "responses.first_us", Until.LAST: "responses.last_us"}.get(
            self.until, "latencies_us"
        )

    def lasting(self, until: Until) -> Metric:
        """The same percentile, or mean, of the latency with another end."""
        kind = self.name.partition("_")[0]
        return METRICS[f"{kind}_{_LATENCY[until]}"]

    @property
    def words(self) -> str:
        return self.name.replace("avg_", "average_").replace("_", " ")

    @property
    def column(self) -> str:
        """The metric's name in `trials.csv`, with the unit if there is one."""
        return self.reading.rpartition(".")[2]

    @property
    def requests_needed(self) -> int:
        """Fewest requests that determine the metric; 1 where it is no percentile."""
        return 1 if self.quantile is None else requests_needed(self.quantile)

    @property
    def requests_searched(self) -> int:
        """The same for a search."""
        return 1 if self.quantile is None else requests_needed(self.quantile, confidence=RANKING)


def requests_needed(share: float, late: int = 0, confidence: float = 0.99) -> int:
    """Fewest requests that show ``share`` of all requests to be in time.

    With ``late`` of them late, the smallest n for which
    ``P[Binomial(n, 1 - share) <= late] <= 1 - confidence``: 459, 662 and 838 for p99 with 0, 1
    and 2 late. Source: early stopping in MLCommons' inference rules (inference_rules.adoc),
    with d = 0. The formula assumes independent requests; queueing correlates neighboring
    requests, so the number is a lower bound.
    """

    def suffices(n: int) -> bool:
        chances = (
            math.comb(n, k) * (1.0 - share) ** k * share ** (n - k) for k in range(min(late, n) + 1)
        )
        return sum(chances) <= 1.0 - confidence

    return bisect_left(range(1 << 40), True, key=suffices)


def parse_metric(name: str) -> Metric:
    """The metric with this name.

    Raises:
        ValueError: No metric has the name; the message has the name that was probably meant.
    """
    if name in METRICS:
        return METRICS[name]
    bare = re.sub(r"^perf_|_(us|ms|s)$", "", name.lower())
    turned = re.sub(r"^latency_(\w+)$", r"\1_latency", bare)
    aliases = {alias: metric for metric in METRICS.values() for alias in metric.aliases}
    meant = aliases.get(bare) or METRICS.get(turned)
    if meant is not None:
        raise ValueError(f"unknown metric '{name}' (did you mean {meant.name}?)")
    *most, last = (m.name.removesuffix("_latency") for m in _LATENCIES if m.quantile)
    percentile = re.match(r"p[\d.]+|(?:max|maximum|min|minimum)(?=_latency$|$)", bare)
    if percentile and percentile[0] not in (*most, last):
        known = f"{', '.join(most)} and {last}"
        raise ValueError(f"'{name}' is not measured: percentiles are {known}")
    guess = in_brackets(name, METRICS)
    listed = ", ".join(m.name for m in METRICS.values() if m.until is Until.ANSWER)
    more = f"and {P99_LATENCY.lasting(Until.FIRST).name} and the like of decoupled models"
    raise ValueError(f"unknown metric '{name}'{guess}; metrics are {listed}, {more}")


def _share(text: str) -> Decimal | None:
    """0..1; a bare number must be below 1, where it cannot be taken for percent."""
    percent = read_quantity(text, {"%": Decimal("0.01")})
    bare = read_quantity(text, {"": Decimal(1)})
    if percent is not None:
        return percent if percent <= 1 else None
    return bare if bare is not None and bare < 1 else None


def _time_written(exact: Decimal) -> str:
    fitting = [unit for unit, size in LATENCY_UNITS.items() if exact >= size or unit == "us"]
    unit = max(fitting, key=LATENCY_UNITS.__getitem__)
    return f"{_plain(exact / LATENCY_UNITS[unit])}{unit}"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


TIME = Unit(
    "a time such as 500us, 60ms or 1.5s",
    quantity_pattern(LATENCY_UNITS),
    lambda text: read_quantity(text, LATENCY_UNITS),
    _time_written,
    ("ms", 1e-3),
)
SHARE = Unit(
    "a share such as 0%, 0.5% or 0.005",
    r"(\d+(\.\d+)? ?%|0(\.\d+)?)",
    _share,
    lambda exact: f"{_plain(exact * 100)}%",
    ("%", 100.0),
)
RATE = Unit(
    "a rate such as 300/s",
    r"\d+(\.\d+)? ?/s",
    lambda text: read_quantity(text, {"/s": Decimal(1)}),
    lambda exact: f"{_plain(exact)}/s",
    ("infer/s", 1.0),
)
SIZE = Unit(
    "a size such as 8GiB or 500MB",
    quantity_pattern(BYTE_UNITS),
    lambda text: read_quantity(text, BYTE_UNITS),
    lambda exact: str(Bytes(exact)),
    ("MiB", 1.0 / (1 << 20)),
)


def _unit(accepted: str) -> Unit:
    return next(unit for unit in (TIME, SHARE, RATE, SIZE) if unit.accepted == accepted)


#: How a latency's name ends, after the percentile.
_LATENCY = {
    Until.ANSWER: "latency",
    Until.FIRST: "first_response",
    Until.LAST: "last_response",
}


def _percentile(name: str, quantile: float, *aliases: str) -> Metric:
    metric = f"{name}_latency"
    return Metric(metric, TIME, f"{metric}_us", quantile=quantile, aliases=(name, *aliases))


P50_LATENCY = _percentile("p50", 0.5, "median", "median_latency", "latency_median")
P90_LATENCY = _percentile("p90", 0.9)
P95_LATENCY = _percentile("p95", 0.95)
P99_LATENCY = _percentile("p99", 0.99, "latency")
AVG_LATENCY = Metric(
    "avg_latency",
    TIME,
    "avg_latency_us",
    aliases=("mean", "mean_latency", "latency_mean", "average_latency"),
)
ERROR_RATE = Metric(
    "error_rate",
    SHARE,
    "error_rate",
    aliases=("errors", "failures", "failure_rate"),
    not_minimised="error_rate is bounded by an SLO, not minimised: error_rate <= 0%",
)
THROUGHPUT = Metric(
    "throughput",
    RATE,
    "throughput_infer_per_s",
    Better.HIGHER,
    aliases=("qps", "rps", "infer_per_s", "goodput"),
    not_minimised="throughput is not minimised: write maximize goodput",
    scope=Scope.TOTAL,
)
GPU_MEMORY = Metric(
    "gpu_memory",
    SIZE,
    "host.gpu_memory_used_bytes",
    aliases=("memory", "gpu_used_memory", "vram"),
    scope=Scope.SERVER,
)

GPU_UTILIZATION = Metric(
    "gpu_utilization",
    SHARE,
    "host.gpu_utilization",
    aliases=("utilization", "gpu_util"),
    not_minimised="gpu_utilization is bounded by an SLO, not minimised: gpu_utilization <= 85%",
    scope=Scope.SERVER,
)
#: What only a GPU has.
OF_GPUS = (GPU_MEMORY, GPU_UTILIZATION)

_LATENCIES = (P50_LATENCY, P90_LATENCY, P95_LATENCY, P99_LATENCY, AVG_LATENCY)


def _until(until: Until, metric: Metric) -> Metric:
    kind, end = metric.name.partition("_")[0], _LATENCY[until]
    aliases = _OF_RESPONSES[until] if metric is P99_LATENCY else ()
    reading = f"responses.{kind}_{end}_us"
    return Metric(
        f"{kind}_{end}", TIME, reading, quantile=metric.quantile, aliases=aliases, until=until
    )


_OF_RESPONSES = {
    Until.FIRST: ("first_response", "ttft", "time_to_first_token", "time_to_first_response"),
    Until.LAST: ("last_response", "request_latency"),
}
_RESPONSES = (_until(until, metric) for until in _OF_RESPONSES for metric in _LATENCIES)
METRICS = {m.name: m for m in (*_LATENCIES, *_RESPONSES, ERROR_RATE, THROUGHPUT, *OF_GPUS)}

#: What a slow model answers; few are slower.
SLOW_PER_S = 5


def easier_percentile(metric: Metric) -> Metric | None:
    """The next lower percentile of the same latency, which needs fewer requests; else None."""
    easier = [
        m
        for m in METRICS.values()
        if m.quantile is not None and m.until is metric.until
        if m.requests_needed < metric.requests_needed
    ]
    return max(easier, key=lambda m: m.requests_needed, default=None)
