"""A table of the pair's space that was simulated, not measured: to test replays of several models.

Made again by ``PYTHONPATH=tests:benchmarks:. python tests/unit/benchmarks/simulated_pair.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import recorded_table as tables
from recorded_table import Recording
from served_grid import guess, in_order, next_load
from unit.search.served import PAIR
from unit.search.simulated import Simulation

from tuner.measurement.measurement import Measurement
from tuner.score.capacity import Bracket
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.steps.job import Request, prepare

TABLE = Path(__file__).with_name("pair.jsonl")
MACHINE = {"cpu": "simulated", "cores": 2, "versions": {"tritonserver": "0", "perf_analyzer": "0"}}
#: Configs: all without a delay, and some of the others, as in a grid that was cut short.
CONFIGS, AGAIN = 36, 3


def main() -> None:
    TABLE.unlink(missing_ok=True)
    tables.append(TABLE, {"machine": MACHINE})
    job = prepare(Request(spec=tables.spec_path("pair")))
    simulation = Simulation(job.spec, job.space, costs=PAIR)
    known: dict[Candidate, float] = {}
    for candidate, repeat in _planned(in_order(job.space)[:CONFIGS]):
        start = 0.95 * (guess(candidate, known) or 100.0)
        points = _loads(simulation, candidate, start, repeat)
        known.setdefault(candidate, Bracket.of(points).capacity() or 0.0)
        measured = tuple(
            _asked(p.measurement, 1.0, job.spec.shares)
            for p in sorted(points, key=lambda p: p.level)
        )
        tables.append(TABLE, tables.line_of(Recording(candidate, repeat, measured, "reload", 12.0)))
    print(tables.pack(TABLE))


def _planned(candidates: list[Candidate]) -> Iterator[tuple[Candidate, int]]:
    yield from ((c, 0) for c in candidates)
    yield from ((c, n) for n in (1, 2) for c in candidates[1 : 1 + AGAIN])


def _asked(measured: Measurement, share: float, shares: Mapping[str, float]) -> Measurement:
    """With the load of each stream and the requests due, which a load generator tells."""
    due = measured.completed_count + measured.unanswered_count
    load = replace(measured.load, level=share * measured.load.level)
    streams = {name: _asked(own, shares[name], {}) for name, own in measured.streams.items()}
    return replace(measured, load=load, due_per_s=due / measured.duration_s, streams=streams)


def _loads(simulation: Simulation, candidate: Candidate, near: float, repeat: int) -> list[Point]:
    load: float | None = near
    points: list[Point] = []
    while load is not None and len(points) < 6:
        points.append(simulation.point(candidate, float(f"{load:.5g}"), 1 + repeat, repeat))
        load = next_load(points)
    return points


if __name__ == "__main__":
    main()
