"""The simplest config that is as good: changes that make no measurable difference are undone.

Each simpler config is compared with the winner, in the winner's own rounds, and never with the
previous simpler one, so that small losses cannot add up (docs/internals/measuring-policy.md). A
response cache comes first, then each changed field, those that others depend on last. Finally
`same_answers` compares what the config answers with the current config's answers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from tuner.bench.protocol import Bench
from tuner.confirm.confirm import Confirmation, Rules
from tuner.confirm.gain import gain, readings
from tuner.confirm.rounds import (
    Contender,
    Entrant,
    Round,
    Rounds,
    measure_fixed_round,
    search_round,
)
from tuner.errors import TrialError
from tuner.load.probes.answers import Answers, differences
from tuner.run.confirmation import PutBack, Role
from tuner.score.point import Point
from tuner.space.candidate import CACHE, Candidate
from tuner.space.parameters import Knob
from tuner.space.words import bytes_text
from tuner.spec.labels import labelled
from tuner.spec.paths import CACHE_ENABLE, CACHE_SIZE, DYNAMIC_BATCHING

#: No simpler config may lose more than this share of the winner. It is the loss allowed for less
#: cache, and where the gain is so large that a simpler file is worth more than the last percent.
MOST_LOSS = 0.02
#: A gain is large where the lower end of its interval is above this: a round of the simpler config
#: is brief then.
LARGE = 1.15
#: By how much the remaining rounds may at most be better than the winner's. A simpler config that
#: would lose too much even then is given up.
LUCK = 1.04
#: A config that misses an SLO, or is saturated, below this share of the winner's capacity is
#: not measured again.
FAR_BELOW = 0.85


@dataclass(frozen=True)
class Simplified:
    """The config to write, as it was proved: ``proof`` is the winner's where nothing was undone."""

    proof: Confirmation
    tried: tuple[PutBack, ...]

    @property
    def candidate(self) -> Candidate:
        return self.proof.candidate


def simplify(
    bench: Bench,
    winner: Confirmation,
    rules: Rules,
    allowed: Callable[[Candidate], bool],
    cache_sizes: Sequence[int] = (),
    ceiling: Callable[[Candidate], float | None] = lambda _: None,
    same: Callable[[Candidate, Candidate], bool] = operator.eq,
) -> Simplified:
    """Tries each change of ``winner`` against the current config on its own.

    Args:
        winner: The confirmed config, beside the current one.
        allowed: Whether Triton would load a candidate; one that it would not is not tried.
        cache_sizes: Those the spec lets choose from, in bytes, in any order.
        ceiling: The load that a candidate did not sustain in the search, or what it answered under
            that load, in inferences per second, where known. A candidate whose ceiling is far
            below the winner is not tried again.
        same: Whether two are the same config to Triton: a field with its default value is removed
            without being measured.
    """
    current = winner.current.candidate
    trials = _Trials(bench, winner, rules, allowed)
    best = _with_least_cache(trials, winner, cache_sizes)
    for name, without in _changes(best.candidate, current):
        candidate = without(best.candidate)
        if candidate in (best.candidate, current) or not allowed(candidate):
            continue
        if same(candidate, best.candidate):
            entrant = replace(best.own.entrant, candidate=candidate)
            best = replace(best, own=replace(best.own, entrant=entrant))
        elif not trials.lost_already(name, ceiling(candidate)):
            best = trials.instead(name, candidate) or best
    return Simplified(best, tuple(trials.tried))


def _with_least_cache(trials: _Trials, winner: Confirmation, sizes: Sequence[int]) -> Confirmation:
    """The winner with no cache, or the smallest, that is within `MOST_LOSS` of it.

    Goodput rises with the size, so the sizes are bisected.
    """
    size = winner.candidate.cache_bytes
    if size is None:
        return winner
    off = _with_cache(winner.candidate, None)
    without = trials.instead(f"{CACHE_SIZE} off", off, loss=MOST_LOSS)
    if without is not None and off != winner.current.candidate:  # that one has lost already
        return without
    best = winner
    smaller = sorted({s for s in sizes if s < size})
    low, high = 0, len(smaller)
    while low < high:
        middle = (low + high) // 2
        candidate = _with_cache(winner.candidate, smaller[middle])
        name = f"{CACHE_SIZE} {bytes_text(smaller[middle])}"
        held = trials.instead(name, candidate, loss=MOST_LOSS)
        if held is None:
            low = middle + 1
        else:
            best, high = held, middle
    return best


