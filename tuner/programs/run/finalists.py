"""Which configs of a search are measured again beside the current one."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.score.trial import Trial
from tuner.search.incumbent import near_misses, ranked, reached_level
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.spec.objective import Goal

#: Loads are rounded to five digits.
_ROUNDED = 1.0 - 1e-4


def feasible(trials: Sequence[Trial], spec: Spec, current: Candidate) -> list[Trial]:
    """Those that met every SLO, best first."""
    order = ranked(trials, spec.objective.goal, current)
    return [t for t in order if t.score is not None and t.score.feasible]


def finalists_of(
    trials: Sequence[Trial], spec: Spec, current: Candidate, near_miss: float
) -> list[Trial]:
    """The best few that seem better than the current config by enough for a change, best first.

    The noise of a single measurement counts in the candidate's favour: the confirmation decides.
    Candidates that lost their race to a better one by no more than noise come after those that
    did not lose.

    Args:
        trials: Of the whole search.
        spec: Says what is worth a change, and how many are measured again.
        current: The config in the repository.
        near_miss: SLO utilisation up to which an SLO may be missed by noise alone.
    """
    baseline = next((t for t in trials if t.candidate == current), None)
    gain = 1.0 + float(spec.confirm.min_gain)
    others = [t for t in feasible(trials, spec, current) if t.candidate != current]
    if spec.objective.goal is Goal.MINIMIZE:
        found = [t for t in others if _less(t, baseline, gain)]
    else:
        found = [t for t in others if _more(t, baseline, gain, near_miss)]
        lost = [t for t in near_misses(trials, near_miss) if t.candidate != current]
        found += [t for t in lost if _above(t, baseline, gain)]
    return found[: spec.confirm.finalists]


def _less(trial: Trial, baseline: Trial | None, gain: float) -> bool:
    bar = None if baseline is None else baseline.score
    if bar is None or not bar.feasible:
        return True
    return trial.score is not None and trial.score.value * gain < bar.value


def _more(trial: Trial, baseline: Trial | None, gain: float, near_miss: float) -> bool:
    """It has the goodput, or nearly sustained the load, that would be worth a change."""
    bar = None if baseline is None else baseline.score
    if baseline is None or bar is None or not bar.feasible:
        return True
    own, reached = baseline.sustained_level, reached_level(trial, near_miss)
    if own is not None and reached is not None and reached >= own * gain * _ROUNDED:
        return True
    return trial.score is not None and trial.score.value > bar.value * gain


def _above(trial: Trial, baseline: Trial | None, gain: float) -> bool:
    """Every load that it was measured at would be worth a change."""
    own = None if baseline is None else baseline.sustained_level
    return own is None or min(p.level for p in trial.points) > own * gain
