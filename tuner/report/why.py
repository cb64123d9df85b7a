"""Why a run chose its config, in tables: `tune report RUN --why`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tuner.report import by_load, sentence, tables
from tuner.report.blocks import Block, Bullets, Document, Table, filled
from tuner.report.charts.request import latency_parts, model_times
from tuner.report.data import ReportData
from tuner.report.headline import headline
from tuner.report.quantities import NOTHING, load_text, result_text
from tuner.score.judge import severity
from tuner.score.trial import Trial
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS

#: Number of configs shown beside the chosen one.
MOST_CONFIGS = 6


def document(data: ReportData) -> Document:
    """Why this config, the worth of each field, and the use of time."""
    return Document(
        name=data.model,
        headline=headline(data),
        tone=sentence.HEADLINES[data.status][0],
        kind="run",
        run_id=data.run_id,
        blocks=filled(*_this_config(data), *_fields(data), *_time(data)),
    )


def _this_config(data: ReportData) -> Iterator[Block | None]:
    yield configs(data)
    rounds = tables.comparison(data)
    yield None if rounds is None else replace(rounds, caption="Why this config: before and after")
    yield by_load.table(data)


def _fields(data: ReportData) -> Iterator[Block | None]:
    worth = tables.simplification(data)
    yield None if worth is None else replace(worth, caption="What each field is worth, proved")
    yield replace(tables.field_importance(data), caption="What each field is worth, in the search")


def _time(data: ReportData) -> Iterator[Block | None]:
    parts = latency_parts(data)
    yield (
        None if parts is None else replace(parts.table, caption="Where the time of a request goes")
    )
    models = model_times(data)
    yield (None if models is None else replace(models.table, caption="Time of a request, by model"))
    yield Bullets("", tuple(sentence.bottleneck_sentences(data)))
    yield tables.wall_time(data)


def configs(data: ReportData) -> Table | None:
    """The best trials of the search, and the SLO that limits each one's load."""
    scored = sorted(data.scored, key=lambda t: t.order(data.objective.goal))
    proved = [
        t for t in map(data.trial_of, filter(None, (data.current, data.best))) if t is not None
    ]
    by_number = {t.number: t for t in (*scored[:MOST_CONFIGS], *proved)}
    known = (t for t in by_number.values() if t.score is not None)
    rows = [_row(data, t) for t in sorted(known, key=lambda t: t.order(data.objective.goal))]
    heads = ("trial", "config", sentence.score_name(data), "ends at", "by")
    return Table(heads, tuple(rows), "Why this config: the best of the search")


def _row(data: ReportData, trial: Trial) -> tuple[str, ...]:
    """The lowest load that missed an SLO shows the limit of a config.

    The score of a config that met the SLOs at no load is what it answered, which is no goodput.
    """
    missed = [p for p in trial.points if p.outcome.met is False]
    limit = min(missed, key=lambda p: p.level, default=None)
    worst = None if limit is None else min(limit.slo, key=severity)
    name = "" if worst is None else of_stream(worst.stream, METRICS[worst.metric].words)
    score = trial.score.value if trial.score is not None and trial.score.feasible else None
    return (
        str(trial.number),
        sentence.change_text(data, trial.candidate),
        sentence.score_text(data, score),
        NOTHING if limit is None else load_text(limit.measurement.load),
        NOTHING if worst is None else f"{name} {result_text(worst)}",
    )
