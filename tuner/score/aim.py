"""How good a candidate is for the objective: the logarithm of its score.

In logarithms a difference is a gain as a share, and what a model gets wrong is a factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.score.load_plan import LoadPlan
from tuner.score.trial import Trial, TrialState
from tuner.spec.objective import Goal, Objective
from tuner.spec.slo import Slo

#: A candidate that meets the SLOs at no load is worth less than any that meets them at some load.
NOTHING = -30.0
#: Latency grows faster than the load: a utilisation of 2 is about 20 % too much load.
STEEPNESS = 3.5


@dataclass(frozen=True)
class Aim:
    """What a search is after.

    Attributes:
        plan: Loads that may be asked for.
    """

    objective: Objective
    slos: Sequence[Slo]
    plan: LoadPlan

    def measured(self, trial: Trial) -> float | None:
        """None for a trial that met the SLOs at no load, or lost before that load was known."""
        score = trial.score
        if trial.state is not TrialState.MEASURED or score is None or not score.feasible:
            return None
        return self.worth(score.value)

    def bound(self, trial: Trial) -> float | None:
        """The most that a trial without a `measured` worth can be worth; None: nothing known.

        It failed at a load, so that its capacity is below; and a saturated server cannot do more
        than it answers.
        """
        if self.measured(trial) is not None or not self._goodput or not trial.points:
            return None
        failed = [p.measurement for p in trial.points if not (p.passed or p.undecided)]
        least = [
            min(m.throughput_infer_per_s, m.load.level * m.batch_size)
            if m.load.arrivals.open_loop
            else m.throughput_infer_per_s
            for m in failed
        ]
        return self.worth(min(least)) if least else None

    def worth(self, score: float) -> float:
        if not score > 0.0:
            return NOTHING
        return math.log(score) if self._goodput else -math.log(score)

    def score(self, worth: float) -> float:
        """The objective's own unit again."""
        return math.exp(worth if self._goodput else -worth)

    @property
    def _goodput(self) -> bool:
        return self.objective.goal is Goal.MAXIMIZE_GOODPUT
