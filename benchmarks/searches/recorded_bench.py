"""A bench that answers from a recorded table: a replay, no load is put on any server.

Between the recorded loads of a config its results are interpolated. Below them latencies keep
falling, and above them the results follow from the throughput of the saturated server. Each
measurement in a replay takes its noise from repeats in the table, preferably those in windows of a
run's length: how far they were from the mean of the repeats of their config. One repeat supplies
the noise of the deployment, another that of the measurement itself; their weights follow from how
much the errors of one repeat at two loads are alike (`RecordedWorld.likeness`). In a mix each
stream has its own results, interpolated like those of the whole, and errors from the same repeats.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from recorded_table import LONG, Recording, Table, luck_of

from tuner.errors import LoadFailedError
from tuner.measurement.batch_profile import BatchCall
from tuner.measurement.measurement import (
    Arrivals,
    Figures,
    LoadPoint,
    Measurement,
    ServerStatistics,
)
from tuner.measurement.window import Window
from tuner.meter.evaluate import ClientCeiling
from tuner.reason import Reason
from tuner.score.capacity import Bracket
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo
from tuner.triton.changes import DeploymentKind

#: A row holds the logarithms of these and of the answered share of the load, first for the whole,
#: then for each stream by name.
FIGURES = (
    "p50_latency_us",
    "p90_latency_us",
    "p95_latency_us",
    "p99_latency_us",
    "avg_latency_us",
)
ANSWERED = len(FIGURES)
_WIDTH = ANSWERED + 1
#: The ranks of those percentiles, for latencies drawn through them, with the fastest and slowest.
_SHARES = (0.0, 0.5, 0.9, 0.95, 0.99, 1.0)
_FASTEST, _SLOWEST = 0.6, 1.1

#: What a deployment is taken to last, and a quick look: about what they do in the quickstart; and a
#: deployment of a real network.
DEPLOY_S, LOOK_S, SLOW_DEPLOY_S = 2.0, 1.0, 6.0
#: A queue grows if this share of the load is not answered.
_GROWS = 0.02
#: Rank of an ordinary config.
ORDINARY = 100
#: Latencies below the lowest recorded load are at least a quarter of those there (as logarithm).
_LEAST_SHARE = math.log(4.0)

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RecordedCurve:
    """How a config behaves under load, from all its recordings.

    Attributes:
        levels: Recorded rates per second, ascending.
        logs: A row for each level, the mean over repeats.
        nearest: The first recording of each level, for everything that is not interpolated.
        capacity: Rate at which an SLO begins to be missed; None when one is missed at every rate.
    """

    levels: Vector
    logs: npt.NDArray[np.float64]
    nearest: tuple[Measurement, ...]
    capacity: float | None

    @classmethod
    def of(cls, recordings: Sequence[Recording], slos: Sequence[Slo]) -> RecordedCurve:
        """``recordings`` of one config, the first one before its repeats."""
        first = recordings[0].points
        rows = [_mean_row(p.load.level, recordings) for p in first]
        points = [_with_figures(p, row) for p, row in zip(first, rows, strict=True)]
        probes = [judge_point(slos, p) for p in points]
        return cls(
            levels=np.array([p.load.level for p in first]),
            logs=np.array(rows),
            nearest=first,
            capacity=Bracket.of(probes).capacity(),
        )

    def row(self, level: float) -> Vector:
        """Interpolated between the two loads beside ``level``; beyond the ends as at them."""
        x = np.clip(math.log(level), *np.log(self.levels[[0, -1]]))
        return np.array([np.interp(x, np.log(self.levels), column) for column in self.logs.T])

    def at(self, level: float) -> Measurement:
        """Interpolated between the two loads beside ``level``; beyond the last, overloaded.

        Below the first, latencies keep falling as they do from the second to the first.
        """
        index = int(np.argmin(np.abs(np.log(self.levels / level))))
        below = max(int(np.searchsorted(self.levels, level, side="right")) - 1, 0)
        near = self.nearest[index]
        requests = near.duration_s * near.load.level
        duration_s = max(requests / level, min(m.duration_s for m in self.nearest))
        row = self.row(level)
        row[ANSWERED::_WIDTH] = self._answered(float(np.clip(level, *self.levels[[0, -1]])))
        measurement = _under(near, level, duration_s, self.nearest[below])
        if level < self.levels[0]:
            row -= self._fall(level)
        measurement = _with_figures(measurement, row)
        return self._overloaded(measurement, row) if level > self.levels[-1] else measurement

    @property
    def served(self) -> npt.NDArray[np.float64]:
        """The answered part of each recorded load, of the whole and each stream, as levels."""
        return self.levels[:, None] * np.exp(self.logs[:, ANSWERED::_WIDTH])

    def _answered(self, level: float) -> Vector:
        """Log share of the load: as below it, until the server answers no more than above it."""
        above = int(np.searchsorted(self.levels, level))
        if level == self.levels[above]:
            return np.asarray(self.logs[above, ANSWERED::_WIDTH])
        share = np.exp(self.logs[above - 1, ANSWERED::_WIDTH])
        most = self.served[above - 1 : above + 1].max(axis=0)
        return np.log(np.minimum(share, most / level))

    def _fall(self, level: float) -> Vector:
        """How far each log latency is below the one at the lowest recorded load."""
        fall = np.zeros(self.logs.shape[1])
        if self.levels.size < 2:
            return fall
        slopes = (self.logs[1] - self.logs[0]) / math.log(self.levels[1] / self.levels[0])
        fall = np.clip(slopes, 0.0, 1.0) * math.log(self.levels[0] / level)
        fall[ANSWERED::_WIDTH] = 0.0
        return np.minimum(fall, _LEAST_SHARE)

    def _overloaded(self, measurement: Measurement, row: Vector) -> Measurement:
        """A queue that grew for as long as the load lasted, on top of the last recorded load.

        The server answers the most that was ever recorded.
        """
        level = measurement.load.level
        most = self.served.max(axis=0)
        excess_us = 1e6 * measurement.duration_s * np.maximum(level / most - 1.0, 0.0)
        blocks = row.reshape(-1, _WIDTH)
        added = excess_us[:, None] * np.array([0.5, 0.9, 0.95, 0.99, 0.5])
        blocks[:, :ANSWERED] = np.log(np.exp(blocks[:, :ANSWERED]) + added)
        blocks[:, ANSWERED] = np.log(np.minimum(most / level, 1.0))
        return _with_figures(measurement, blocks.ravel())


@dataclass(frozen=True)
class RecordedNoise:
    """The errors of one repeat: log residuals by load as a share of the capacity, ascending."""

    shares: Vector
    residuals: npt.NDArray[np.float64]

    def at(self, share: float) -> Vector:
        """The errors nearest to a load that is this share of the capacity."""
        return self.residuals[int(np.argmin(np.abs(np.log(self.shares / share))))]


@dataclass(frozen=True)
class RecordedWorld:
    """Everything a table knows, by key of the canonical candidate.

    Attributes:
        noises: One for each repeat; none at all makes a replay without noise.
        like_a_run: They were measured in windows of a run's length.
        deploy_s: What a deployment lasts.
        changed: In what it is not as recorded, a sentence for the report.
    """

    curves: Mapping[str, RecordedCurve]
    noises: tuple[RecordedNoise, ...]
    like_a_run: bool = False
    deploy_s: float = DEPLOY_S
    changed: str = ""

    @classmethod
    def of(cls, table: Table, slos: Sequence[Slo]) -> RecordedWorld:
        """Takes the noise from repeats.

        Where there are repeats in windows of a run's length, those are the noise, and only that: an
        overload's queue grows with the window.
        """
        by_key: dict[str, list[Recording]] = {}
        long: dict[str, list[Recording]] = {}
        for recording in sorted(table.recordings, key=lambda r: r.repeat):
            group = long if recording.repeat >= LONG else by_key
            group.setdefault(recording.candidate.key, []).append(recording)
        curves = {key: RecordedCurve.of(r, slos) for key, r in by_key.items()}
        repeated = {k: r for k, r in (long or by_key).items() if len(r) > 1}
        noises = [noise for recordings in repeated.values() for noise in _noises(recordings, slos)]
        return cls(curves, tuple(noises), bool(long))

    def goodput(self, key: str) -> float:
        """The true one: of the mean over all recordings, without noise; 0 for infeasible ones."""
        return self.curves[key].capacity or 0.0

    def slower(self, times: float) -> RecordedWorld:
        """Makes all requests take so many times as long, and the loads so many times as low."""
        curves = {key: _slower(curve, times) for key, curve in self.curves.items()}
        slower = f"Requests take {times:g} times as long as was recorded, deployments"
        changed = f"{self.changed} {slower} {SLOW_DEPLOY_S:g} s.".strip()
        return replace(self, curves=curves, deploy_s=SLOW_DEPLOY_S, changed=changed)

    def with_ordinary_best(self) -> RecordedWorld:
        """Makes the best config answer as the hundredth best does, or as the worst of fewer."""
        ranked = sorted(self.curves, key=self.goodput, reverse=True)
        ordinary = self.curves[ranked[:ORDINARY][-1]]
        return replace(self, curves={**self.curves, ranked[0]: ordinary})

    @property
    def likeness(self) -> float:
        """Correlation of the errors of p99 that one repeat has at neighbouring loads.

        Only of loads up to the capacity. NaN with fewer than three of them.
        """
        p99 = FIGURES.index("p99_latency_us")
        pairs = [
            noise.residuals[i : i + 2, p99]
            for noise in self.noises
            for i in range(noise.shares.size - 1)
            if noise.shares[i + 1] <= 1.0
        ]
        return float(np.corrcoef(np.array(pairs).T)[0, 1]) if len(pairs) > 2 else math.nan

    @property
    def repeatability(self) -> float:
        """How far a repeat's p99 is off, as a share, in the median over loads up to the capacity.

        NaN without repeats.
        """
        p99 = FIGURES.index("p99_latency_us")
        off = [n.residuals[n.shares <= 1.0, p99] for n in self.noises]
        return float(np.expm1(np.median(np.abs(np.concatenate(off))))) if off else math.nan

    @property
    def best(self) -> float:
        """The best config's goodput."""
        return max(self.goodput(key) for key in self.curves)


