"""What slow models cost: how long their windows are, what is reported, and how time is saved."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuner.bench.evaluate import MOST_PROBES
from tuner.errors import LoadFailedError
from tuner.load.traffic.arrivals import read_trace
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import requests_for
from tuner.score.next_load import LoadPlan, lowest_level
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS
from tuner.spec.model import Spec
from tuner.spec.slo import Slo, tail_shares
from tuner.spec.units import digits
from tuner.spec.workload import TraceArrivals
from tuner.steps.first_load import First
from tuner.steps.rig import window_of

#: Measurements of at least this length are announced; a candidate gets fewer of them.
TOLD_S, LONG_S, FEW_PROBES = 10.0, 60.0, 3


def length_s(spec: Spec, plan: LoadPlan, level: float, *, brief: bool = True) -> float:
    """How long one measurement keeps load on the model, as far as that is known beforehand.

    ``brief``: in the search.
    """
    return window_of(spec, LoadPoint(plan.arrivals, level), brief=brief).total_s


def most_probes(spec: Spec, plan: LoadPlan, level: float) -> int:
    """Measurements of one candidate: where each takes minutes, its capacity may be rougher."""
    return FEW_PROBES if length_s(spec, plan, level) > LONG_S else MOST_PROBES


def long_windows(spec: Spec, rate_per_s: float) -> str:
    """The windows that a rate needs, in words; empty where they are short."""
    window_s = window_of(spec, LoadPoint(Arrivals.POISSON, rate_per_s)).duration_s
    slo = _hardest(spec, rate_per_s)
    if window_s <= max(TOLD_S, float(spec.workload.window)) or slo is None:
        return ""
    at = f"at about {digits(rate_per_s, 2)}/s{_share_text(spec, slo)}"
    return f"{of_stream(slo.stream, slo.metric.name)} {at} needs windows of {minutes(window_s)}"


def window_notes(spec: Spec, plan: LoadPlan, rate_per_s: float | None) -> Iterator[str]:
    """Before a run: the windows that its rates need; ``rate_per_s``: of an earlier run."""
    if not plan.arrivals.open_loop:
        return
    yield from _too_rare(spec)
    slo, rates = _hardest(spec), plan.listed or ((rate_per_s,) if rate_per_s else ())
    if rates and (told := long_windows(spec, min(rates))):
        yield told
    elif not rates and slo is not None and plan.levels.lowest > _RARE_PER_S:
        yield (
            f"{of_stream(slo.stream, slo.metric.name)} needs {slo.metric.requests_needed} "
            f"requests{_share_text(spec, slo)}: "
            f"below {digits(plan.levels.lowest, 2)}/s, workload.max_window is too short"
        )


def trace_notes(spec: Spec, plan: LoadPlan) -> Iterator[str]:
    """How much of a recorded trace one measurement goes through, where that is not all."""
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


def refuse_too_slow(spec: Spec, plan: LoadPlan, first: First) -> None:
    """Refuses a model of which even the longest window holds too few requests for a verdict.

    Raises:
        LoadFailedError: With what to set.
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


#: Of a rate that is not known yet, an example; and one that few models are slower than.
_FAST_PER_S, _RARE_PER_S = 100.0, 5.0


def _hardest(spec: Spec, level: float = 1.0) -> Slo | None:
    """The SLO on the percentile whose requests take longest to collect."""
    rates = spec.rates(level)
    percentiles = [s for s in spec.slos if s.metric.quantile is not None]
    timed = [(s, rate) for s in percentiles for n, rate in rates.items() if rate and s.holds_for(n)]
    return max(timed, key=lambda pair: _seconds(*pair), default=(None,))[0]


def _seconds(slo: Slo, rate_per_s: float | None) -> float:
    return slo.metric.requests_needed / rate_per_s if rate_per_s else math.inf


def _too_rare(spec: Spec) -> Iterator[str]:
    """Streams of the background of which even the longest window holds too few requests."""
    for name, stream in spec.streams.items():
        own = [slo for slo in spec.slos if slo.holds_for(name)]
        needs_s = requests_for(tail_shares(own)) / stream.rate if stream.rate and own else 0.0
        if needs_s > float(spec.workload.max_window):
            yield (
                f"{name} comes at {digits(stream.rate or 0.0, 2)}/s: its SLO needs windows of "
                f"{minutes(needs_s)}, and workload.max_window is {spec.workload.max_window}. "
                f"Set it to {math.ceil(needs_s / 60)}m"
            )


def _share_text(spec: Spec, slo: Slo) -> str:
    """What part of all requests are of its stream, where they are not all."""
    share = spec.shares.get(slo.stream, 1.0)
    return f" ({digits(100.0 * share, 2)}% of all)" if share < 1.0 else ""


def minutes(seconds: float) -> str:
    """`45 s`, `7.5 minutes`."""
    if seconds < 100.0:
        return f"{digits(seconds, 2)} s"
    return f"{digits(seconds / 60.0, 2)} minutes"
