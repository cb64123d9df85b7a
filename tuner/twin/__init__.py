"""A simulation of Triton's scheduler, for the strategy that searches with it (extra ``twin``).

The rest of the house uses `fit` and `predict`, and no module in here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.score.trial import Trial
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.twin import fitting
from tuner.twin.fitting import Twin
from tuner.twin.model import Unmodelled
from tuner.twin.observation import setting_of, with_measured
from tuner.twin.predicting import predict

__all__ = ["Twin", "Unmodelled", "fit", "predict"]


def fit(
    trials: Sequence[Trial],
    history: Sequence[Trial],
    space: Space,
    spec: Spec,
    *,
    start: Twin | None = None,
) -> Twin | Unmodelled:
    """A twin that shows what ``trials`` showed; begins with ``start``, an earlier fit.

    All of ``history`` tells the host's cores, its GPUs and the size of a cache entry.
    """
    return fitting.fit(trials, with_measured(setting_of(space, spec), history), start=start)