class RecordedBench:
    """Takes the place of `tuner.meter.protocol.Bench` in a search; see this module.

    Args:
        world: What answers.
        slos: Held against each answer.
        canonical: The recorded candidate that is the same as a given one.
        seed: Of the noise.
        window: How long a load would be put on a server; None: no time passes.
        first_calls: What the first calls of a canonical candidate take.

    Attributes:
        seconds: What deployments and measurements would have taken so far.
    """

    arrivals = Arrivals.POISSON

    def __init__(
        self,
        world: RecordedWorld,
        slos: Sequence[Slo],
        canonical: Callable[[Candidate], Candidate],
        seed: int,
        window: Callable[[LoadPoint], Window] | None = None,
        first_calls: Callable[[Candidate], tuple[BatchCall, ...]] = lambda _: (),
    ) -> None:
        self._world = world
        self._window = window
        self.seconds = 0.0
        self._slos = slos
        self._canonical = canonical
        self._seed = seed
        self._key = ""
        self._curve: RecordedCurve | None = None
        self._fresh = 0
        self.sendable = ClientCeiling()
        self._first_calls = first_calls
        self.batch_calls: tuple[BatchCall, ...] = ()
        likeness = world.likeness
        self._alike = 0.0 if math.isnan(likeness) else min(max(likeness, 0.0), 1.0)

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Any:
        """Raises LoadFailedError for a config that is not in the table."""
        self.seconds += self._world.deploy_s
        canonical = self._canonical(candidate)
        key = canonical.key
        if key not in self._world.curves:
            raise LoadFailedError(f"nothing is recorded of {candidate.to_json()}")
        self._fresh += fresh
        luck = luck_of(canonical)
        self._key, self._curve = f"{luck}/{self._fresh}" if fresh else luck, self._world.curves[key]
        self.batch_calls = self._first_calls(canonical)
        return SimpleNamespace(kind=DeploymentKind.RELOAD)

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        measurement = self._measured(level, seed)
        if self._window is not None:
            self.seconds += self._lasts_s(measurement, self._window(measurement.load))
        return judge_point(self._slos, measurement)

    def once(self, level: float, seed: int, window: Window) -> Point:
        self.seconds += window.total_s
        return judge_point(self._slos, self._measured(level, seed))

    def _measured(self, level: float, seed: int) -> Measurement:
        assert self._curve is not None
        measurement = self._curve.at(level)
        if self._world.noises:
            share = level / (self._curve.capacity or float(self._curve.levels[0]))
            measurement = _with_figures(
                measurement, row_of(measurement) + self._error(share, f"{seed}/{level:.6g}")
            )
        return _with_latencies(measurement)

    def _lasts_s(self, measurement: Measurement, window: Window) -> float:
        """A load ends once more requests are late than the tightest SLO allows in all."""
        if not window.bounds:
            return window.total_s
        bound = min(window.bounds, key=lambda b: b.within_s)
        allowed, excess = (
            1.0 - bound.share,
            1.0 - measurement.requests_per_s / measurement.load.level,
        )
        late_s = (
            window.duration_s * allowed / max(_late_share(measurement, bound.within_s), allowed)
        )
        if excess >= _GROWS:
            late_s = min(late_s, bound.within_s / excess + allowed * window.duration_s)
        return window.warmup_s + late_s if late_s < window.duration_s else window.total_s

    def _error(self, share: float, measurement: str) -> Vector:
        """Of the same variance as a single repeat's."""
        names = (f"{self._seed}/{self._key}", f"{self._seed}/{self._key}/{measurement}")
        shared, separate = (
            random.Random(name).choice(self._world.noises).at(share) for name in names
        )
        return math.sqrt(self._alike) * shared + math.sqrt(1.0 - self._alike) * separate

    def lost(self, reason: Reason) -> None:
        """Nothing is kept here."""

    def one_at_a_time(self, seed: int) -> dict[str, float]:
        """The shortest recorded mean latency, in seconds, of all together and of each stream."""
        self.seconds += LOOK_S
        assert self._curve is not None
        names = ("", *sorted(self._curve.nearest[0].streams))
        shortest = self._curve.logs[:, FIGURES.index("avg_latency_us") :: _WIDTH].min(axis=0)
        return {n: float(s) for n, s in zip(names, np.exp(shortest) / 1e6, strict=True)}

    def many_at_once(self, concurrency: int, seed: int) -> float:
        """The most that it answered, in requests per second."""
        return self.saturate(concurrency, seed).requests_per_s

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        """What it answered at the highest recorded load, or the most that it ever did."""
        lasts_s = max(LOOK_S, least_s)
        self.seconds += lasts_s
        assert self._curve is not None
        most = float(self._curve.served[:, 0].max())
        measurement = self._curve.at(float(self._curve.levels[-1]))
        return replace(
            measurement,
            load=LoadPoint(Arrivals.CLOSED, concurrency),
            duration_s=lasts_s,
            completed_count=round(most * lasts_s),
            throughput_infer_per_s=most * _size(measurement),
        )


