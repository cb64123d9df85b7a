"""How a run ended, as `result.json` says it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.confirm.confirm import Confirmation
from tuner.measurement.measurement import Rejected
from tuner.run.bottleneck import bottleneck_of
from tuner.run.confirmation import PutBack, RunNoise, Soak, Soaked
from tuner.run.manifest import Manifest
from tuner.run.result_schema import (
    ConfigFacts,
    Improvement,
    Means,
    Overloads,
    RejectedFacts,
    Result,
    Rounds,
    StreamFacts,
    TimeFacts,
    TrialCounts,
    WrittenFacts,
)
from tuner.run.status import Status
from tuner.score.judge import severity, slo_utilisation
from tuner.score.point import Point
from tuner.score.ratio import CONFIDENCE
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.steps.job import Change
from tuner.writeback.target import Written


@dataclass(frozen=True)
class Side:
    """A config and the measurements its numbers come from.

    Attributes:
        soak: Long loads around what it is credited with; None where the run did not get that far.
        rough: Measured in one rough round only, which is no goodput to tell.
        limited: It sustained all that the load generator could send.
    """

    candidate: Candidate
    points: tuple[Point, ...]
    feasible: bool
    soak: Soak | None = None
    rough: bool = False
    limited: bool = False

    @property
    def held(self) -> Soaked | None:
        """The long load that it sustained."""
        return None if self.soak is None else self.soak.held


@dataclass(frozen=True)
class Verdict:
    """What the run decided, before anything is written.

    Attributes:
        winner: The config to write; None unless one proved better.
        confirmation: Of the config to write: its gain, its rounds.
        compared: What the confirmation's ratio is of: capacity, throughput, or a metric.
        simplification: Each change of the winner that was undone as a test.
        reasons: Why, one sentence each.
        overload: None when the run did not get that far.
    """

    status: Status
    reasons: tuple[str, ...]
    baseline: Side | None = None
    winner: Side | None = None
    confirmation: Confirmation | None = None
    compared: str | None = None
    simplification: tuple[PutBack, ...] = ()
    overload: Overloads | None = None


def side_of_trial(trial: Trial | None) -> Side | None:
    """What the search measured of a config; None when the trial gave nothing."""
    if trial is None or not trial.points or trial.score is None:
        return None
    best = trial.score.best_point
    judged = min(trial.points, key=lambda p: p.level)
    point = judged if best is None else trial.points[best]
    return Side(trial.candidate, (point,), trial.score.feasible, limited=trial.limit is not None)


def result_of(
    *,
    manifest: Manifest,
    verdict: Verdict,
    trials: Sequence[Trial],
    rejected: Sequence[Rejected],
    duplicates: int,
    time: Mapping[str, float],
    change: Change | None,
    written: Written | None,
    noise: RunNoise | None = None,
) -> Result:
    """What `result.json` holds."""
    states = [t.state for t in trials]
    winner = _config_facts(verdict.winner, manifest, min)
    return Result(
        schema_version=1,
        run_id=manifest.run_id,
        model=manifest.name,
        status=verdict.status,
        reasons=verdict.reasons,
        spec_sha256=manifest.spec_sha256,
        objective=str(manifest.spec["objective"]),
        baseline=_config_facts(verdict.baseline, manifest, max),
        winner=winner,
        improvement=_improvement(verdict),
        trials=TrialCounts(
            asked=len(trials) + duplicates,
            measured=states.count(TrialState.MEASURED),
            pruned=states.count(TrialState.PRUNED),
            failed=states.count(TrialState.FAILED),
            duplicates=duplicates,
        ),
        rejected=rejected_facts(rejected, time["measuring_s"]),
        time=TimeFacts(**time),
        written=None if written is None else WrittenFacts.model_validate(written.to_json()),
        server_args=() if winner is None else winner.server_args,
        simplification=verdict.simplification or None,
        noise=noise,
        overload=verdict.overload,
        diff=None if change is None else change.diff,
        models={} if change is None else change.configs,
    )


def rejected_facts(rejected: Sequence[Rejected], measuring_s: float) -> RejectedFacts:
    seconds = sum(r.wall_s for r in rejected)
    return RejectedFacts(
        count=len(rejected),
        seconds=round(seconds, 3),
        share_of_measuring=min(seconds / measuring_s, 1.0) if measuring_s > 0.0 else 0.0,
        reasons=tuple(dict.fromkeys(r.reason for r in rejected)),
    )


def _config_facts(
    side: Side | None, manifest: Manifest, of_rounds: Callable[[Iterable[float]], float]
) -> ConfigFacts | None:
    """Facts of one side; ``of_rounds`` picks its goodput from the rounds, in doubt for the current.

    The winner is credited with what it sustained in every round, the current config with its best;
    each with what it sustained for long, where it was soaked.
    """
    if side is None:
        return None
    sustained = [p.measurement.throughput_infer_per_s for p in side.points if p.passed]
    told = side.feasible and bool(sustained) and not side.rough
    goodput = of_rounds(sustained) if told else None
    points = side.points
    if side.held is not None:
        goodput = side.soak.credited_per_s if side.soak else None
        points = (*points, side.held.point)
    percentiles = ("p50_latency_us", "p90_latency_us", "p95_latency_us", "p99_latency_us")
    return ConfigFacts(
        **side.candidate.to_json(),
        measurements=tuple(p.measurement for p in side.points),
        verdicts=tuple(p.slo for p in side.points),
        goodput_infer_per_s=goodput,
        at_least=side.limited and goodput is not None,
        worst_round_infer_per_s=min(sustained) if told else None,
        rounds_met=len(sustained),
        # The worst of the repeats: an SLO is met when it is met every time.
        **{name: max(getattr(p.measurement, name) for p in points) for name in percentiles},
        # Of one SLO's results over the repeats: too little data to judge is not a pass.
        slo=tuple(min(found, key=severity) for found in zip(*(p.slo for p in points), strict=True)),
        soak=side.soak,
        streams={name: _stream_facts(name, points) for name in points[-1].measurement.streams},
        bottleneck=bottleneck_of(points[-1], manifest),
    )


def _stream_facts(name: str, points: Sequence[Point]) -> StreamFacts:
    own = [m for p in points if (m := p.measurement.of(name)) is not None]
    used = [slo_utilisation([r for r in p.slo if r.stream == name]) for p in points]
    return StreamFacts(
        throughput_infer_per_s=min(m.throughput_infer_per_s for m in own),
        p50_latency_us=max(m.p50_latency_us for m in own),
        p99_latency_us=max(m.p99_latency_us for m in own),
        slo_utilisation=max((share for share in used if share is not None), default=None),
    )


def _improvement(verdict: Verdict) -> Improvement | None:
    confirmation = verdict.confirmation
    if verdict.winner is None or confirmation is None or confirmation.gain is None:
        return None
    means, rounds = confirmation.gain.means, confirmation.gain.rounds
    return Improvement(
        goodput_ratio=confirmation.gain.ratio,
        confidence=CONFIDENCE,
        compared=verdict.compared,
        means=None if means is None else Means(winner=means[0], current=means[1]),
        rounds=Rounds(winner=rounds[0], current=rounds[1]),
        at_least=confirmation.gain.at_least,
    )
