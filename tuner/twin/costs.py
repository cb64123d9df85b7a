"""What is fitted: what batches and ways cost, as one vector of logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from tuner.twin.observation import Observation
from tuner.twin.simulator import Outcome, simulate
from tuner.twin.system import Scheduler, Service, Traffic, Way

Vector = npt.NDArray[np.float64]

#: From a batch being handed over to a sleeping thread taking it: two threads are woken.
HANDOFF_S = 60e-6

#: Name, least and most of each number; seconds, or a share.
_BOUNDS = {
    "overlap_base_s": (1e-6, 10.0),
    "overlap_item_s": (1e-7, 1.0),
    "exclusive_base_s": (1e-6, 10.0),
    "exclusive_item_s": (1e-7, 1.0),
    "response_s": (1e-7, 0.1),
    "release_s": (1e-7, 0.1),
    "spread": (0.01, 2.0),
    "base_s": (1e-5, 1.0),
    "spread_s": (1e-5, 1.0),
    "front_s": (1e-6, 0.1),
    "front_more": (0.05, 1.0),
    "slept_s": (1e-6, 1e-2),
}
NAMES = tuple(_BOUNDS)
LOWEST: Vector = np.log([low for low, _ in _BOUNDS.values()])
HIGHEST: Vector = np.log([high for _, high in _BOUNDS.values()])
_OF_SERVICE = frozenset(NAMES[:7])


@dataclass(frozen=True)
class Costs:
    service: Service
    way: Way

    @classmethod
    def from_vector(cls, vector: Vector, pad_to: int, cores: float) -> Costs:
        values = dict(zip(NAMES, np.exp(np.clip(vector, LOWEST, HIGHEST)).tolist(), strict=True))
        service = Service(pad_to=pad_to, **{n: v for n, v in values.items() if n in _OF_SERVICE})
        others = {n: v for n, v in values.items() if n not in _OF_SERVICE}
        way = Way(handoff_s=HANDOFF_S, cores=cores, **others)
        # A hit costs the host what a response costs it.
        return cls(service, replace(way, hit_s=service.response_s))

    def to_vector(self) -> Vector:
        values = [
            getattr(self.service if name in _OF_SERVICE else self.way, name) for name in NAMES
        ]
        vector: Vector = np.clip(np.log(np.maximum(values, 1e-12)), LOWEST, HIGHEST)
        return vector

    def simulate(self, scheduler: Scheduler, traffic: Traffic, seed: int) -> Outcome:
        return simulate(scheduler, self.service, self.way, traffic, seed)


class Figure(Enum):
    """What is compared, and predicted."""

    THROUGHPUT = "throughput_infer_per_s"
    P50 = "p50_latency_us"
    P90 = "p90_latency_us"
    P95 = "p95_latency_us"
    P99 = "p99_latency_us"


SHARES = {Figure.P50: 0.50, Figure.P90: 0.90, Figure.P95: 0.95, Figure.P99: 0.99}

#: How far a good twin may be off in the logarithm of a figure: the scale of the residuals.
SCALES = {
    Figure.THROUGHPUT: 0.02,
    Figure.P50: 0.05,
    Figure.P90: 0.08,
    Figure.P95: 0.12,
    Figure.P99: 0.15,
}
_COMPUTE_SCALE, _BATCH_SCALE, _CORES_SCALE = 0.05, 0.10, 0.05
#: An overloaded server's latencies grow with the length of the run.
_SATURATED_SCALE = 0.5


def figures_of(outcome: Outcome) -> dict[Figure, float]:
    values = {figure: outcome.percentile_us(share) for figure, share in SHARES.items()}
    return {Figure.THROUGHPUT: outcome.throughput_infer_per_s, **values}


def residuals(costs: Costs, observations: Sequence[Observation]) -> Vector:
    """Log of simulated over measured, in units of the scales above, for each observation in turn.

    Always as many for an observation as there are kinds; 0 for what was not measured.
    """
    return np.concatenate([_of_one(costs, o) for o in observations])


#: Residuals of one observation.
PER_OBSERVATION = len(Figure) + 3


def _of_one(costs: Costs, observation: Observation) -> Vector:
    outcome = costs.simulate(observation.scheduler, observation.traffic, observation.seed)
    simulated = figures_of(outcome)
    found = []
    for figure, scale in SCALES.items():
        if observation.saturated and figure is not Figure.THROUGHPUT:
            scale = _SATURATED_SCALE  # noqa: PLW2901
        measured = getattr(observation.measurement, figure.value)
        found.append(_log_ratio(simulated[figure], measured) / scale)
    found.append(_log_ratio(outcome.nodes[0].compute_us, observation.compute_us) / _COMPUTE_SCALE)
    found.append(
        _log_ratio(outcome.nodes[0].mean_batch_size, observation.mean_batch_size) / _BATCH_SCALE
    )
    found.append(_log_ratio(outcome.busy_cores, observation.busy_cores) / _CORES_SCALE)
    return np.array(found)


def _log_ratio(simulated: float, measured: float | None) -> float:
    """0 when nothing was measured; a twin that answers nothing at all is off by a factor of 20."""
    if measured is None or not measured > 0.0:
        return 0.0
    return float(np.log(simulated / measured)) if simulated > 0.0 else -3.0