def _slower(curve: RecordedCurve, times: float) -> RecordedCurve:
    logs = curve.logs.copy()
    logs[:, : len(FIGURES)] += math.log(times)
    nearest = tuple(
        replace(
            near,
            load=replace(near.load, level=near.load.level / times),
            duration_s=near.duration_s * times,
            throughput_infer_per_s=near.throughput_infer_per_s / times,
            models={
                name: _slower_counts(statistics, times) for name, statistics in near.models.items()
            },
        )
        for near in curve.nearest
    )
    capacity = None if curve.capacity is None else curve.capacity / times
    return RecordedCurve(curve.levels / times, logs, nearest, capacity)


def _slower_counts(counted: ServerStatistics, times: float) -> ServerStatistics:
    return replace(
        counted,
        queue_us=counted.queue_us * times,
        compute_infer_us=counted.compute_infer_us * times,
        batch_stats=tuple((n, count, round(ns * times)) for n, count, ns in counted.batch_stats),
    )


def row_of(measurement: Measurement) -> Vector:
    """Log `FIGURES` and log answered share of the load, of the whole and of each stream."""
    streams = _streams(measurement)
    if not streams:
        return _figures(measurement, measurement.load.level)
    # For a stream with few requests in the window, the number due varies by chance.
    every = (measurement, *streams.values())
    return np.concatenate([_figures(part, part.due_per_s or part.load.level) for part in every])


