"""The verdict of a check, from its rounds."""

from __future__ import annotations

from typing import NamedTuple

from tuner.check.nights import change_of, detectable_loss, slo_status
from tuner.check.rounds import CheckRounds
from tuner.reason import Fact, Reason, ReasonKind
from tuner.record.checks import CheckFigures
from tuner.record.status import CheckStatus
from tuner.score.judge import SloOutcome
from tuner.score.ratio import CONFIDENCE, Ratio
from tuner.spec.model import Check


class CheckVerdict(NamedTuple):
    status: CheckStatus
    reasons: tuple[Reason, ...]


def verdict_of(
    rounds: CheckRounds, limits: Check, not_compared: Reason | None, *, accept: bool
) -> CheckVerdict:
    """Judges the SLOs first, then the comparison with the baseline.

    A credited load that misses an SLO is a regression, whatever the comparison shows.

    Args:
        not_compared: Why there is no baseline to compare with; None if there is one. A check
            without a comparison is inconclusive.
        accept: The result becomes the next baseline if every SLO is met, even if it is worse.
    """
    verdict, soak = (
        _verdict_of_rounds(rounds, limits, not_compared, accept),
        rounds.figures.credited,
    )
    if soak is None:
        return verdict
    if soak.sustained is not None:
        reason = Reason(ReasonKind.CREDIT_HOLDS, causes=(soak.sustained.reason,))
    elif soak.why_unknown is not None:
        reason = Reason(ReasonKind.CREDIT_NOT_JUDGED, causes=(soak.why_unknown,))
    else:
        lost = Reason(ReasonKind.CREDIT_LOST, causes=soak.failures)
        return CheckVerdict(CheckStatus.REGRESSION, (lost, *verdict.reasons))
    return CheckVerdict(verdict.status, (*verdict.reasons, reason))


def _verdict_of_rounds(
    rounds: CheckRounds, limits: Check, not_compared: Reason | None, accept: bool
) -> CheckVerdict:
    if status := slo_status(rounds.points):
        return CheckVerdict(status, (_not_met(rounds, status),))
    limited: tuple[Reason, ...] = ()
    if rounds.client_limit is not None:
        most: dict[str, Fact] = {"sendable_level": rounds.client_limit}
        limited = (Reason(ReasonKind.SENDING_LIMITED, facts=most),)
    facts = rounds.figures
    if facts.ratio is None:
        if accept:
            return CheckVerdict(CheckStatus.ACCEPTED, (_met(rounds), *limited))
        elsewhere = Reason(ReasonKind.ACCEPTED_AT_OTHER_LOAD)
        return CheckVerdict(CheckStatus.INCONCLUSIVE, (not_compared or elsewhere,))
    status = change_of(facts.ratio, limits.warn, limits.fail)
    if limited and status is not CheckStatus.FINE and not accept:
        hidden = Reason(ReasonKind.LIMIT_HIDES_LOSS)
        return CheckVerdict(CheckStatus.INCONCLUSIVE, (*limited, hidden))
    texts = _compared(facts, facts.ratio, limits, status)
    return CheckVerdict(CheckStatus.ACCEPTED if accept else status, (*texts, *limited))


def _met(rounds: CheckRounds) -> Reason:
    """The loads at which every SLO was met, and how many loads missed one."""
    facts: dict[str, Fact] = {"rounds": len(rounds.points)}
    if rounds.any_load and rounds.loads_missed:
        loads = sorted((p.measurement.load for p in rounds.points), key=lambda load: load.level)
        facts["loads"] = " to ".join(dict.fromkeys(map(str, (loads[0], loads[-1]))))
        facts |= {"loads_missed": rounds.loads_missed, "loads_tried": rounds.loads_tried}
    return Reason(ReasonKind.SLOS_MET, facts=facts)


def _not_met(rounds: CheckRounds, status: CheckStatus) -> Reason:
    """The SLOs that were missed in every round or in some, or that could not be judged."""
    missed = sum(p.outcome is SloOutcome.MISSED for p in rounds.points)
    facts: dict[str, Fact] = {}
    if not rounds.any_load:
        facts["load"] = str(rounds.points[0].measurement.load)
    if not missed and status is CheckStatus.INCONCLUSIVE:
        return Reason(ReasonKind.TOO_FEW_TO_JUDGE, facts=facts)
    wrong = [s for p in rounds.points for s in p.slo if s.verdict.outcome is SloOutcome.MISSED]
    names = dict.fromkeys(s.expression for s in wrong)
    facts |= {"slos": " and ".join(names), "slo_count": len(names)}
    if status is CheckStatus.MISSED:
        return Reason(ReasonKind.SLOS_MISSED, facts=facts)
    facts |= {"missed_count": missed, "rounds": len(rounds.points)}
    return Reason(ReasonKind.SLOS_AT_EDGE, facts=facts)


_CHANGES = {
    CheckStatus.FINE: ReasonKind.LOSS_RULED_OUT,
    CheckStatus.WORSE: ReasonKind.LOSS_SMALL,
    CheckStatus.REGRESSION: ReasonKind.LOSS_CERTAIN,
    CheckStatus.INCONCLUSIVE: ReasonKind.LOSS_OPEN,
}


def _compared(
    figures: CheckFigures, ratio: Ratio, limits: Check, change: CheckStatus
) -> list[Reason]:
    facts: dict[str, Fact] = {
        "compared": figures.compared,
        "ratio": ratio.estimate,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "confidence_share": CONFIDENCE,
        "nights": figures.nights,
        "warn": str(limits.warn),
        "fail": str(limits.fail),
    }
    reasons = [Reason(_CHANGES[change], facts=facts)]
    if change is CheckStatus.INCONCLUSIVE:
        loss = {"loss_share": detectable_loss(ratio, float(limits.warn))}
        reasons.append(Reason(ReasonKind.LOSS_FINDABLE, facts=loss))
    return reasons
