"""The soak: one long load on the config that is written, at what it is credited with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tuner.confirm.confirm import Confirmation, Outcome
from tuner.confirm.soak import MOST, SoakRules, first_level, measure_curve, remembered_s, soak
from tuner.errors import TrialError
from tuner.load import seeds
from tuner.measurement.measurement import LoadPoint
from tuner.run.confirmation import Soak, Soaked
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.workload import CacheState
from tuner.steps.session import Session, curve_window, why_no_overload
from tuner.triton.launchers import cores_of

#: Two soaked throughputs this close are equal: a window answers a little more or less by chance.
_NEARLY = 0.99
#: Where both run on one machine that is this busy, load generator and server hinder each other.
_BUSY_PERCENT = 95.0


@dataclass(frozen=True)
class Proven:
    """What the soak makes of a proof.

    Attributes:
        soak: Of the config that is to be written; None where the spec wants none.
        refused: The outcome if it is not written after all; None if it is.
        reason: One sentence; empty if there is nothing to report.
    """

    soak: Soak | None
    refused: Outcome | None = None
    reason: str = ""


def soak_winner(session: Session, proof: Confirmation) -> Proven:
    """Tests the claim of a proof under one long load.

    A claim that had to be lowered must still be worth a change. Where the gain, lowered alike, is
    not, the current config is soaked too, at the load that would make the two equally good. The
    winner is refused if that load holds. Where client and server share a full CPU, since they have
    none of their own, there is no soak.

    Raises:
        TrialError: The winner could not be served, or no load gave a result.
        InterruptedRunError: The user stopped it.
    """
    if not _wanted(session):
        return Proven(None)
    apart = cores_of(session.spec).apart
    if not apart and (shared := _short_of_cpu(proof.points)):
        return _unknown(session, Soak(reason=shared))
    session.events.phase("soaking the winner")
    begin = first_level(proof, session.plan)
    found = _soak(session, proof.candidate, begin, proof.points)
    if found.held is None and found.reason:
        return _unknown(session, found)
    found = _with_curve(session, proof.candidate, found)
    if found.held is not None and not found.failures:
        return Proven(found)
    reason = f"what it sustained in its rounds does not last: {'; '.join(found.failures)}"
    if found.held is None:
        return Proven(found, Outcome.NOT_FEASIBLE, reason)
    beside = _as_good(session, proof, found.held, found.held.level / begin)
    if beside is not None:
        bar = f"{float(session.spec.confirm.min_gain):.0%}"
        held = f"the current config sustained {beside.sentence}"
        why = f"and what lasts is not better by {bar}: {held}"
        return Proven(found, Outcome.NOT_BETTER, f"{reason}; {why}")
    return Proven(found, reason=f"{reason}; what lasts is {found.held.sentence}")


def _unknown(session: Session, found: Soak) -> Proven:
    """Whether its load lasts is not known: written only where the user accepts that."""
    refused = None if session.accept_unsoaked else Outcome.NOT_MEASURED
    return Proven(found, refused, f"whether its load holds for long is not known: {found.reason}")


def _short_of_cpu(points: Sequence[Point]) -> str:
    """Says that server and load generator left each other too little of the CPU; else empty."""
    hosts = [p.measurement.host for p in points]
    used = [h.cpu_percent for h in hosts if h.cores is not None and h.cpu_percent is not None]
    if not used or median(used) < _BUSY_PERCENT:
        return ""
    return (
        f"server and load generator share a CPU that was {median(used):.0f}% busy in the rounds, "
        "so that a soak would test both: keep them apart (server.cpus, workload.cpus), or put the "
        "load on from another machine (server.mode)"
    )


def _as_good(session: Session, proof: Confirmation, claim: Soaked, lowered: float) -> Soaked | None:
    """The soak of the current config that shows a lowered claim to be no gain; else None.

    ``lowered``: the share of the first soak's load that held.
    """
    current = proof.current
    if proof.gain is None or not current.rounds:
        return None
    enough = 1.0 + float(session.spec.confirm.min_gain)
    if proof.gain.ratio.estimate * lowered >= enough:
        return None
    level = current.credited_level  # of a closed loop: clients are no goodput
    if session.plan.arrivals.open_loop:
        level = claim.level / enough
    if session.plan.listed is not None:
        level = min(listed for listed in session.plan.listed if listed >= level)
    beside = _soak(session, current.candidate, level, current.points, at_most=1).held
    if (
        beside is None
        or beside.throughput_infer_per_s * enough < _NEARLY * claim.throughput_infer_per_s
    ):
        return None
    return beside


def soak_credited(session: Session, level: float, points: Sequence[Point]) -> Soak | None:
    """Puts the load that the current config is credited with on it once more; None if unwanted.

    A soak that cannot be judged has a reason. ``points``: of its rounds.
    """
    if not _wanted(session):
        return None
    if not cores_of(session.spec).apart and (shared := _short_of_cpu(points)):
        return Soak(reason=shared)
    session.events.phase("soaking the credited load")
    try:
        found = _soak(session, session.current, level, points, at_most=1)
    except TrialError as error:
        return Soak(reason=error.message)
    if found.held is None and (not found.tried or found.tried[-1].point.undecided):
        return replace(found, reason="; ".join(found.failures))
    return found


def _with_curve(session: Session, candidate: Candidate, found: Soak) -> Soak:
    """Adds how the latency rises around the credited load, on the server that was soaked.

    Nothing where no capacity was searched, nor where each load needs a new server.
    """
    spec, plan, level = session.spec, session.plan, found.credited_level
    emptied = candidate.cache_bytes and spec.workload.cache is CacheState.EMPTY
    if level is None or emptied or why_no_overload(spec, plan):
        return found
    if session.deadline.leaves_out("the load curve"):
        return found
    session.events.phase("measuring loads around the claim")
    curve = measure_curve(
        session.bench,
        candidate,
        level,
        spec.slos,
        lambda rate: curve_window(spec, LoadPoint(plan.arrivals, rate)),
        seeds.of_curve(session.first_seed),
        session.record,
    )
    session.events.note(f"load curve: {curve.sentence}")
    return replace(found, curve=curve)


def _wanted(session: Session) -> bool:
    return float(session.spec.confirm.soak) > 0.0


def _soak(
    session: Session,
    candidate: Candidate,
    level: float,
    points: Sequence[Point],
    at_most: int = MOST,
) -> Soak:
    searched = session.plan.listed is None and session.plan.arrivals.open_loop
    rules = SoakRules(
        slos=session.spec.slos,
        plan=session.plan,
        seed=seeds.of_soak(session.first_seed),
        usual_s=float(session.spec.confirm.soak),
        least_s=remembered_s(points) if at_most > 1 else 0.0,
        record=session.record,
        told=lambda text: session.events.note(f"soak: {text}"),
        headroom=float(session.spec.confirm.headroom) if searched else 0.0,
    )
    return soak(session.bench, candidate, level, rules, at_most=at_most)
