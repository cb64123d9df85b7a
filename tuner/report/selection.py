"""The searched score beside the confirmed one: how much the choice of the best flattered it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from tuner.confirm.rounds import Contender, Entrant, Round
from tuner.report.blocks import Table
from tuner.report.data import ReportData
from tuner.report.quantities import NOTHING
from tuner.report.sentence import change_text, score_text
from tuner.run.confirmation import Repeat, Role
from tuner.score.judge import value_of
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState

_MISSED = "no load met the SLOs"
_RACED = "stopped early"
_NOTE = (
    "The best of many noisy scores is too optimistic, so the finalists and the current config were "
    "measured again, each round on a fresh server with other arrivals. The mean is geometric; the "
    "last column says how far it is above or below what the search found."
)
_CAPACITY = (
    " What was compared is the capacity: the load at which an SLO begins to be missed, in "
    "inferences per second."
)
_SIMPLER = (
    " The best config was then simplified, and the simpler config measured in the same rounds: the "
    "goodput and the gain above are those of the simpler config."
)


def measured_again(data: ReportData) -> Table | None:
    """What was compared of the current config and each finalist, in the search and in each round.

    That is the capacity if loads were searched, else the score.
    """
    repeats = _repeats(data)
    if not repeats:
        return None
    rows = tuple(_row(data, trial, repeats) for trial in _entrants(data, repeats))
    what = "capacity" if _of_capacity(data, repeats) else "score"
    heads = ("config", f"{what} in the search", f"{what} in each round")
    return Table((*heads, "mean", "against the search"), rows, "Searched and measured again")


def selection_note(data: ReportData) -> str:
    """How to read that table."""
    repeats = _repeats(data)
    simplified = any(not row.kept for row in data.result.simplification or ())
    capacity = _CAPACITY if _of_capacity(data, repeats) else ""
    return f"{_NOTE}{capacity}{_SIMPLER if simplified else ''}" if repeats else ""


def _repeats(data: ReportData) -> list[Repeat]:
    return [r for r in data.repeats if r.role in (Role.CURRENT, Role.CANDIDATE)]


def _of_capacity(data: ReportData, repeats: Sequence[Repeat]) -> bool:
    """Whether loads were searched, so that a config has several measurements in a round."""
    return data.maximizes and len({(r.candidate_key, r.round) for r in repeats}) < len(repeats)


def _entrants(data: ReportData, repeats: Sequence[Repeat]) -> list[Trial]:
    """The trials that were measured again: the current config first, then in their order."""
    keys = list(dict.fromkeys(r.candidate_key for r in repeats))
    own = data.current.candidate.key if data.current else None
    by_key = {t.candidate.key: t for t in data.trials if t.score is not None}
    return [by_key[key] for key in sorted(keys, key=lambda k: k != own) if key in by_key]


def _row(data: ReportData, trial: Trial, repeats: Sequence[Repeat]) -> tuple[str, ...]:
    own = [r for r in repeats if r.candidate_key == trial.candidate.key]
    numbers = sorted({r.round for r in own})
    rounds = [Round(tuple(r.point for r in own if r.round == n)) for n in numbers]
    capacities = _of_capacity(data, repeats)
    score = trial.score.value if trial.score is not None and trial.score.feasible else None
    searched = score
    if capacities and score is not None:
        searched = Contender(Entrant(trial.candidate, None), [Round(trial.points)]).capacities()[0]
    found = _compared(data, trial, rounds, capacities)
    again = [value for value in found if value is not None]
    mean = geometric_mean(again) if again and len(again) == len(found) else None
    difference = mean / searched - 1.0 if mean and searched else None
    lost = trial.state is TrialState.PRUNED  # it only met the load it was to beat
    return (
        change_text(data, trial.candidate),
        _RACED if lost else _text(data, searched),
        ", ".join(_text(data, value) for value in found),
        NOTHING if mean is None else score_text(data, mean),
        NOTHING if difference is None else f"{difference * 100:+.1f}%",
    )


def _text(data: ReportData, value: float | None) -> str:
    return _MISSED if value is None else score_text(data, value)


def _compared(
    data: ReportData, trial: Trial, rounds: Sequence[Round], capacities: bool
) -> list[float | None]:
    """What the confirmation compared, by round; None where no load met the SLOs."""
    values: Sequence[float | None] = [_score(data, r.sustained) for r in rounds]
    if capacities:
        values = Contender(Entrant(trial.candidate, None), list(rounds)).capacities()
    return [value if r.passed else None for r, value in zip(rounds, values, strict=True)]


def _score(data: ReportData, point: Point) -> float | None:
    metric = data.objective.metric
    throughput = point.measurement.throughput_infer_per_s
    return throughput if metric is None else value_of(metric, point.measurement)
