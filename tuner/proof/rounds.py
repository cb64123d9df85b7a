"""Rounds: each measures every config once, on a fresh server, under the same arrivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from statistics import geometric_mean
from typing import NamedTuple, assert_never

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.load.watch.machine import OTHER_CPU_PERCENT
from tuner.proof.compare import Side, compare
from tuner.proof.contender import Contender, measure_round
from tuner.proof.decide import Look, LookResult, answer, look_after
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Role
from tuner.score.capacity import NEAR
from tuner.score.judge import SloOutcome, too_few_text
from tuner.score.point import Point
from tuner.score.ratio import Ratio
from tuner.score.saturation import FAR
from tuner.sentences import failed
from tuner.space.candidate import Candidate

#: What a config sustains in the mean is below the capacity by one of its rounds times this: servers
#: differ by up to 6% from start to start (`benchmarks/claims`), and short windows err by as much.
LUCK = 1.15


def in_turn(sides: Sequence[Contender], number: int) -> list[Contender]:
    """The order of measurement in round ``number``, from 0.

    The order rotates every two rounds and reverses in each second one, so that a drift of the
    machine favors no config.
    """
    first = number // 2 % len(sides)
    turned = [*sides[first:], *sides[:first]]
    return turned if number % 2 == 0 else turned[::-1]


class RoundSide(NamedTuple):
    """A config of a round, with its role: the current config or a candidate."""

    contender: Contender
    role: Role


#: Measures a round; receives its number, and the function that gives a round's configs in order.
MakesRound = Callable[[int, Callable[[int], Sequence[RoundSide]]], None]


def _sides(now: Contender, racing: Sequence[Contender], number: int) -> list[RoundSide]:
    role = {True: Role.CURRENT, False: Role.CANDIDATE}
    return [RoundSide(side, role[side is now]) for side in in_turn([now, *racing], number)]


def _make_round(
    measured: MeasuredOnce,
    rules: ProofRules,
    round_over: Callable[[str, Contender], None],
    number: int,
    sides: Callable[[int], Sequence[RoundSide]],
) -> None:
    for side, role in sides(number):
        add_round(measured, side, rules, number, role, round_over)


@dataclass(frozen=True)
class RoundsResult:
    """The result of the rounds.

    Attributes:
        current: The current config with its rounds.
        finalists: The finalists with their rounds, in the order of the search's ranking.
        ratios: The ratio of each finalist to the current config, as of its last look.
        better: The finalists that proved better, the best first.
        no_gain: No finalist's estimated gain is worth a change.
    """

    current: Contender
    finalists: tuple[Contender, ...]
    ratios: Mapping[Candidate, Ratio]
    better: tuple[Contender, ...] = ()
    no_gain: bool = False


def run_rounds(
    measured: MeasuredOnce,
    current: Entrant,
    finalists: Sequence[Entrant],
    rules: ProofRules,
    late: Callable[[], bool],
    round_over: Callable[[str, Contender], None],
    beside: MakesRound | None = None,
) -> RoundsResult:
    """Measures rounds of the current config and the finalists, until a look decides.

    Args:
        late: Whether the time for rounds is over.
        round_over: Receives the round's name and the config, after each round of a config.
        beside: Measures rounds on several benches; None: on the bench of ``measured``.

    Raises:
        TrialError: The current config cannot be measured, or has too few answers for a verdict.
    """
    make_round = beside or partial(_make_round, measured, rules, round_over)
    now, others = Contender(current), [Contender(f) for f in finalists]
    ratios: dict[Candidate, Ratio] = {}
    for number in count() if rules.continued else range(int(rules.confirm.rounds)):
        make_round(number, partial(_sides, now, _racing(others)))
        racing = _racing(others)
        if not racing:
            break
        if (ended := _ended_early(now, others, rules)) is not None:
            return ended
        time_is_over = late()
        look = look_after(number + 1, rules.confirm.rounds, len(finalists), late=time_is_over)
        if look is None:
            continue
        racing = _met(racing)
        if not racing:
            break
        if _is_undecided(now, look):
            continue
        if now.outcome is SloOutcome.MISSED and not rules.plan.searches_rates:
            better = _surely_meeting(now, racing, rules, look.error)
            if better or (look.last and (time_is_over or not rules.continued)):
                return RoundsResult(now, tuple(others), {}, tuple(better))
            continue
        current_ratios = {f.candidate: _ratio(f, now, racing, rules, look.error) for f in racing}
        ratios |= current_ratios
        least = float(rules.confirm.min_gain)
        answers = {candidate: answer(ratio, least) for candidate, ratio in current_ratios.items()}
        better = [f for f in racing if answers[f.candidate] is LookResult.BETTER]
        better.sort(key=lambda f: -current_ratios[f.candidate].estimate)
        none_left = set(answers.values()) == {LookResult.NO_GAIN}
        if better or none_left or (look.last and (time_is_over or not rules.continued)):
            no_gain = none_left and not any(f.unmeasured for f in others)
            return RoundsResult(now, tuple(others), ratios, tuple(better), no_gain)
        _leave(racing, current_ratios, answers, rules, look.error)
    return RoundsResult(now, tuple(others), ratios)


def _racing(finalists: Sequence[Contender]) -> list[Contender]:
    return [f for f in finalists if not f.left]


def _met(racing: Sequence[Contender]) -> list[Contender]:
    """The finalists that met the SLOs; the others leave."""
    for finalist in racing:
        leave_unless_met(finalist)
    return _racing(racing)


def _ended_early(
    now: Contender, finalists: Sequence[Contender], rules: ProofRules
) -> RoundsResult | None:
    """The result if finalists sustain far more than the current config, the best first; else None.

    More rounds would only tell how much more. The search, on another start of the server, must
    agree: the current config missed an SLO below the finalist's load, and met all at none above the
    bound of the rounds. A soak of the current config follows (`surely_less`). Other finalists are
    less than the best of these.
    """
    if not rules.compares_capacities:
        return None
    at_most, known = _bound(now), now.entrant
    if known.seen is not None and known.seen.level > at_most:
        return None
    least = max(FAR * at_most, known.at_most)
    taken = now.side(rules).taken_percent

    def is_far(finalist: Contender) -> bool:
        beside = zip(taken, finalist.side(rules).taken_percent, strict=True)
        return all(p.passed and p.level >= least for p in finalist.points) and all(
            now_percent - other <= OTHER_CPU_PERCENT for now_percent, other in beside
        )

    better = sorted(filter(is_far, _racing(finalists)), key=lambda f: -geometric_mean(f.levels()))
    if not better:
        return None
    for finalist in _racing(finalists):
        if finalist not in better:
            finalist.left = Reason(ReasonKind.BEATEN)
    bounded = replace(now, entrant=replace(known, at_most=min(known.at_most, at_most)))
    return RoundsResult(bounded, tuple(finalists), {}, tuple(better))


def _bound(now: Contender) -> float:
    """Upper bound on what the current config sustains, by all of its rounds."""
    tops = [
        level if r.top == math.inf and r.sustained.passed else r.top
        for r, level in zip(now.rounds, now.levels(), strict=True)
    ]
    return LUCK * max(tops)


def _is_undecided(current: Contender, look: Look) -> bool:
    """Whether the current config has too few answers so far for a comparison.

    Raises:
        TrialError: More rounds would not help, or this look is the last.
    """
    few = current.outcome is SloOutcome.TOO_FEW
    if few and (look.last or not any(p.passed for p in current.points)):
        raise failed(TrialError, _too_few(current))
    return few


def add_round(
    measured: MeasuredOnce,
    side: Contender,
    rules: ProofRules,
    number: int,
    role: Role,
    round_over: Callable[[str, Contender], None],
) -> None:
    """Adds one round of a config. A candidate that cannot be measured leaves the rounds.

    Raises:
        TrialError: The current config cannot be measured.
    """
    try:
        measure_round(measured, side, rules, number, role)
    except TrialError as error:
        if role is Role.CURRENT:
            raise
        side.left = error.reason
        no_result = isinstance(error, (ClientLimitError, LoadFailedError))
        side.unmeasured = no_result and not isinstance(error, ModelFailsError)
        return
    round_over(f"round {number + 1}", side)


def leave_unless_met(finalist: Contender) -> None:
    """A finalist leaves the rounds unless at least half of them met the SLOs at some load."""
    if finalist.looked_at:
        return  # the soak judges
    match finalist.outcome:
        case SloOutcome.MET:
            pass
        case SloOutcome.MISSED:
            finalist.left = Reason(ReasonKind.MISSED_AGAIN)
        case SloOutcome.TOO_FEW:
            finalist.left, finalist.unmeasured = _too_few(finalist), True
        case _:
            assert_never(finalist.outcome)


def _too_few(side: Contender) -> Reason:
    """`too few answers (290 of 299) for a verdict at 6 concurrent, when measured again`."""
    point = next(p for p in side.points if p.outcome is SloOutcome.TOO_FEW)
    facts = {"lacking": too_few_text(point.slo), "load": str(point.measurement.load)}
    return Reason(ReasonKind.TOO_FEW_AGAIN, facts=facts)


def _surely_meeting(
    current: Contender, racing: Sequence[Contender], rules: ProofRules, error: float
) -> list[Contender]:
    """The finalists that surely use less of their SLOs than a current config that missed one.

    The best come first. Near the bound, chance alone makes one of two equal configs miss it.
    """

    def side(contender: Contender) -> Side:
        values = [1.0 / _used(p) for p in contender.points]
        return replace(contender.side(rules), values=values)

    def meets(finalist: Contender) -> bool:
        beside = [side(f) for f in racing if f is not finalist]
        return compare(side(finalist), side(current), error, beside).low > 1.0

    return sorted(filter(meets, racing), key=lambda f: -geometric_mean(f.readings(rules)))


def _used(point: Point) -> float:
    """The SLO utilisation; at an end of `NEAR` where it does not explain the outcome."""
    used = point.slo_utilisation
    match point.outcome:
        case SloOutcome.MET:
            return used if used and used <= 1.0 else NEAR[0]
        case SloOutcome.MISSED:
            return used if used and used > 1.0 else NEAR[1]
        case SloOutcome.TOO_FEW:
            return used or 1.0
        case _:
            assert_never(point.outcome)


def _ratio(
    contender: Contender,
    other: Contender,
    racing: Sequence[Contender],
    rules: ProofRules,
    error: float,
) -> Ratio:
    """The ratio of two configs by their rounds.

    Without an upper end where the load generator's limit hides the capacity of ``contender``. Where
    that limit hides the capacity of ``other``, no round counts in favor of ``contender``.
    """
    one, two = contender.side(rules), other.side(rules)
    if other.limited:  # its capacity may be higher
        one = replace(one, values=[min(pair) for pair in zip(one.values, two.values, strict=True)])
    ratio = compare(one, two, error, [f.side(rules) for f in racing if f not in (contender, other)])
    return replace(ratio, high=math.inf) if contender.limited else ratio


def _leave(
    racing: Sequence[Contender],
    ratios: Mapping[Candidate, Ratio],
    answers: Mapping[Candidate, LookResult],
    rules: ProofRules,
    error: float,
) -> None:
    """Finalists leave that have no gain, or are less than the best one, by their interval."""
    best = max(racing, key=lambda f: ratios[f.candidate].estimate)
    for finalist in racing:
        if answers[finalist.candidate] is LookResult.NO_GAIN:
            ratio = {"ratio": float(ratios[finalist.candidate].estimate)}
            finalist.left = Reason(ReasonKind.SMALLER_GAIN, facts=ratio)
        elif finalist is best or best.limited:
            continue
        elif _ratio(finalist, best, racing, rules, error).high < 1.0:
            finalist.left = Reason(ReasonKind.BEATEN)
