"""Overloads the winner and the current config once each, to report what happens beyond capacity.

The current config is not overloaded where the winner sustains that load in every round.
"""

from __future__ import annotations

from tuner.errors import ClientLimitError, TrialError
from tuner.load import seeds
from tuner.load.probes.overload import Overload
from tuner.load.traffic.arrivals import OVERLOAD
from tuner.meter.session import Session, why_no_overload
from tuner.reason import Reason, ReasonKind
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Overloads, RunDecision
from tuner.score.judge import tail_slo
from tuner.spec.slo import Slo

_CURRENT, _WINNER = "current config", "winner"


def probe_overload(session: Session, verdict: RunDecision) -> RunDecision:
    """The verdict with the results of the overloads, or the reasons why there are none.

    Raises:
        InterruptedRunError: The user stopped it.
    """
    slo = tail_slo(session.spec.slos)
    if (reason := why_no_overload(session.spec, session.plan)) is not None:
        return verdict.model_copy(update={"overload": Overloads(None, None, (reason,))})
    assert slo is not None  # else there is a reason
    sides = {_CURRENT: verdict.baseline, _WINNER: verdict.winner}
    sustained = {name: _sustained(side) for name, side in sides.items() if side is not None}
    none = ReasonKind.NO_LOAD_TO_EXCEED
    reasons = [Reason(none, name) for name, levels in sustained.items() if not levels]
    current, winner = sustained.get(_CURRENT, []), sustained.get(_WINNER, [])
    if current and winner and OVERLOAD * max(current) < min(winner):
        sustained[_CURRENT] = []
        reasons.append(Reason(ReasonKind.WINNER_SUSTAINED_OVERLOAD, _CURRENT))
    if any(sustained.values()):
        session.events.phase("overloading")
    by_name: dict[str, Overload] = {}
    for name, side in sorted(sides.items(), key=lambda item: not _still_served(item[1])):
        if side is None or not sustained[name]:
            continue
        try:
            by_name[name] = _probe(session, side, min(sustained[name]), slo)
        except TrialError as error:
            reasons.append(error.reason.of(name))
        else:
            session.events.note(f"{name}: {by_name[name].sentence}")
    overloads = Overloads(by_name.get(_CURRENT), by_name.get(_WINNER), tuple(reasons))
    return verdict.model_copy(update={"overload": overloads})


def _sustained(side: ProvedConfig) -> list[float]:
    """Levels that met every SLO: the one of the soak, or those of the rounds without a soak."""
    if side.sustained is not None:
        return [side.sustained.level]
    return [p.level for p in side.rounds if p.passed]


def _still_served(side: ProvedConfig | None) -> bool:
    """Whether the server of its soak still runs, which was fresh and sustained its only load."""
    return (
        side is not None
        and side.sustained is not None
        and side.soak is not None
        and len(side.soak.tried) == 1
    )


def _probe(session: Session, side: ProvedConfig, level: float, slo: Slo) -> Overload:
    if OVERLOAD * level > session.bench.sendable.most:
        raise ClientLimitError("its overload is more than the load generator can send")
    fresh = not _still_served(side)
    session.bench.deploy(side.candidate, fresh=fresh, in_production=side.sustained is not None)
    return session.bench.overload(level, slo, seeds.of_overload(session.spec.search.seed))
