"""What a noisy table knows of a config: its own recording, and those of configs like it.

Where repeats of one config differ as much as the configs do, the best of many single recordings is
the luckiest. A capacity shrunk towards what the config's fields explain is then nearer to the truth
(Efron and Morris 1973, "Stein's Estimation Rule and Its Competitors").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from recorded_bench import RecordedCurve, RecordedWorld
from recorded_table import LONG, Recording

from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo


@dataclass(frozen=True)
class Shrinking:
    """What the fields of configs explain, and standard deviations of the logarithm of a capacity.

    Attributes:
        explained: Capacity by key: a factor for each value of each field.
        repeats: Between recordings of one config.
        unexplained: Of the configs around what their fields explain.
    """

    explained: Mapping[str, float]
    repeats: float
    unexplained: float

    @property
    def share(self) -> float:
        """Of the way from a recorded capacity to the explained one, 0 to 1."""
        return min((self.repeats / self.unexplained) ** 2, 1.0) if self.unexplained else 0.0


def shrunk(
    world: RecordedWorld, recordings: Sequence[Recording], slos: Sequence[Slo]
) -> RecordedWorld:
    """Every curve moved along the load to its shrunk capacity.

    A config that misses an SLO at every load stays as it is.
    """
    shrinking = shrinking_of(world, recordings, slos)
    curves = dict(world.curves)
    for key, explained in shrinking.explained.items():
        curve, recorded = curves[key], world.goodput(key)
        factor = (explained / recorded) ** shrinking.share
        curves[key] = replace(curve, levels=curve.levels * factor, capacity=recorded * factor)
    return replace(world, curves=curves, changed=_said(shrinking))


def shrinking_of(
    world: RecordedWorld, recordings: Sequence[Recording], slos: Sequence[Slo]
) -> Shrinking:
    """How much of the differences between the recorded configs is noise."""
    candidates = {r.candidate.key: r.candidate for r in recordings}.values()
    feasible = [c for c in candidates if world.goodput(c.key) > 0.0]
    features = _features(feasible)
    logs = np.log([world.goodput(c.key) for c in feasible])
    weights, _, rank, _ = np.linalg.lstsq(features, logs, rcond=None)
    fitted = features @ weights
    freedom = logs.size - int(rank)
    unexplained = math.sqrt(float(((logs - fitted) ** 2).sum()) / freedom) if freedom else 0.0
    explained = {c.key: math.exp(log) for c, log in zip(feasible, fitted, strict=True)}
    return Shrinking(explained, _between_repeats(recordings, slos), unexplained)


def _said(shrinking: Shrinking) -> str:
    return (
        f"Capacities of one config differ by {shrinking.repeats:.0%} between repeats, those of the "
        f"configs by {shrinking.unexplained:.0%} around what their fields explain (standard "
        f"deviations): each is moved by {shrinking.share:.0%} of the way to what they explain."
    )


def _features(candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
    """A column for each value of each field, and one of ones."""
    chosen = [[(str(k), repr(v)) for k, v in c.values.items()] for c in candidates]
    values = sorted({value for features in chosen for value in features})
    return np.array([[1.0, *(float(v in features) for v in values)] for features in chosen])


def _between_repeats(recordings: Sequence[Recording], slos: Sequence[Slo]) -> float:
    """In windows of one length, where the config meets the SLOs at some load; 0 without repeats."""
    by_key: dict[tuple[str, bool], list[float]] = {}
    for recording in recordings:
        capacity = RecordedCurve.of([recording], slos).capacity
        if capacity is not None:
            alike = by_key.setdefault((recording.candidate.key, recording.repeat >= LONG), [])
            alike.append(math.log(capacity))
    freedom = sum(len(logs) - 1 for logs in by_key.values())
    squares = sum(
        float(np.square(np.array(logs) - np.mean(logs)).sum()) for logs in by_key.values()
    )
    return math.sqrt(squares / freedom) if freedom else 0.0
