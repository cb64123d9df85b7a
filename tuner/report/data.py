"""A run read from disk, finished or not, as one value that every renderer uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tuner.measurement.measurement import Rejected
from tuner.reason import Reason
from tuner.record.confirmation import Repeat
from tuner.record.manifest import KeptConfig, Manifest
from tuner.record.outcome import result_of
from tuner.record.proved import ProvedConfig
from tuner.record.reading import UnreadableFileError
from tuner.record.result_schema import Result, RunDecision, WrittenFacts
from tuner.record.status import Status
from tuner.record.store import RunStore
from tuner.report.ended import SloRow
from tuner.score.judge import SloOutcome, SloResult, severity, violation
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState, TrialTime, trial_of
from tuner.spec.slo import Goal, Objective
from tuner.writeback.rollback import is_back


@dataclass(frozen=True)
class ReportData:
    """Everything a report may show, in the units of the types it consists of.

    Attributes:
        result: How the run ended; without a stored result, that it was interrupted.
        finished: The run left a result.
        repeats: Every measurement of the proof, in order.
        rejected: Measurements that do not count.
        taken_back: The write was undone: the config is as it was before.
        torn: Sentences about files that were cut short.
    """

    directory: Path
    manifest: Manifest
    result: Result
    finished: bool
    trials: tuple[Trial, ...]
    repeats: tuple[Repeat, ...]
    rejected: tuple[Rejected, ...]
    taken_back: bool
    torn: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        return self.result.status

    @cached_property
    def objective(self) -> Objective:
        return Objective.parse(self.manifest.objective)

    @property
    def current(self) -> ProvedConfig | None:
        """The config in the repository when the run started; None if it was not measured."""
        return self.result.baseline

    @property
    def best(self) -> ProvedConfig | None:
        """The winner, else the best other config; None if no other config was measured."""
        return self.result.winner or self.result.best

    @cached_property
    def slo(self) -> tuple[SloRow, ...]:
        """A row per SLO for the config that the verdict is about, failures first."""
        return _slo_rows(self.reported_config)

    @property
    def missed(self) -> list[SloResult]:
        """The worst result of each SLO that the config misses."""
        return [r.worst for r in self.slo if r.worst.verdict.outcome is SloOutcome.MISSED]

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    @property
    def model(self) -> str:
        return self.manifest.name

    @property
    def computing(self) -> dict[str, KeptConfig]:
        """The served models by label, without ensembles, which form no batches."""
        return {la: c for la, c in self.manifest.models.items() if not c.is_ensemble}

    @property
    def maximizes(self) -> bool:
        return self.objective.goal is Goal.MAXIMIZE_GOODPUT

    @property
    def reported_config(self) -> ProvedConfig | None:
        """The config that the verdict is about: the one served from now on.

        If no config meets the SLOs, it is the one that misses them by least.
        """
        current, best = self.current, self.best
        if self.status is Status.INFEASIBLE and current is not None and best is not None:
            return min((current, best), key=lambda config: violation(config.judged.slo))
        return current if self.status is Status.KEPT else (best or current)

    @property
    def best_name(self) -> str:
        """A name for ``best``, which need not be good."""
        if self.status in (Status.KEPT, Status.NOT_KNOWN):
            return "best other config"
        if self.best is not None and self.best.credited_infer_per_s is not None:
            return "best config"
        return "nearest config" if self.reported_config is self.best else "nearest other config"

    @property
    def measured_count(self) -> int:
        """Number of trials with a score, or with a bound if they cannot win."""
        return sum(t.score is not None for t in self.trials)

    @property
    def scored(self) -> tuple[Trial, ...]:
        """Trials with a complete measurement."""
        return tuple(t for t in self.trials if t.state is TrialState.MEASURED and t.score)

    @property
    def failed(self) -> tuple[Trial, ...]:
        return tuple(t for t in self.trials if t.state is TrialState.FAILED)

    def trial_of(self, config: ProvedConfig) -> Trial | None:
        """The config's trial in the search, preferably a measured one; ``None`` without one."""
        measured = [t for t in self.trials if t.candidate.key == config.candidate.key and t.points]
        return min(
            measured, key=lambda t: (t.state is not TrialState.MEASURED, t.number), default=None
        )


def load(directory: Path) -> ReportData:
    """Reads a run.

    Raises:
        SpecError: The directory is not a run, or one of another version.
        UnreadableFileError: A file of the run is not as this version writes it.
    """
    store = RunStore.open(directory)
    try:
        return _assemble(store)
    except (KeyError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise UnreadableFileError(
            f"a file of the run {directory} cannot be read: {type(error).__name__}: {error}",
            "was it edited, or written by another version of tune?",
        ) from error


def _assemble(store: RunStore) -> ReportData:
    manifest, trials = store.manifest(), tuple(store.trials())
    repeats, stored = tuple(store.confirmation()), store.result()
    rejected = tuple(store.rejected())
    result = stored or _interrupted(manifest, trials, rejected)
    return ReportData(
        directory=store.directory,
        manifest=manifest,
        result=result,
        finished=stored is not None,
        trials=trials,
        repeats=repeats,
        rejected=rejected,
        taken_back=is_taken_back(result.written),
        torn=store.torn(),
    )


def _interrupted(
    manifest: Manifest, trials: Sequence[Trial], rejected: Sequence[Rejected]
) -> Result:
    """The result of a run that stored none; its seconds are those that trials recorded."""
    names = TrialTime.__dataclass_fields__
    time = {name: sum(getattr(t.time, name) for t in trials) for name in names}
    baseline = ProvedConfig.of_trial(trial_of(manifest.current, trials))
    why = (Reason.of_text("the run left no result"),)
    return result_of(
        manifest=manifest,
        verdict=RunDecision.of(Status.INTERRUPTED, why, baseline),
        trials=trials,
        rejected=rejected,
        time={**time, "wall_s": sum(time.values())},
    )


def is_taken_back(written: WrittenFacts | None) -> bool:
    """Whether all files that a run changed are as they were before."""
    changed = [f for f in written.files if f.sha256_before != f.sha256_after] if written else []
    back = (is_back(Path(f.path), f.sha256_before, f.sha256_after) for f in changed)
    return bool(changed) and all(back)


def _slo_rows(config: ProvedConfig | None) -> tuple[SloRow, ...]:
    """One row per SLO: failures first, then SLOs without a verdict, then by rising margin."""
    if config is None:
        return ()
    rows, sustained = [], config.sustained
    for index, worst in enumerate(config.slo):
        values = tuple(point.slo[index].value for point in config.rounds)
        rows.append(
            SloRow(worst, values, None if sustained is None else sustained.point.slo[index])
        )
    return tuple(sorted(rows, key=lambda row: severity(row.worst)))


def judged_point(trial: Trial) -> Point | None:
    """The point that a trial's score is for; without one that met the SLOs, the nearest miss.

    For a trial that lost the race, it is the race, even if lower loads were measured afterwards.
    """
    if trial.state is TrialState.PRUNED and trial.points:
        return trial.points[0]
    if trial.score is not None and trial.score.best_point is not None:
        return trial.points[trial.score.best_point]
    return min(trial.points, key=lambda p: violation(p.slo), default=None)
