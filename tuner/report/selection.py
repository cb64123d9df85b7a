"""The searched score beside the confirmed one: how much the choice of the best flattered it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tuner.report.charts.chart import Table
from tuner.report.data import Repeat, ReportData
from tuner.report.quantities import NOTHING
from tuner.report.sentence import change_text, score_text
from tuner.run.trial import Point, Trial
from tuner.score.judge import passes, value_of

_MISSED = "no load met the SLOs"
_ROLES = ("current", "challenge", "candidate")


def measured_again(data: ReportData) -> Table | None:
    """One row for the current config and each finalist: the search, each round, the difference."""
    repeats = [r for r in data.repeats if r.role in _ROLES]
    if not repeats:
        return None
    rounds = sorted({r.round for r in repeats})
    rows = [_row(data, trial, repeats, rounds) for trial in _entrants(data, repeats)]
    headers = ("config", "in the search", *(f"round {n + 1}" for n in rounds), "difference")
    return Table(headers, tuple(rows))


def _entrants(data: ReportData, repeats: Sequence[Repeat]) -> list[Trial]:
    """The trials that were measured again: the current config first, then in their order."""
    keys = list(dict.fromkeys(r.candidate_key for r in repeats))
    own = data.current.candidate.key if data.current else None
    by_key = {t.candidate.key: t for t in data.trials if t.score is not None}
    return [by_key[key] for key in sorted(keys, key=lambda k: k != own) if key in by_key]


def _row(
    data: ReportData, trial: Trial, repeats: Sequence[Repeat], rounds: Sequence[int]
) -> tuple[str, ...]:
    score = trial.score
    searched = score.value if score is not None and score.feasible else None
    own = [r for r in repeats if r.candidate_key == trial.candidate.key]
    found = [_confirmed(data, [r.point for r in own if r.round == n]) for n in rounds]
    cells = [
        score_text(data, value) if value is not None or n not in {r.round for r in own} else _MISSED
        for n, value in zip(rounds, found, strict=True)
    ]
    again = [value for value in found if value is not None]
    difference = fmean(again) / searched - 1.0 if again and searched else None
    return (
        change_text(data, trial.candidate),
        _MISSED if searched is None else score_text(data, searched),
        *cells,
        NOTHING if difference is None else f"{difference * 100:+.1f} %",
    )


def _confirmed(data: ReportData, points: Sequence[Point]) -> float | None:
    """The score of one round: of the highest load that met the SLOs; None when none did."""
    stood = [p for p in points if passes(p.slo)]
    if not stood:
        return None
    measurement = max(stood, key=lambda p: p.measurement.load.level).measurement
    metric = data.objective.metric
    return measurement.throughput_infer_per_s if metric is None else value_of(metric, measurement)
