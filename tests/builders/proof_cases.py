"""Named cases of a proof: what is really so, and the answer that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from builders.proving import (
    CURRENT,
    OTHER,
    THIRD,
    ProvingBench,
    lost_at,
    lost_without_overload,
    prove,
    searched,
    spec_of,
    trial,
)

from tuner.record.result_schema import RunDecision
from tuner.record.status import Status
from tuner.score.saturation import Saturated
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate

AT_300 = "minimize p99_latency at 300/s"
LISTED = {"arrivals": {"kind": "poisson", "rate": [90, 900]}}


@dataclass(frozen=True)
class ProofCase:
    """A case, and its answer.

    Attributes:
        capacities: Of the current config and one or two others.
        rounds: Of the current config; None: some.
        trials: What the search measured; by default each below and above its capacity.
        gone: Is refused by the server when it is measured again.
        bench: Further arguments of the bench; ``spec``: further keys of the spec.
    """

    capacities: tuple[float, ...]
    status: Status
    winner: Candidate | None = None
    rounds: int | None = None
    trials: Callable[[ProvingBench], Sequence[Trial]] | None = None
    gone: Candidate | None = None
    answer: Mapping[Candidate, float] = field(default_factory=dict)
    bench: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    def proved(self, **more: Any) -> tuple[ProvingBench, RunDecision]:
        """The bench as it was left, and the answer; ``more`` is what `prove` takes."""
        capacities = dict(zip((CURRENT, OTHER, THIRD), self.capacities, strict=False))
        bench = ProvingBench(spec_of(**self.spec), capacities, **self.bench)
        quiet = ProvingBench(bench.spec, capacities)
        trials = searched(quiet, *capacities) if self.trials is None else self.trials(quiet)
        bench.capacity = {c: v for c, v in capacities.items() if c != self.gone}
        bench.answer = self.answer
        return bench, prove(bench, *trials, **more)


def after_a_race(*levels: float) -> Callable[[ProvingBench], Sequence[Trial]]:
    """Of the current config its capacity is known; the others lost a race at one load each.

    A look has shown what these answer when saturated.
    """

    def trials(bench: ProvingBench) -> Sequence[Trial]:
        others = zip((OTHER, THIRD), levels, strict=False)
        lost = [
            replace(lost_at(bench, n, c, level), saturated=Saturated(64, served, served))
            for n, (c, level) in enumerate(others, 1)
            for served in [bench.capacity_of(c)]
        ]
        return [*searched(bench, CURRENT), *lost]

    return trials


def refused_third(bench: ProvingBench) -> Sequence[Trial]:
    return [*searched(bench, CURRENT, OTHER), trial(bench, 2, THIRD, 98)]


BETTER, KEPT, OPEN = Status.IMPROVED, Status.KEPT, Status.NOT_KNOWN
CASES: dict[str, ProofCase] = {
    "twice as much": ProofCase((500, 1000), BETTER, OTHER, 3),
    "the current config is far behind": ProofCase((100, 1000), BETTER, OTHER, 0),
    "the first round shows that the current config is far behind": ProofCase(
        (100, 1000, 250), BETTER, OTHER, 1,
        trials=lambda bench: [lost_without_overload(bench), *searched(bench, OTHER, THIRD)],
    ),
    "the current config meets the SLOs at no load": ProofCase(
        (50, 1000), BETTER, OTHER, 0,
        trials=lambda bench: [trial(bench, 0, CURRENT, 90), *searched(bench, OTHER)],
    ),
    "the current config lost its race": ProofCase(
        (600, 1000), BETTER, OTHER, 3,
        trials=lambda bench: [trial(bench, 0, OTHER, 980, 1100), lost_at(bench, 1, CURRENT, 1000)],
    ),
    "the search took the worse of two for the better": ProofCase(
        (500, 900, 1000), BETTER, THIRD, 3,
        trials=lambda bench: [
            *searched(bench, CURRENT, OTHER), trial(bench, 2, THIRD, 860)
        ],
    ),
    "the best one changes answers": ProofCase((500, 1000), OPEN, rounds=3, answer={OTHER: 2.0}),
    "the best one changes answers, the second does not": ProofCase(
        (100, 1000, 900), BETTER, THIRD, 0, answer={OTHER: 2.0}
    ),
    "the second may be no better than the current config": ProofCase(
        (300, 1000, 320), OPEN, rounds=0, answer={OTHER: 2.0}
    ),
    "loads are listed": ProofCase((100, 1000), BETTER, OTHER, spec={"workload": LISTED}),
    "a latency is minimised": ProofCase((100, 1000), BETTER, OTHER, spec={"objective": AT_300}),
    "nothing is better": ProofCase((1000, 1000), KEPT),
    "a race was lost by little": ProofCase((1000, 940), KEPT, trials=after_a_race(1020)),
    "no other one comes near": ProofCase((1000, 200), KEPT, rounds=0, trials=after_a_race(1020)),
    "no other one meets the SLOs at the load": ProofCase(
        (1000, 20), KEPT, rounds=0, spec={"objective": AT_300}
    ),
    "4% in the noise": ProofCase((1000, 1040), OPEN, rounds=12, bench={"noise": 0.06, "seed": 2}),
    "4% in the noise, and no time": ProofCase(
        (1000, 1040), OPEN, rounds=3, bench={"noise": 0.06, "seed": 2},
        spec={"confirm": {"time": 0.001}},
    ),
    "the current config is gone": ProofCase((500, 1000), OPEN, rounds=0, gone=CURRENT),
    "the finalist is gone": ProofCase((500, 1000), OPEN, rounds=1, gone=OTHER),
    "the finalist is gone, the current one far behind": ProofCase(
        (100, 1000), OPEN, rounds=0, gone=OTHER
    ),
    "a config failed in the search": ProofCase((100, 200), BETTER, OTHER, trials=refused_third),
    "what lasts is no gain": ProofCase(
        (1000, 1080), OPEN, bench={"shares": {OTHER: 0.82}, "weather": 0.0}
    ),
    "what lasts of both is a gain all the same": ProofCase(
        (1000, 1080), BETTER, OTHER, bench={"shares": {CURRENT: 0.75, OTHER: 0.82}, "weather": 0.0}
    ),
    "what lasts is still a gain": ProofCase(
        (500, 1000), BETTER, OTHER, bench={"shares": {OTHER: 0.85}}
    ),
}  # fmt: skip
