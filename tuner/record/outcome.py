"""The result of a run: its decision, with what the run spent and wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.measurement.measurement import Rejected
from tuner.record.bottleneck import bottleneck_of
from tuner.record.confirmation import RunNoise
from tuner.record.manifest import Manifest
from tuner.record.proved import ProvedConfig, best_other
from tuner.record.result_schema import (
    Change,
    RejectedFacts,
    Result,
    RunDecision,
    TimeFacts,
    TrialCounts,
    WrittenFacts,
)
from tuner.record.shapes import with_batches
from tuner.score.trial import Trial, TrialState
from tuner.sentences import sentence
from tuner.space.environment import needed_variables
from tuner.spec.slo import Objective


def result_of(
    *,
    manifest: Manifest,
    verdict: RunDecision,
    trials: Sequence[Trial],
    rejected: Sequence[Rejected],
    time: Mapping[str, float],
    duplicates: int = 0,
    change: Change | None = None,
    written: WrittenFacts | None = None,
    noise: RunNoise | None = None,
) -> Result:
    """The content of `result.json`; ``time``: seconds by phase, and ``wall_s``."""
    states, winner, best = [t.state for t in trials], verdict.winner, verdict.best
    if winner is None and best is None:
        goal = Objective.parse(manifest.objective).goal
        best = best_other(trials, manifest.current, goal)
    sides = {"baseline": verdict.baseline, "winner": winner, "best": best}
    completed = {name: _with_manifest(side, manifest) for name, side in sides.items()}
    return Result(
        **{**dict(verdict), **completed},
        schema_version=1,
        run_id=manifest.run_id,
        model=manifest.name,
        reasons=tuple(map(sentence, verdict.why)),
        spec_sha256=manifest.spec_sha256,
        objective=manifest.objective,
        trials=TrialCounts(
            asked=len(trials) + duplicates,
            measured=states.count(TrialState.MEASURED),
            pruned=states.count(TrialState.PRUNED),
            failed=states.count(TrialState.FAILED),
            duplicates=duplicates,
        ),
        rejected=RejectedFacts.of(rejected, time["measuring_s"]),
        time=TimeFacts(**time),
        written=written,
        server_args=() if winner is None else winner.candidate.server_args,
        environment={} if winner is None else needed_variables(winner.candidate, manifest.current),
        noise=noise,
        diff=None if change is None else change.diff,
        models={} if change is None else dict(change.configs),
    )


def _with_manifest(config: ProvedConfig | None, manifest: Manifest) -> ProvedConfig | None:
    if config is None:
        return None
    point = config.rounds[-1] if config.sustained is None else config.sustained.point
    shapes = with_batches(config.shapes, config.judged, manifest)
    return replace(config, bottleneck=bottleneck_of(point, manifest), shapes=shapes)
