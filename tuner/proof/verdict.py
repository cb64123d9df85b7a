"""The figures and the reasons of a run's decision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean

from tuner.errors import NothingToSearchError, TooManyFailedTrialsError, TrialError
from tuner.proof.compare import chance_of_gain
from tuner.proof.contender import Contender
from tuner.proof.decide import LookResult, answer
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.rounds import RoundsResult
from tuner.proof.soak import OF_MEAN, lowered_share
from tuner.reason import Fact, Reason, ReasonKind
from tuner.record.confirmation import Soak
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Gain, Means, Rounds, RunDecision, ToKnow
from tuner.record.status import Status
from tuner.score.judge import SloOutcome, too_few_text
from tuner.score.next_load import LoadPlan
from tuner.score.ratio import CONFIDENCE, Ratio
from tuner.score.trial import Trial, TrialState
from tuner.sentences import failed
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal

#: Tolerance for the rounding of a quotient of two loads.
_ROUNDED = 1.0 - 1e-9


def gain_of(race: RoundsResult, contender: Contender, rules: ProofRules) -> Gain | None:
    """The gain by the rounds; None where these compared nothing, or the interval has no ends."""
    ratio = race.ratios.get(contender.candidate)
    if ratio is None or not ratio.low:
        return None
    common = len(contender.rounds)
    means = [geometric_mean(side.readings(rules)[:common]) for side in (contender, race.current)]
    best, now = (1.0 / m for m in means) if rules.objective.goal is Goal.MINIMIZE else means
    endless = math.isinf(ratio.high)
    return Gain(
        ratio=replace(ratio, high=ratio.estimate) if endless else ratio,
        confidence=CONFIDENCE,
        compared=_compared(rules),
        means=Means(best=best, current=now),
        rounds=Rounds(best=len(contender.rounds), current=len(race.current.rounds)),
        at_least=endless,
    )


def credited_gain(
    race: RoundsResult,
    winner: Contender,
    proved: ProvedConfig,
    rules: ProofRules,
    level: float,
    beside: Soak | None,
    simplified: bool,
) -> Gain | None:
    """The gain of the credited load; None where the current config met the SLOs at no load.

    Args:
        level: The load of the winner's first soak.
        beside: The soak of the current config at the winner's load, where there was one.
        simplified: At least one change of the winner was undone, see `lowered_gain`.

    Raises:
        TrialError: The credited load is no gain over the load that the current config may sustain.
    """
    enough, gain = rules.confirm.least_ratio, gain_of(race, winner, rules)
    lost = beside is not None and beside.lost
    if gain is None:
        current = race.current.entrant
        if beside is not None and lost and rules.plan.searches_rates:
            missed = min(s.level for s in beside.tried)
            current = replace(current, at_most=min(current.at_most, missed))
        gain = least_gain(proved.credited_level, current, rules)
    else:
        lowered = lowered_share(proved, level)
        gain = lowered_gain(gain, lowered, enough, simplified=simplified, lost=lost)
    if gain is None:
        return None
    least = enough * _ROUNDED
    if gain.ratio.low < (least if gain.at_least else 1.0) or gain.ratio.estimate < least:
        unsure = Reason(ReasonKind.GAIN_UNSURE, facts={"ratio": float(gain.ratio.low)})
        raise failed(TrialError, unsure)
    return gain


def lowered_gain(
    gain: Gain, lowered: float, enough: float, *, simplified: bool, lost: bool
) -> Gain:
    """The gain of the rounds, lowered to the load that the soak sustained.

    Args:
        lowered: The sustained load, as a share of the first soak's load.
        enough: The least ratio that is worth a change, such as 1.05.
        simplified: The winner was simplified: the simpler config was measured at `OF_MEAN` of the
            capacity only, so the lower end of the interval is lowered by that, too.
        lost: The current config did not sustain the credited load divided by ``enough``.
    """
    low = gain.ratio.low * lowered * (OF_MEAN if simplified else 1.0)
    if low <= 1.0 and lost:
        return gain.model_copy(update={"ratio": Ratio(enough, enough, enough), "at_least": True})
    ratio = replace(gain.ratio, low=low, estimate=gain.ratio.estimate * lowered)
    return gain.model_copy(update={"ratio": ratio})


def least_gain(credited_per_s: float, current: Entrant, rules: ProofRules) -> Gain | None:
    """The credited load over the upper bound of a current config that was not measured again.

    None where the bound is not known, or 0.
    """
    if not 0.0 < current.at_most < math.inf:
        return None
    least = credited_per_s / current.at_most
    ratio = Ratio(least, least, least)
    return Gain(ratio=ratio, confidence=CONFIDENCE, compared=_compared(rules), at_least=True)


def _compared(rules: ProofRules) -> str:
    metric = rules.objective.metric
    if metric is not None:
        return metric.name
    if rules.looks is not None:
        return "throughput when saturated"
    return "capacity" if rules.plan.listed is None else "throughput"


def none_near(name: str, best: Entrant, current: Entrant, rules: ProofRules) -> RunDecision:
    """The current config is kept without rounds: in the search no other config came near."""
    facts = {"best_at_most_per_s": float(best.at_most), "current_per_s": float(current.level)}
    reason = Reason(ReasonKind.BEST_OTHER_FALLS_SHORT, name, facts)
    ratio = best.at_most / current.level
    gain = Gain(ratio=Ratio(ratio, 0.0, ratio), confidence=CONFIDENCE, compared=_compared(rules))
    return RunDecision.of(Status.KEPT, (reason,), gain=gain)


def best_other(race: RoundsResult) -> Contender | None:
    """The finalist whose gain may be the largest, first of those compared to the end, if any."""
    compared = [f for f in race.finalists if f.candidate in race.ratios]
    if compared:
        return max(compared, key=lambda f: (not f.left, race.ratios[f.candidate].high))
    return next((f for f in race.finalists if f.rounds), None)


def to_know(
    race: RoundsResult, best: Contender, rules: ProofRules, round_s: float
) -> ToKnow | None:
    """The chance of a gain, and the further rounds until the interval would exclude 1.

    None where rounds would not help. ``round_s``: how long one round takes, in seconds.
    """
    ratio, made = race.ratios.get(best.candidate), len(best.rounds)
    if ratio is None or race.better or best.left or not math.isfinite(ratio.high):
        return None
    if ratio.estimate <= rules.confirm.least_ratio:
        return None
    short = math.log(ratio.estimate / ratio.low) / math.log(ratio.estimate)
    more = max(math.ceil(made * short**2) - made, 1)
    chance = chance_of_gain(best.side(rules), race.current.side(rules))
    return ToKnow(rounds=more, minutes=round(more * round_s / 60.0, 1), chance=chance)


def why(race: RoundsResult, finalist: Contender, rules: ProofRules) -> Reason:
    """The result of the rounds for a finalist, as a reason."""
    ratio, rounds = race.ratios.get(finalist.candidate), len(finalist.rounds)
    if finalist.left is not None:
        return finalist.left
    if ratio is None and race.current.rounds and finalist not in race.better:
        met, now = (sum(p.passed for p in c.points) for c in (finalist, race.current))
        by_chance: dict[str, Fact] = {"rounds": rounds, "rounds_met": met, "current_met": now}
        return Reason(ReasonKind.MEETS_BY_CHANCE, facts=by_chance)
    if ratio is None:
        facts: dict[str, Fact] = {"current_measured_again": bool(race.current.rounds)}
        if 0.0 < (at_most := race.current.entrant.at_most) < math.inf:
            facts["current_at_most_per_s"] = float(at_most)
        return Reason(ReasonKind.ONLY_IT_MEETS, facts=facts)
    if math.isinf(ratio.high) and not finalist.limited:
        return Reason(ReasonKind.NOTHING_COMPARABLE)
    times: dict[str, Fact] = {
        "rounds": rounds,
        "ratio": float(ratio.estimate),
        "ratio_low": float(ratio.low),
        "confidence_share": CONFIDENCE,
    }
    if math.isfinite(ratio.high):
        times["ratio_high"] = float(ratio.high)
    if finalist in race.better:
        met = sum(p.passed for p in finalist.points)
        return Reason(ReasonKind.BETTER, facts={**times, "rounds_met": met})
    if finalist.limited:
        return Reason(ReasonKind.BETTER_THAN_CAN_BE_SENT, facts=times)
    if answer(ratio, float(rules.confirm.min_gain)) is LookResult.NO_GAIN:
        least = {"least_gain": str(rules.confirm.min_gain)}
        return Reason(ReasonKind.GAIN_TOO_SMALL, facts={**times, **least})
    return Reason(ReasonKind.GAIN_OPEN, facts=times)


def refuse_without_alternative(current: Candidate, trials: Sequence[Trial]) -> None:
    """Refuses a decision without a measurement of another config than the current one.

    Raises:
        NothingToSearchError: No other config was tried.
        TooManyFailedTrialsError: Every other config failed.
    """
    others = [t for t in trials if t.candidate != current]
    if any(t.state is not TrialState.FAILED for t in others):
        return
    if not others:
        raise NothingToSearchError(
            "no config but the current one was measured, so nothing was compared",
            "raise budget.trials or budget.time",
        )
    causes = tuple(failures(current, trials))
    reason = Reason(ReasonKind.ALL_OTHERS_FAILED, causes=causes)
    raise failed(TooManyFailedTrialsError, reason, "the report lists every reason")


def failures(current: Candidate, trials: Sequence[Trial]) -> list[Reason]:
    """How many other configs failed, with the last failure as the cause; empty if none did."""
    others = [t for t in trials if t.candidate != current]
    reasons = [t.reason for t in others if t.state is TrialState.FAILED]
    if not reasons:
        return []
    facts = {"failed_count": len(reasons), "other_count": len(others)}
    causes = tuple(filter(None, reasons[-1:]))
    return [Reason(ReasonKind.OTHERS_FAILED, facts=facts, causes=causes)]


def too_few(trials: Sequence[Trial]) -> list[Reason]:
    """The first trial with too few answers for a verdict at its lowest load; empty if none has."""
    few = [t for t in trials if t.state is TrialState.MEASURED and t.outcome is SloOutcome.TOO_FEW]
    if not few:
        return []
    point = min(few[0].points, key=lambda p: p.level)
    facts: dict[str, Fact] = {
        "trial": few[0].number,
        "lacking": too_few_text(point.slo),
        "load": str(point.measurement.load),
    }
    return [Reason(ReasonKind.MAY_MEET, facts=facts)]


def limits(trials: Sequence[Trial]) -> list[Reason]:
    """What ended the measuring of these trials other than the config; the last limit only."""
    unique: list[Reason] = []
    for trial in trials:
        if trial.limit is not None and trial.limit not in unique:
            unique.append(trial.limit)
    return [Reason(ReasonKind.NOT_TO_CAPACITY, causes=(limit,)) for limit in unique[-1:]]


def nearest_miss(trials: Sequence[Trial], plan: LoadPlan) -> Reason:
    """The trial that came nearest to meeting every SLO, with the SLOs that it misses."""
    scored = [t for t in trials if t.score is not None]
    if not scored:
        return Reason(ReasonKind.NO_MEASUREMENT)
    nearest = min(scored, key=lambda t: t.score.violation if t.score else 0.0)
    missed = [s for p in nearest.points[-1:] for s in p.slo if (s.margin or 0.0) < 0]
    what = "; ".join(s.expression for s in missed) or "an SLO without enough data"
    facts: dict[str, Fact] = {"trial": nearest.number, "misses": what}
    lowest = min((p.level for p in nearest.points), default=math.inf)
    if plan.arrivals.open_loop and not plan.listed and lowest <= plan.levels.lowest:
        facts["lowest_rate_per_s"] = float(lowest)
    return Reason(ReasonKind.NEAREST_MISS, facts=facts)
