"""Configs measured in rounds: in each, every config on a fresh server, under the same arrivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from statistics import geometric_mean
from typing import NamedTuple, assert_never

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.proof.compare import compare
from tuner.proof.contender import Contender, measure_round
from tuner.proof.decide import Look, LookResult, answer, look_after
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Role
from tuner.score.judge import SloOutcome, too_few_text
from tuner.score.ratio import Ratio
from tuner.sentences import failed
from tuner.space.candidate import Candidate


def in_turn(sides: Sequence[Contender], number: int) -> list[Contender]:
    """The order of a round: it is turned and reversed, so that a drift favours no side."""
    first = number // 2 % len(sides)
    turned = [*sides[first:], *sides[:first]]
    return turned if number % 2 == 0 else turned[::-1]


class RoundSide(NamedTuple):
    """A config of a round."""

    contender: Contender
    role: Role


#: Makes a round by its number, of sides in the order of a number.
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
    """What the rounds showed.

    Attributes:
        finalists: In the order they came in.
        ratios: Of each finalist to the current config, as of its last look.
        better: Those shown to be better, the best first.
        no_gain: No finalist has a gain that is worth a change, by its estimate.
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
    """Rounds of the current config and the finalists, until a look at them decides.

    Args:
        late: Whether the time for rounds is over.
        round_over: Receives the round's name and the config, after each of its rounds.
        beside: Makes a round elsewhere, perhaps with the next ones.

    Raises:
        TrialError: The current config cannot be measured.
    """
    make_round = beside or partial(_make_round, measured, rules, round_over)
    now, others = Contender(current), [Contender(f) for f in finalists]
    ratios: dict[Candidate, Ratio] = {}
    for number in count() if rules.continued else range(int(rules.confirm.rounds)):
        racing = [f for f in others if not f.left]
        sides = partial(_sides, now, racing)
        make_round(number, sides)
        racing = [f for f in racing if not f.left]
        if not racing:
            break
        time_is_over = late()
        look = look_after(number + 1, rules.confirm.rounds, len(finalists), late=time_is_over)
        if look is None:
            continue
        for finalist in racing:
            leave_unless_met(finalist)
        racing = [f for f in racing if not f.left]
        if not racing:
            break
        if _is_undecided(now, look):
            continue
        if now.outcome is SloOutcome.MISSED and not rules.plan.searches_rates:
            racing.sort(key=lambda f: -geometric_mean(f.readings(rules)))
            return RoundsResult(now, tuple(others), {}, tuple(racing))
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


def _is_undecided(current: Contender, look: Look) -> bool:
    """Whether the current config has too few answers so far to be compared with.

    Raises:
        TrialError: More rounds would not help, or there are none.
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
    """One more round of a config, which leaves where it cannot be measured.

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
    """A finalist that met the SLOs at no load of most of its rounds takes part in no more."""
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


def _ratio(
    contender: Contender,
    other: Contender,
    racing: Sequence[Contender],
    rules: ProofRules,
    error: float,
) -> Ratio:
    """The ratio by the rounds that all had; a limit of the load generator leaves it open."""
    one, two = contender.side(rules), other.side(rules)
    if other.limited:  # what it may sustain beyond is not known
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
    """A finalist without a gain, or that another one surely beats, takes part in no more rounds."""
    best = max(racing, key=lambda f: ratios[f.candidate].estimate)
    for finalist in racing:
        if answers[finalist.candidate] is LookResult.NO_GAIN:
            ratio = {"ratio": float(ratios[finalist.candidate].estimate)}
            finalist.left = Reason(ReasonKind.SMALLER_GAIN, facts=ratio)
        elif finalist is best or best.limited:
            continue
        elif _ratio(finalist, best, racing, rules, error).high < 1.0:
            finalist.left = Reason(ReasonKind.BEATEN)
