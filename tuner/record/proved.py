"""A config with the measurements that its figures come from: written by a run, read by all else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from tuner.facts import Facts
from tuner.record.bottleneck import Bottleneck
from tuner.record.confirmation import Soak, Soaked
from tuner.record.shapes import ShapeFacts, shapes_of
from tuner.score.capacity import saturated
from tuner.score.judge import SloOutcome, SloResult, outcome_of_rounds, severity, slo_utilisation
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal


@dataclass(frozen=True)
class StreamFacts:
    """What a stream of requests got: the worst of the measurements."""

    throughput_infer_per_s: Annotated[float, Field(ge=0)]
    p50_latency_us: float
    p99_latency_us: float
    slo_utilisation: float | None  # above 1 an SLO of the stream is missed


@dataclass(frozen=True)
class ProvedConfig(Facts):
    """A config with the measurements that its figures come from.

    Attributes:
        rounds: One measurement a round, each the highest load that met every SLO, else the lowest;
            where it had no round, the one of the search that it is judged by.
        from_search: It had no round.
        soak: Long loads, lowered until one held; None where the run did not get that far.
        credited_infer_per_s: What the soak credits it with; without a soak that held, what it
            sustained in the worst of the rounds that met every SLO; None where none did.
        at_most_infer_per_s: It sustains at most the lowest load at which it missed an SLO, or what
            it answered when it was saturated. None where a load is credited, or where neither is
            known.
        at_least: It sustained all that the load generator could send, and may sustain more.
        p50_latency_us: Like the other percentiles the worst of the rounds and the soak that held.
        slo: For each SLO the worst result of these; too little data to judge is not a pass.
        streams: By name, where there are several.
        shapes: Where requests have several.
        sequences_at_once: That the credited load is made of, where requests come in sequences.
        bottleneck: Where a request spends its time, with several models.
    """

    unknown = "ignore"

    candidate: Candidate
    rounds: Annotated[tuple[Point, ...], Field(min_length=1)]
    from_search: bool
    soak: Soak | None
    credited_infer_per_s: float | None
    at_most_infer_per_s: float | None
    at_least: bool
    p50_latency_us: float | None
    p90_latency_us: float | None
    p95_latency_us: float | None
    p99_latency_us: float | None
    slo: tuple[SloResult, ...]
    streams: Annotated[
        dict[str, StreamFacts], Field(default_factory=dict, exclude_if=lambda value: not value)
    ] = field(default_factory=dict)
    shapes: Annotated[tuple[ShapeFacts, ...], Field(exclude_if=lambda value: not value)] = ()
    sequences_at_once: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    bottleneck: Annotated[Bottleneck | None, Field(exclude_if=lambda value: not value)] = None

    @classmethod
    def of(
        cls,
        candidate: Candidate,
        rounds: Sequence[Point],
        *,
        soak: Soak | None = None,
        at_most_infer_per_s: float | None = None,
        at_least: bool = False,
        from_search: bool = False,
    ) -> ProvedConfig:
        """The record of what was measured; all figures follow from it."""
        sustained = None if soak is None else soak.sustained
        points = (*rounds, *([sustained.point] if sustained else []))
        met = [p.measurement.sustained_infer_per_s for p in rounds if p.passed]
        credited = (
            min(met, default=None) if soak is None or sustained is None else soak.credited_per_s
        )
        proved = cls(
            candidate=candidate,
            rounds=tuple(rounds),
            from_search=from_search,
            soak=soak,
            credited_infer_per_s=credited,
            at_most_infer_per_s=at_most_infer_per_s if credited is None else None,
            at_least=at_least and credited is not None,
            p50_latency_us=max(p.measurement.p50_latency_us for p in points),
            p90_latency_us=max(p.measurement.p90_latency_us for p in points),
            p95_latency_us=max(p.measurement.p95_latency_us for p in points),
            p99_latency_us=max(p.measurement.p99_latency_us for p in points),
            slo=tuple(
                min(results, key=severity) for results in zip(*(p.slo for p in points), strict=True)
            ),
            streams={name: _stream(name, points) for name in points[-1].measurement.streams},
        )
        at_once = None if credited is None else proved.judged.measurement.sequences_at_once
        return replace(proved, shapes=shapes_of(proved.judged), sequences_at_once=at_once)

    @classmethod
    def of_trial(cls, trial: Trial | None) -> ProvedConfig | None:
        """What the search measured of a config; None where the trial gave nothing."""
        if trial is None or not trial.points or trial.score is None:
            return None
        best = trial.score.best_point
        lowest = min(trial.points, key=lambda p: p.level)
        missed = [
            (p.served_per_s if saturated(p) else p.level) * p.measurement.batch_size
            for p in trial.points
            if p.served_per_s is not None and p.outcome is SloOutcome.MISSED
        ]
        proved = cls.of(
            trial.candidate,
            [lowest if best is None else trial.points[best]],
            at_most_infer_per_s=min(missed, default=None),
            at_least=trial.limit is not None,
            from_search=True,
        )
        if trial.score.feasible:
            return proved
        # a lone request missed
        return replace(proved, credited_infer_per_s=None, at_least=False, sequences_at_once=None)

    def soaked(self, beside: Soak) -> ProvedConfig:
        """The same once it was put under one long load: what it missed is more than it sustains."""
        proved = ProvedConfig.of(
            self.candidate, self.rounds, soak=beside, from_search=self.from_search
        )
        if not beside.lost:
            return proved
        missed = min(s.throughput_infer_per_s for s in beside.tried)
        least = (
            missed if self.at_most_infer_per_s is None else min(missed, self.at_most_infer_per_s)
        )
        none = replace(proved, credited_infer_per_s=None, sequences_at_once=None, at_least=False)
        return replace(none, at_most_infer_per_s=least)

    @property
    def outcome(self) -> SloOutcome:
        """Whether it met the SLOs at some load, by its rounds and its soak."""
        if self.credited_infer_per_s is not None:
            return SloOutcome.MET
        outcome_ = outcome_of_rounds([p.outcome for p in self.rounds])
        return SloOutcome.MISSED if outcome_ is SloOutcome.MET else outcome_

    @property
    def sustained(self) -> Soaked | None:
        """The long load that it sustained."""
        return None if self.soak is None else self.soak.sustained

    @property
    def credited_level(self) -> float:
        """The same as a load, requests per second or clients: what the soak credits it with.

        Without one the lowest of the rounds.
        """
        soaked = None if self.soak is None else self.soak.credited_level
        return soaked or min(p.level for p in self.rounds)

    @property
    def judged(self) -> Point:
        """The measurement that stands for it: the soak that held, else the worst of the rounds.

        That is the one with the least throughput of those that met every SLO, or of all if none
        did.
        """
        if self.sustained is not None:
            return self.sustained.point
        met = [p for p in self.rounds if p.passed] or self.rounds
        return min(met, key=lambda p: p.measurement.throughput_infer_per_s)


def best_other(trials: Sequence[Trial], current: Candidate, goal: Goal) -> ProvedConfig | None:
    """The best config of the search that is not the current one; None where none was measured."""
    scored = (t for t in trials if t.state is TrialState.MEASURED and t.score)
    others = [t for t in scored if t.candidate != current]
    return ProvedConfig.of_trial(min(others, key=lambda t: t.order(goal), default=None))


def _stream(name: str, points: Sequence[Point]) -> StreamFacts:
    measured = [m for p in points if (m := p.measurement.of(name)) is not None]
    used = [slo_utilisation([r for r in p.slo if r.stream == name]) for p in points]
    return StreamFacts(
        throughput_infer_per_s=min(m.throughput_infer_per_s for m in measured),
        p50_latency_us=max(m.p50_latency_us for m in measured),
        p99_latency_us=max(m.p99_latency_us for m in measured),
        slo_utilisation=max((share for share in used if share is not None), default=None),
    )
