"""A config with all its measurements, in the search and in the confirmation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from tuner.measurement.measurement import LoadPoint
from tuner.run.confirmation import Repeat, Role, Soak
from tuner.run.result_schema import ConfigFacts
from tuner.score.judge import violation
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.digits import digits


@dataclass(frozen=True)
class Side:
    """A config with all its measurements.

    Attributes:
        trial: Its number in the search; ``None`` if it was not a trial.
        points: Its load points in the search, by rising load.
        repeats: Its measurements in the confirmation, in the order they were made.
        proofs: The repeats that its numbers come from, one per round: those that the result names;
            without a result, each round's highest load that met every SLO, or its lowest if none
            did.
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
    proofs: tuple[Repeat, ...]
    judged: Point | None
    goodput_infer_per_s: float | None
    soak: Soak = field(default_factory=Soak)
    at_least: bool = False

    @property
    def rounds_text(self) -> str:
        """When it held its goodput: ` in each of 3 rounds, and for 30 s`; empty for one round."""
        held = self.soak.held
        if held is None:
            return self._rounds_text
        lasting = f" for {digits(held.point.measurement.duration_s)} s"
        late = "" if held.late is None else f": {held.late.text}"
        return f"{self._rounds_text}{', and' if self._rounds_text else ''}{lasting}{late}"

    @property
    def _rounds_text(self) -> str:
        rounds, met = len(self.proofs), sum(r.point.passed for r in self.proofs)
        levels = [r.point.level for r in self.proofs]
        if rounds < 2 or (self.soak.held is not None and self.soak.held.level > min(levels)):
            return ""  # a soak may hold at more than a round's short window sustained
        return f" in each of {rounds} rounds" if met == rounds else f" in {met} of {rounds} rounds"


def side_of(facts: ConfigFacts, trials: Sequence[Trial], repeats: Sequence[Repeat]) -> Side:
    """A side whose numbers are from the measurements that the result names."""
    made = {(m.load, m.seed) for m in facts.measurements}
    keys = {facts.candidate.key, *_measured_as(facts.candidate.key, made, repeats)}
    side = measured_side(facts.candidate, trials, repeats, keys)
    named = (r for r in side.repeats if not r.alone and _identity(r.point) in made)
    # If a round measured a load twice, the second one counts: the first was disturbed.
    proofs = tuple({(r.round, _identity(r.point)): r for r in named}.values())
    points = [r.point for r in proofs] or [p for p in side.points if _identity(p) in made]
    judged = _worst(points) or side.judged
    soak = facts.soak or Soak()
    judged = judged if soak.held is None else soak.held.point
    goodput = None if facts.goodput_infer_per_s is None else soak.credited_per_s or _goodput(judged)
    side = replace(side, proofs=proofs, judged=judged, soak=soak, at_least=facts.at_least)
    return replace(side, goodput_infer_per_s=goodput)


def _identity(point: Point) -> tuple[LoadPoint, int]:
    """What no two measurements of a config have in common."""
    return point.measurement.load, point.measurement.seed


def _measured_as(
    key: str, made: Set[tuple[LoadPoint, int]], repeats: Sequence[Repeat]
) -> Iterator[str]:
    """The keys under which a config was measured before it lost a field with its default value.

    Dropping such a field needs no new measurement: to Triton it is the same config.
    """
    of: dict[str, set[tuple[LoadPoint, int]]] = defaultdict(set)
    for repeat in repeats:
        if not repeat.alone:
            of[repeat.candidate_key].add(_identity(repeat.point))
    if made and not made <= of[key]:
        yield from (other for other, found in of.items() if made <= found)


def measured_side(
    candidate: Candidate,
    trials: Sequence[Trial],
    repeats: Sequence[Repeat],
    keys: Set[str] = frozenset(),
) -> Side:
    """A config with what was measured under its key, or under ``keys``."""
    keys = keys or {candidate.key}
    own = [t for t in trials if t.candidate.key in keys and t.points]
    trial = min(own, key=lambda t: (t.state is not TrialState.MEASURED, t.number), default=None)
    again = tuple(r for r in repeats if r.candidate_key in keys)
    proofs = _proofs(again)
    judged = _judged_again(proofs) or (None if trial is None else _nearest(trial))
    return Side(
        candidate=candidate,
        trial=None if trial is None else trial.number,
        points=() if trial is None else by_load(trial.points),
        repeats=again,
        proofs=proofs,
        judged=judged,
        goodput_infer_per_s=_goodput(judged),
    )


def by_load(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(sorted(points, key=lambda p: p.level))


def _proofs(repeats: Sequence[Repeat]) -> tuple[Repeat, ...]:
    """Of each round the highest load that was sustained, or the lowest if none was."""
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
