"""Latencies to the first and to the last response of requests to decoupled models.

They count like any latency, see `Measurement`. A response is a message with tensors. The last
response has arrived once the final mark has; the mark may come alone, without tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from tuner.spec.metrics import METRICS, Until

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]
    Counts = npt.NDArray[np.int64]
    Unstored = npt.NDArray[Any] | None
else:
    Unstored = Annotated[SkipJsonSchema[Any], Field(exclude=True)]


@dataclass(frozen=True)
class ResponseFigures:
    """Latencies and numbers of responses in one measurement.

    Attributes:
        mean_responses: Mean number of responses per request, over the requests whose last response
            came within the window.
        first_us: Each request's latency to its first response, ascending; not stored on disk.
        last_us: Each request's latency to its last response, ascending; not stored on disk.
        counts: Each request's number of responses; not stored on disk.
    """

    p50_first_response_us: float
    p90_first_response_us: float
    p95_first_response_us: float
    p99_first_response_us: float
    avg_first_response_us: float
    p50_last_response_us: float
    p90_last_response_us: float
    p95_last_response_us: float
    p99_last_response_us: float
    avg_last_response_us: float
    mean_responses: float | None
    fewest_responses: int | None
    most_responses: int | None
    first_us: Unstored = field(default=None, compare=False, repr=False)
    last_us: Unstored = field(default=None, compare=False, repr=False)
    counts: Unstored = field(default=None, compare=False, repr=False)


def figures_of(first_us: Values, last_us: Values, counts: Counts) -> ResponseFigures:
    """The figures of requests, from their latencies and numbers of responses, in any order."""
    import numpy as np

    sorted_us = {Until.FIRST: np.sort(first_us), Until.LAST: np.sort(last_us)}
    named = {
        metric.column: _figure(sorted_us[metric.until], metric.quantile)
        for metric in METRICS.values()
        if metric.until in sorted_us
    }
    return ResponseFigures(
        **named,
        mean_responses=float(counts.mean()) if counts.size else None,
        fewest_responses=int(counts.min()) if counts.size else None,
        most_responses=int(counts.max()) if counts.size else None,
        first_us=sorted_us[Until.FIRST],
        last_us=sorted_us[Until.LAST],
        counts=counts,
    )


def percentile(ascending: Values, share: float) -> float:
    """Nearest-rank percentile, as in perf_analyzer: an observed value, never interpolated."""
    return float(ascending[max(math.ceil(share * ascending.size) - 1, 0)])


def _figure(ascending_us: Values, quantile: float | None) -> float:
    return float(ascending_us.mean()) if quantile is None else percentile(ascending_us, quantile)


def responses_of_all(parts: Iterable[ResponseFigures | None]) -> ResponseFigures | None:
    """Figures over several starts of one load; None unless the model is decoupled."""
    figures = [part for part in parts if part is not None]
    if not figures:
        return None
    import numpy as np

    def joined(columns: Sequence[Any]) -> Any:
        return np.concatenate([column for column in columns if column is not None])

    return figures_of(
        joined([part.first_us for part in figures]),
        joined([part.last_us for part in figures]),
        joined([part.counts for part in figures]),
    )
