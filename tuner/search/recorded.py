"""How much of recorded traffic one measurement goes through, told before a run."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.bench.job import Job
from tuner.load.recordings.replay import busiest_per_s
from tuner.measurement.measurement import LoadPoint
from tuner.measurement.window import window_of
from tuner.search.estimate import minutes, trace_notes
from tuner.spec.units import digits


def replay_notes(job: Job) -> Iterator[str]:
    """What a recording or a trace holds, and how much of it a measurement replays."""
    spec, plan, traffic = job.spec, job.plan, job.traffic
    yield from trace_notes(spec, plan)
    if traffic is None:
        return
    own = traffic.recording
    name, mean = own.path.name, digits(own.rate_per_s)
    yield (
        f"{name}: {own.due_s.size} requests in {minutes(own.length_s)}, {mean}/s on average and "
        f"{digits(busiest_per_s(own))}/s in its busiest second"
    )
    level = min(plan.listed) if plan.listed else plan.levels.nearest(own.rate_per_s)
    pace = level / own.rate_per_s if traffic.keeps_pace else 1.0
    window_s = pace * window_of(spec, LoadPoint(plan.arrivals, level), brief=True).duration_s
    if window_s < own.length_s:
        yield (
            f"a window at {digits(level)}/s replays {minutes(window_s)} of {name}: stretches from "
            "calm to busy, the busiest one among them; raise workload.window to replay more"
        )
    elif window_s > own.length_s:
        yield (
            f"{name} is shorter than a window at {digits(level)}/s, {minutes(window_s)}: it "
            f"goes round {digits(window_s / own.length_s, 2)} times; lower workload.window"
        )
