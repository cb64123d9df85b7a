"""What `tune doctor --noise` recorded of a model means for a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.confirm.repeatability import POWER, provable_gain, rounds_text, worth_of
from tuner.search.incumbent import NEAR_MISS
from tuner.spec.model import Spec

#: A p99's noise is taken to be within these limits, as a share, whatever a few repeats said.
LEAST_P99_NOISE, MOST_P99_NOISE = 0.02, 0.25


def ratio_deviation(comparison: float | None, capacity: float | None) -> float | None:
    """Of a round's ratio; by the spread of one config alone where no two were compared."""
    if comparison is not None:
        return comparison
    return None if capacity is None else math.sqrt(2.0) * capacity


def too_fine(recorded: Mapping[str, Any] | None, spec: Spec) -> str:
    """A sentence if the recorded noise does not allow the proof the spec asks for; else empty."""
    if recorded is None:
        return ""
    deviation = ratio_deviation(
        recorded.get("comparison", {}).get("cv"), recorded["capacity"].get("cv")
    )
    rounds, min_gain = spec.confirm.rounds, float(spec.confirm.min_gain)
    if not deviation:
        return ""
    proved = provable_gain(deviation, rounds, min_gain)
    if proved <= worth_of(min_gain):
        return ""
    return (
        f"measured on {recorded['measured_at'][:10]}, a round's ratio of two configs of "
        f"{recorded['model']} varies by {deviation:.1%} on this machine: {rounds_text(rounds)} "
        f"confirm a gain of {proved:.1%} in {POWER:.0%} of runs, and smaller ones, of min_gain = "
        f"{min_gain:.1%} or little more, mostly not; `tune doctor --noise` recommends settings"
    )


def near_miss(recorded: Mapping[str, Any] | None) -> float:
    """SLO utilisation up to which noise alone may miss an SLO: two standard deviations of a p99."""
    cv: float | None = None if recorded is None else recorded.get("p99_between", {}).get("cv")
    if cv is None:
        return NEAR_MISS
    return 1.0 + 2.0 * min(max(cv, LEAST_P99_NOISE), MOST_P99_NOISE)
