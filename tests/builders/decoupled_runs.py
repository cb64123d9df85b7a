"""Synthetic figures of a decoupled model, made by formulas, never measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builders.runs import Toy, make_run

#: Of each side: the p99 until the first response and until the last, and the fewest responses.
FIGURES = {"baseline": (150e3, 900e3, 3), "winner": (90e3, 700e3, 9)}


def responses(first_us: float, last_us: float, fewest: int) -> dict[str, Any]:
    kinds = {"first": first_us, "last": last_us}
    shares = {"p50": 0.5, "p90": 0.8, "p95": 0.9, "p99": 1.0, "avg": 0.55}
    times = {f"{p}_{k}_response_us": s * us for k, us in kinds.items() for p, s in shares.items()}
    counts = {"mean_responses": 9.0, "fewest_responses": fewest, "most_responses": 9}
    return {**times, **counts}


def decoupled_run(parent: Path) -> Path:
    """A run whose winner is sooner with both, and whose current config left some incomplete."""
    run = make_run(parent, Toy(trials=8))
    result = json.loads((run / "result.json").read_text())
    for side, figures in FIGURES.items():
        for measured in _measurements(result[side]):
            measured["responses"] = responses(*figures)
            if side == "baseline":
                incomplete = {"count": 2, "p50_told_us": 5e3, "p99_told_us": 9e3}
                measured["failures"] = {"incomplete": incomplete}
    (run / "result.json").write_text(json.dumps(result))
    rows = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for measured in _measurements(rows):
        measured["responses"] = responses(*FIGURES["winner"])
    (run / "trials.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return run


def _measurements(node: Any) -> Iterator[dict[str, Any]]:
    """Every measurement in some JSON."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if isinstance(node, dict) and "measurement" in node:
        yield node["measurement"]
    for child in inner:
        yield from _measurements(child)
