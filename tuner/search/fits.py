"""Candidates that cannot fit, by refusals of others that need no more, and by their memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.reason import Reason, ReasonKind
from tuner.score.trial import Trial, TrialState
from tuner.server.log import lacks_memory
from tuner.server.memory import Memory, is_of_gpu
from tuner.space.candidate import Candidate, FieldValue, service_key
from tuner.space.parameters import Knob
from tuner.spec.metrics import GPU_MEMORY
from tuner.spec.paths import MAX_BATCH_SIZE, is_instance_count
from tuner.spec.slo import Slo

#: Share of the free memory to leave free: memory grows under load, also that of other processes.
HEADROOM = 0.2
_HEADROOM = f"{HEADROOM * 100:.0f}% headroom"
#: Ridge penalty of the fit: the noise of a reading is about 3% of it.
_NOISE = 1e-3

#: Parts of paths of fields that only schedule, and need hardly any memory.
_FREE = ("thread", "rate_limiter")
#: Parts of paths of fields that choose the device of an instance.
_PLACE = (".kind", ".gpus")


@dataclass(frozen=True)
class ResourceDemand:
    """What a candidate needs of the machine.

    Attributes:
        instances: The number of instances, by the model's label.
        batches: The ``max_batch_size``, by the model's label.
        cache_bytes: The size of the response cache; 0 without one.
    """

    instances: Mapping[str, int]
    batches: Mapping[str, int]
    cache_bytes: int

    @classmethod
    def of(cls, candidate: Candidate) -> ResourceDemand:
        models = candidate.models.items()
        return cls(
            instances={label: _instances(fields) for label, fields in models},
            batches={label: _integer(fields.get(MAX_BATCH_SIZE)) for label, fields in models},
            cache_bytes=candidate.cache_bytes or 0,
        )

    def covers(self, other: ResourceDemand) -> bool:
        """Whether this demand is at least as large in every respect."""
        return (
            all(self.instances.get(label, 1) >= n for label, n in other.instances.items())
            and all(self.batches.get(label, 0) >= n for label, n in other.batches.items())
            and self.cache_bytes >= other.cache_bytes
        )


def _instances(fields: Mapping[str, FieldValue]) -> int:
    counts = [v for path, v in fields.items() if is_instance_count(path)]
    return sum(v for v in counts if isinstance(v, int)) or 1


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class Refusals:
    """The refused candidates among the finished trials of a run."""

    history: Sequence[Trial]

    def forbids(self, candidate: Candidate) -> bool:
        """Whether a candidate that needs no more was refused, and none that needs as much served.

        After a lack of memory, only fields that change the memory distinguish candidates. After
        another refusal of a number of instances, where fewer of the same were served (as on a
        device that serves one process only), only the device and the number of instances do.
        """
        return any(self._rules_out(t, candidate) for t in self.history if t.refused)

    def _rules_out(self, refused: Trial, candidate: Candidate) -> bool:
        refused_demand, demand = ResourceDemand.of(refused.candidate), ResourceDemand.of(candidate)
        lacked = not refused.attempts or lacks_memory(refused.reason)
        likes = _alike(refused.candidate, self.history, service_key)
        if not lacked and _served(
            ResourceDemand({}, refused_demand.batches, refused_demand.cache_bytes), likes
        ):
            key: Callable[[Candidate], object] = _place_key
            refused_demand, demand = (
                ResourceDemand(d.instances, {}, 0) for d in (refused_demand, demand)
            )
        else:
            key = _memory_key if lacked else service_key
        alike = _alike(candidate, self.history, key)
        return refused in alike and demand.covers(refused_demand) and not _served(demand, alike)


def _served(demand: ResourceDemand, alike: Sequence[Trial]) -> bool:
    """Whether one of the trials served a candidate that needs at least as much."""
    served = (t for t in alike if t.state is not TrialState.FAILED)
    return any(ResourceDemand.of(t.candidate).covers(demand) for t in served)


def _alike(
    candidate: Candidate, trials: Sequence[Trial], key: Callable[[Candidate], object]
) -> list[Trial]:
    key_of = key(candidate)
    return [t for t in trials if key(t.candidate) == key_of]


def _memory_key(candidate: Candidate) -> list[tuple[Knob, Any]]:
    """The fields that are equal in two candidates whose instances need about the same memory."""
    return [(k, v) for k, v in service_key(candidate) if not any(w in k.path for w in _FREE)]


def _place_key(candidate: Candidate) -> list[tuple[Knob, Any]]:
    """The fields that are equal in two candidates whose instances run on the same devices."""
    return [(k, v) for k, v in candidate.fields.items() if any(w in k.path for w in _PLACE)]


def cannot_fit(
    candidate: Candidate, history: Sequence[Trial], slos: Sequence[Slo]
) -> Reason | None:
    """Why a candidate does not fit in memory, by the memory of earlier trials; None if it may."""
    wanted, alike = ResourceDemand.of(candidate), _alike(candidate, history, _memory_key)
    if _served(wanted, alike):
        return None
    for name, latest in {n: m for t in alike for n, m in t.memory.items()}.items():
        limit, why = (1.0 - HEADROOM) * latest.free_bytes, _HEADROOM
        bounds = [s.bound for s in slos if s.metric is GPU_MEMORY and is_of_gpu(name)]
        if bounds and (left := min(bounds) - latest.others_bytes) < limit:
            limit, why = max(left, 0.0), "within the SLO"
        needed = _estimate(wanted, _least([t for t in alike if name in t.memory], name))
        if needed > limit:
            facts = {"needed_bytes": round(needed), "limit_bytes": round(limit)}
            return Reason(ReasonKind.NO_ROOM, facts={**facts, "memory": name, "why": why})
    return None


def _least(trials: Sequence[Trial], name: str) -> list[tuple[ResourceDemand, Memory]]:
    """The smallest reading of each demand: one after a reload may include the copy before it."""
    least: list[tuple[ResourceDemand, Memory]] = []
    for trial in sorted(trials, key=lambda t: t.memory[name].taken_bytes):
        demand = ResourceDemand.of(trial.candidate)
        if all(demand != other for other, _ in least):
            least.append((demand, trial.memory[name]))
    return least


def _estimate(wanted: ResourceDemand, known: Sequence[tuple[ResourceDemand, Memory]]) -> float:
    """The memory needed in bytes: linear in each model's instances and their largest batches."""
    labels = sorted(wanted.instances)
    rows = np.array([_row(demand, labels) for demand, _ in known])
    taken = np.array([memory.taken_bytes for _, memory in known], float)
    penalty = _NOISE * np.eye(rows.shape[1])
    weights = np.linalg.solve(rows.T @ rows + penalty, rows.T @ taken)
    return float(_row(wanted, labels) @ weights)


def _row(demand: ResourceDemand, labels: Sequence[str]) -> npt.NDArray[np.float64]:
    """The regressors; where readings leave it open, one of a smaller scale explains less."""
    values = [0.25]
    for label in labels:
        instances = demand.instances.get(label, 1)
        values += [instances, instances * demand.batches.get(label, 0) / 256.0]
    return np.array(values)
