"""What refusals and memory readings forbid: candidates that ask for as much, or more.

Only a config that the server refused, or had no memory for, says something about larger ones. A
load generator that could not keep up, or a load without a result, does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.scheduling import service_key
from tuner.spec.metrics import GPU_MEMORY
from tuner.spec.paths import MAX_BATCH_SIZE, is_instance_count
from tuner.spec.slo import Slo

#: Trials with a memory reading before memory is predicted.
_READINGS = 2


@dataclass(frozen=True)
class Demand:
    """What a candidate takes of the machine; more of anything is worse.

    Attributes:
        instances, batches: By label of the model.
    """

    instances: Mapping[str, int]
    batches: Mapping[str, int]
    cache_bytes: int

    @classmethod
    def of(cls, candidate: Candidate) -> Demand:
        models = candidate.models.items()
        return cls(
            instances={label: _instances(fields) for label, fields in models},
            batches={label: _whole(fields.get(MAX_BATCH_SIZE)) for label, fields in models},
            cache_bytes=candidate.cache_bytes or 0,
        )

    def covers(self, other: Demand) -> bool:
        """At least as much of everything."""
        return (
            all(self.instances.get(label, 1) >= n for label, n in other.instances.items())
            and all(self.batches.get(label, 0) >= n for label, n in other.batches.items())
            and self.cache_bytes >= other.cache_bytes
        )


def _instances(fields: Mapping[str, FieldValue]) -> int:
    counts = [v for path, v in fields.items() if is_instance_count(path)]
    return sum(v for v in counts if isinstance(v, int)) or 1


@dataclass(frozen=True)
class Refusals:
    """Learned from the finished trials of a run."""

    history: Sequence[Trial]
    slos: Sequence[Slo]

    def forbids(self, candidate: Candidate) -> bool:
        return self._refused_with_less(candidate) or self._too_large(candidate)

    def _refused_with_less(self, candidate: Candidate) -> bool:
        """One that asked for no more was refused, and none that asked for as much was served."""
        if not any(t.refused for t in self.history):
            return False
        demand, key = Demand.of(candidate), service_key(candidate)
        alike = [t for t in self.history if service_key(t.candidate) == key]
        refused = any(t.refused and demand.covers(Demand.of(t.candidate)) for t in alike)
        return refused and not any(
            t.state is not TrialState.FAILED and Demand.of(t.candidate).covers(demand)
            for t in alike
        )

    def _too_large(self, candidate: Candidate) -> bool:
        """GPU memory grows with each model's instances and with what each may be given at once."""
        bounds = [s.bound for s in self.slos if s.metric is GPU_MEMORY]
        readings = self._memory()
        if not bounds or len(readings) < _READINGS:
            return False
        demands, used = zip(*readings, strict=True)
        # Scaled, so that the smallest norm prefers to explain memory by instances.
        wanted = Demand.of(candidate)
        labels = sorted({label for d in (*demands, wanted) for label in d.instances})
        rows = np.array([_row(d, labels) for d in demands])
        weights, *_ = np.linalg.lstsq(rows, np.array(used, float), rcond=1e-6)
        return float(_row(wanted, labels) @ weights) > min(bounds)

    def _memory(self) -> list[tuple[Demand, int]]:
        found = []
        for trial in self.history:
            read = [p.measurement.host.gpu_memory_used_bytes for p in trial.points]
            known = [bytes_ for bytes_ in read if bytes_ is not None]
            if known:
                found.append((Demand.of(trial.candidate), max(known)))
        return found


def _row(demand: Demand, labels: Sequence[str]) -> npt.NDArray[np.float64]:
    found = [1.0]
    for label in labels:
        instances = demand.instances.get(label, 1)
        found += [instances, instances * demand.batches.get(label, 0) / 64.0]
    return np.array(found)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
