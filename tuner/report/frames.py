"""A run as tables, for notebooks and `trials.csv`: its trials, load points and confirmation.

Values are numbers in the unit that ends the column's name; missing values are empty. Lists and
server arguments are JSON. A trial's load columns are those of the measurement its score is for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.measurement.measurement import ServerStatistics
from tuner.report.data import load
from tuner.report.side import judged_point
from tuner.score.judge import passes, slo_utilisation
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.space.candidate import FieldValue
from tuner.spec.labels import several
from tuner.spec.metrics import METRICS

if TYPE_CHECKING:  # half a second to import
    import pandas as pd

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class RunFrames:
    """A run.

    Attributes:
        trials: A row for each trial, as in `trials.csv`, with its candidate's key.
        points: A row for each load that a trial was measured at, in the order they were made.
        rounds: A row for each measurement of the confirmation; ``candidate_key`` is a trial's,
            except where the winner was simplified.

    In ``points`` and ``rounds``, a load of several streams has an additional row for each stream.
    """

    trials: pd.DataFrame
    points: pd.DataFrame
    rounds: pd.DataFrame


def read_run(path: Path) -> RunFrames:
    """The tables of a run's directory.

    Raises:
        SpecError: The directory holds no run, or one of another version.
        UnreadableFileError: A file of the run is not what this version writes.
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
    """A row for each trial, with plain values; the fields come before the server's columns."""
    frame = _frame(map(_row, trials))
    fields = sorted(name for name in map(str, frame) if name.startswith("field."))
    columns = [name for name in frame if name not in fields]
    at = columns.index("server_args") if columns else 0
    return frame[[*columns[:at], *fields, *columns[at:]]]


def _frame(rows: Iterable[Mapping[str, Cell]]) -> pd.DataFrame:
    import pandas as pd

    kept = list(rows)
    names = list(dict.fromkeys(name for row in kept for name in row))
    cells = [[row.get(name) for name in names] for row in kept]
    return pd.DataFrame(cells, columns=names, dtype=object)  # whole numbers stay whole


def _judged(point: Point) -> Iterator[dict[str, Cell]]:
    """A row for all streams together, and one for each if there are several."""
    yield {"stream": "", "met_slos": point.passed, **_load(point), **_models(point)}
    for name in point.measurement.streams:
        met = passes([r for r in point.slo if r.stream == name])
        yield {"stream": name, "met_slos": met, **_load(point, name)}


def _streams(point: Point) -> dict[str, Cell]:
    """The columns of each named stream; none if there is only one."""
    timed = [x for x in METRICS.values() if x.is_latency]
    row: dict[str, Cell] = {}
    for name, m in point.measurement.streams.items():
        figures: dict[str, Cell] = {
            "throughput_infer_per_s": m.throughput_infer_per_s,
            **{x.column: point.reading(x, name) for x in timed},
            "error_rate": m.error_rate,
            "slo_utilisation": slo_utilisation([r for r in point.slo if r.stream == name]),
        }
        row |= {f"stream.{name}.{column}": value for column, value in figures.items()}
    return row


def _models(point: Point) -> dict[str, Cell]:
    """The same for each of several models, per request of the model."""
    return {
        f"model.{name}.{column}": value
        for name, server in several(point.measurement.models).items()
        for column, value in _served(server).items()
    }


def _served(server: ServerStatistics | None) -> dict[str, Cell]:
    return {
        "queue_us": server.queue_us if server else None,
        "compute_input_us": server.compute_input_us if server else None,
        "compute_infer_us": server.compute_infer_us if server else None,
        "compute_output_us": server.compute_output_us if server else None,
        "mean_batch_size": server.mean_batch_size if server else None,
        "cache_hit_rate": server.cache_hit_rate if server else None,
    }


def _row(trial: Trial) -> dict[str, Cell]:
    score, predicted, point = trial.score, trial.predicted, judged_point(trial)
    title = trial.candidate.title
    return {
        "trial": trial.number,
        "state": trial.state.value,
        "score": score.value if score else None,
        "feasible": score.feasible if score else None,
        "violation": score.violation if score else None,
        "predicted": predicted.value if predicted else None,
        "predicted_low": predicted.low if predicted else None,
        "predicted_high": predicted.high if predicted else None,
        **{f"field.{title(knob)}": _plain(v) for knob, v in trial.candidate.fields.items()},
        "server_args": json.dumps(list(trial.candidate.server_args)),
        **({**_load(point), **_streams(point), **_models(point)} if point else {}),
        "deployment": trial.deployment,
        "attempts": trial.attempts,
        "worker_host": trial.worker.host if trial.worker else None,
        "worker_gpus": trial.worker.gpus if trial.worker else None,
        "searching_s": trial.time.searching_s,
        "deploying_s": trial.time.deploying_s,
        "measuring_s": trial.time.measuring_s,
        "other_s": trial.time.other_s,
        "loads_measured": len(trial.points),
        "started_at": trial.started_at,
        "reason": trial.reason,
    }


def _load(point: Point, stream: str = "") -> Mapping[str, Cell]:
    m = point.measurement.of(stream)
    assert m is not None  # it is one of the measurement's
    served, host = _served(m.server), point.measurement.host
    row: dict[str, Cell] = {
        "load_kind": m.load.arrivals.value,
        "load_level": m.load.level,
        "throughput_infer_per_s": m.throughput_infer_per_s,
        **{x.column: point.reading(x, stream) for x in METRICS.values() if x.is_latency},
        "completed_count": m.completed_count,
        "failed_count": m.failed_count,
        "rejected_count": m.rejected_count,
        "unanswered_count": m.unanswered_count,
        "error_rate": m.error_rate,
        "batch_size": m.batch_size,
        "mean_in_flight": m.mean_in_flight,
        "client_send_us": m.client_send_us,
        "network_us": m.network_us,
        **{column: value for column, value in served.items() if column.endswith("_us")},
        "client_recv_us": m.client_recv_us,
        "mean_batch_size": served["mean_batch_size"],
        "cache_hit_rate": served["cache_hit_rate"],
        "pending_requests_max": host.pending_requests_max,
        "cpu_percent": host.cpu_percent,
        "gpu_memory_used_bytes": host.gpu_memory_used_bytes,
        "gpu_utilization": host.gpu_utilization,
        "gpu_power_w": host.gpu_power_w,
        "gpu_clock_mhz": host.gpu_clock_mhz,
        "gpu_throttled": host.gpu_throttled,
        "measurement_seed": m.seed,
        "window_s": m.duration_s,
    }
    for metric in METRICS.values():
        row.setdefault(metric.column, point.reading(metric, stream))
    return row


def _plain(value: FieldValue) -> Cell:
    return json.dumps(list(value)) if isinstance(value, tuple) else value
