"""SLOs and objectives, each one line of text.

SLOs: `p99_latency <= 60ms`, `error_rate <= 0%`, `throughput >= 300/s`. The objective: goodput, or a
metric at a fixed load.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import Any

from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS, SHARE, Better, Metric, Until, parse_metric
from tuner.spec.mistakes import in_brackets
from tuner.spec.units import AsText, shorten


@dataclass(frozen=True)
class Slo(AsText):
    """A bound on a metric; ``str()`` gives the normalized text.

    Attributes:
        bound: In the metric's base unit.
        expression: The text as written.
        stream: The stream whose requests count, where there are several; "" for all requests, or
            for a metric of the server.
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
            quoted = shorten(text)
            raise ValueError(f"{quoted} is not METRIC <= VALUE{_SUCH_AS}")
        metric = parse_metric(match[1])
        _refuse_other_sign(metric, match[2], match[3])
        return cls(metric, _bound(metric, match[3]), " ".join(text.split()))

    def about(self, stream: str) -> Slo:
        return replace(self, stream=stream)

    def holds_for(self, stream: str) -> bool:
        """Whether the SLO applies to the requests of ``stream``: to these, or to all."""
        return self.stream in ("", stream)

    @property
    def share(self) -> float:
        """The share of requests that must be in time, for an SLO on a percentile: 0.99 for p99."""
        assert self.metric.quantile is not None
        return self.metric.quantile

    @property
    def within_s(self) -> float:
        """The bound on a latency, in seconds."""
        return self.bound / 1e6

    @property
    def until_first(self) -> bool:
        """Whether the SLO bounds the first response of a decoupled model."""
        return self.metric.until is Until.FIRST

    def met_by(self, value: float) -> bool:
        """Whether a value in the metric's base unit is within the bound."""
        if self.metric.better is Better.LOWER:
            return value <= self.bound
        return value >= self.bound

    def __str__(self) -> str:
        bound = self.metric.unit.written(Decimal(repr(self.bound)))
        return of_stream(self.stream, f"{self.metric.name} {self.metric.better.value} {bound}")

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        bounds = (rf"{m.name}\s*{m.better.value}\s*{m.unit.pattern}" for m in METRICS.values())
        return {
            "type": "string",
            "pattern": rf"^\s*({'|'.join(bounds)})\s*$",
            "examples": ["p99_latency <= 60ms", "error_rate <= 0%", "gpu_memory <= 8GiB"],
        }

    @classmethod
    def of(cls, value: object) -> Slo:
        if isinstance(value, Slo):
            return value
        if not isinstance(value, str):
            lines = slo_lines(value) if isinstance(value, dict) else []
            advice = f": write {lines[0]}" if lines else _SUCH_AS
            raise ValueError(f"an SLO is one line of text{advice}")  # noqa: TRY004
        return cls.parse(value)


_SUCH_AS = ", such as p99_latency <= 60ms"


def slo_lines(bounds: Mapping[str, Any]) -> list[str]:
    """The SLOs that a mapping of metrics to bounds may mean; none where a value is no bound."""
    if any(
        re.search(r"[<>=\n]", str(bound)) or isinstance(bound, dict | list)
        for bound in bounds.values()
    ):
        return []
    higher = {name for name, metric in METRICS.items() if metric.better is Better.HIGHER}
    signs = {name: Better.HIGHER if name in higher else Better.LOWER for name in bounds}
    return [f"{name} {signs[name].value} {bound}" for name, bound in bounds.items()]


def tail_shares(slos: Iterable[Slo]) -> list[float]:
    """The quantiles of the SLOs on percentiles: 0.99 for p99."""
    return [slo.metric.quantile for slo in slos if slo.metric.quantile is not None]


def hardest(slos: Iterable[Slo]) -> Slo | None:
    """The SLO on the highest percentile; of equal ones, that with the lowest bound."""
    ranked = [slo for slo in slos if slo.metric.quantile is not None]
    return max(ranked, key=lambda slo: (slo.metric.quantile, -slo.bound), default=None)


def _refuse_other_sign(metric: Metric, sign: str, bound: str) -> None:
    wanted = metric.better
    if sign == wanted.value:
        return
    advice = f"write {metric.name} {wanted.value} {bound}"
    if metric.unit.read(bound) is None:
        advice = f"write {metric.name} {wanted.value} VALUE; {_not_a_bound(metric, bound)}"
    if sign in (">=", ">", "<=", "<") and sign[0] != wanted.value[0]:
        sense = "at least" if wanted is Better.HIGHER else "at most"
        raise ValueError(f"{metric.name} must be {sense} its bound: {advice}")
    raise ValueError(f"'{sign}' is not used here: {advice}")


