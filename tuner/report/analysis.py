"""Statistics over trials: the Pareto front, the incumbent, the importance of fields."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from tuner.report.data import ReportData
from tuner.score.judge import SloResult
from tuner.score.point import Point
from tuner.space.candidate import CACHE, FieldValue
from tuner.space.parameters import Knob, text
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS
from tuner.spec.units import bytes_text

#: With fewer scored trials, the importance of fields is not reported.
FEWEST_TRIALS = 10
#: A field with more distinct numbers than this is grouped into quarters.
MOST_LEVELS = 6


@dataclass(frozen=True)
class Latency:
    """A latency metric of the spec (``p99_latency``), for one stream or for all requests."""

    metric: str
    stream: str = ""

    def __str__(self) -> str:
        return of_stream(self.stream, METRICS[self.metric].words)

    def of(self, point: Point) -> float | None:
        """The latency in microseconds; None if no request of the stream was due."""
        return point.reading(METRICS[self.metric], self.stream)


def latency_slos(data: ReportData) -> dict[Latency, list[SloResult]]:
    """SLOs by the latency that they bound; ``p99_latency`` without SLOs if there is none."""
    by_latency: dict[Latency, list[SloResult]] = {}
    for row in data.slo:
        if METRICS[row.worst.metric].is_latency:
            by_latency.setdefault(Latency(row.worst.metric, row.worst.stream), []).append(row.worst)
    return by_latency or {Latency("p99_latency"): []}


def first_latency(data: ReportData) -> Latency:
    """The latency to show where there is room for one."""
    return next(iter(latency_slos(data)))


def pareto(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of (throughput, latency) that no other point beats in both, the fastest first."""
    lowest, best = float("inf"), []
    for rate, latency in sorted(places, key=lambda place: (-place[0], place[1])):
        if latency < lowest:
            lowest = latency
            best.append((rate, latency))
    return best


def incumbent(data: ReportData) -> tuple[tuple[int, float], ...]:
    """(trial number, best feasible score so far) for each scored trial from the first feasible."""
    better, steps = max if data.maximizes else min, list[tuple[int, float]]()
    for trial in data.scored:
        scored = [trial.score.value] if trial.score and trial.score.feasible else []
        known = [score for _, score in steps[-1:]] + scored
        steps += [(trial.number, better(known))] if known else []
    return tuple(steps)


@dataclass(frozen=True)
class Importance:
    """Share of the scores' rank variance that one field explains, 0..1."""

    knob: Knob
    share: float
    levels: int


def importance(data: ReportData) -> tuple[Importance, ...]:
    """The fields that explain the score, most important first.

    This is the effect size of the Kruskal-Wallis test of the score by the field's value,
    ``(H - k + 1) / (n - k)`` for n trials and k values, with negative results set to 0. A rank
    statistic is robust against a few extreme scores, and this one does not favor fields with many
    values. Numbers with more than MOST_LEVELS distinct values are grouped into quarters, by rank.
    Source: Tomczak and Tomczak, The need to report effect size estimates revisited (2014).

    Empty with fewer than FEWEST_TRIALS scored trials, or if no field varies.
    """
    if len(data.scored) < FEWEST_TRIALS:
        return ()
    scores = [t.score.value for t in data.scored if t.score]
    shares = []
    for knob in varied_knobs(data):
        levels = _levels([t.candidate.values.get(knob) for t in data.scored])
        groups: dict[Hashable, list[float]] = {}
        for level, score in zip(levels, scores, strict=True):
            groups.setdefault(level, []).append(score)
        share = _effect([*groups.values()])
        if share is not None:
            shares.append(Importance(knob, share, len(groups)))
    return tuple(sorted(shares, key=lambda i: (-i.share, i.knob)))


def varied_knobs(data: ReportData) -> tuple[Knob, ...]:
    """The fields with more than one value among the scored trials."""
    chosen = [t.candidate.values for t in data.scored]
    knobs = {knob for values in chosen for knob in values}
    return tuple(sorted(k for k in knobs if len({level_text(v.get(k)) for v in chosen}) > 1))


def value_text(knob: Knob, value: FieldValue) -> str:
    """`unset`, `4`, `[4, 8]`, `on`; a cache by its size."""
    if knob == CACHE:
        return "no response cache" if value is None else bytes_text(int(str(value)))
    return level_text(value)


def level_text(value: FieldValue) -> str:
    """A value in words: ``unset``, ``4``, ``[4, 8]``, ``on``, ``cache 64 MiB``."""
    if isinstance(value, tuple):
        texts = any(isinstance(v, str) for v in value)
        return ", ".join(map(str, value)) if texts else str([*value])
    return text(value)


def _levels(values: Sequence[FieldValue]) -> list[Hashable]:
    """The group of each value: the value itself, or its quarter among many distinct numbers."""
    numbers = sorted(v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    if len(set(numbers)) <= MOST_LEVELS:
        return [level_text(v) for v in values]
    edges = [numbers[len(numbers) * quarter // 4] for quarter in (1, 2, 3)]
    return [
        sum(v >= edge for edge in edges)
        if isinstance(v, int | float) and not isinstance(v, bool)
        else level_text(v)
        for v in values
    ]


def _effect(groups: Sequence[Sequence[float]]) -> float | None:
    """Kruskal-Wallis effect size; None if all groups, or all scores, are equal.

    H is the part of the ranks' variance that the groups explain; equal scores share a rank (Kruskal
    and Wallis, Use of Ranks in One-Criterion Variance Analysis, 1952).
    """
    ordered = sorted(score for group in groups for score in group)
    n, k = len(ordered), len(groups)
    if k < 2 or n <= k or ordered[0] == ordered[-1]:
        return None
    ranks = {s: (bisect_left(ordered, s) + bisect_right(ordered, s) - 1) / 2 for s in ordered}
    mean = (n - 1) / 2
    between = sum(sum(ranks[s] - mean for s in group) ** 2 / len(group) for group in groups)
    h = (n - 1) * between / sum((ranks[s] - mean) ** 2 for s in ordered)
    return min(max((h - k + 1) / (n - k), 0.0), 1.0)
