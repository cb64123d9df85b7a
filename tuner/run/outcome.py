"""How a run ended, as `result.json` says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.measurement.measurement import Rejected
from tuner.prepare.job import Change
from tuner.proof.verdict import RunDecision
from tuner.record.bottleneck import bottleneck_of
from tuner.record.confirmation import RunNoise
from tuner.record.manifest import Manifest
from tuner.record.proved import ProvedConfig, best_other
from tuner.record.result_schema import (
    RejectedFacts,
    Result,
    TimeFacts,
    TrialCounts,
)
from tuner.record.shapes import with_batches
from tuner.score.trial import Trial, TrialState
from tuner.sentences import sentence
from tuner.space.environment import needed_variables
from tuner.spec.slo import Objective
from tuner.writeback.target import Written


def result_of(
    *,
    manifest: Manifest,
    verdict: RunDecision,
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
        reasons=tuple(map(sentence, verdict.reasons)),
        why=verdict.reasons,
        spec_sha256=manifest.spec_sha256,
        objective=str(manifest.spec["objective"]),
        baseline=_with_manifest(verdict.baseline, manifest),
        winner=_with_manifest(winner, manifest),
        best=_with_manifest(best, manifest),
        gain=verdict.gain,
        to_know=verdict.to_know,
        trials=TrialCounts(
            asked=len(trials) + duplicates,
            measured=states.count(TrialState.MEASURED),
            pruned=states.count(TrialState.PRUNED),
            failed=states.count(TrialState.FAILED),
            duplicates=duplicates,
        ),
        rejected=RejectedFacts.of(rejected, time["measuring_s"]),
        time=TimeFacts(**time),
        written=None if written is None else written.facts,
        server_args=() if winner is None else winner.candidate.server_args,
        environment={} if winner is None else needed_variables(winner.candidate, manifest.current),
        simplification=verdict.simplification or None,
        noise=noise,
        overload=verdict.overload,
        warm_up=verdict.warm_up,
        edges=verdict.edges,
        diff=None if change is None else change.diff,
        models={} if change is None else change.configs,
    )


def _with_manifest(config: ProvedConfig | None, manifest: Manifest) -> ProvedConfig | None:
    if config is None:
        return None
    shown = config.rounds[-1] if config.held is None else config.held.point
    shapes = with_batches(config.shapes, config.judged, manifest)
    return replace(config, bottleneck=bottleneck_of(shown, manifest), shapes=shapes)
