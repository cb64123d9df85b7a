"""A server that is itself a simulation, with known costs: to search on, nothing is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from builders.spaces import BATCH, BATCHER, DELAY, INSTANCES, PREFERRED, space_of, spec_of

from tuner.bench.evaluate import Evaluation, Race, evaluate, evaluate_listed, race
from tuner.measurement.measurement import (
    Arrivals,
    LatencySource,
    LoadPoint,
    Measurement,
    ServerStatistics,
)
from tuner.score.capacity import LevelRange
from tuner.score.next_load import load_plan
from tuner.score.point import Point, judge_point
from tuner.score.trial import Trial, TrialState
from tuner.search.incumbent import incumbent
from tuner.search.searcher import Searcher
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.strategy import Enough, Proposal
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.twin.costs import Costs
from tuner.twin.model import Unmodelled
from tuner.twin.observation import setting_of
from tuner.twin.predicting import Requirement, capacity_of
from tuner.twin.simulator import NodeOutcome, Outcome
from tuner.twin.system import Service, Way

#: Most of a batch's time is the device's; more instances than two hardly help.
TRUTH = Costs(
    (Service(1e-3, 5e-5, 4e-3, 2e-4, 2e-5, spread=0.05),),
    Way(4e-4, 3e-4, front_s=2e-5, cores=64.0, handoff_s=6e-5),
)
#: 156 configs.
SPACE: dict[str, Any] = {
    INSTANCES: {"int": [1, 4]},
    BATCH: {"choice": [4, 8, 16, 32]},
    BATCHER: {"choice": [False, True]},
    PREFERRED: {"subsets": [4, 8, 16], "at_most": 1, "or": "unset"},
    DELAY: {"choice": [0, 1000, 4000]},
}


def measurement(
    load: LoadPoint,
    seed: int,
    duration_s: float,
    outcome: Outcome,
    noise: float = 0.0,
    labels: Sequence[str] = ("m",),
) -> Measurement:
    """What a load generator would have told of it, latencies off by a factor of ``noise``."""
    factor = 1.0 + noise
    share = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    models = {la: statistics(node) for la, node in zip(labels, outcome.nodes, strict=True)}
    return Measurement(
        load=load,
        seed=seed,
        duration_s=duration_s,
        completed_count=outcome.latencies_us.size - outcome.unanswered_count,
        failed_count=0,
        throughput_infer_per_s=outcome.throughput_infer_per_s,
        avg_latency_us=float(outcome.latencies_us.mean()) * factor,
        **{f"{k}_latency_us": outcome.percentile_us(q) * factor for k, q in share.items()},
        source=LatencySource.REQUESTS,
        latencies_us=outcome.latencies_us * factor,
        unanswered_count=outcome.unanswered_count,
        server=models[labels[0]],
        models=models,
        streams={
            name: measurement(load, seed, duration_s, own, noise, labels)
            for name, own in outcome.streams.items()
        },
    )


def statistics(node: NodeOutcome) -> ServerStatistics:
    executions = node.executions
    inferences = int((np.arange(executions.size) * executions).sum())
    return ServerStatistics(
        success_count=inferences,
        fail_count=0,
        inference_count=inferences,
        execution_count=int(executions.sum()),
        queue_us=node.queue_us,
        compute_input_us=0.0,
        compute_infer_us=node.compute_us,
        compute_output_us=0.0,
        batch_stats=tuple(
            (n, int(c), int(c * node.compute_us * 1e3)) for n, c in enumerate(executions) if c
        ),
    )


@dataclass
class Simulation:
    """A search on the simulated server.

    Attributes:
        hinders: What the real server does that no twin knows: a factor on the service times.
        broken: Why a candidate cannot be served; None for one that can.
    """

    spec: Spec
    space: Space
    costs: Costs = TRUTH
    noise: float = 0.02
    hinders: Callable[[Candidate], float] = lambda _: 1.0
    broken: Callable[[Candidate], str | None] = lambda _: None
    history: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped: Enough | None = None

    @classmethod
    def of(cls, space: dict[str, Any] = SPACE, **changes: Any) -> Simulation:
        spec = spec_of(
            space,
            search={"strategy": changes.pop("strategy", "twin"), "seed": changes.pop("seed", 0)},
            slo=["p99_latency <= 40ms", "error_rate <= 0%"],
            **changes.pop("spec", {}),
        )
        return cls(spec, space_of(space), **changes)

    def search(self, trials: int) -> list[Trial]:
        strategy = STRATEGIES[self.spec.search.strategy](self.space, self.spec)
        searcher = Searcher(self.space, strategy, self.history)
        while len(searcher.history) < trials:
            proposal = searcher.next()
            if isinstance(proposal, Enough):
                self.stopped = proposal
            if not isinstance(proposal, Proposal):
                break
            self.notes += [proposal.note] if proposal.note else []
            trial = self.trial(len(searcher.history), proposal, searcher.history)
            searcher.tell(replace(trial, predicted=proposal.predicted))
        self.history = searcher.history
        return self.history

    def trial(self, number: int, proposal: Proposal, history: list[Trial]) -> Trial:
        candidate = proposal.candidate
        reason = self.broken(candidate)
        if reason is not None:
            return Trial(number, candidate, TrialState.FAILED, reason=reason, refused=True)
        objective = self.spec.objective
        best = incumbent(history, objective.goal, self.space.current)
        to_beat = None if best is None else (best.sustained_level or 0.0) * 1.02
        seeds = iter(range(1, 100))
        evaluation = self._evaluated(
            lambda level: self.point(candidate, level, next(seeds), number),
            to_beat,
            proposal.informative,
        )
        return Trial(number, candidate, evaluation.state, evaluation.points, evaluation.score)

    def _evaluated(
        self, measure: Callable[[float], Point], to_beat: float | None, informative: bool
    ) -> Evaluation:
        objective = self.spec.objective
        plan = load_plan(self.spec.workload, objective)
        if plan.listed:
            return evaluate_listed(measure, objective, plan.listed)
        if to_beat is None:
            return evaluate(measure, objective, plan, 60.0)
        raced = race(measure, plan, Race(to_beat, informative=measure if informative else None))
        if raced.lost:
            return raced.evaluation(objective)
        return evaluate(measure, objective, plan, to_beat, known=raced.points)

    def point(self, candidate: Candidate, level: float, seed: int, number: int) -> Point:
        setting = setting_of(self.space, self.spec)
        network, plan = setting.network(candidate), setting.plan
        assert not isinstance(network, Unmodelled)
        assert not isinstance(plan, Unmodelled)
        load = LoadPoint(load_plan(self.spec.workload, self.spec.objective).arrivals, level)
        duration_s = max(1.5, 600.0 / level)
        outcome = self._slowed(candidate).simulate(
            network, setting.traffics(load, duration_s, seed), seed
        )
        noise = float(np.random.default_rng((number, seed)).normal(0.0, self.noise))
        shown = measurement(load, seed, duration_s, outcome, noise, plan.labels)
        return judge_point(self.spec.slos, shown)

    def _slowed(self, candidate: Candidate) -> Costs:
        factor = self.hinders(candidate)
        times = ("overlap_base_s", "overlap_item_s", "exclusive_base_s", "exclusive_item_s")
        slower = [
            replace(service, **{name: getattr(service, name) * factor for name in times})
            for service in self.costs.services
        ]
        return replace(self.costs, services=tuple(slower))

    def capacities(self) -> dict[str, float]:
        """The truth about every candidate, by key."""
        setting = setting_of(self.space, self.spec)
        asked = Requirement(self.spec.slos, Arrivals.POISSON, LevelRange(0.1, 1e5))

        def found(candidate: Candidate) -> float:
            network = setting.network(candidate)
            assert not isinstance(network, Unmodelled)
            costs = self._slowed(candidate)
            return capacity_of(setting, costs, network, asked, near=1500.0)

        every = list(self.space.enumerate())
        with ThreadPoolExecutor() as threads:
            return dict(zip([c.key for c in every], threads.map(found, every), strict=True))