def _bound(metric: Metric, text: str) -> float:
    value = metric.unit.read(text)
    if value is None:
        raise ValueError(_not_a_bound(metric, text))
    if float(value) == 0 and metric.unit is not SHARE:
        raise ValueError(f"a bound of {text} on {metric.name} is meaningless")
    return float(value)


def _not_a_bound(metric: Metric, text: str) -> str:
    return f"{metric.name} is bounded by {metric.unit.accepted}, not {shorten(text)}"


class Goal(Enum):
    MAXIMIZE_GOODPUT = "maximize goodput"
    MINIMIZE = "minimize"


_EXAMPLES = ("maximize goodput", "minimize p99_latency at 300/s", "minimize gpu_memory at 300/s")

_OF_ONE_STREAM = (
    "the goodput of one stream is always its share of the total: write maximize goodput; to keep "
    "the other streams constant, give each of them a rate instead of a share"
)


@dataclass(frozen=True)
class Objective(AsText):
    """``metric`` and ``at_level`` are set for MINIMIZE only.

    ``at_level``: requests per second for open arrivals, concurrency for closed ones
    (``minimize p99_latency at 300/s``, ``minimize p99_latency at 16``); ``at_rate`` says which
    of the two was written.
    """

    goal: Goal
    metric: Metric | None = None
    at_level: float | None = None
    expression: str = field(default="", compare=False)
    at_rate: bool = False

    @classmethod
    def goodput(cls) -> Objective:
        return cls(Goal.MAXIMIZE_GOODPUT, expression=Goal.MAXIMIZE_GOODPUT.value)

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Reads ``maximize goodput`` or ``minimize METRIC at LEVEL``.

        Raises:
            ValueError: Neither; the message says what is accepted.
        """
        words = text.split()
        expression = " ".join(words)
        if expression == Goal.MAXIMIZE_GOODPUT.value:
            return cls.goodput()
        if expression.startswith(f"{Goal.MAXIMIZE_GOODPUT.value} of "):
            raise ValueError(_OF_ONE_STREAM)
        if words[:1] != [Goal.MINIMIZE.value]:
            raise ValueError(_not_an_objective(expression))
        match = re.fullmatch(r"minimize (\S+)(?: at (\d+(?:\.\d+)?) ?(/s)?)?", expression)
        if match is None:
            raise ValueError(_not_an_objective(expression))
        metric = parse_metric(match[1])
        if metric.not_minimised:
            raise ValueError(metric.not_minimised)
        level = _level(metric, match[2], rate=match[3] is not None)
        return cls(Goal.MINIMIZE, metric, level, expression, match[3] is not None)

    def __str__(self) -> str:
        if self.metric is None or self.at_level is None:
            return self.goal.value
        unit = "/s" if self.at_rate else ""
        return f"{self.goal.value} {self.metric.name} at {self.at_level:.12g}{unit}"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        names = "|".join(m.name for m in METRICS.values() if not m.not_minimised)
        minimized = rf"({names})\s+at\s+\d+(\.\d+)? ?(/s)?"
        return {
            "type": "string",
            "pattern": rf"^\s*(maximize\s+goodput|minimize\s+{minimized})\s*$",
            "examples": list(_EXAMPLES),
        }

    @classmethod
    def of(cls, value: object) -> Objective:
        if isinstance(value, Objective):
            return value
        if isinstance(value, list) and len(value) > 1:
            raise ValueError(
                "a search has one objective: bound the other figures in slo, such as "
                "gpu_memory <= 8GiB"
            )
        if not isinstance(value, str):
            raise ValueError(f"an objective is one line of text: {_accepted()}")  # noqa: TRY004
        return cls.parse(value)


def _level(metric: Metric, text: str | None, *, rate: bool) -> float:
    if text is None:
        raise ValueError(f"minimize {metric.name} at which load? add at 300/s, or at 16 (clients)")
    level = float(text)
    if level == 0:
        raise ValueError("the load to minimise at must be above 0")
    if not rate and level != int(level):
        raise ValueError(
            f"'at {text}' is a concurrency, which must be a whole number; a rate is written "
            f"{text}/s"
        )
    return level


def _not_an_objective(expression: str) -> str:
    guess = in_brackets(expression, [Goal.MAXIMIZE_GOODPUT.value, "minimize p99_latency at 300/s"])
    return f"'{expression}' is not an objective{guess}; {_accepted()}"


def _accepted() -> str:
    return f"write {', '.join(_EXAMPLES[:-1])} or {_EXAMPLES[-1]}"
