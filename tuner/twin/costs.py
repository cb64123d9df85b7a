"""What is fitted, what batches and ways cost, as one vector of logarithms; where a fit begins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from tuner.twin.observation import Observation, compute_us
from tuner.twin.simulator import Outcome, simulate_network
from tuner.twin.system import Network, Service, Traffic, Way

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
_NAMES = tuple(_BOUNDS)
_OF_SERVICE, _OF_WAY = _NAMES[:7], _NAMES[7:]


def limits(models: int) -> tuple[Vector, Vector]:
    """Least and most of each number of a vector: those of each model, then those of the way."""
    ends = np.log(list(_BOUNDS.values()))
    of_service, of_way = ends[: len(_OF_SERVICE)], ends[len(_OF_SERVICE) :]
    lowest, highest = np.concatenate([*[of_service] * models, of_way]).T
    return lowest, highest


@dataclass(frozen=True)
class Costs:
    """What batches cost, for each model of a network, and what a request meets on its way."""

    services: tuple[Service, ...]
    way: Way

    @classmethod
    def from_vector(cls, vector: Vector, like: Sequence[Service], cores: float) -> Costs:
        """``like``: services with what is not fitted."""
        values = np.exp(np.clip(vector, *limits(len(like)))).tolist()
        count = len(_OF_SERVICE)
        services = tuple(
            replace(service, **dict(zip(_OF_SERVICE, values[k * count :], strict=False)))
            for k, service in enumerate(like)
        )
        others = dict(zip(_OF_WAY, values[len(like) * count :], strict=True))
        way = Way(handoff_s=HANDOFF_S, cores=cores, **others)
        # A hit costs the host what a response costs it.
        return cls(services, replace(way, hit_s=services[0].response_s))

    def to_vector(self) -> Vector:
        values = [getattr(service, name) for service in self.services for name in _OF_SERVICE]
        values += [getattr(self.way, name) for name in _OF_WAY]
        vector: Vector = np.log(np.maximum(values, 1e-12))
        return np.clip(vector, *limits(len(self.services)))

    def simulate(self, network: Network, traffics: Sequence[Traffic], seed: int) -> Outcome:
        return simulate_network(network, self.services, self.way, traffics, seed)


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

    Those of each stream in the order of `Figure`, then those of the models and of the host. As
    many for each observation; 0 for what was not measured.
    """
    return np.concatenate([_of_one(costs, o) for o in observations])


def _of_one(costs: Costs, observation: Observation) -> Vector:
    outcome = costs.simulate(observation.network, observation.traffics, observation.seed)
    found = []
    for k, traffic in enumerate(observation.traffics):
        found += _of_stream(outcome.of(traffic.stream), observation, k)
    for node, model in zip(outcome.nodes, observation.models, strict=True):
        size = None if model is None else model.mean_batch_size
        found.append(_log_ratio(node.compute_us, compute_us(model)) / _COMPUTE_SCALE)
        found.append(_log_ratio(node.mean_batch_size, size) / _BATCH_SCALE)
    found.append(_log_ratio(outcome.busy_cores, observation.busy_cores) / _CORES_SCALE)
    return np.array(found)


def _of_stream(outcome: Outcome, observation: Observation, stream: int) -> list[float]:
    simulated, measurement = figures_of(outcome), observation.streams[stream]
    found = []
    for figure, scale in SCALES.items():
        if observation.saturated[stream] and figure is not Figure.THROUGHPUT:
            scale = _SATURATED_SCALE  # noqa: PLW2901
        measured = None if measurement is None else getattr(measurement, figure.value)
        found.append(_log_ratio(simulated[figure], measured) / scale)
    return found


def _log_ratio(simulated: float, measured: float | None) -> float:
    """0 when nothing was measured; a twin that answers nothing at all is off by a factor of 20."""
    if measured is None or not measured > 0.0:
        return 0.0
    return float(np.log(simulated / measured)) if simulated > 0.0 else -3.0


BatchStats = Sequence[tuple[int, int, int]]

_PADDINGS = (2, 4, 8, 16, 32)
#: A padding must explain the times this much better than none.
_BETTER = 0.5


@dataclass(frozen=True)
class Curve:
    """``base_s + item_s * n``, n rounded up to a multiple of ``pad_to``."""

    base_s: float
    item_s: float
    pad_to: int = 1

    def seconds(self, size: int) -> float:
        return self.base_s + self.item_s * self.pad_to * math.ceil(size / self.pad_to)


def curve_of(observations: Sequence[Observation], node: int) -> Curve | None:
    """The curve of one model's batch times; None without observations of it."""
    return curve_through(
        (o.network.nodes[node].instances, model.batch_stats)
        for o in observations
        if (model := o.models[node]) is not None
    )


def curve_through(counted: Iterable[tuple[int, BatchStats]]) -> Curve | None:
    """The least-squares line through the mean time of each batch size; None without any.

    Only from where the fewest instances were, which wait least for one another.

    Args:
        counted: Instances, and batch size, executions and nanoseconds of them all.
    """
    known = [(instances, found) for instances, found in counted if found]
    if not known:
        return None
    fewest = min(instances for instances, _ in known)
    rows = [row for instances, found in known if instances == fewest for row in found]
    sizes, counts, total_ns = (np.array(column, float) for column in zip(*rows, strict=True))
    seconds = total_ns / counts / 1e9
    pad_to = 1
    best = line = _line(sizes, seconds, counts)
    for padding in _PADDINGS if np.unique(sizes).size > 3 else ():
        if padding > sizes.max():
            break
        other = _line(np.ceil(sizes / padding) * padding, seconds, counts)
        if other[2] < _BETTER * line[2] and other[2] < best[2]:
            best, pad_to = other, padding
    return Curve(best[0], best[1], pad_to)


def _line(sizes: Vector, seconds: Vector, counts: Vector) -> tuple[float, float, float]:
    """Base, slope (neither negative) and squared error, weighted by executions."""
    weights = np.sqrt(counts)
    from scipy.optimize import nnls

    matrix = np.stack([np.ones_like(sizes), sizes], axis=1) * weights[:, None]
    (base, slope), error = nnls(matrix, seconds * weights)
    return float(base), float(slope), float(error) ** 2
