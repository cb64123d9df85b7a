"""What is really so of configs, drawn by Hypothesis or by number, and an emulated bench of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from builders.candidates import candidate_of
from builders.emulated import FreshBench
from builders.measurements import NO_ERRORS, P99_40MS, Probe, synthetic_measurement
from hypothesis import strategies as st

from tuner.measurement.measurement import Arrivals, Measurement
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import RoundsResult, run_rounds
from tuner.record.confirmation import Repeat
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.spec.model import Confirm
from tuner.spec.slo import Objective

#: The first is the current config.
CONFIGS = tuple(candidate_of({"instance_group.count": n}) for n in (1, 2, 3))
SEARCHED = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))
#: The logarithm of a capacity falls by so much for each percent of the CPU that others take.
FALLS = 0.01
#: Utilisation that is shown at the most: far beyond a bound, windows cut latencies off.
MAX_LISTED = 100.0


@dataclass(frozen=True)
class Truth:
    """Configs of known capacity.

    Attributes:
        capacities: Requests per second, the current config's first.
        slope: The power of the load with which latency rises.
        noise: Standard deviation of a capacity from server to server, as a share.
        busy: Percent of the CPU that others take beside a third of all servers, at the most.
        seed: Of the servers' luck.
    """

    capacities: tuple[float, ...]
    slope: float = 8.0
    noise: float = 0.0
    busy: float = 0.0
    seed: int = 0

    @property
    def gains(self) -> list[float]:
        """Of the finalists over the current config."""
        current, *others = self.capacities
        return [other / current for other in others]

    def times(self, factor: float) -> Truth:
        return replace(self, capacities=tuple(factor * c for c in self.capacities))

    def probe(self, level: float) -> Probe:
        """What one load shows of the current config, without noise."""
        capacity = self.capacities[0]
        used = min((level / capacity) ** self.slope, MAX_LISTED)
        return Probe(level, used <= 1.0, min(level, 1.05 * capacity), used)


GAINS = st.sampled_from([0.5, 0.9, 0.99, 1.0, 1.01, 1.05, 1.3, 2.0])


def truth(
    capacity: st.SearchStrategy[float] = st.floats(5.0, 2e4),  # noqa: B008
    slope: st.SearchStrategy[float] = st.floats(2.0, 20.0),  # noqa: B008
    noise: st.SearchStrategy[float] = st.sampled_from([0.0, 0.01, 0.03, 0.1]),  # noqa: B008
    busy: st.SearchStrategy[float] = st.sampled_from([0.0, 0.0, 30.0]),  # noqa: B008
    gains: st.SearchStrategy[Sequence[float]] = st.lists(GAINS, min_size=1, max_size=2),  # noqa: B008
) -> st.SearchStrategy[Truth]:
    """Any truth, as far as nothing else is asked for."""
    return st.tuples(capacity, gains).flatmap(
        lambda drawn: st.builds(
            Truth,
            st.just((drawn[0], *(drawn[0] * gain for gain in drawn[1]))),
            slope,
            noise,
            busy,
            st.integers(0, 10**6),
        )
    )


def numbered(count: int, gains: Sequence[float], noise: float | None = None) -> list[Truth]:
    """Truths that are the same in every run of a test, of configs that gain so much."""
    truths = []
    for seed in range(count):
        draw = random.Random(f"{seed} {gains}")
        current = math.exp(draw.uniform(2.0, 9.0))
        slope, busy = draw.uniform(3.0, 16.0), draw.choice([0.0, 0.0, 30.0])
        capacities = (current, *(current * g for g in gains))
        spread = draw.choice([0.01, 0.03, 0.06]) if noise is None else noise
        truths.append(Truth(capacities, slope, spread, busy, seed))
    return truths


class TruthBench(FreshBench):
    """Serves configs as a truth says; each server's luck is the same whatever came before."""

    def __init__(self, truth: Truth, **more: Any) -> None:
        self.truth = truth
        capacities = dict(zip(CONFIGS, truth.capacities, strict=False))
        super().__init__(capacities, slos=(P99_40MS, NO_ERRORS), weather=0.05, **more)

    def luck(self) -> float:
        candidate = self.deployed[-1][0]
        turn = sum(c == candidate for c, _ in self.deployed)
        draw = random.Random(f"{self.truth.seed} {candidate.key} {turn}")
        self.taken = draw.uniform(0.0, self.truth.busy) if draw.random() < 1 / 3 else 0.0
        return math.exp(draw.gauss(0.0, self.truth.noise) - FALLS * self.taken)

    def reading(self, level: float, seed: int) -> Measurement:
        capacity = self.serves * self.kindness(seed)
        used = min((level / capacity) ** self.truth.slope, MAX_LISTED)
        served = min(level, 1.05 * capacity)
        made = synthetic_measurement(level, 40e3 * used, served=served)
        return replace(made, host=replace(made.host, other_cpu_percent=self.taken))


def rules_of(plan: LoadPlan = SEARCHED, **confirm: Any) -> ProofRules:
    spec = Confirm.model_validate(confirm)
    return ProofRules(Objective.goodput(), (P99_40MS, NO_ERRORS), plan, spec, 100)


@dataclass(frozen=True)
class Raced:
    """Rounds that were made; ``bench`` knows what was measured for them."""

    truth: Truth
    result: RoundsResult
    bench: TruthBench
    rows: list[Repeat]

    @property
    def ratios(self) -> list[tuple[float, float, float]]:
        """Of each finalist that was compared: its true gain, and the ends of its interval."""
        named = zip(self.result.finalists, self.truth.gains, strict=True)
        known = ((self.result.ratios.get(f.candidate), gain) for f, gain in named)
        return [(gain, r.low, r.high) for r, gain in known if r is not None]


def race(
    truth: Truth,
    searched: Callable[[float], float] = lambda capacity: capacity,
    *,
    order: Sequence[int] = (0, 1),
    **confirm: Any,
) -> Raced:
    """Rounds of the current config and the others, of which the search says ``searched``.

    ``order``: in which the finalists come in, by number.
    """
    bench, rows = TruthBench(truth), list[Repeat]()
    current, *others = (
        Entrant(c, searched(capacity))
        for c, capacity in zip(CONFIGS, truth.capacities, strict=False)
    )
    finalists = [others[n] for n in order if n < len(others)]
    measured = MeasuredOnce(bench, rows.append)
    result = run_rounds(
        measured, current, finalists, rules_of(**confirm), lambda: False, lambda *_: None
    )
    places = {f.candidate: f for f in result.finalists}
    result = replace(result, finalists=tuple(places[o.candidate] for o in others))
    return Raced(truth, result, bench, rows)
