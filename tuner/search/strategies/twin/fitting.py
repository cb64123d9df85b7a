"""The twin of a running search: fitted again as trials come, always from the history alone.

The first fit is to the designed trials and takes seconds. Later ones begin where it ended, whether
it fits or not. They are made at fixed numbers of trials, so that a resumed run has the same twin at
the same trial, and use the most informative trials only, so that they take no longer in a long run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tuner.score.trial import Trial, TrialState
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.spec.objective import Goal
from tuner.twin import Twin, Unmodelled, fit

#: Trials a fit uses: the first ones, and the best.
_FIRST, _BEST = 4, 8
#: Trials after the designed ones that are each followed by a fit; by one in two while none fits.
_EACH, _RETRY = 6, 2
#: Points of a trial that a fit uses: those nearest to its capacity.
_POINTS = 2


@dataclass
class Fitting:
    """Fits, remembered by the number of trials they are from."""

    space: Space
    spec: Spec
    _fits: dict[int, Twin | Unmodelled] = field(default_factory=dict, init=False)

    def fitted(self, history: Sequence[Trial], first: int) -> Twin | Unmodelled:
        """The twin to use after ``history``; ``first`` trials are the designed ones."""
        count = checkpoint(len(history), first)
        base = self._fit(history[:first], None)
        if isinstance(usable(base), Unmodelled) and count < first + _EACH:
            count -= (count - first) % _RETRY
        start = base if isinstance(base, Twin) else None
        return usable(base if count <= first else self._fit(history[:count], start))

    def news(self, history: Sequence[Trial], first: int) -> str | None:
        """What to report when a fit was made, or when it turns out to be poor."""
        if len(history) < first:
            return None
        now = self.fitted(history, first)
        if len(history) == first:
            return in_words(now)
        before = self.fitted(history[:-1], first)
        return in_words(now) if isinstance(now, Twin) != isinstance(before, Twin) else None

    def informative(self, history: Sequence[Trial]) -> list[Trial]:
        """The first trials and the best, in order, with the points nearest to their capacity."""
        usable = [t for t in history if t.state is not TrialState.FAILED and t.points]
        sign = -1.0 if self.spec.objective.goal is Goal.MAXIMIZE_GOODPUT else 1.0

        def order(trial: Trial) -> tuple[bool, bool, float]:
            assert trial.score is not None
            lost = trial.state is not TrialState.MEASURED
            return not trial.score.feasible, lost, sign * trial.score.value

        best = sorted((t for t in usable[_FIRST:] if t.score), key=order)[:_BEST]
        chosen = {t.number for t in (*usable[:_FIRST], *best)}
        return [_nearest_points(t) for t in usable if t.number in chosen]

    def _fit(self, history: Sequence[Trial], start: Twin | None) -> Twin | Unmodelled:
        count = len(history)
        if count not in self._fits:
            chosen = self.informative(history)
            self._fits[count] = fit(chosen, history, self.space, self.spec, start=start)
        return self._fits[count]


def usable(found: Twin | Unmodelled) -> Twin | Unmodelled:
    """The twin where it fits. One that does not is only where the next fit begins."""
    if isinstance(found, Twin) and found.fitness.reason is not None:
        return Unmodelled(found.fitness.reason)
    return found


def in_words(fitted: Twin | Unmodelled) -> str:
    """A line for the user."""
    if isinstance(fitted, Unmodelled):
        unfit = f"the twin, a simulation of Triton's scheduler, does not fit: {fitted.reason}"
        return f"{unfit}; a Gaussian process goes on, which learns from scores alone"
    return f"twin fitted: {fitted.fitness}"


def checkpoint(count: int, first: int) -> int:
    """How many of ``count`` trials the fit is from: each at first, then ever fewer."""
    if count <= first + _EACH:
        return max(count, first)
    mark = first + _EACH
    while round(mark * 1.25) <= count:
        mark = round(mark * 1.25)
    return mark


def _nearest_points(trial: Trial) -> Trial:
    """Far from its capacity a config's latency says little about where that is."""
    score = trial.score
    if len(trial.points) <= _POINTS or score is None:
        return trial
    levels = [p.level for p in trial.points]
    level = max(levels) if score.best_point is None else levels[score.best_point]
    kept = sorted(sorted(range(len(levels)), key=lambda i: abs(levels[i] / level - 1.0))[:_POINTS])
    best = None if score.best_point is None else kept.index(score.best_point)
    points = tuple(trial.points[i] for i in kept)
    return replace(trial, points=points, score=replace(score, best_point=best))
