"""Records a table of configs under load on a real tritonserver with a real perf_analyzer.

    python benchmarks/record_table.py emulated-accelerator --seconds 80
    python benchmarks/record_table.py emulated-accelerator --seconds 80 --repeats
    python benchmarks/record_table.py emulated-accelerator --seconds 80 --noise
    python benchmarks/record_table.py emulated-accelerator --pack
    python benchmarks/record_table.py tiny-bert --seconds 600 --guesses OLDER.jsonl

The space is that of ``tables/MODEL.yaml``. Each config gets loads well below, just below, just
above and far above its capacity, which is guessed from its recorded neighbours; more if the guess
was wrong. ``--guesses`` takes first guesses from an older table of the same space too. The script
continues where it stopped. ``--repeats`` measures a sample, and the best, at the same loads twice
more. ``--noise`` measures a smaller sample three times in windows as long as a run's own, which
shows how noisy the measurements of a run are.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import recorded_table as tables
from recorded_neighbours import guess
from recorded_rig import Rig, machine_of, rig
from recorded_space import DELAY, sampled
from recorded_stairs import Step, climb
from recorded_table import Recording

from tuner.bench.rejects import doubt_about
from tuner.errors import LoadFailedError, TrialError
from tuner.load.perf_analyzer.generator import PerfAnalyzer
from tuner.load.validity import client_kept_up
from tuner.load.watch.disturbance import OTHER_CPU_PERCENT
from tuner.load.watch.stalls import quiet_percent
from tuner.measurement.measurement import Measurement
from tuner.measurement.window import NO_BOUND
from tuner.score.capacity import Bracket, Probe
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.workload import Workload
from tuner.steps.job import Job, Request, prepare
from tuner.steps.tools import find_programs

PREFERRED = "dynamic_batching.preferred_batch_size"
COUNT = "instance_group.count"

#: Fewest requests in a window: a p99 with five beyond it.
REQUESTS = 510
#: Shares of the guessed capacity: well below, just below, just above, and overloaded, since
#: searches overload configs too and learn from the most that one answers.
SHARES = (0.65, 0.92, 1.12, 1.8)
#: A capacity is known once the loads on both sides of it are this near.
CLOSE = 0.25
MOST_CLIMBS = 4
#: Others' share of the machine above which a measurement is repeated, over what is flagged.
MUCH = 2.0
#: Guessed capacity of the first config, which has no neighbours, per second.
FIRST_GUESS = 150.0
#: A guess that overloads a server until perf_analyzer gives up is divided by this.
FAR_TOO_HIGH = 4.0
#: How many of the best configs are measured again beside the sample, since the best of many single
#: measurements looks better than it is; and how often.
BEST, REPEATS = 24, 2
#: How many configs of the sample are measured in windows of a run's length, how often, and up to
#: which share of their capacity: no search measures far beyond it twice.
NOISY, LONG_REPEATS, BEYOND = 18, 3, 1.3
#: A slot ends when this much or less of it is left.
LAST_S = 9.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=sorted(p.stem for p in tables.TABLES.glob("*.yaml")))
    parser.add_argument("--seconds", type=float, default=80.0, help="length of this slot")
    parser.add_argument("--repeats", action="store_true", help="measure the sample again")
    parser.add_argument("--noise", action="store_true", help="measure how noisy a run is")
    parser.add_argument("--pack", action="store_true", help="compress the table")
    parser.add_argument("--guesses", type=Path, help="an older table, packed or not")
    args = parser.parse_args()
    if args.pack:
        print(tables.pack(tables.growing_path(args.model)))
    else:
        kind = "noise" if args.noise else "repeats" if args.repeats else "firsts"
        stop_at = time.monotonic() + args.seconds
        _slot(args.model, kind, stop_at=stop_at, guesses=args.guesses)


def _slot(model: str, kind: str, *, stop_at: float, guesses: Path | None = None) -> None:
    job = prepare(Request(spec=tables.spec_path(model)))
    path = tables.unpack(tables.growing_path(model))
    with find_programs(job, os.environ) as programs:
        if not path.stat().st_size:
            tables.append(path, {"machine": machine_of(programs)})
        table = tables.read_table(model)
        if table.machine["cpu"] != programs.host.cpu:
            raise SystemExit(
                f"{path.name} was begun on {table.machine['cpu']}, this is {programs.host.cpu}: "
                f"continue there, or remove the table and start again"
            )
        known = {} if guesses is None else capacities_in(job, guesses)
        recorder = Recorder(job, list(table.recordings), known)
        left = list(recorder.left(kind))
        print(f"{len(left)} left", flush=True)
        with rig(job, programs) as server:
            for candidate, repeat in left:
                if time.monotonic() > stop_at - LAST_S:
                    break
                recording = recorder.record(server, candidate, repeat)
                if recording is not None:
                    tables.append(path, tables.line_of(recording))
                    print(_said(recording), flush=True)


def capacities_in(job: Job, growing: Path) -> dict[Candidate, float]:
    """Of the configs of an older table of the same space."""
    older = tables.parse_table(tables.lines_of(growing))
    return Recorder(job, list(older.recordings)).capacities


def _said(recording: Recording) -> str:
    fields = {k.split(".")[-1]: v for k, v in recording.candidate.of("").items()}
    loads = ", ".join(
        f"{p.load.level:.0f}/s {p.p99_latency_us / 1e3:.1f} ms" for p in recording.points
    )
    return f"{recording.seconds:.1f} s {recording.deployment}: {fields}: {loads}"


@dataclass
class Recorder:
    """Decides which loads a config gets.

    Attributes:
        capacities: Of the configs recorded so far, without those that sustain no load; where a
            config is not, what is expected of it.
    """

    job: Job
    recordings: list[Recording] = field(default_factory=list)
    capacities: dict[Candidate, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for recording in self.recordings:
            self._learn(recording)

    def left(self, kind: str) -> Iterator[tuple[Candidate, int]]:
        """What is still to record: candidates with the number of the repeat."""
        kinds = {"firsts": self.firsts_left, "repeats": self.repeats_left, "noise": self.noise_left}
        return kinds[kind]()

    def firsts_left(self) -> Iterator[tuple[Candidate, int]]:
        done = {r.candidate.key for r in self.recordings}
        return ((c, 0) for c in in_order(self.job.space) if c.key not in done)

    def repeats_left(self) -> Iterator[tuple[Candidate, int]]:
        """The recorded part of the sample, and the best configs of a complete table."""
        done = {(r.candidate.key, r.repeat) for r in self.recordings}
        chosen = sampled(self.job.space)
        if not any(self.firsts_left()):
            ranked = sorted(self.capacities, key=lambda c: self.capacities[c], reverse=True)
            chosen += [c for c in ranked[:BEST] if c not in chosen]
        places = {c.key: i for i, c in enumerate(in_order(self.job.space))}
        chosen.sort(key=lambda c: places[c.key])
        for repeat in range(1, REPEATS + 1):
            for candidate in chosen:
                if (candidate.key, 0) in done and (candidate.key, repeat) not in done:
                    yield candidate, repeat

    def noise_left(self) -> Iterator[tuple[Candidate, int]]:
        """A part of the sample repeatedly, in windows of a run's length."""
        done = {(r.candidate.key, r.repeat) for r in self.recordings}
        chosen = [c for c in sampled(self.job.space) if (c.key, 0) in done][:NOISY]
        for repeat in range(tables.LONG, tables.LONG + LONG_REPEATS):
            yield from ((c, repeat) for c in chosen if (c.key, repeat) not in done)

    def record(self, server: Rig, candidate: Candidate, repeat: int) -> Recording | None:
        """Serves and measures one config, in at most two attempts; None if both fail."""
        try:
            recording = self._record(server, candidate, repeat, 1.0)
        except TrialError as error:
            print(f"once more: {error.message}")
            server.fresh()
            try:
                recording = self._record(server, candidate, repeat, 1.0 / FAR_TOO_HIGH)
            except TrialError as again:
                print(f"left out for now: {dict(candidate.of(''))}: {again.message}")
                server.fresh()
                return None
        if any(p.backlog for p in recording.points):
            server.fresh()
        self.recordings.append(recording)
        self._learn(recording)
        return recording

    def _record(self, server: Rig, candidate: Candidate, repeat: int, scale: float) -> Recording:
        begin = time.monotonic()
        deployment, tool = server.deploy(candidate)
        if repeat:
            points = self._again(tool, candidate, repeat)
        else:
            near = guess(candidate, self.capacities) or FIRST_GUESS
            points = self._bracketed(tool, near * scale)
        points.sort(key=lambda p: p.load.level)
        seconds = time.monotonic() - begin
        return Recording(candidate, repeat, tuple(points), deployment.kind.value, seconds)

    def _again(self, tool: PerfAnalyzer, candidate: Candidate, repeat: int) -> list[Measurement]:
        first = next(r for r in self.recordings if r.candidate == candidate and r.repeat == 0)
        levels = [p.load.level for p in first.points]
        if repeat >= tables.LONG:
            levels = [level for level in levels if level <= BEYOND * self.capacities[candidate]]
        return self._climb(tool, levels, repeat, 0)

    def _bracketed(self, tool: PerfAnalyzer, near: float) -> list[Measurement]:
        points: list[Measurement] = []
        rates: Sequence[float] = [near * share for share in SHARES]
        for number in range(MOST_CLIMBS):
            points += self._climb(tool, rates, 0, number)
            probes = [self._judged(p) for p in points]
            rates = next_rates(probes)
            if not rates:
                break
            if points[-1].backlog:
                raise LoadFailedError("the server did not come to rest after an overload")
        return points

    def _climb(
        self, tool: PerfAnalyzer, rates: Sequence[float], repeat: int, number: int
    ) -> list[Measurement]:
        """One run; if something spoilt it, a second one, which then counts."""
        workload = self.job.spec.workload
        window_s = float((Workload() if repeat >= tables.LONG else workload).window)
        steps = [
            Step(rate, max(window_s, REQUESTS / rate), _seed(repeat, number, index))
            for index, rate in enumerate(float(f"{r:.4g}") for r in rates)
        ]
        points = climb(tool, steps, float(workload.warmup))
        doubts = [doubt for p in points if (doubt := self._doubt(p))]
        if doubts:
            print(f"once more: {doubts[0]}")
            points = climb(tool, steps, float(workload.warmup))
        return points

    def _doubt(self, point: Measurement) -> str:
        """Why to measure once more; a slightly disturbed measurement is flagged and kept.

        On few cores a client falls behind in an overload, which misses the SLO anyway.
        """
        host = point.host
        much = (host.other_cpu_percent or 0.0) > MUCH * OTHER_CPU_PERCENT
        much |= (host.stalled_percent or 0.0) > MUCH * quiet_percent(NO_BOUND)
        behind = not client_kept_up(point) and self._judged(point).passed
        return doubt_about(point) if much or behind else ""

    def _learn(self, recording: Recording) -> None:
        if recording.repeat:
            return
        capacity = Bracket.of([self._judged(p) for p in recording.points]).capacity()
        self.capacities.pop(recording.candidate, None)  # what was expected of it
        if capacity is not None:
            self.capacities[recording.candidate] = capacity

    def _judged(self, measurement: Measurement) -> Point:
        return judge_point(self.job.spec.slos, measurement)


