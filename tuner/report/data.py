"""A run read from disk, finished or not, as one value that every renderer uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from tuner.measurement.rejected import Rejected
from tuner.report.side import Side, measured_side, side_of
from tuner.run.confirmation import PutBack, Repeat, RunNoise
from tuner.run.manifest import KeptConfig, Manifest
from tuner.run.reading import UnreadableFileError
from tuner.run.result_schema import (
    Improvement,
    Overloads,
    Result,
    WrittenFacts,
    check,
    not_version_1,
)
from tuner.run.status import Status
from tuner.run.store import RESULT, RunStore
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.score.verdict import SloResult, severity
from tuner.spec.objective import Goal, Objective
from tuner.writeback.rollback import is_back


@dataclass(frozen=True)
class SloRow:
    """One SLO of the verdict: the worst result, and each repeat."""

    found: SloResult
    repeats: tuple[SloResult, ...]


@dataclass(frozen=True)
class ReportData:
    """Everything a renderer may show. Units as in the types it holds.

    Attributes:
        status: How the run ended; INTERRUPTED if it left no result.
        best: The winner, else the best trial that is not the current config; ``None`` if
            nothing else was measured.
        reasons: Why it ended this way, one sentence each.
        repeats: Every measurement of the confirmation, in the order they were made.
        noise: Spread of repeated measurements; ``None`` if nothing was repeated.
        overload: What happened beyond the capacity; ``None`` if the run did not get that far.
        rejected: Measurements that do not count.
        time: Seconds by phase; they add up to ``wall_s``.
        finished: The run left a result.
        taken_back: The write was taken back: the config is as it was before.
    """

    directory: Path
    manifest: Manifest
    objective: Objective
    status: Status
    finished: bool
    reasons: tuple[str, ...]
    trials: tuple[Trial, ...]
    rejected: tuple[Rejected, ...]
    current: Side | None
    best: Side | None
    improvement: Improvement | None
    repeats: tuple[Repeat, ...]
    noise: RunNoise | None
    overload: Overloads | None
    slo: tuple[SloRow, ...]
    server_args: tuple[str, ...]
    diff: str
    written: WrittenFacts | None
    simplification: tuple[PutBack, ...]
    wall_s: float
    time: Mapping[str, float]
    taken_back: bool

    @property
    def in_place(self) -> bool:
        """The winner was written, and not taken back."""
        return self.written is not None and not self.taken_back

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
        """Trials that gave a score or, if out of the race, a bound."""
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
        manifest = store.manifest()
        trials = tuple(store.trials())
        rejected = tuple(store.rejected())
        repeats = tuple(store.confirmation())
        result = read_result(store)
        data = _assemble(directory, manifest, trials, repeats, result)
        return replace(data, rejected=rejected)
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


def _assemble(
    directory: Path,
    manifest: Manifest,
    trials: tuple[Trial, ...],
    repeats: tuple[Repeat, ...],
    result: Result | None,
) -> ReportData:
    objective = Objective.parse(str(manifest.spec.get("objective", Objective.goodput())))
    current = _current(manifest, trials, repeats, result)
    best = _best(objective, trials, repeats, result, current)
    status = Status.INTERRUPTED if result is None else result.status
    about = current if status is Status.KEPT else (best or current)
    time = _trial_seconds(trials) if result is None else result.time.by_phase()
    return ReportData(
        directory=directory,
        manifest=manifest,
        objective=objective,
        status=status,
        finished=result is not None,
        reasons=tuple(result.reasons) if result else ("the run left no result",),
        trials=trials,
        rejected=(),
        current=current,
        best=best,
        improvement=result.improvement if result else None,
        repeats=repeats,
        noise=result.noise if result else None,
        overload=result.overload if result else None,
        slo=_slo_rows(about),
        server_args=tuple(result.server_args) if result else (),
        diff=(result.diff or "") if result else "",
        written=result.written if result else None,
        simplification=tuple(result.simplification or ()) if result else (),
        wall_s=result.time.wall_s if result else sum(time.values()),
        time=time,
        taken_back=result is not None and is_taken_back(result.written),
    )


def is_taken_back(written: WrittenFacts | None) -> bool:
    """Whether all that a run changed is as it was before."""
    changed = [f for f in written.files if f.sha256_before != f.sha256_after] if written else []
    back = (is_back(Path(f.path), f.sha256_before, f.sha256_after) for f in changed)
    return bool(changed) and all(back)


def _current(
    manifest: Manifest,
    trials: Sequence[Trial],
    repeats: Sequence[Repeat],
    result: Result | None,
) -> Side | None:
    """The config found in the repository: the result's, else as it was measured."""
    if result is not None and result.baseline is not None:
        return side_of(result.baseline, trials, repeats)
    trial = next((t for t in trials if t.candidate == manifest.current), None)
    return None if trial is None else measured_side(trial.candidate, trials, repeats)


def _best(
    objective: Objective,
    trials: Sequence[Trial],
    repeats: Sequence[Repeat],
    result: Result | None,
    current: Side | None,
) -> Side | None:
    if result is not None and result.winner is not None:
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
    rows = []
    for index, found in enumerate(side.judged.slo):
        repeats = tuple(r.point.slo[index] for r in side.proofs)
        worst = min((found, *repeats), key=severity)
        rows.append(SloRow(worst, repeats))
    return tuple(sorted(rows, key=lambda row: severity(row.found)))


def _trial_seconds(trials: Sequence[Trial]) -> dict[str, float]:
    """Seconds by phase of a run without a result: those that its trials recorded."""
    names = TrialTime.__dataclass_fields__
    return {name: sum(getattr(t.time, name) for t in trials) for name in names}
