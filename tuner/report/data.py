"""A run read from disk, finished or not, as one value that every renderer uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from tuner.measurement.measurement import Rejected
from tuner.run.confirmation import Repeat, Role, Soak
from tuner.run.manifest import KeptConfig, Manifest
from tuner.run.reading import UnreadableFileError
from tuner.run.result_schema import (
    ConfigFacts,
    Result,
    TimeFacts,
    TrialCounts,
    WrittenFacts,
    check,
    not_version_1,
)
from tuner.run.status import Status
from tuner.run.store import RESULT, RunStore
from tuner.score.judge import SloResult, severity, violation
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal, Objective
from tuner.spec.units import digits
from tuner.writeback.rollback import is_back


@dataclass(frozen=True)
class Side:
    """A config with all its measurements.

    Attributes:
        trial: Its number in the search; ``None`` if it was not a trial.
        points: Its load points in the search, by rising load.
        repeats: Its measurements in the confirmation, in the order they were made.
        proofs: What its numbers come from, one a round: what the result names; without a result,
            each round's highest load that met every SLO, or its lowest if none did.
        judged: The measurement that represents it: a soak that held; else the worst proof; else the
            search's at the highest load that met every SLO or, if none did, the one that came
            nearest.
        goodput_infer_per_s: That of ``judged``; ``None`` if no load met every SLO.
        soak: Long loads, lowered until one held.
        at_least: It may sustain more: the load generator could send no more.
    """

    candidate: Candidate
    trial: int | None
    points: tuple[Point, ...]
    repeats: tuple[Repeat, ...]
    proofs: tuple[Point, ...]
    judged: Point | None
    goodput_infer_per_s: float | None
    soak: Soak = field(default_factory=Soak)
    at_least: bool = False

    @property
    def rounds_text(self) -> str:
        """When it held its goodput: `in each of 3 rounds, and for 30 s`; empty for one round."""
        rounds, met = len(self.proofs), sum(p.passed for p in self.proofs)
        said, held = [], self.soak.held
        # A soak may hold at more than a round's short window sustained.
        if rounds > 1 and (held is None or held.level <= min(p.level for p in self.proofs)):
            each = f"each of {rounds}" if met == rounds else f"{met} of {rounds}"
            said.append(f"in {each} rounds")
        if held is not None:
            said.append(f"for {digits(held.point.measurement.duration_s)} s")
        return ", and ".join(said)


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
    current = best = None
    if result.baseline is not None:
        current = side_of(result.baseline, trials, repeats)
    elif any(t.candidate == manifest.current for t in trials):  # it is as it was measured
        current = measured_side(manifest.current, trials, repeats)
    if result.winner is not None:
        best = side_of(result.winner, trials, repeats)
    else:
        own = None if current is None else current.candidate
        scored = (t for t in trials if t.state is TrialState.MEASURED and t.score)
        others = [t for t in scored if t.candidate != own]
        if others:
            first = min(others, key=lambda t: t.order(objective.goal))
            best = measured_side(first.candidate, trials, repeats)
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


def side_of(facts: ConfigFacts, trials: Sequence[Trial], repeats: Sequence[Repeat]) -> Side:
    """A side whose numbers are from the measurements that the result names."""
    side, soak = measured_side(facts.candidate, trials, repeats), facts.soak or Soak()
    named = zip(facts.measurements, facts.verdicts, strict=False)
    proofs = tuple(Point(measured, slo, None) for measured, slo in named) or side.proofs
    judged = (_worst(proofs) or side.judged) if soak.held is None else soak.held.point
    goodput = None if facts.goodput_infer_per_s is None else soak.credited_per_s or _goodput(judged)
    side = replace(side, proofs=proofs, judged=judged, soak=soak, at_least=facts.at_least)
    return replace(side, goodput_infer_per_s=goodput)


def measured_side(candidate: Candidate, trials: Sequence[Trial], repeats: Sequence[Repeat]) -> Side:
    """A config with what was measured of it."""
    own = [t for t in trials if t.candidate.key == candidate.key and t.points]
    trial = min(own, key=lambda t: (t.state is not TrialState.MEASURED, t.number), default=None)
    again = tuple(r for r in repeats if r.candidate_key == candidate.key)
    proofs = _proofs(again)
    judged = _judged_again(proofs) or (None if trial is None else _nearest(trial))
    return Side(
        candidate=candidate,
        trial=None if trial is None else trial.number,
        points=() if trial is None else tuple(sorted(trial.points, key=lambda p: p.level)),
        repeats=again,
        proofs=tuple(r.point for r in proofs),
        judged=judged,
        goodput_infer_per_s=_goodput(judged),
    )


def _proofs(repeats: Sequence[Repeat]) -> tuple[Repeat, ...]:
    """For each round the highest load that was sustained, or the lowest if none was."""
    rounds: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in repeats:
        if repeat.role is not Role.SIMPLER and not repeat.alone:
            rounds[repeat.round].append(repeat)
    proofs = []
    for tried in rounds.values():
        by_load = sorted(tried, key=lambda r: r.point.level)
        sustained = [r for r in by_load if r.point.passed]
        proofs.append(sustained[-1] if sustained else by_load[0])
    return tuple(proofs)


def _judged_again(proofs: Sequence[Repeat]) -> Point | None:
    """The worst proof; for a finalist that dropped out because it missed an SLO, the last one."""
    if proofs and proofs[-1].role is Role.CANDIDATE and not proofs[-1].point.passed:
        return proofs[-1].point
    return _worst([r.point for r in proofs if r.point.passed])


def _worst(points: Sequence[Point]) -> Point | None:
    """The one with the least throughput of those that met every SLO, or of all if none did."""
    met = [p for p in points if p.passed] or points
    return min(met, key=lambda p: p.measurement.throughput_infer_per_s, default=None)


def _goodput(judged: Point | None) -> float | None:
    good = judged is not None and judged.passed
    return judged.measurement.throughput_infer_per_s if judged and good else None


def judged_point(trial: Trial) -> Point | None:
    """The point that a trial's score is for; the nearest miss if none met the SLOs.

    For a trial that lost the race it is the race, even if it was measured at less afterwards.
    """
    raced = trial.state is TrialState.PRUNED and trial.points
    return trial.points[0] if raced else _nearest(trial)


def _nearest(trial: Trial) -> Point | None:
    if trial.score is not None and trial.score.best_point is not None:
        return trial.points[trial.score.best_point]
    return min(trial.points, key=lambda p: violation(p.slo), default=None)