class _Trials:
    """Simpler configs measured in the winner's rounds, and what came of each."""

    def __init__(
        self, bench: Bench, winner: Confirmation, rules: Rules, allowed: Callable[[Candidate], bool]
    ) -> None:
        self._rounds = Rounds(bench, rules.seed, rules.record)
        self._winner = winner
        self._rules = rules
        self._allowed = allowed
        ratio = winner.ratio
        self._large = ratio is None or ratio.low > LARGE
        self._loss = MOST_LOSS if self._large else min(rules.min_gain / 2, MOST_LOSS)
        self._readings = readings(winner.own, rules.objective)
        self._levels = winner.own.levels()
        self.tried: list[PutBack] = []

    def instead(
        self, name: str, candidate: Candidate, *, loss: float | None = None
    ) -> Confirmation | None:
        """``candidate`` as it was proved, if it may replace the winner."""
        loss = self._loss if loss is None else loss
        simpler = Contender(Entrant(candidate, None), slope=self._winner.own.steepness())
        try:
            held = self._allowed(candidate) and self._measure(simpler, loss)
            compared = gain(simpler, self._winner.own, self._rules.objective, self._winner.error)
        except TrialError:
            held, compared = False, None
        proof = self._proof(simpler) if held else None
        without, with_change = (compared and compared.means) or (None, None)
        if with_change is None:
            with_change = geometric_mean(self._readings)
        lost = None if without is None else without - with_change
        self.tried.append(PutBack(name, with_change, without, lost, proof is None, loss))
        return proof

    def lost_already(self, name: str, ceiling: float | None) -> bool:
        """Records a change without which the search saw far less than the winner sustains."""
        winner = geometric_mean(self._readings)
        if ceiling is None or ceiling >= FAR_BELOW * winner:
            return False
        self.tried.append(PutBack(name, winner, ceiling, ceiling - winner, True, self._loss))
        return True

    def _measure(self, simpler: Contender, loss: float) -> bool:
        """All the winner's rounds, or as many as show that the simpler config is no match.

        Returns whether it met every SLO in each, and lost no more than it may.
        """
        rounds = len(self._winner.own.rounds)
        for number in range(rounds):
            simpler.rounds.append(self._round(simpler.candidate, number))
            lead = gain(simpler, self._winner.own, self._rules.objective, self._winner.error)
            if lead is None or lead.ratio.low <= 0.0 or not simpler.rounds[-1].passed:
                return False
            done = number + 1
            reachable = lead.ratio.estimate**done * LUCK ** (rounds - done)
            if reachable < (1.0 - loss) ** rounds:
                return False
        return True

    def _round(self, candidate: Candidate, number: int) -> Round:
        own = self._winner.own.rounds[number]

        def search(measure: Callable[[float], Point]) -> Round:
            levels, expected = self._rules.levels, self._levels[number]
            if levels is None:
                return measure_fixed_round(measure, own.sustained.level)
            sendable = self._rounds.bench.sendable
            levels, least = levels.below(sendable.most), FAR_BELOW * expected
            brief, fine = self._large and not levels.whole, not self._large
            return search_round(
                *(measure, expected, levels),
                brief=brief,
                fine=fine,
                least=least,
                sent=sendable.sent,
            )

        least_s = max(p.measurement.duration_s for p in own.points)
        return self._rounds.measure(number, Role.SIMPLER, candidate, search, least_s=least_s)

    def _proof(self, simpler: Contender) -> Confirmation | None:
        """What is written in place of the winner; None where its own gain is not worth a change."""
        if self._winner.gain is None:
            return replace(self._winner, own=simpler)
        found = gain(simpler, self._winner.current, self._rules.objective, self._winner.error)
        if found is None or found.ratio.low <= 1.0 + self._rules.min_gain:
            return None
        return replace(self._winner, own=simpler, gain=found)


