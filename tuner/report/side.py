"""A config with all its measurements, in the search and in the confirmation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tuner.run.confirmation import Repeat, Role, Soak
from tuner.run.result_schema import ConfigFacts
from tuner.score.judge import violation
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.units import digits


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
        points=() if trial is None else by_load(trial.points),
        repeats=again,
        proofs=tuple(r.point for r in proofs),
        judged=judged,
        goodput_infer_per_s=_goodput(judged),
    )


def by_load(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(sorted(points, key=lambda p: p.level))


def _proofs(repeats: Sequence[Repeat]) -> tuple[Repeat, ...]:
    """For each round the highest load that was sustained, or the lowest if none was."""
    rounds: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in repeats:
        if repeat.role is not Role.SIMPLER and not repeat.alone:
            rounds[repeat.round].append(repeat)
    proofs = []
    for tried in rounds.values():
        by_load_ = sorted(tried, key=lambda r: r.point.level)
        sustained = [r for r in by_load_ if r.point.passed]
        proofs.append(sustained[-1] if sustained else by_load_[0])
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
