"""Triton's own counters of a model and of the server, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import ServerGoneError


@dataclass(frozen=True)
class BatchStatistics:
    """Executions of one batch size."""

    count: int
    compute_infer_ns: int


@dataclass(frozen=True)
class StatisticsSnapshot:
    """Raw counters of a model, all its versions added up; only differences mean anything.

    They start at zero when the model is loaded in full and go on through an in-place update.
    Source: Triton's statistics extension. ``queue`` and ``success`` include cache hits,
    ``inference``, ``execution`` and ``compute`` do not.
    """

    success_count: int = 0
    fail_count: int = 0
    inference_count: int = 0
    execution_count: int = 0
    queue_ns: int = 0
    compute_input_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0
    cache_hit_count: int = 0
    cache_miss_count: int = 0
    batches: Mapping[int, BatchStatistics] = field(default_factory=dict)

    @classmethod
    def from_response(cls, response: Any) -> StatisticsSnapshot:
        """Reads a ``ModelStatisticsResponse`` message."""
        versions = response.model_stats
        batches: dict[int, BatchStatistics] = {}
        for batch in (b for v in versions for b in v.batch_stats):
            before = batches.get(batch.batch_size, BatchStatistics(0, 0))
            batches[int(batch.batch_size)] = BatchStatistics(
                before.count + int(batch.compute_infer.count),
                before.compute_infer_ns + int(batch.compute_infer.ns),
            )
        inferences = [v.inference_stats for v in versions]

        def total(name: str, counter: str) -> int:
            return sum(int(getattr(getattr(stats, name), counter)) for stats in inferences)

        return cls(
            success_count=total("success", "count"),
            fail_count=total("fail", "count"),
            inference_count=sum(int(v.inference_count) for v in versions),
            execution_count=sum(int(v.execution_count) for v in versions),
            queue_ns=total("queue", "ns"),
            compute_input_ns=total("compute_input", "ns"),
            compute_infer_ns=total("compute_infer", "ns"),
            compute_output_ns=total("compute_output", "ns"),
            cache_hit_count=total("cache_hit", "count"),
            cache_miss_count=total("cache_miss", "count"),
            batches=batches,
        )


@dataclass(frozen=True)
class MetricSample:
    """One line of the metrics endpoint: ``nv_gpu_power_usage{gpu_uuid="…"} 61.2``."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Metrics:
    """The metrics endpoint at one moment; GPU values are refreshed every 2 s by default."""

    samples: tuple[MetricSample, ...]

    @classmethod
    def parse(cls, text: str) -> Metrics:
        """Reads them; raises `ServerGoneError` where whoever answers is no metrics endpoint."""
        from prometheus_client.parser import text_string_to_metric_families

        try:
            families = [*text_string_to_metric_families(text)]
        except ValueError as error:
            raise ServerGoneError(f"reading the metrics: {error}") from error
        # The parser appends "_total" to counters; Triton's own names come without.
        return cls(
            tuple(
                MetricSample(
                    sample.name.removesuffix("_total"), dict(sample.labels), float(sample.value)
                )
                for family in families
                for sample in family.samples
            )
        )

    def values(self, name: str, **labels: str) -> list[float]:
        """Every value of a metric whose labels include the given ones; empty when not served."""
        wanted = labels.items()
        return [s.value for s in self.samples if s.name == name and wanted <= s.labels.items()]
