"""Configs that no other config beats in throughput, latency and memory together."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.report.analysis import first_latency
from tuner.report.blocks import Table
from tuner.report.by_load import ALIKE, memory_bytes
from tuner.report.data import ReportData, judged_point
from tuner.report.quantities import latency_text, rate_text
from tuner.report.sentence import change_text
from tuner.score.trial import Trial, TrialState
from tuner.spec.units import bytes_text


@dataclass(frozen=True)
class Tradeoff:
    """A measured config by what it gives and what it costs."""

    trial: Trial
    rate_infer_per_s: float
    latency_us: float
    memory_bytes: int

    def beats(self, other: Tradeoff) -> bool:
        """Whether it is as good in everything, and better in something.

        Memory that differs little is equal.
        """
        as_good = (
            self.rate_infer_per_s >= other.rate_infer_per_s
            and self.latency_us <= other.latency_us
            and self.memory_bytes <= other.memory_bytes * (1.0 + ALIKE)
        )
        return as_good and (
            self.rate_infer_per_s > other.rate_infer_per_s
            or self.latency_us < other.latency_us
            or self.memory_bytes * (1.0 + ALIKE) < other.memory_bytes
        )


def tradeoffs(data: ReportData) -> list[Tradeoff]:
    """The configs that no other beats, the fastest first; empty where no memory was read."""
    latency, measured = first_latency(data), []
    for trial in data.trials:
        point, memory = judged_point(trial), memory_bytes(trial)
        if trial.state is not TrialState.MEASURED or point is None or memory is None:
            continue
        if (value := latency.of(point)) is not None:
            rate = point.measurement.throughput_infer_per_s
            measured.append(Tradeoff(trial, rate, value, memory))
    best = [one for one in measured if not any(other.beats(one) for other in measured)]
    return sorted(best, key=lambda one: -one.rate_infer_per_s)


def table(data: ReportData) -> Table | None:
    """A row for each; None where memory decides nothing, as the chart shows the rest."""
    rows = tradeoffs(data)
    memories = [row.memory_bytes for row in rows]
    if not rows or max(memories) <= min(memories) * (1.0 + ALIKE):
        return None
    heads = ("trial", "change", "throughput", str(first_latency(data)), "memory")
    return Table(
        heads,
        tuple(
            (
                str(row.trial.number),
                change_text(data, row.trial.candidate),
                rate_text(row.rate_infer_per_s),
                latency_text(row.latency_us),
                bytes_text(row.memory_bytes),
            )
            for row in rows
        ),
        "Configs that no other beats in throughput, latency and memory together",
    )