def _figures(measurement: Figures, due_per_s: float) -> Vector:
    figures = [getattr(measurement, name) for name in FIGURES]
    due_infer_per_s = due_per_s * _size(measurement)
    return np.log([*figures, measurement.throughput_infer_per_s / due_infer_per_s])


def _streams(measurement: Measurement) -> dict[str, Figures]:
    return dict(sorted(measurement.streams.items()))


def _size(measurement: Figures) -> float:
    """Inferences per request; for a mix, in the average one."""
    if not isinstance(measurement, Measurement) or not measurement.streams:
        return measurement.batch_size
    return measurement.throughput_infer_per_s / measurement.requests_per_s


def latencies_of(measurement: Figures) -> Vector:
    """Latencies in microseconds, ascending, with the measurement's percentiles."""
    p50, p90, p95, p99 = (getattr(measurement, name) for name in FIGURES[:4])
    heights = np.log([p50 * _FASTEST, p50, p90, p95, p99, p99 * _SLOWEST])
    count = max(measurement.completed_count, 1)
    return np.exp(np.interp((np.arange(count) + 1.0) / count, _SHARES, heights))


def _late_share(measurement: Measurement, within_s: float) -> float:
    return float(np.mean(latencies_of(measurement) > 1e6 * within_s))


def _with_latencies(measurement: Measurement) -> Measurement:
    streams = {
        name: replace(part, latencies_us=latencies_of(part))
        for name, part in measurement.streams.items()
    }
    return replace(measurement, streams=streams, latencies_us=latencies_of(measurement))


