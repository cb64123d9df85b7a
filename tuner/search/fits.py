"""What refusals and memory readings forbid: candidates that ask for as much, or more."""

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

#: Of what is free, this share stays so: memory grows under load, and neighbours may grow too.
HEADROOM = 0.2
_HEADROOM = f"{HEADROOM * 100:.0f}% headroom"
#: Variance of a reading in units of what is learned from it: about 3 % of a reading is noise.
_NOISE = 1e-3

#: In the path of a field that says who computes when, which takes hardly any memory.
_FREE = ("thread", "rate_limiter")
#: In the path of a field that says on what an instance runs.
_PLACE = (".kind", ".gpus")


@dataclass(frozen=True)
class ResourceDemand:
    """What a candidate takes of the machine; more of anything is worse.

    Attributes:
        instances, batches: By label of the model.
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
        """At least as much of everything."""
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
    """Learned from the finished trials of a run."""

    history: Sequence[Trial]

    def forbids(self, candidate: Candidate) -> bool:
        """One that asked for no more was refused, and none that asked for as much was served.

        Where there was no memory, more threads need no less of it. Where any but the number of
        instances was served, as on a device that one process can hold, no field makes room for it.
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
    """One that asks for as much was served."""
    served = (t for t in alike if t.state is not TrialState.FAILED)
    return any(ResourceDemand.of(t.candidate).covers(demand) for t in served)


def _alike(
    candidate: Candidate, trials: Sequence[Trial], key: Callable[[Candidate], object]
) -> list[Trial]:
    key_of = key(candidate)
    return [t for t in trials if key(t.candidate) == key_of]


def _memory_key(candidate: Candidate) -> list[tuple[Knob, Any]]:
    """What is equal in two candidates of which each instance takes about as much memory."""
    return [(k, v) for k, v in service_key(candidate) if not any(w in k.path for w in _FREE)]


def _place_key(candidate: Candidate) -> list[tuple[Knob, Any]]:
    """What is equal in two candidates whose instances run on the same."""
    return [(k, v) for k, v in candidate.fields.items() if any(w in k.path for w in _PLACE)]


def cannot_fit(
    candidate: Candidate, history: Sequence[Trial], slos: Sequence[Slo]
) -> Reason | None:
    """Why there is no memory for it, by what the trials' models took; None where there may be."""
    wanted, alike = ResourceDemand.of(candidate), _alike(candidate, history, _memory_key)
    if _served(wanted, alike):
        return None
    for name, latest in {n: m for t in alike for n, m in t.memory.items()}.items():
        limit, why = (1.0 - HEADROOM) * latest.free_bytes, _HEADROOM
        bounds = [s.bound for s in slos if s.metric is GPU_MEMORY and is_of_gpu(name)]
        if bounds and (left := min(bounds) - latest.others_bytes) < limit:
            limit, why = max(left, 0.0), "within the SLO"
        known = [
            (ResourceDemand.of(t.candidate), t.memory[name]) for t in alike if name in t.memory
        ]
        needed = _estimate(wanted, known)
        if needed > limit:
            facts = {"needed_bytes": round(needed), "limit_bytes": round(limit)}
            return Reason(ReasonKind.NO_ROOM, facts={**facts, "memory": name, "why": why})
    return None


def _estimate(wanted: ResourceDemand, known: Sequence[tuple[ResourceDemand, Memory]]) -> float:
    """Memory grows with each model's instances and with what each may be given at once."""
    labels = sorted(wanted.instances)
    rows = np.array([_row(demand, labels) for demand, _ in known])
    taken = np.array([memory.taken_bytes for _, memory in known], float)
    penalty = _NOISE * np.eye(rows.shape[1])
    weights = np.linalg.solve(rows.T @ rows + penalty, rows.T @ taken)
    return float(_row(wanted, labels) @ weights)


def _row(demand: ResourceDemand, labels: Sequence[str]) -> npt.NDArray[np.float64]:
    """What weighs less explains less, where readings leave it open."""
    values = [0.25]
    for label in labels:
        instances = demand.instances.get(label, 1)
        values += [instances, instances * demand.batches.get(label, 0) / 256.0]
    return np.array(values)
