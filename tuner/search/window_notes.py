"""Notes about the length of windows and replayed recordings, and refusals of slow models."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuner.errors import LoadFailedError
from tuner.load.traffic.arrivals import read_trace
from tuner.load.traffic.recordings.duplicates import duplicates
from tuner.load.traffic.recordings.replay import busiest_per_s
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import BRIEF, requests_for, window_of
from tuner.prepare.job import Job
from tuner.score.next_load import LoadPlan, lowest_level
from tuner.search.estimate import LONG_S, length_s, minutes
from tuner.search.first_load import First
from tuner.spec.arrivals import TraceArrivals
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS, SLOW_PER_S, easier_percentile
from tuner.spec.model import Spec
from tuner.spec.slo import Slo, tail_shares
from tuner.spec.units import digits

#: Requests per second that stand for an unknown rate.
_FAST_PER_S = 100.0


def long_windows(spec: Spec, rate_per_s: float) -> str:
    """The windows of the search that a rate needs, in words; empty where they are short."""
    window_s = window_of(spec, LoadPoint(Arrivals.POISSON, rate_per_s), brief=True).duration_s
    slo = _hardest(spec, rate_per_s)
    if window_s <= max(LONG_S, float(spec.workload.window)) or slo is None:
        return ""
    at = f"at about {digits(rate_per_s, 2)}/s{_share_text(spec, slo)}"
    named = of_stream(slo.stream, slo.metric.name)
    return f"{named} {at} needs windows of {minutes(window_s)}{_cheaper(spec, slo, window_s)}"


def _cheaper(spec: Spec, slo: Slo, window_s: float) -> str:
    """How long windows for the next lower percentile are, in words; empty without one."""
    easier = easier_percentile(slo.metric)
    if easier is None:
        return ""
    part = easier.requests_searched / slo.metric.requests_searched
    easier_s = max(part * window_s, BRIEF * float(spec.workload.window))
    return f", {easier.name} {minutes(easier_s)}"


def fast_per_s(spec: Spec) -> float:
    """The level from which on windows of the search are as short as the spec says."""
    shortest_s = BRIEF * float(spec.workload.window)
    return lowest_level(spec.slos, spec.shares, shortest_s, brief=True)


def window_notes(spec: Spec, plan: LoadPlan, rate_per_s: float | None) -> Iterator[str]:
    """The windows of the search that the rates of a run need, in words.

    ``rate_per_s``: the rate of an earlier run, in requests per second.
    """
    if not plan.arrivals.open_loop:
        return
    if rare := [*_too_rare(spec)]:  # their windows cannot be long enough
        yield from rare
        return
    slo, rates = _hardest(spec), plan.listed or ((rate_per_s,) if rate_per_s else ())
    if rates and (text := long_windows(spec, min(rates))):
        yield text
    elif not rates and slo is not None:
        window_s = lowest_level(spec.slos, spec.shares, 1.0, brief=True) / SLOW_PER_S
        yield (
            f"the estimate assumes at least {digits(fast_per_s(spec), 2)}/s; a slower model needs "
            f"longer windows: at {SLOW_PER_S}/s {of_stream(slo.stream, slo.metric.name)} takes "
            f"{minutes(window_s)}{_cheaper(spec, slo, window_s)}"
        )
    if not rates and slo is not None and plan.levels.lowest > SLOW_PER_S:
        yield (
            f"{of_stream(slo.stream, slo.metric.name)} needs {slo.metric.requests_needed} "
            f"requests{_share_text(spec, slo)}: "
            f"below {digits(plan.levels.lowest, 2)}/s, workload.max_window is too short"
        )


def trace_notes(spec: Spec, plan: LoadPlan) -> Iterator[str]:
    """How much of a recorded trace one measurement covers, where that is less than all."""
    arrivals = spec.workload.arrivals
    if not isinstance(arrivals, TraceArrivals):
        return
    gaps = read_trace(arrivals.file).size
    level = min(plan.listed) if plan.listed else plan.levels.nearest(_FAST_PER_S)
    window_s = length_s(spec, plan, level)
    used = window_s * level
    if used < gaps:
        yield (
            f"a measurement at {digits(level, 3)}/s goes through {digits(100 * used / gaps, 2)}% "
            f"of the trace ({digits(used, 3)} of {gaps} gaps), from a place that its seed draws: "
            "what is rare in it may be missing; raise workload.window"
        )


def replay_notes(job: Job) -> Iterator[str]:
    """The content of a recording or a trace, and how much of it a measurement replays."""
    spec, plan, traffic = job.spec, job.plan, job.traffic
    yield from trace_notes(spec, plan)
    if traffic is None:
        return
    recording = traffic.recording
    name, mean = recording.path.name, digits(recording.rate_per_s)
    yield (
        f"{name}: {recording.due_s.size} requests in {minutes(recording.length_s)}, "
        f"{mean}/s on average and {digits(busiest_per_s(recording))}/s in its busiest second"
    )
    if recording.resolution_s:
        yield (
            f"{name} was made from times of a resolution of {digits(recording.resolution_s)} s, "
            "spread by chance: bursts within it are not those of production, so leave the SLOs "
            "a margin"
        )
    repeats = duplicates(recording)
    yield from () if repeats is None else repeats.sentences()
    level = min(plan.listed) if plan.listed else plan.levels.nearest(recording.rate_per_s)
    pace = level / recording.rate_per_s if traffic.keeps_pace else 1.0
    window_s = pace * window_of(spec, LoadPoint(plan.arrivals, level), brief=True).duration_s
    if window_s < recording.length_s:
        yield (
            f"a window at {digits(level)}/s replays {minutes(window_s)} of {name}: stretches from "
            "calm to busy, the busiest one among them; raise workload.window to replay more"
        )
    elif window_s > recording.length_s:
        yield (
            f"{name} is shorter than a window at {digits(level)}/s, {minutes(window_s)}: it "
            f"goes round {digits(window_s / recording.length_s, 2)} times; lower workload.window"
        )


def refuse_too_slow(spec: Spec, plan: LoadPlan, first: First) -> None:
    """Refuses a model that is too slow for a verdict even in the longest window.

    Raises:
        LoadFailedError: The window has too few requests; the message says what to set.
    """
    slo = _hardest(spec)
    if plan.arrivals.open_loop and (rare := next(_too_rare(spec), "")):
        raise LoadFailedError(rare)
    if not plan.arrivals.open_loop or first.most >= plan.levels.lowest or slo is None:
        return
    count = slo.metric.requests_needed
    needs_s = lowest_level(spec.slos, spec.shares, 1.0) / first.most
    fits = float(spec.workload.max_window) / needs_s * count
    percentiles = [m for m in METRICS.values() if m.quantile is not None]
    easier = [m for m in percentiles if m.requests_needed <= fits]
    nearest = max(easier, key=lambda m: m.requests_needed, default=None)
    other = f", or bound {nearest.name} ({nearest.requests_needed})" if nearest else ""
    raise LoadFailedError(
        f"{of_stream(slo.stream, slo.metric.name)} needs {count} requests"
        f"{_share_text(spec, slo)}, and the model "
        f"answers about {digits(first.most, 2)}/s: that takes {minutes(needs_s)}, and "
        f"workload.max_window is {spec.workload.max_window}. "
        f"Set it to {math.ceil(needs_s / 60)}m{other}"
    )


def _hardest(spec: Spec, level: float = 1.0) -> Slo | None:
    """The SLO on the percentile whose requests take longest to collect."""
    rates = spec.rates(level)
    percentiles = [s for s in spec.slos if s.metric.quantile is not None]
    timed = [
        (slo.metric.requests_needed / rate, slo)
        for slo in percentiles
        for stream, rate in rates.items()
        if rate and slo.holds_for(stream)
    ]
    return max(timed, key=lambda pair: pair[0], default=(0.0, None))[1]


def _too_rare(spec: Spec) -> Iterator[str]:
    """Background streams that have too few requests even in the longest window, in words."""
    for name, stream in spec.streams.items():
        slos = [slo for slo in spec.slos if slo.holds_for(name)]
        needs_s = requests_for(tail_shares(slos)) / stream.rate if stream.rate and slos else 0.0
        if needs_s > float(spec.workload.max_window):
            yield (
                f"{name} comes at {digits(stream.rate or 0.0, 2)}/s: its SLO needs windows of "
                f"{minutes(needs_s)}, and workload.max_window is {spec.workload.max_window}. "
                f"Set it to {math.ceil(needs_s / 60)}m"
            )


def _share_text(spec: Spec, slo: Slo) -> str:
    """The share of the SLO's stream in all requests, in words; empty where it is all."""
    share = spec.shares.get(slo.stream, 1.0)
    return f" ({digits(100.0 * share, 2)}% of all)" if share < 1.0 else ""