def _under(near: Measurement, level: float, duration_s: float, below: Measurement) -> Measurement:
    """Under another load and duration; its steadiness is that of the load ``below``."""
    streams = {
        name: replace(
            figures,
            load=LoadPoint(
                Arrivals.POISSON,
                figures.load.level
                if figures.background
                else figures.load.level * level / near.load.level,
            ),
            duration_s=duration_s,
            course=below.streams[name].course,
        )
        for name, figures in near.streams.items()
    }
    load = LoadPoint(Arrivals.POISSON, level)
    return replace(near, load=load, duration_s=duration_s, streams=streams, course=below.course)


def _with_figures(measurement: Measurement, row: Vector) -> Measurement:
    together, *others = row.reshape(-1, _WIDTH)
    streams = {
        name: replace(stream, **_changes(stream, part))
        for (name, stream), part in zip(_streams(measurement).items(), others, strict=True)
    }
    return replace(measurement, **_changes(measurement, together), streams=streams)


def _changes(figures: Figures, row: Vector) -> dict[str, Any]:
    latencies = np.maximum.accumulate(np.exp(row[:4]))
    values = dict(zip(FIGURES, (*latencies, math.exp(row[4])), strict=True))
    level, lasted = figures.load.level, figures.duration_s
    rate = math.exp(row[ANSWERED]) * level
    return {
        **{name: float(value) for name, value in values.items()},
        "throughput_infer_per_s": rate * _size(figures),
        "completed_count": round(rate * lasted),
        "sent_per_s": level,
        "due_per_s": level,
        "mean_in_flight": rate * float(values["avg_latency_us"]) / 1e6,
    }


def _mean_row(level: float, recordings: Sequence[Recording]) -> Vector:
    """Over all recordings that reach this load; between two of their loads it is interpolated."""
    rows = [row for r in recordings for row in _rows_at(level, r.points)]
    return np.asarray(np.mean(rows, axis=0))


def _rows_at(level: float, points: Sequence[Measurement]) -> list[Vector]:
    same = [row_of(p) for p in points if p.load.level == level]
    beside = sorted(points, key=lambda p: abs(math.log(p.load.level / level)))
    below = next((p for p in beside if p.load.level < level), None)
    above = next((p for p in beside if p.load.level > level), None)
    if same or below is None or above is None:
        return same
    share = math.log(level / below.load.level) / math.log(above.load.level / below.load.level)
    return [(1.0 - share) * row_of(below) + share * row_of(above)]


def _noises(recordings: Sequence[Recording], slos: Sequence[Slo]) -> list[RecordedNoise]:
    """One for each recording of a config; the mean they deviate from includes each of them."""
    curve = RecordedCurve.of(recordings, slos)
    widened = math.sqrt(len(recordings) / (len(recordings) - 1))
    capacity = curve.capacity or float(curve.levels[0])
    noises = []
    for recording in recordings:
        inside = [p for p in recording.points if _reaches(curve, p.load.level)]
        off = [row_of(p) - curve.row(p.load.level) for p in inside]
        shares = np.array([p.load.level for p in inside]) / capacity
        if inside:
            noises.append(RecordedNoise(shares, widened * np.array(off)))
    return noises


def _reaches(curve: RecordedCurve, level: float) -> bool:
    return bool(curve.levels[0] <= level <= curve.levels[-1])