def _seed(repeat: int, number: int, index: int) -> int:
    """The same for each config (common random numbers), others for each repeat."""
    return 1 + repeat * 1000 + number * 10 + index


def next_rates(probes: Sequence[Probe]) -> list[float]:
    """The rates to climb next; none once the capacity is bracketed closely."""
    bracket = Bracket.of(probes)
    floor, ceiling = bracket.floor, bracket.ceiling
    if floor is None:
        lowest = min(p.level for p in probes)
        return [lowest * 0.5, lowest * 0.75]
    if ceiling is None:
        far = floor.slo_utilisation is not None and floor.slo_utilisation < 0.5
        return [floor.level * s for s in ((1.3, 1.8, 2.5) if far else (1.15, 1.35))]
    if bracket.gap <= CLOSE:
        return []
    near = bracket.capacity()
    assert near is not None
    step = math.sqrt(1.0 + CLOSE / 2)
    rates = [near / step, near * step]
    return [r for r in rates if floor.level * 1.02 < r < ceiling.level / 1.02]


def in_order(space: Space) -> list[Candidate]:
    """The whole space, ordered so that most configs differ from the previous one only in instances.

    Delay by delay, the ends of the range first: an incomplete table covers a space of fewer
    delays.
    """
    every = list(space.enumerate())
    delays = spread(sorted({d for c in every if isinstance(d := c.of("").get(DELAY), int)}))

    def place(candidate: Candidate) -> tuple[float, ...]:
        fields = candidate.of("")
        delay, sizes = fields.get(DELAY), fields.get(PREFERRED)
        when = delays.index(delay) if isinstance(delay, int) else 0.5
        preferred = sizes if isinstance(sizes, tuple) else ()
        numbers = [n for n in (fields["max_batch_size"], *preferred, 0, 0) if isinstance(n, int)]
        count = fields[COUNT]
        assert isinstance(count, int)
        return (when, *numbers[:3], count)

    return sorted(every, key=place)


def spread(values: Sequence[int]) -> list[int]:
    """The ends first, then always the one farthest from all before it."""
    left, chosen = list(values), []
    while left:
        index = {v: i for i, v in enumerate(values)}
        best = max(left, key=lambda v: min((abs(index[v] - index[c]) for c in chosen), default=0))
        if len(chosen) == 1:
            best = left[-1]
        left.remove(best)
        chosen.append(best)
    return chosen


if __name__ == "__main__":
    main()
