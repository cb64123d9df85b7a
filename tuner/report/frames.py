"""A run as tables, for notebooks and `trials.csv`: its trials, load points and proof.

Values are numbers in the unit at the end of the column's name; missing values are empty. Lists and
server arguments are JSON. A trial's load columns belong to the measurement that its score is for.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.plain import plain
from tuner.record.shapes import shapes_of
from tuner.report.data import ReportData, judged_point, load
from tuner.report.responses import latency_metrics
from tuner.score.judge import SloOutcome, outcome_of
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.sentences import sentence
from tuner.space.candidate import FieldValue
from tuner.spec.labels import several
from tuner.spec.metrics import METRICS, Until

if TYPE_CHECKING:  # half a second to import
    import pandas as pd

Cell = str | int | float | bool | None
#: Columns of a measurement, of its model's server statistics, and of the machine.
_REQUESTS = (
    *("completed_count", "failed_count", "rejected_count", "unanswered_count", "error_rate"),
    *("batch_size", "mean_in_flight"),
)
_RESPONSES = ("mean_responses", "fewest_responses", "most_responses")
_TIMES = ("queue_us", "compute_input_us", "compute_infer_us", "compute_output_us")
_SERVED = ("mean_batch_size", "cache_hit_rate")
_SHAPE = (
    *("share", "throughput_infer_per_s", "goodput_infer_per_s", "p50_latency_us", "p90_latency_us"),
    *("p95_latency_us", "p99_latency_us"),
)
_HOST = (
    *("pending_requests_max", "cpu_percent", "gpu_memory_used_bytes", "gpu_utilization"),
    *("gpu_power_w", "gpu_clock_mhz", "gpu_throttled", "server_threads"),
)


@dataclass(frozen=True)
class RunFrames:
    """A run as tables.

    Attributes:
        trials: A row per trial, as in `trials.csv`, with its candidate's key.
        points: A row per load that a trial was measured at, in order.
        rounds: A row per measurement of the proof; ``candidate_key`` is a trial's, except for a
            simplified winner.

    In ``points`` and ``rounds``, a load of several streams has an additional row per stream.
    """

    trials: pd.DataFrame
    points: pd.DataFrame
    rounds: pd.DataFrame


def read_run(path: Path) -> RunFrames:
    """The tables of a run's directory.

    Raises:
        SpecError: The directory is not a run, or one of another version.
        UnreadableFileError: A file of the run is not as this version writes it.
    """
    data = load(path)
    trials = trials_frame(data.trials)
    keys = [t.candidate.key for t in data.trials]
    trials.insert(min(1, len(keys)), "candidate_key", keys)
    points = _frame(
        {"trial": t.number, **row} for t in data.trials for p in t.points for row in _judged(p)
    )
    rounds = _frame(
        {
            "round": r.round,
            "order": r.order,
            "role": r.role.value,
            "candidate_key": r.candidate_key,
            **row,
        }
        for r in data.repeats
        for row in _judged(r.point)
    )
    return RunFrames(trials.convert_dtypes(), points.convert_dtypes(), rounds.convert_dtypes())


def trials_frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """A row per trial, with plain values; the columns of fields precede those of the server."""
    return _frame(_trial_rows(trials))


def _trial_rows(trials: Iterable[Trial]) -> list[dict[str, Cell]]:
    rows = [_row(trial) for trial in trials]
    columns = _columns(rows)
    fields = sorted(name for name in columns if name.startswith("field."))
    columns = [name for name in columns if name not in fields]
    at = columns.index("server_args") if columns else 0
    ordered = [*columns[:at], *fields, *columns[at:]]
    return [{name: row.get(name) for name in ordered} for row in rows]


def trials_csv(data: ReportData) -> str:
    """One header line and one line per trial; a missing value is an empty cell."""
    text = io.StringIO()
    rows = _trial_rows(data.trials)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, _columns(rows)))
    writer.writerows(map(_cell, row.values()) for row in rows)
    return text.getvalue()


def _columns(rows: Iterable[Mapping[str, Cell]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _cell(value: Any) -> Any:
    """The value; a quote in front keeps a spreadsheet from running text as a formula."""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@", "\\")) else text


def _frame(rows: Iterable[Mapping[str, Cell]]) -> pd.DataFrame:
    import pandas as pd

    kept = list(rows)
    names = _columns(kept)
    cells = [[row.get(name) for name in names] for row in kept]
    return pd.DataFrame(cells, columns=names, dtype=object)  # whole numbers stay whole


def _judged(point: Point) -> Iterator[dict[str, Cell]]:
    """A row for all streams together, and one per stream if there are several."""
    yield {"stream": "", **_outcome(point.outcome), **_load(point), **_models(point)}
    for name in point.measurement.streams:
        outcome = outcome_of([r for r in point.slo if r.stream == name])
        yield {"stream": name, **_outcome(outcome), **_load(point, name)}


def _outcome(outcome: SloOutcome) -> dict[str, Cell]:
    return {"met_slos": outcome is SloOutcome.MET, "outcome": outcome.value}


def _streams(point: Point) -> dict[str, Cell]:
    """The columns of each named stream; empty for a single stream."""
    row: dict[str, Cell] = {}
    for name, m in point.measurement.streams.items():
        figures: dict[str, Cell] = {
            **_named(m, "throughput_infer_per_s"),
            **_latencies(point, name),
            **_named(m, "error_rate"),
            "slo_utilisation": point.utilisation_of(name),
        }
        row |= {f"stream.{name}.{column}": value for column, value in figures.items()}
    return row


def _shapes(point: Point) -> dict[str, Cell]:
    """The columns of each shape of request; empty if all have one shape."""
    return {
        f"{f'stream.{facts.stream}.' * bool(facts.stream)}shape.{facts.shape}.{column}": value
        for facts in shapes_of(point)
        for column, value in _named(facts, *_SHAPE).items()
    }


def _models(point: Point) -> dict[str, Cell]:
    """The columns of each model if there are several, per request of the model."""
    return {
        f"model.{name}.{column}": value
        for name, server in several(point.measurement.models).items()
        for column, value in _named(server, *_TIMES, *_SERVED).items()
    }


def _latencies(point: Point, stream: str) -> dict[str, Cell]:
    measured = point.measurement.of(stream)
    given = [] if measured is None or measured.responses is None else [*latency_metrics(measured)]
    timed = [x for x in METRICS.values() if x.is_latency and x.until is Until.ANSWER]
    return {
        **{x.column: point.reading(x, stream) for x in (*timed, *given)},
        **(_named(measured.responses, *_RESPONSES) if measured and given else {}),
    }


def _row(trial: Trial) -> dict[str, Cell]:
    score, predicted, point = trial.score, trial.predicted, judged_point(trial)
    title = trial.candidate.title
    return {
        "trial": trial.number,
        "state": trial.state.value,
        "score": score.value if score else None,
        **_named(score, "feasible", "violation"),
        "predicted": predicted.value if predicted else None,
        "predicted_low": predicted.low if predicted else None,
        "predicted_high": predicted.high if predicted else None,
        **{f"field.{title(knob)}": _plain(v) for knob, v in trial.candidate.fields.items()},
        "server_args": json.dumps(list(trial.candidate.server_args)),
        **{f"environment.{name}": n for name, n in trial.candidate.start.environment.items()},
        **(
            {**_load(point), **_streams(point), **_shapes(point), **_models(point)} if point else {}
        ),
        "deployment": trial.deployment,
        "attempts": trial.attempts,
        "bench_host": trial.bench.host if trial.bench else None,
        "bench_gpus": trial.bench.gpus if trial.bench else None,
        "bench_cpus": trial.bench.cpus if trial.bench else None,
        **asdict(trial.time),
        "loads_measured": len(trial.points),
        "started_at": trial.started_at,
        "reason": None if trial.reason is None else sentence(trial.reason),
    }


def _load(point: Point, stream: str = "") -> dict[str, Cell]:
    m = point.measurement.of(stream)
    assert m is not None  # the stream is one of the measurement's
    row: dict[str, Cell] = {
        "load_kind": m.load.arrivals.value,
        "load_level": m.load.level,
        **_named(m, "throughput_infer_per_s"),
        **_latencies(point, stream),
        **_named(m, *_REQUESTS, "client_send_us", "network_us"),
        **_named(m.server, *_TIMES),
        **_named(m, "client_recv_us"),
        **_named(m.server, *_SERVED),
        **_named(point.measurement.host, *_HOST),
        "measurement_seed": m.seed,
        "window_s": m.duration_s,
    }
    for metric in (x for x in METRICS.values() if x.until is Until.ANSWER):
        row.setdefault(metric.column, point.reading(metric, stream))
    return row


def _named(facts: object | None, *names: str) -> dict[str, Cell]:
    """Columns with the same names as the fields; empty without the facts."""
    return {name: None if facts is None else getattr(facts, name) for name in names}


def _plain(value: FieldValue) -> Cell:
    return json.dumps(list(value)) if isinstance(value, tuple) else value
