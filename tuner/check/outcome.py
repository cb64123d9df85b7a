"""What a check says of what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuner.check.nights import change_of, loss_found, slo_status
from tuner.check.rounds import CheckRounds
from tuner.record.checks import Shown
from tuner.record.status import CheckStatus
from tuner.score.judge import SloOutcome
from tuner.score.point import Point
from tuner.score.ratio import CONFIDENCE, Ratio
from tuner.sentences import sentence
from tuner.spec.model import Check
from tuner.spec.units import count_text


class CheckVerdict(NamedTuple):
    """``reasons``: why, one sentence each."""

    status: CheckStatus
    reasons: tuple[str, ...]


def verdict_of(
    found: CheckRounds, limits: Check, not_compared: str, *, accept: bool
) -> CheckVerdict:
    """The SLOs first, then the comparison; what was not compared did not pass.

    ``not_compared``: why there is nothing to compare with; empty where there is. A result that is
    to be the next baseline may be worse, but not miss an SLO. Whatever the comparison says, a
    credited load that misses one is a regression.
    """
    verdict, soak = _verdict_of_rounds(found, limits, not_compared, accept), found.shown.credited
    if soak is None:
        return verdict
    load = "The load that the config is credited with"
    if soak.lost:
        reason = f"{load} does not hold any more: {'; '.join(map(sentence, soak.failures))}."
        return CheckVerdict(CheckStatus.REGRESSION, (reason, *verdict.reasons))
    unclear = f"was not judged, which decides nothing: {soak.reason}."
    told = unclear if soak.held is None else f"still holds: {soak.held.sentence}."
    return CheckVerdict(verdict.status, (*verdict.reasons, f"{load} {told}"))


def _verdict_of_rounds(
    found: CheckRounds, limits: Check, not_compared: str, accept: bool
) -> CheckVerdict:
    where = "at any load tried" if found.any_load else f"at {found.held[0].measurement.load}"
    if status := slo_status(found.held):
        missed = f"{_missed(found.held)} {where}, every time."
        unclear = status is CheckStatus.INCONCLUSIVE
        return CheckVerdict(status, (_unclear(found.held, where) if unclear else missed,))
    limit = f"The load generator was the limit, not the model: {found.client_limit}."
    limited = (limit,) if found.client_limit else ()
    shown = found.shown
    if shown.ratio is None:
        if accept:
            return CheckVerdict(CheckStatus.ACCEPTED, (_met(found), *limited))
        elsewhere = "The accepted result was measured at another load: not compared."
        return CheckVerdict(CheckStatus.INCONCLUSIVE, (not_compared or elsewhere,))
    status = change_of(shown.ratio, limits.warn, limits.fail)
    if limited and status is not CheckStatus.FINE and not accept:
        reason = "What the model can do was not found, so a loss is neither shown nor ruled out."
        return CheckVerdict(CheckStatus.INCONCLUSIVE, (*limited, reason))
    told = _compared(shown, shown.ratio, limits, status)
    return CheckVerdict(CheckStatus.ACCEPTED if accept else status, (*told, *limited))


def _met(found: CheckRounds) -> str:
    """Says at which loads every SLO was met, and that loads above the capacity missed one."""
    met = f"Every SLO was met in {count_text(len(found.held), 'round')}"
    missed, tried = found.loads_missed, found.loads_tried
    if not (found.any_load and missed):
        return f"{met}."
    loads = sorted((p.measurement.load for p in found.held), key=lambda load: load.level)
    ends = " to ".join(dict.fromkeys(map(str, (loads[0], loads[-1]))))
    were = "was" if missed == 1 else "were"
    return f"{met}, at {ends}; {missed} of {tried} loads tried {were} higher and missed one."


def _missed(points: Sequence[Point]) -> str:
    """`p99_latency <= 40ms was missed`, of all SLOs that were missed in some round."""
    wrong = [s for p in points for s in p.slo if s.verdict.outcome is SloOutcome.MISSED]
    names = dict.fromkeys(s.expression for s in wrong)
    return f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} missed"


def _unclear(points: Sequence[Point], where: str) -> str:
    missed = sum(p.outcome is SloOutcome.MISSED for p in points)
    if missed:
        rounds = f"{missed} of {count_text(len(points), 'round')}"
        return f"{_missed(points)} {where} in {rounds}: at the very edge."
    few = f"Too few requests were answered {where} to judge a percentile"
    return f"{few}: raise workload.max_window."


def _compared(shown: Shown, ratio: Ratio, limits: Check, change: CheckStatus) -> list[str]:
    nights = f"{shown.nights} night{'s' * (shown.nights > 1)}"
    interval = f"{CONFIDENCE:.0%} interval {ratio.low:.3f} to {ratio.high:.3f}, from {nights}"
    warn, fail = limits.warn, limits.fail
    meaning = {
        CheckStatus.FINE: f"a loss of {fail} is ruled out",
        CheckStatus.WORSE: f"a loss above {warn}, but not of the {fail} that fail",
        CheckStatus.REGRESSION: f"a loss above {warn} is certain, and it looks like more than "
        f"{fail}",
        CheckStatus.INCONCLUSIVE: f"a loss of {fail} and one below {warn} are both possible",
    }[change]
    times = f"{shown.compared.capitalize()} is {ratio.estimate:.3f} times the accepted result's"
    told = [f"{times} ({interval}): {meaning}."]
    if change is CheckStatus.INCONCLUSIVE:
        loss = loss_found(ratio, float(warn))
        told.append(f"A loss of {loss:.0%} would be found in four nights of five on this machine.")
    return told