def _with_cache(candidate: Candidate, size: int | None) -> Candidate:
    """Another size; without a cache no model uses one."""
    off = {} if size is not None else dict.fromkeys(_enabling(candidate))
    return Candidate({**candidate.values, **off, CACHE: size})


def _enabling(candidate: Candidate) -> list[Knob]:
    return [knob for knob in candidate.fields if knob.path == CACHE_ENABLE]


def _changes(
    winner: Candidate, current: Candidate
) -> Iterator[tuple[str, Callable[[Candidate], Candidate]]]:
    """Name of each change with the function that undoes it; what others need comes last."""
    if winner.cache_bytes is None and current.cache_bytes is not None:
        cache = {CACHE: current.cache_bytes}
        enabled = {knob: current.values.get(knob) for knob in _enabling(winner)}
        yield "server arguments", lambda c: Candidate({**c.values, **enabled, **cache})
    knobs = [k for k, v in winner.fields.items() if current.values.get(k) != v]
    for knob in sorted(knobs, key=lambda k: (-k.path.count("."), k.path == DYNAMIC_BATCHING, k)):
        if knob.path != CACHE_ENABLE:  # goes with the server's argument
            yield winner.title(knob), lambda c, k=knob: _without_field(c, k, current)  # type: ignore[misc]


def _without_field(candidate: Candidate, knob: Knob, current: Candidate) -> Candidate:
    value = current.values.get(knob)
    values = {**candidate.values, knob: value}
    if value is None:  # what lies inside an absent message is absent too
        values = {k: v for k, v in values.items() if not k.is_inside(knob)}
    return Candidate(values)


@dataclass(frozen=True)
class Comparison:
    """``changed``: the winner must not be written; ``sentence`` says what was seen."""

    changed: bool
    sentence: str


def same_answers(
    bench: Bench, current: Candidate, winner: Candidate, tolerance: float
) -> Comparison:
    """Asks both, each on a fresh server.

    The current config is asked again before the winner is blamed: a model that does not agree with
    itself cannot be compared.

    Raises:
        TrialError: One of them cannot be served, or died when asked.
    """
    expected, given = (_answers(bench, candidate) for candidate in (current, winner))
    reasons = {n: e.none_because or given[n].none_because for n, e in expected.items()}
    to = {name: f" to {name}" if len(given) > 1 else "" for name in given}
    not_compared = [
        f"Answers{to[name]} were not compared: {why}." for name, why in reasons.items() if why
    ]
    expected = {name: answers for name, answers in expected.items() if not reasons[name]}
    if not expected:
        return Comparison(False, " ".join(not_compared))
    found = _differences(expected, given, tolerance)
    if not found:
        asked = sum(len(answers.alone) for answers in expected.values())
        same = f"Answers to {asked} requests are the current config's"
        within = f"floats within {tolerance:g}" if tolerance else "exactly"
        return Comparison(False, " ".join([f"{same} ({within}).", *not_compared]))
    own = _differences(expected, _answers(bench, current), tolerance)
    if own:
        sentence = "Answers were not compared: the current config's own differ from run to run"
        return Comparison(False, f"{sentence} ({own[0]}).")
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Comparison(True, f"It changes answers: {found[0]}{more}.")


def _differences(
    expected: Mapping[str, Answers], given: Mapping[str, Answers], tolerance: float
) -> list[str]:
    """The differences of every stream that can be compared."""
    return [
        labelled(name, text, given)
        for name, answers in expected.items()
        for text in differences(answers, given[name], tolerance)
    ]


def _answers(bench: Bench, candidate: Candidate) -> Mapping[str, Answers]:
    bench.deploy(candidate, fresh=True)
    return bench.answers()
