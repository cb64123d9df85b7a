"""What the service time by batch size says about candidates that were not measured yet.

Every measured load, hence already the first one of a search, leaves a table of batch size to
service time in Triton's own statistics. If the largest batch that fits a config's SLO has n
inferences and takes S(n) seconds, each instance answers at most n / S(n) (the utilisation law). A
model of the trials starts from that. What several instances gain, and what they take from each
other, it has to learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from tuner.score.trial import Trial
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.twin.curve import Curve, curve_through
from tuner.twin.model import Unmodelled
from tuner.twin.observation import Setting
from tuner.twin.setting import setting_of
from tuner.twin.system import Scheduler

#: A request waits for the batch before its own, so that this many must fit the SLO.
_BATCHES = 2


@dataclass(frozen=True)
class BatchRates:
    """Learns the table from trials.

    Attributes:
        within_s: What the SLOs allow a request.
    """

    setting: Setting
    within_s: float

    @classmethod
    def of(cls, space: Space, spec: Spec) -> Self:
        bounds = [slo.bound / 1e6 for slo in spec.slos if slo.metric.is_latency]
        return cls(setting_of(space, spec), min(bounds, default=math.inf))

    def learned(self, history: Sequence[Trial]) -> Callable[[Candidate], float]:
        """Logarithm of the inferences per second and instance of the slowest model; 0: unknown."""
        curves = self._curves(history)

        def log_rate(candidate: Candidate) -> float:
            network = self.setting.network(candidate)
            if isinstance(network, Unmodelled) or not all(curves):
                return 0.0
            nodes = zip(network.nodes, curves, strict=True)
            return min((self._log_rate(n, c) for n, c in nodes if c is not None), default=0.0)

        return log_rate

    def _curves(self, history: Sequence[Trial]) -> list[Curve | None]:
        plan = self.setting.plan
        if isinstance(plan, Unmodelled):
            return []
        networks = [(t, self.setting.network(t.candidate)) for t in history]
        return [
            curve_through(
                (network.nodes[node].instances, counted.batch_stats)
                for trial, network in networks
                if not isinstance(network, Unmodelled)
                for point in trial.points
                if (counted := point.measurement.models.get(label)) is not None
            )
            for node, label in enumerate(plan.labels)
        ]

    def _log_rate(self, node: Scheduler, curve: Curve) -> float:
        most = node.max_batch_size if node.batching else 1
        sizes = range(1, max(most, 1) + 1)
        fit = [n for n in sizes if _BATCHES * curve.seconds(n) <= self.within_s] or [1]
        return max(math.log(n / max(curve.seconds(n), 1e-9)) for n in fit)
