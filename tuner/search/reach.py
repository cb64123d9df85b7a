"""Whether an SLO is so far off that no config can be expected to meet it."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.run.trial import Trial
from tuner.score.judge import tightest_latency
from tuner.score.load_plan import LoadPlan
from tuner.spec.slo import Slo

#: A latency this many times its bound where requests are mostly alone is no matter of a config.
HOPELESS = 10.0
#: Configs that must show it, the current one among them.
CONFIGS = 2


def out_of_reach(history: Sequence[Trial], slos: Sequence[Slo], plan: LoadPlan) -> bool:
    """Every config measured is far off at its lowest load, where the load is searched.

    Other configs may answer a lone request faster, but not so much faster: scheduling adds to the
    time a model takes and takes nothing off it.
    """
    bound = tightest_latency(slos)
    if bound is None or plan.listed is not None or not plan.arrivals.open_loop:
        return False
    measured = [t for t in history if t.points]
    return len(measured) >= CONFIGS and all(
        min(p.measurement.p50_latency_us for p in t.points) > HOPELESS * bound.bound
        for t in measured
    )
