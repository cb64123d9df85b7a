"""What happens beyond the capacity: the winner and the current config, each overloaded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from tuner.bench.evaluate import LoadPlan
from tuner.errors import LoadFailedError, TrialError
from tuner.load.overload import Overload
from tuner.score.judge import passes, tail_slo
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.spec.slo import Slo
from tuner.steps.events import Events
from tuner.steps.outcome import Overloads, Side, Verdict

#: Seeds of overloads are this far from those of the search.
SEED_OFFSET = 700_000


class Bench(Protocol):
    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> object: ...

    def overload(self, capacity: float, slo: Slo, seed: int) -> Overload: ...


@dataclass(frozen=True)
class Overloading:
    """Collaborators of the step."""

    spec: Spec
    plan: LoadPlan
    bench: Bench
    events: Events


def overloaded(step: Overloading, verdict: Verdict) -> Verdict:
    """The verdict with what an overload did, or the reason why that is not known.

    Raises:
        InterruptedRunError: The user stopped it.
    """
    slo = tail_slo(step.spec.slo)
    reason = why_none(step.spec, step.plan)
    if slo is None or reason:
        return replace(verdict, overload=Overloads(None, None, (reason,)))
    step.events.phase("overloading")
    found: dict[str, Overload] = {}
    reasons: list[str] = []
    for name, side in (("current config", verdict.baseline), ("winner", verdict.winner)):
        if side is None:
            continue
        try:
            found[name] = _probed(step, side, slo)
        except TrialError as error:
            reasons.append(f"{name}: {error.message}")
        else:
            step.events.note(f"{name}: {found[name].sentence}")
    overloads = Overloads(found.get("current config"), found.get("winner"), tuple(reasons))
    return replace(verdict, overload=overloads)


def _probed(step: Overloading, side: Side, slo: Slo) -> Overload:
    levels = [p.measurement.load.level for p in side.points if passes(p.slo)]
    if not levels:
        raise LoadFailedError("it met the SLOs at no load, so there is none beyond its capacity")
    step.bench.deploy(side.candidate, fresh=True)
    # the lowest: what it stood every time it was measured again
    return step.bench.overload(min(levels), slo, step.spec.search.seed * 1000 + SEED_OFFSET)


def why_none(spec: Spec, plan: LoadPlan) -> str:
    """Why nothing can be overloaded; empty when there is a capacity to exceed."""
    if not plan.arrivals.open_loop:
        return "A closed loop cannot be overloaded: its clients wait for their answers."
    if plan.listed is not None:
        return "The loads are fixed by the spec: no capacity was searched, so none is exceeded."
    if tail_slo(spec.slo) is None:
        return "No SLO bounds a high percentile of the latency: nothing to recover to."
    return ""
