"""The searched score beside the confirmed one: how much the choice of the best flattered it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from tuner.confirm.rounds import Contender, Entrant, Round
from tuner.report.charts.chart import Table
from tuner.report.data import ReportData
from tuner.report.quantities import NOTHING
from tuner.report.sentence import change_text, score_text
from tuner.run.confirmation import Repeat, Role
from tuner.score.judge import value_of
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState

_MISSED = "no load met the SLOs"
_RACED = "out of the race"
_UNCONFIRMED = "not in every round"
_SIMPLER = (
    "The best config was then simplified, and the simpler config measured in the same rounds: the "
    "goodput and the gain above are those of the simpler config."
)


def measured_again(data: ReportData) -> Table | None:
    """One row for the current config and each finalist.

    It shows the score in the search and the score that held in every round, which is the worst one.
    Then what was compared: each round's capacity if loads were searched, else its score; their
    geometric mean, and how far that is from what the search found.
    """
    repeats = [r for r in data.repeats if r.role in (Role.CURRENT, Role.CANDIDATE)]
    if not repeats:
        return None
    numbers = sorted({r.round for r in repeats})
    capacities = data.maximizes and len({(r.candidate_key, r.round) for r in repeats}) < len(
        repeats
    )
    rows = [_row(data, trial, repeats, numbers, capacities) for trial in _entrants(data, repeats)]
    what = "capacity" if capacities else "round"
    headers = (
        "config",
        "in the search",
        "in every round",
        *(["capacity in the search"] if capacities else []),
        *(f"{what} {n + 1}" for n in numbers),
        "mean",
        "mean against the search",
    )
    return Table(headers, tuple(rows))


def simpler_note(data: ReportData) -> str:
    """Why the goodput of a simplified winner is not that of these rounds; else empty."""
    proofs = [] if data.best is None else data.best.proofs
    return _SIMPLER if any(r.role is Role.SIMPLER for r in proofs) else ""


def _entrants(data: ReportData, repeats: Sequence[Repeat]) -> list[Trial]:
    """The trials that were measured again: the current config first, then in their order."""
    keys = list(dict.fromkeys(r.candidate_key for r in repeats))
    own = data.current.candidate.key if data.current else None
    by_key = {t.candidate.key: t for t in data.trials if t.score is not None}
    return [by_key[key] for key in sorted(keys, key=lambda k: k != own) if key in by_key]


def _row(
    data: ReportData,
    trial: Trial,
    repeats: Sequence[Repeat],
    numbers: Sequence[int],
    capacities: bool,
) -> tuple[str, ...]:
    own = [r for r in repeats if r.candidate_key == trial.candidate.key]
    rounds = {n: Round(tuple(r.point for r in own if r.round == n)) for n in numbers}
    rounds = {n: round_ for n, round_ in rounds.items() if round_.points}
    score = trial.score.value if trial.score is not None and trial.score.feasible else None
    searched = _searched_capacity(trial) if capacities and score is not None else score
    confirmed = _confirmed(data, list(rounds.values()))
    found = _compared(data, trial, rounds, capacities)
    again = [value for value in found.values() if value is not None]
    mean = geometric_mean(again) if again and len(again) == len(found) else None
    difference = mean / searched - 1.0 if mean and searched else None
    lost = trial.state is TrialState.PRUNED  # it only met the load it was to beat
    return (
        change_text(data, trial.candidate),
        _RACED if lost else _text(data, score),
        _UNCONFIRMED if confirmed is None else score_text(data, confirmed),
        *([_RACED if lost else _text(data, searched)] if capacities else []),
        *(_text(data, found[n]) if n in found else NOTHING for n in numbers),
        NOTHING if mean is None else score_text(data, mean),
        NOTHING if difference is None else f"{difference * 100:+.1f} %",
    )


def _text(data: ReportData, value: float | None) -> str:
    return _MISSED if value is None else score_text(data, value)


def _confirmed(data: ReportData, rounds: Sequence[Round]) -> float | None:
    """The score that held in every round; None when one met the SLOs at no load."""
    scores = [_score(data, r.sustained) for r in rounds if r.passed]
    known = [s for s in scores if s is not None]
    if len(known) < len(rounds):
        return None
    return min(known) if data.maximizes else max(known)


def _compared(
    data: ReportData, trial: Trial, rounds: dict[int, Round], capacities: bool
) -> dict[int, float | None]:
    """What the confirmation compared, by number of the round; None where no load met the SLOs."""
    if capacities:
        contender = Contender(Entrant(trial.candidate, None), list(rounds.values()))
        values: list[float | None] = list(contender.capacities())
    else:
        values = [_score(data, r.sustained) for r in rounds.values()]
    sustained = zip(rounds, rounds.values(), values, strict=True)
    return {n: value if round_.passed else None for n, round_, value in sustained}


def _searched_capacity(trial: Trial) -> float:
    return Contender(Entrant(trial.candidate, None), [Round(trial.points)]).capacities()[0]


def _score(data: ReportData, point: Point) -> float | None:
    metric = data.objective.metric
    throughput = point.measurement.throughput_infer_per_s
    return throughput if metric is None else value_of(metric, point.measurement)
