"""Synthetic figures of requests of two shapes, made by formulas, never measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from builders.measurements import NO_ERRORS, P99_40MS, synthetic_figures, synthetic_measurement
from builders.runs import CURRENT, Toy, make_run

from tuner.measurement.measurement import ServerStatistics
from tuner.record.proved import ProvedConfig
from tuner.score.point import Point, judge_point

SHORT, LONG = "[64]", "[256]"
LISTED = [{"dims": [64], "share": "70%"}, {"dims": [256], "share": "30%"}]


def server_of(*sizes: int) -> ServerStatistics:
    """One execution of each batch size."""
    count = sum(sizes)
    rows = tuple((size, 1, 1000) for size in sizes)
    return ServerStatistics(count, 0, count, len(sizes), 0, 0, 0, 0, batch_stats=rows)


def mixed_point(
    model: str, *sizes: int, level: float = 100.0, long_p99_us: float = 50e3, count: int = 1000
) -> Point:
    """70 % short requests, of which all are in time, and 30 % long ones; all together are."""
    pooled = synthetic_measurement(level, 35e3, count=count)
    shapes = {}
    for name, share, p99_us in ((SHORT, 0.7, 20e3), (LONG, 0.3, long_p99_us)):
        figures = synthetic_figures(share * level, p99_us, count=round(share * count))
        in_time = share * level * (1.0 if p99_us <= 40e3 else 0.9)
        shapes[name] = replace(figures, due_per_s=share * level, in_time_infer_per_s=in_time)
    server = server_of(*sizes)
    measured = replace(
        pooled, shapes=shapes, due_per_s=level, server=server, models={model: server}
    )
    return judge_point([P99_40MS, NO_ERRORS], measured)


def shaped_run(parent: Path) -> Path:
    """A run whose current config batched nothing, and whose winner equal shapes only."""
    run = make_run(parent, Toy(trials=8))
    result = json.loads((run / "result.json").read_text())
    for side, batched in (("baseline", []), ("winner", None)):
        facts = ProvedConfig.of(CURRENT, [mixed_point("m", 1)]).to_json()["shapes"]
        for shape in facts:
            shape["batched_with"] = [shape["shape"]] if batched is None else batched
        result[side]["shapes"] = facts
    (run / "result.json").write_text(json.dumps(result))
    return run
