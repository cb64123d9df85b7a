"""A run read from disk, finished or not, as one value that every renderer uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tuner.measurement.measurement import Rejected
from tuner.report.side import Side, measured_side, side_of
from tuner.run.confirmation import Repeat
from tuner.run.manifest import KeptConfig, Manifest
from tuner.run.reading import UnreadableFileError
from tuner.run.result_schema import (
    Result,
    TimeFacts,
    TrialCounts,
    WrittenFacts,
    check,
    not_version_1,
)
from tuner.run.status import Status
from tuner.run.store import RESULT, RunStore
from tuner.score.judge import SloResult, severity
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.spec.slo import Goal, Objective
from tuner.writeback.rollback import is_back


@dataclass(frozen=True)
class SloRow:
    """One SLO of the verdict: the worst result, that of each round, and that of the soak."""

    found: SloResult
    rounds: tuple[SloResult, ...]
    soak: SloResult | None


@dataclass(frozen=True)
class ReportData:
    """Everything a renderer may show. Units as in the types it holds.

    Attributes:
        result: How the run ended; for one that left no result, that it was interrupted.
        finished: The run left a result.
        current: The config found in the repository.
        best: The winner, else the best trial that is not the current config; ``None`` if
            nothing else was measured.
        repeats: Every measurement of the confirmation, in the order they were made.
        rejected: Measurements that do not count.
        taken_back: The write was taken back: the config is as it was before.
    """

    directory: Path
    manifest: Manifest
    objective: Objective
    result: Result
    finished: bool
    trials: tuple[Trial, ...]
    repeats: tuple[Repeat, ...]
    rejected: tuple[Rejected, ...]
    current: Side | None
    best: Side | None
    slo: tuple[SloRow, ...]
    taken_back: bool

    @property
    def status(self) -> Status:
        return self.result.status

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
    def subject(self) -> Side | None:
        """The config the verdict is about: the one served from now on, or the nearest."""
        return self.current if self.status is Status.KEPT else (self.best or self.current)

    @property
    def best_name(self) -> str:
        """What to call ``best``: it is not always good."""
        if self.status is Status.UNCONFIRMED:
            return "best of the search"
        feasible = self.best is not None and self.best.goodput_infer_per_s is not None
        return "best config" if feasible else "nearest config"

    @property
    def measured_count(self) -> int:
        """Trials that gave a score or, if they cannot win, a bound."""
        return sum(t.score is not None for t in self.trials)

    @property
    def scored(self) -> tuple[Trial, ...]:
        """Trials measured in full."""
        return tuple(t for t in self.trials if t.state is TrialState.MEASURED and t.score)

    @property
    def failed(self) -> tuple[Trial, ...]:
        return tuple(t for t in self.trials if t.state is TrialState.FAILED)


def load(directory: Path) -> ReportData:
    """Reads a run.

    Raises:
        SpecError: The directory holds no run, or one of another version.
        UnreadableFileError: A file of the run is not what this version writes.
    """
    store = RunStore.open(directory)
    try:
        return _assemble(store)
    except (KeyError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise UnreadableFileError(
            f"a file of the run {directory} cannot be read: {type(error).__name__}: {error}",
            "was it edited, or written by another version of tune?",
        ) from error


def read_result(store: RunStore) -> Result | None:
    """None where the run left none.

    Raises:
        UnreadableFileError: It does not follow version 1.
    """
    data = store.result()
    if data is None:
        return None
    try:
        return Result.from_json(data)
    except ValidationError as error:
        raise not_version_1(store.directory / RESULT, check(data)) from error


def _assemble(store: RunStore) -> ReportData:
    manifest, trials = store.manifest(), tuple(store.trials())
    repeats, found = tuple(store.confirmation()), read_result(store)
    objective = Objective.parse(str(manifest.spec.get("objective", Objective.goodput())))
    result = found or _interrupted(manifest, trials)
    if result.baseline is None:  # unknown, so it is as it was measured
        trial = next((t for t in trials if t.candidate == manifest.current), None)
        current = None if trial is None else measured_side(trial.candidate, trials, repeats)
    else:
        current = side_of(result.baseline, trials, repeats)
    best = _best(objective, trials, repeats, result, current)
    return ReportData(
        directory=store.directory,
        manifest=manifest,
        objective=objective,
        result=result,
        finished=found is not None,
        trials=trials,
        repeats=repeats,
        rejected=tuple(store.rejected()),
        current=current,
        best=best,
        slo=_slo_rows(current if result.status is Status.KEPT else (best or current)),
        taken_back=is_taken_back(result.written),
    )


def _interrupted(manifest: Manifest, trials: Sequence[Trial]) -> Result:
    """What is known of a run without a result; its seconds are those that its trials recorded."""
    names = TrialTime.__dataclass_fields__
    time = {name: sum(getattr(t.time, name) for t in trials) for name in names}
    states = [t.state.value for t in trials]
    counts = {state.value: states.count(state.value) for state in TrialState}
    return Result(
        schema_version=1,
        run_id=manifest.run_id,
        model=manifest.name,
        status=Status.INTERRUPTED,
        reasons=("the run left no result",),
        baseline=None,
        winner=None,
        improvement=None,
        trials=TrialCounts(asked=len(trials), duplicates=0, **counts),
        time=TimeFacts(wall_s=sum(time.values()), **time),
        written=None,
    )


def is_taken_back(written: WrittenFacts | None) -> bool:
    """Whether all that a run changed is as it was before."""
    changed = [f for f in written.files if f.sha256_before != f.sha256_after] if written else []
    back = (is_back(Path(f.path), f.sha256_before, f.sha256_after) for f in changed)
    return bool(changed) and all(back)


def _best(
    objective: Objective,
    trials: Sequence[Trial],
    repeats: Sequence[Repeat],
    result: Result,
    current: Side | None,
) -> Side | None:
    if result.winner is not None:
        return side_of(result.winner, trials, repeats)
    own = None if current is None else current.candidate
    others = [
        t for t in trials if t.state is TrialState.MEASURED and t.score and t.candidate != own
    ]
    if not others:
        return None
    best = min(others, key=lambda t: t.order(objective.goal))
    return measured_side(best.candidate, trials, repeats)


def _slo_rows(side: Side | None) -> tuple[SloRow, ...]:
    """One row per SLO: failures first, then what could not be judged, then by rising margin."""
    if side is None or side.judged is None:
        return ()
    rows, held = [], side.soak.held
    for index, found in enumerate(side.judged.slo):
        rounds = tuple(proof.slo[index] for proof in side.proofs)
        soak = None if held is None else held.slo[index]
        rows.append(SloRow(min((found, *rounds), key=severity), rounds, soak))
    return tuple(sorted(rows, key=lambda row: severity(row.found)))
