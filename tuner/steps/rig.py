"""The rig of a run: load generator and bench on the server that was started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tuner.bench.bench import BenchRules, TritonBench
from tuner.bench.cache import CacheRules, cache_of
from tuner.bench.timebook import TimeBook
from tuner.confirm.soak import LASTS_S, SETTLING_S
from tuner.load.setup import PATIENCE_S, Site
from tuner.load.streams_load import asked_of, streams_load
from tuner.machine.process import private_directory
from tuner.measurement.measurement import LoadPoint, Rejected
from tuner.measurement.window import LatencyBound, Window, soak_for, window_for
from tuner.score.judge import tail_slo
from tuner.score.next_load import LoadPlan
from tuner.server.log import last_words
from tuner.spec.model import Spec
from tuner.spec.units import Seconds
from tuner.spec.workload import BUSY_TIMES, BurstArrivals, Workload
from tuner.steps.events import Events
from tuner.steps.serving import Serving
from tuner.steps.traffic import client_of

#: Killing perf_analyzer over a queue can crash Triton: never done to a server somebody else runs.
REMOTE_PATIENCE_S = 120.0
#: So many requests of each stream show what they take.
INFORMING = 40


@contextmanager
def set_up_bench(
    served: Serving,
    events: Events,
    book: TimeBook,
    checkpoint: Callable[[], None],
    reject: Callable[[Rejected], None] = lambda _: None,
) -> Iterator[TritonBench]:
    """A bench that is ready to measure; every process and file of it is gone afterwards.

    ``reject`` receives each measurement that does not count.
    """
    job, programs, deployer = served.job, served.programs, served.deployer
    spec = job.spec
    with private_directory() as directory:
        rules = BenchRules(
            slos=spec.slos,
            arrivals=job.plan.arrivals,
            window=lambda load, rate: window_of(spec, load, rate),
            brief=lambda load, rate: window_of(spec, load, rate, brief=True),
            checkpoint=checkpoint,
            measured=events.measured,
            rejected=reject,
            note=events.note,
            first_answer_s=float(spec.server.load_timeout),
            soak=lambda load, rate, least_s: soak_of(spec, load, rate, least_s),
            cache=CacheRules(
                spec.workload.cache,
                lambda candidate: cache_of(
                    job.served,
                    job.space.server_args,
                    candidate,
                    remote=not programs.launcher.restartable,
                ),
                events.note,
            ),
        )
        yield TritonBench(
            deployer,
            lambda endpoints: streams_load(
                spec.workload,
                asked_of(spec),
                job.served.models,
                Site(
                    deployer.control,
                    endpoints,
                    programs.perf_analyzer,
                    directory,
                    place=programs.launcher.place,
                    gpus=spec.server.gpus,
                    patience_s=PATIENCE_S if programs.launcher.restartable else REMOTE_PATIENCE_S,
                    server_words=lambda: last_words(deployer.server),
                ),
                client_of(job).kind,
            ),
            rules,
            book,
        )


def window_of(
    spec: Spec, load: LoadPoint, rate_per_s: float | None = None, *, brief: bool = False
) -> Window:
    """How long one measurement is; ``rate_per_s``: requests to expect of a closed loop.

    ``brief``: of a search.
    """
    workload = spec.workload
    tails = [s for s in spec.slos if s.metric.is_latency]
    bounds = tuple(
        LatencyBound(s.metric.quantile, s.bound / 1e6, s.stream)
        for s in tails
        if s.metric.quantile is not None
    )
    level = load.level if load.arrivals.open_loop else rate_per_s
    windows = [
        window_for(
            _shares_of(bounds, stream),
            rate,
            window_s=_shortest_s(workload),
            max_window_s=float(workload.max_window),
            warmup_s=float(workload.warmup),
            latency_bound_s=max((s.bound for s in tails), default=0.0) / 1e6,
            open_loop=load.arrivals.open_loop,
            brief=brief,
        )
        for stream, rate in spec.rates(level).items()
    ]
    return replace(_longest(windows), bounds=bounds)


def _shares_of(bounds: Iterable[LatencyBound], stream: str) -> list[float]:
    return [bound.share for bound in bounds if bound.holds_for(stream)]


def _longest(windows: Iterable[Window]) -> Window:
    """What the rarest stream needs for its percentile."""
    return max(windows, key=lambda window: window.duration_s)


def _shortest_s(workload: Workload) -> float:
    arrivals, window_s = workload.arrivals, float(workload.window)
    if isinstance(arrivals, BurstArrivals):
        return max(window_s, BUSY_TIMES * arrivals.cycle_s)
    return window_s


def informing_window(spec: Spec, load: LoadPoint) -> Window:
    """The window of a load that shows what requests take, and no verdict on an SLO."""
    window = window_of(spec, load, brief=True)
    few_s = max(INFORMING / rate for rate in spec.rates(load.level).values() if rate)
    few_s = max(few_s, _shortest_s(spec.workload))
    return replace(window, duration_s=min(window.duration_s, few_s), ends_early=False)


def curve_window(spec: Spec, load: LoadPoint) -> Window:
    """The window of a short load beside a soak: `LASTS_S`, or what percentile or SLO need."""
    short = {"window": Seconds(LASTS_S), "warmup": Seconds(SETTLING_S)}
    workload = spec.workload.model_copy(update=short)
    window = window_of(spec.model_copy(update={"workload": workload}), load)
    return replace(window, ends_early=False, quiet_only=True)


def soak_of(
    spec: Spec, load: LoadPoint, rate_per_s: float | None = None, least_s: float = 0.0
) -> Window:
    """The window of a soak at this load; see `soak_for` and `window_of`."""
    window = window_of(spec, load, rate_per_s)
    level = load.level if load.arrivals.open_loop else rate_per_s
    soak_s = float(spec.confirm.soak)
    return _longest(
        soak_for(window, _shares_of(window.bounds, stream), rate, soak_s, least_s)
        for stream, rate in spec.rates(level).items()
    )


def why_no_overload(spec: Spec, plan: LoadPlan) -> str:
    """Why nothing can be overloaded; empty when there is a capacity to exceed."""
    if not plan.arrivals.open_loop:
        return "A closed loop cannot be overloaded: its clients wait for their answers."
    if plan.listed is not None:
        return "The loads are fixed by the spec: no capacity was searched, so none is exceeded."
    if tail_slo(spec.slos) is None:
        return "No SLO bounds a high percentile of the latency: nothing to recover to."
    return ""
