"""Few requests: a lone one, and a tenth of the load that a config sustains.

A config may meet a latency SLO only while many requests come: a batcher that waits for more of them
keeps a lone one for all its queue delay. The search raises loads, and so would never see that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.errors import TrialError
from tuner.load import seeds
from tuner.measurement.measurement import LoadPoint
from tuner.programs.run.finalists import feasible
from tuner.score.trial import Trial, TrialState
from tuner.score.verdict import Verdict
from tuner.space.candidate import Candidate
from tuner.spec.digits import digits
from tuner.steps.rig import window_of
from tuner.steps.session import Session
from tuner.steps.window_length import LONG_S


def missed_when_idle(session: Session, candidate: Candidate, level: float = 0.0) -> str:
    """The SLO that a config misses for a lone request, or at a tenth of ``level``; else empty.

    Nothing is asked of a closed loop, or where the spec says which loads there are.

    Raises:
        TrialError: The config could not be served, or gave no result.
    """
    plan, seed = session.plan, seeds.of_overload(session.spec.search.seed)
    if plan.listed is not None or not plan.arrivals.open_loop:
        return ""
    session.bench.deploy(candidate)
    alone_s = session.bench.one_at_a_time(seed)
    for slo in session.spec.slos:
        took_us = 1e6 * alone_s.get(slo.stream, 0.0)
        if slo.metric.is_latency and took_us > slo.bound:
            return f"one request at a time takes {digits(took_us / 1e3, 4)} ms: misses {slo}"
    tenth = plan.levels.nearest(level / 10.0)
    window = window_of(session.spec, LoadPoint(plan.arrivals, tenth))
    if tenth >= level or window.total_s > LONG_S:
        return ""
    for again in range(2):  # what happens once may be due to what was before
        point = session.bench.once(tenth, seed + again, window)
        missed = [s.expression for s in point.slo if s.verdict is Verdict.FAIL]
        if not missed or point.measurement.disturbances:
            return ""
    return f"at {digits(tenth, 3)}/s, a tenth of its load, it misses {missed[0]}"


def held_to_low_loads(session: Session, trials: Sequence[Trial]) -> tuple[list[Trial], list[str]]:
    """The trials, infeasible where the config misses an SLO at low loads, and what was seen.

    The best others are asked only where the current config misses one: most share its cause.
    """
    found, reasons = list(trials), list[str]()
    current = [t for t in trials if t.candidate == session.current and t.points]
    others = [t for t in feasible(trials, session.spec, session.current) if t not in current]
    for trial in [*current, *others[: 2 * session.spec.confirm.finalists]] if current else []:
        name = "the current config" if trial in current else f"trial {trial.number}"
        try:
            missed = missed_when_idle(session, trial.candidate, trial.sustained_level or 0.0)
        except TrialError as error:
            session.events.note(f"{name} was not asked at low loads: {error.message}")
            missed = ""
        if missed:
            reasons.append(f"{name}: {missed}")
            session.events.note(reasons[-1])
            assert trial.score is not None
            score = replace(trial.score, feasible=False, violation=1.0, best_point=None)
            found[found.index(trial)] = replace(trial, state=TrialState.MEASURED, score=score)
        elif trial in current:
            break
    return found, reasons
