"""Every trial as one row of a table that pandas and spreadsheets read as it is.

Values are numbers in the unit the column's name ends in; a missing one is an empty cell. Lists
and server arguments are JSON. Load columns are of the measurement the score stands for.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping

from tuner.plain import plain
from tuner.report.data import ReportData
from tuner.report.side import judged_point
from tuner.run.trial import Point, Trial
from tuner.space.candidate import FieldValue
from tuner.spec.metrics import METRICS

Cell = str | int | float | bool | None


def render(data: ReportData) -> str:
    """One header line and one line a trial."""
    rows = [_row(trial) for trial in data.trials]
    names = list(dict.fromkeys(name for row in rows for name in row))
    fields = sorted(name for name in names if name.startswith("field."))
    columns = [name for name in names if name not in fields]
    at = columns.index("server_args") if columns else 0
    columns[at:at] = fields
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(cell) for name, cell in row.items()} for row in rows)
    return text.getvalue()


def _row(trial: Trial) -> dict[str, Cell]:
    score, predicted, point = trial.score, trial.predicted, judged_point(trial)
    return {
        "trial": trial.number,
        "state": trial.state.value,
        "score": score.value if score else None,
        "feasible": score.feasible if score else None,
        "violation": score.violation if score else None,
        "predicted": predicted.value if predicted else None,
        "predicted_low": predicted.low if predicted else None,
        "predicted_high": predicted.high if predicted else None,
        **{f"field.{path}": _plain(value) for path, value in trial.candidate.fields.items()},
        "server_args": json.dumps(list(trial.candidate.server_args)),
        **(_load(point) if point else {}),
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


def _load(point: Point) -> Mapping[str, Cell]:
    m, server, host = point.measurement, point.measurement.server, point.measurement.host
    row: dict[str, Cell] = {
        "load_kind": m.load.arrivals.value,
        "load_level": m.load.level,
        "throughput_infer_per_s": m.throughput_infer_per_s,
        **{x.column: point.reading(x) for x in METRICS.values() if x.is_latency},
        "completed_count": m.completed_count,
        "failed_count": m.failed_count,
        "rejected_count": m.rejected_count,
        "unanswered_count": m.unanswered_count,
        "error_rate": m.error_rate,
        "batch_size": m.batch_size,
        "mean_in_flight": m.mean_in_flight,
        "client_send_us": m.client_send_us,
        "network_us": m.network_us,
        "queue_us": server.queue_us if server else None,
        "compute_input_us": server.compute_input_us if server else None,
        "compute_infer_us": server.compute_infer_us if server else None,
        "compute_output_us": server.compute_output_us if server else None,
        "client_recv_us": m.client_recv_us,
        "mean_batch_size": server.mean_batch_size if server else None,
        "cache_hit_rate": server.cache_hit_rate if server else None,
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
        row.setdefault(metric.column, point.reading(metric))
    return row


def _plain(value: FieldValue) -> Cell:
    return json.dumps(list(value)) if isinstance(value, tuple) else value


def _cell(value: Cell) -> Cell:
    """Text that a spreadsheet would run as a formula gets a quote in front."""
    if not isinstance(value, str):
        return value
    shown = plain(value)
    return f"'{shown}" if shown.lstrip().startswith(("=", "+", "-", "@", "\\")) else shown
