"""A run whose winner, or kept config, held a share of its claim for long."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from builders.runs import Toy, make_run, measure

from tuner.record.confirmation import Repeat, Role, Soak, Soaked
from tuner.record.proved import ProvedConfig
from tuner.record.store import RunStore
from tuner.score.late_share import LateShare
from tuner.score.point import judge_point

LATE = LateShare(requests=48_000, late=288, effective=1900.0, at_most=0.0094)


def soaked_run(parent: Path, share: float, role: str = "winner") -> tuple[Path, Soak]:
    """A run whose winner (or kept config) stood only a share of its claim for long."""
    run = make_run(parent, Toy(trials=20), "improved" if role == "winner" else "kept")
    store = RunStore.open(run)
    result = json.loads((run / "result.json").read_text())
    facts = result[role]
    proved = ProvedConfig.from_json(facts)
    candidate = proved.candidate
    claimed = min(p.level for p in proved.rounds)
    slos = Toy().slos
    tried = []
    for level, late_by in ((claimed, 3.0), (share * claimed, 1.0)):
        made = replace(measure(candidate, level, 600_000), duration_s=30.0)
        made = replace(made, p99_latency_us=late_by * 35e3, latencies_us=np.array([late_by * 35e3]))
        made = replace(made, throughput_infer_per_s=level, completed_count=48_000)
        point = judge_point(slos, made)
        tried.append(Soaked(point.measurement, point.slo, LATE))
        repeat = Repeat(0, len(tried) - 1, Role.SOAK, candidate.key, point)
        store.append_confirmation(repeat)
    soak = Soak(tuple(tried))
    result[role] = ProvedConfig.of(candidate, proved.rounds, soak=soak).to_json()
    (run / "result.json").write_text(json.dumps(result))
    return run, soak
