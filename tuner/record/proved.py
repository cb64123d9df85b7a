"""A config with the measurements that its figures come from: a run writes it, reports read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from tuner.facts import Facts, is_empty, is_none
from tuner.record.bottleneck import Bottleneck
from tuner.record.confirmation import Soak, Soaked
from tuner.record.shapes import ShapeFacts, shapes_of
from tuner.score.judge import SloOutcome, SloResult, outcome_of_rounds, severity
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal


@dataclass(frozen=True)
class StreamFacts:
    """Figures of one stream: the worst of the measurements."""

    throughput_infer_per_s: Annotated[float, Field(ge=0)]
    p50_latency_us: float
    p99_latency_us: float
    slo_utilisation: float | None  # above 1: the stream misses an SLO


@dataclass(frozen=True)
class ProvedConfig(Facts):
    """A config with the measurements that its figures come from.

    Attributes:
        rounds: One measurement per round: the highest load that met every SLO, else the lowest
            load. For a config without a round, the measurement of the search that stands for it.
        from_search: The config had no round.
        soak: Long loads, lowered until the config sustained one; None if the run ended earlier.
        credited_infer_per_s: The credit of the soak. Without a sustained soak, the lowest
            throughput over the rounds that met every SLO; None without such a round.
        at_most_infer_per_s: Upper bound of what it sustains: the lowest load at which it missed an
            SLO, or what it answered when saturated. None if a load is credited, or if neither is
            known.
        at_least: It sustained all that the load generator could send, and may sustain more.
        p50_latency_us: Like the other percentiles, the worst of the rounds and the sustained soak.
        slo: For each SLO, the worst result of the same measurements; too little data for a verdict
            is not a pass.
        streams: Figures by stream, if there are several.
        shapes: Figures by shape, if requests have several.
        sequences_at_once: Sequences in progress at the credited load, if requests are sequences.
        bottleneck: Where a request spends its time, if there are several models.
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
    streams: Annotated[dict[str, StreamFacts], Field(default_factory=dict, exclude_if=is_empty)] = (
        field(default_factory=dict)
    )
    shapes: Annotated[tuple[ShapeFacts, ...], Field(exclude_if=is_empty)] = ()
    sequences_at_once: Annotated[float | None, Field(exclude_if=is_none)] = None
    bottleneck: Annotated[Bottleneck | None, Field(exclude_if=is_empty)] = None

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
        """The record of these measurements; all figures follow from them."""
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
        """The record of a trial; None if the trial gave no measurement."""
        if trial is None or not trial.points or trial.score is None:
            return None
        best = trial.score.best_point
        lowest = min(trial.points, key=lambda p: p.level)
        at_most = trial.at_most_per_s * trial.points[0].measurement.batch_size
        proved = cls.of(
            trial.candidate,
            [lowest if best is None else trial.points[best]],
            at_most_infer_per_s=at_most if math.isfinite(at_most) else None,
            at_least=trial.limit is not None,
            from_search=True,
        )
        if trial.score.feasible:
            return proved
        # a lone request missed
        return replace(proved, credited_infer_per_s=None, at_least=False, sequences_at_once=None)

    def soaked(self, beside: Soak) -> ProvedConfig:
        """The same config with its soaks: a load that it missed is more than it sustains.

        The bound leaves out as much of that load as a credit would.
        """
        proved = ProvedConfig.of(
            self.candidate, self.rounds, soak=beside, from_search=self.from_search
        )
        if not beside.lost:
            return proved
        missed = (1.0 - beside.headroom) * min(s.throughput_infer_per_s for s in beside.tried)
        least = (
            missed if self.at_most_infer_per_s is None else min(missed, self.at_most_infer_per_s)
        )
        none = replace(proved, credited_infer_per_s=None, sequences_at_once=None, at_least=False)
        return replace(none, at_most_infer_per_s=least)

    @property
    def outcome(self) -> SloOutcome:
        """Whether it met the SLOs at some load, according to its rounds and its soak."""
        if self.credited_infer_per_s is not None:
            return SloOutcome.MET
        outcome_ = outcome_of_rounds([p.outcome for p in self.rounds])
        return SloOutcome.MISSED if outcome_ is SloOutcome.MET else outcome_

    @property
    def sustained(self) -> Soaked | None:
        """The soak whose load the config sustained."""
        return None if self.soak is None else self.soak.sustained

    @property
    def credited_level(self) -> float:
        """The credited load, in requests per second or clients; without a soak the lowest round."""
        soaked = None if self.soak is None else self.soak.credited_level
        return soaked or min(p.level for p in self.rounds)

    @property
    def judged(self) -> Point:
        """The measurement that stands for the config: the sustained soak, else the worst round.

        The worst round has the least throughput of those that met every SLO, or of all if none
        did.
        """
        if self.sustained is not None:
            return self.sustained.point
        met = [p for p in self.rounds if p.passed] or self.rounds
        return min(met, key=lambda p: p.measurement.throughput_infer_per_s)


def best_other(trials: Sequence[Trial], current: Candidate, goal: Goal) -> ProvedConfig | None:
    """The best config of the search other than the current one; None if none was measured."""
    scored = (t for t in trials if t.state is TrialState.MEASURED and t.score)
    others = [t for t in scored if t.candidate != current]
    return ProvedConfig.of_trial(min(others, key=lambda t: t.order(goal), default=None))


def _stream(name: str, points: Sequence[Point]) -> StreamFacts:
    measured = [m for p in points if (m := p.measurement.of(name)) is not None]
    used = [p.utilisation_of(name) for p in points]
    return StreamFacts(
        throughput_infer_per_s=min(m.throughput_infer_per_s for m in measured),
        p50_latency_us=max(m.p50_latency_us for m in measured),
        p99_latency_us=max(m.p99_latency_us for m in measured),
        slo_utilisation=max((share for share in used if share is not None), default=None),
    )
