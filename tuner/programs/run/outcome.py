"""How a run ended, as `result.json` says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.measurement.measurement import Rejected
from tuner.run.bottleneck import bottleneck_of
from tuner.run.confirmation import PutBack, RunNoise
from tuner.run.manifest import Manifest
from tuner.run.proved import ProvedConfig, best_other
from tuner.run.result_schema import (
    Gain,
    Overloads,
    RejectedFacts,
    Result,
    TimeFacts,
    ToKnow,
    TrialCounts,
    WrittenFacts,
)
from tuner.run.status import Status
from tuner.score.trial import Trial, TrialState
from tuner.spec.slo import Objective
from tuner.steps.job import Change
from tuner.writeback.target import Written


@dataclass(frozen=True)
class Verdict:
    """What the run decided, before anything is written.

    Attributes:
        winner: The config to write; None unless one proved better.
        best: The best other config that took part, where there is no winner; None leaves it to
            the trials.
        gain: Of the winner, or of the best other config, over the current one.
        to_know: What it would take to know, where the answer is not known.
        simplification: Each change of the winner that was undone as a test.
        reasons: Why, one sentence each.
        overload: None when the run did not get that far.
    """

    status: Status
    reasons: tuple[str, ...]
    baseline: ProvedConfig | None = None
    winner: ProvedConfig | None = None
    best: ProvedConfig | None = None
    gain: Gain | None = None
    to_know: ToKnow | None = None
    simplification: tuple[PutBack, ...] = ()
    overload: Overloads | None = None


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
    states, goal = [t.state for t in trials], Objective.parse(manifest.spec["objective"]).goal
    winner, best = verdict.winner, verdict.best
    if winner is None and best is None:
        best = best_other(trials, manifest.current, goal)
    return Result(
        schema_version=1,
        run_id=manifest.run_id,
        model=manifest.name,
        status=verdict.status,
        reasons=verdict.reasons,
        spec_sha256=manifest.spec_sha256,
        objective=str(manifest.spec["objective"]),
        baseline=_with_bottleneck(verdict.baseline, manifest),
        winner=_with_bottleneck(winner, manifest),
        best=_with_bottleneck(best, manifest),
        gain=verdict.gain,
        to_know=verdict.to_know,
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
        server_args=() if winner is None else winner.candidate.server_args,
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


def _with_bottleneck(config: ProvedConfig | None, manifest: Manifest) -> ProvedConfig | None:
    if config is None:
        return None
    shown = config.rounds[-1] if config.held is None else config.held.point
    return replace(config, bottleneck=bottleneck_of(shown, manifest))
