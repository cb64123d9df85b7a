"""The simplest config that is as good as the winner: changes without an effect are undone.

Changes that Triton treats as none are undone without a measurement. The others are undone one by
one, each measured under the load that the winner should be credited with, and stay undone if the
config sustains that load. Since the load stays the same, small losses do not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from tuner.errors import TrialError
from tuner.load import seeds
from tuner.proof.contender import Contender, Round, look_at
from tuner.proof.entrants import ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.record.confirmation import ChangeUndone, Role
from tuner.score.judge import SloOutcome
from tuner.space.candidate import CACHE, Candidate
from tuner.space.parameters import SERVER, Knob
from tuner.space.space import Space
from tuner.spec.paths import CACHE_ENABLE, CACHE_SIZE, DYNAMIC_BATCHING
from tuner.spec.units import bytes_text

#: Share of the winner's throughput (or of one over its minimized metric) that a simpler config may
#: lose.
MOST_LOSS = 0.02


@dataclass(frozen=True)
class Simplest:
    """A winner made simpler.

    Attributes:
        winner: The winner, without the changes that Triton treats as none.
        undone: Each change that was undone as a test, with the result.
    """

    candidate: Candidate
    winner: Candidate
    undone: tuple[ChangeUndone, ...] = ()


@dataclass
class _Undoing:
    measured: MeasuredOnce
    winner: Contender
    rules: ProofRules
    level: float
    tried: list[ChangeUndone]

    def is_as_good(self, name: str, candidate: Candidate) -> bool:
        """Whether a simpler config sustains the load, and loses at most `MOST_LOSS`."""
        score = geometric_mean(self.winner.readings(self.rules))
        value: float | None = None
        good = False
        try:
            simpler = Contender(self.winner.entrant, [self._measure(candidate)])
            value = simpler.readings(self.rules)[0]
            enough = value >= (1.0 - MOST_LOSS) * score
            searched = self.rules.plan.searches_rates and not simpler.looked_at
            good = enough or searched
            if not simpler.looked_at:  # a look judges no SLO: the soak does
                good = good and simpler.outcome is SloOutcome.MET
            value = score if searched and good else value
        except TrialError:
            pass
        minimised = self.rules.objective.metric is not None
        with_change = 1.0 / score if minimised else score
        without = None if value is None else 1.0 / value if minimised else value
        lost = None if without is None else without - with_change
        self.tried.append(ChangeUndone(name, with_change, without, lost, not good, MOST_LOSS))
        return good

    def _measure(self, candidate: Candidate) -> Round:
        number, seed, looks = len(self.tried), seeds.of_simpler(self.rules.seed), self.rules.looks
        place = candidate, Role.SIMPLER, number, seed
        if looks is not None:
            return look_at(self.measured, *place, looks)
        return self.measured.on_fresh_server(*place, lambda measure: Round((measure(self.level),)))


def simplest(
    measured: MeasuredOnce,
    winner: Contender,
    current: Candidate,
    level: float,
    rules: ProofRules,
    space: Space,
    *,
    sizes: Sequence[int] = (),
    leave_out: Callable[[], bool] = lambda: False,
    loses: Callable[[Candidate], bool] = lambda _: False,
) -> Simplest:
    """Undoes the winner's changes of the ``current`` config that have no effect.

    Args:
        level: The load that the winner should be credited with.
        sizes: The sizes of the response cache that the spec allows, in bytes.
        leave_out: Whether no further change may be measured; called before each measurement.
        loses: Whether a config is expected to sustain a lower load; such a config is not measured.
    """
    undoing = _Undoing(measured, winner, rules, level, [])
    plain = best = _without_what_changes_nothing(winner.candidate, current, space)
    if (size := best.cache_bytes) is not None and not leave_out():
        best = _with_least_cache(undoing, best, size, current, sizes)
    for name, without in _changes(best, current):
        simpler = without(best)
        if simpler in (best, current) or space.violations(simpler) or not space.leaves(simpler):
            continue
        if loses(simpler) or leave_out():
            continue
        if undoing.is_as_good(name, simpler):
            best = simpler
    return Simplest(best, plain, tuple(undoing.tried))


def _without_what_changes_nothing(winner: Candidate, current: Candidate, space: Space) -> Candidate:
    for _, without in _changes(winner, current):
        candidate = without(winner)
        if not space.violations(candidate) and space.alike(candidate, winner):
            winner = candidate
    return winner


def _with_least_cache(
    undoing: _Undoing, winner: Candidate, size: int, current: Candidate, sizes: Sequence[int]
) -> Candidate:
    """The winner without a cache, or with the smallest that suffices, by bisection of ``sizes``."""
    without = _with_cache(winner, None)
    if without != current and undoing.is_as_good(f"{CACHE_SIZE} off", without):
        return without
    smaller = sorted({s for s in sizes if s < size})
    low, high = 0, len(smaller)
    while low < high:
        middle = (low + high) // 2
        name = f"{CACHE_SIZE} {bytes_text(smaller[middle])}"
        if undoing.is_as_good(name, _with_cache(winner, smaller[middle])):
            high = middle
        else:
            low = middle + 1
    return winner if low == len(smaller) else _with_cache(winner, smaller[low])


def _with_cache(candidate: Candidate, size: int | None) -> Candidate:
    """The candidate with a cache of ``size`` bytes; None: without one, and no model uses one."""
    off = {} if size is not None else dict.fromkeys(_enabling(candidate))
    return Candidate({**candidate.values, **off, CACHE: size})


def _enabling(candidate: Candidate) -> list[Knob]:
    return [knob for knob in candidate.fields if knob.path == CACHE_ENABLE]


def _changes(
    winner: Candidate, current: Candidate
) -> Iterator[tuple[str, Callable[[Candidate], Candidate]]]:
    """Name of each change with the function that undoes it; prerequisites of others come last."""
    if winner.cache_bytes is None and current.cache_bytes is not None:
        cache = {CACHE: current.cache_bytes}
        enabled = {knob: current.values.get(knob) for knob in _enabling(winner)}
        yield "server arguments", lambda c: Candidate({**c.values, **enabled, **cache})
    knobs = [k for k in winner.changed(current) if k in winner.values and k != CACHE]
    knobs.sort(key=lambda k: (-k.path.count("."), k.path == DYNAMIC_BATCHING, k))
    for knob in sorted(knobs, key=lambda k: k.owner != SERVER):  # users set variables by hand
        if knob.path != CACHE_ENABLE:  # undone with the cache's size
            yield winner.title(knob), lambda c, k=knob: _without_field(c, k, current)  # type: ignore[misc]


def _without_field(candidate: Candidate, knob: Knob, current: Candidate) -> Candidate:
    value = current.values.get(knob)
    values = {**candidate.values, knob: value}
    if value is None:  # an absent message has no fields
        values = {k: v for k, v in values.items() if not k.is_inside(knob)}
    return Candidate(values)
