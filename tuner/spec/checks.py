"""Rules between the parts of a spec: combinations that are wrong though each part is valid.

Whether files, models and GPUs exist is not checked here, as it depends on the environment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuner.spec.arrivals import BUSY_TIMES, BurstArrivals, ClosedArrivals, SequenceArrivals
from tuner.spec.fields import known
from tuner.spec.labels import labelled
from tuner.spec.metrics import OF_GPUS, THROUGHPUT, Metric, Scope
from tuner.spec.mistakes import Finding, Location
from tuner.spec.model import Spec, is_given
from tuner.spec.model_checks import (
    check_bounds_of_streams,
    check_cache_of_remote,
    check_cache_sizes,
    check_cache_switches,
    check_cached_batches,
    check_cached_inputs,
    check_calls,
    check_fields,
    check_models_of_streams,
    check_names,
    check_open_loop,
    check_preferred_sizes,
    check_shares,
    check_space,
    check_stream_names,
)
from tuner.spec.rate_checks import check_rates
from tuner.spec.recording_checks import (
    check_batch_of_recording,
    check_cache_of_recording,
    check_generator_of_recording,
    check_pace,
    check_rates_of_recording,
    check_recorded_inputs,
)
from tuner.spec.rules import Rule, applied, for_each_stream
from tuner.spec.server_checks import (
    check_arguments,
    check_cache_state,
    check_fields_of_mode,
    check_loaded_models,
    check_mounts,
    check_needs_of_mode,
    check_shared_memory,
    check_variables,
)
from tuner.spec.shapes import check_shapes, mixed_in
from tuner.spec.slo import Goal, Slo
from tuner.spec.units import digits
from tuner.spec.variable_checks import (
    check_current_variables,
    check_thread_counts,
    check_variables_of_remote,
)
from tuner.spec.workload import DuplicatesRepeat, LogRepeat, RandomInputs, StreamSpec, ZipfRepeat


def cross_checks(spec: Spec) -> Iterator[Finding]:
    """Every violation of a rule; a rule ends where it needs a value that is wrong."""
    for rule in RULES:
        yield from applied(rule, spec)


def _check_longest_window(spec: Spec) -> Iterator[Finding]:
    workload = spec.workload
    if workload.max_window < workload.window:
        text = f"max_window, {workload.max_window}, is shorter than window, {workload.window}"
        name = "max_window" if is_given(workload, "max_window") else "window"
        yield Finding(("workload", name), text)


def _check_budget(spec: Spec) -> Iterator[Finding]:
    time, shortest = spec.budget.time, spec.workload.window + spec.workload.warmup
    if time is not None and time < shortest:
        text = f"{time} is not enough for one measurement, {type(time)(shortest)}"
        yield Finding(("budget", "time"), text)


def _check_levels(spec: Spec) -> Iterator[Finding]:
    arrivals, where = spec.workload.arrivals, ("workload", "arrivals")
    name = "concurrency" if isinstance(arrivals, ClosedArrivals) else "rate"
    levels = getattr(arrivals, name)
    if levels and len(set(levels)) < len(levels):
        yield Finding((*where, name), "a level is listed twice")
    if levels and is_given(arrivals, f"max_{name}"):
        text = (
            f"is the upper end of a search, but {name} lists the levels to measure; leave one of "
            f"the two out"
        )
        yield Finding((*where, f"max_{name}"), text, key=True)


def _check_length_of_bursts(spec: Spec) -> Iterator[Finding]:
    arrivals, where = spec.workload.arrivals, ("workload", "arrivals")
    if not isinstance(arrivals, BurstArrivals):
        return
    if BUSY_TIMES * arrivals.cycle_s > spec.workload.max_window:
        needs_s = math.ceil(BUSY_TIMES * arrivals.cycle_s)
        text = (
            f"a busy time comes every {digits(arrivals.cycle_s)}s on average, and a measurement "
            f"needs {BUSY_TIMES} of them: raise max_window, {spec.workload.max_window}, to "
            f"{needs_s}s or more"
        )
        given = [n for n in ("burst_length", "burst_share") if is_given(arrivals, n)]
        yield Finding((*where, given[0]) if given else ("workload", "max_window"), text)


def _check_lengths(spec: Spec) -> Iterator[Finding]:
    arrivals = spec.workload.arrivals
    if isinstance(arrivals, SequenceArrivals):
        where = ("workload", "arrivals", "longest")
        if arrivals.lengths is None and arrivals.longest is not None:
            yield Finding(where, "has no meaning without length", hint="write length as well")
        elif arrivals.lengths and arrivals.lengths[1] < arrivals.lengths[0]:
            low, high = arrivals.lengths
            yield Finding(where, f"{high} is below length, {low}")


def _check_protocol(spec: Spec) -> Iterator[Finding]:
    workload = spec.workload
    if isinstance(workload.arrivals, SequenceArrivals) and workload.protocol.over_http:
        text = "sequences are sent over gRPC, on whose one connection they cannot meet in disorder"
        yield Finding(("workload", "protocol"), f"{text}: leave it out")


@for_each_stream
def _check_batch_of_sequences(spec: Spec, name: str) -> Iterator[Finding]:
    sequences = isinstance(spec.workload.arrivals, SequenceArrivals)
    if sequences and spec.streams[name].batch_size > 1:
        text = "a request of a sequence holds one inference (Triton's sequence batcher): write 1"
        yield Finding(("streams", name, "batch_size"), text)


@for_each_stream
def _check_shapes(spec: Spec, name: str) -> Iterator[Finding]:
    inputs = spec.streams[name].inputs
    if isinstance(inputs, RandomInputs):
        yield from check_shapes(inputs.shapes, ("streams", name, "inputs", "shapes"))


@for_each_stream
def _check_popularity(spec: Spec, name: str) -> Iterator[Finding]:
    inputs = spec.streams[name].inputs
    single = isinstance(inputs, RandomInputs) and inputs.unique == 1
    if single and isinstance(inputs.repeat, ZipfRepeat):
        text = "popularity needs more than one input; raise unique"
        yield Finding(("streams", name, "inputs", "repeat"), text)


@for_each_stream
def _check_log(spec: Spec, name: str) -> Iterator[Finding]:
    inputs = spec.streams[name].inputs
    mixed = isinstance(inputs, RandomInputs) and mixed_in(inputs.shapes)
    if mixed and isinstance(inputs.repeat, LogRepeat):
        text = "a log does not say which of the shapes its inputs have: send them from a file"
        yield Finding(("streams", name, "inputs", "repeat"), text)


@for_each_stream
def _check_duplicates(spec: Spec, name: str) -> Iterator[Finding]:
    inputs, where = spec.streams[name].inputs, ("streams", name, "inputs", "repeat")
    if not isinstance(inputs.repeat, DuplicatesRepeat):
        return
    if not isinstance(inputs, RandomInputs):
        text = (
            "a file does not have new inputs for every measurement: use random inputs, or kind log"
        )
        yield Finding(where, text)
    elif inputs.repeat.share >= 1:
        text = "not every request can repeat an earlier one; write less than 100%"
        yield Finding((*where, "share"), text)


def written_bounds(spec: Spec) -> Iterator[tuple[Location, Slo]]:
    """Each SLO in the spec, for the stream that it is written for, with its place."""
    for index, slo in applied(_valid_slos, spec):
        yield ("slo", index), slo
    for name, stream in spec.streams.items():
        for index, slo in applied(_valid_slos, stream):
            yield ("streams", name, "slo", index), slo.about(name)


def _valid_slos(part: Spec | StreamSpec) -> Iterator[tuple[int, Slo]]:
    yield from known(enumerate(part.slo))


def _check_slos(spec: Spec) -> Iterator[Finding]:
    if not spec.slos:
        empty = "slo" in spec.model_fields_set
        start, example = "must not be empty" if empty else "is missing", "[p99_latency <= 60ms]"
        yield Finding(("slo",), f"{start}: write slo: {example}", absent=not empty)


def _check_slos_are_different(spec: Spec) -> Iterator[Finding]:
    seen: set[tuple[Metric, str]] = set()
    for where, slo in written_bounds(spec):
        above = slo.stream and slo.metric.scope is Scope.STREAM and (slo.metric, "") in seen
        if above:
            text = f"{slo.metric.name} is bounded twice: for each stream at the top, and here"
            yield Finding(where, text)
        elif (slo.metric, slo.stream) in seen:
            yield Finding(where, f"{slo.metric.name} is bounded twice")
        seen.add((slo.metric, slo.stream))


def _check_throughput(spec: Spec) -> Iterator[Finding]:
    """The search for goodput raises the load until an SLO fails: lower loads must be easier."""
    if spec.objective.goal is not Goal.MAXIMIZE_GOODPUT:
        return
    for where, slo in written_bounds(spec):
        constant = slo.stream and spec.streams[slo.stream].rate is not None
        if slo.metric is THROUGHPUT and not constant:
            text = (
                "low loads fail this, and goodput is already the throughput: leave it out, or fix "
                "the load, e.g. objective: minimize p99_latency at 300/s"
            )
            yield Finding(where, text)


def _check_goodput(spec: Spec) -> Iterator[Finding]:
    if spec.objective.goal is not Goal.MAXIMIZE_GOODPUT or not spec.slos:
        return
    is_open = not isinstance(spec.workload.arrivals, ClosedArrivals)
    shared = spec.shares
    timed = [slo for slo in spec.slos if slo.metric.is_latency]
    if is_open and shared and not any(slo.holds_for(name) for slo in timed for name in shared):
        text = "goodput under open arrivals needs a latency SLO, such as p99_latency <= 60ms"
        yield Finding(("slo",) if spec.slo else ("streams", next(iter(shared))), text, key=True)


def _check_objective_load(spec: Spec) -> Iterator[Finding]:
    objective, arrivals = spec.objective, spec.workload.arrivals
    if objective.goal is not Goal.MINIMIZE or objective.at_level is None:
        return
    closed = isinstance(arrivals, ClosedArrivals)
    level = f"{objective.at_level:.12g}"
    if closed and objective.at_rate:
        text = f"{level}/s is a rate but arrivals are closed: write a concurrency, such as at 16"
        yield Finding(("objective",), text)
    elif not closed and not objective.at_rate:
        text = f"{level} is a concurrency but arrivals are {arrivals.kind}: write at {level}/s"
        yield Finding(("objective",), text)
    name = "concurrency" if closed else "rate"
    if getattr(arrivals, name):
        text = f"the objective fixes the load at {level}; leave {name} out"
        yield Finding(("workload", "arrivals", name), text, key=True)


def _check_throughput_at_load(spec: Spec) -> Iterator[Finding]:
    objective = spec.objective
    if objective.goal is not Goal.MINIMIZE or objective.at_level is None:
        return
    level = f"{objective.at_level:.12g}"
    for where, slo in written_bounds(spec):
        shares = {n: share for n, share in spec.shares.items() if n == slo.stream or not slo.stream}
        inferences = sum(share * spec.streams[n].batch_size for n, share in shares.items())
        most = objective.at_level * inferences
        if objective.at_rate and slo.metric is THROUGHPUT and slo.bound > most:
            text = f"at {level}/s there are only {most:.12g} inferences a second"
            yield Finding(where, text)


def _check_sample_size(spec: Spec) -> Iterator[Finding]:
    """A percentile needs enough requests: a listed rate must send that many in max_window."""
    arrivals = spec.workload.arrivals
    if isinstance(arrivals, ClosedArrivals):
        return
    rates = arrivals.rate or ()
    if spec.objective.at_level is not None and spec.objective.at_rate:
        rates = (spec.objective.at_level,)
    rate_per_s = min(rates, default=math.inf)
    if text := _too_few(spec, rate_per_s, "write", spec.objective.metric):
        yield Finding(("workload", "max_window"), text)


def _too_few(spec: Spec, rate_per_s: float, advice: str, minimised: Metric | None = None) -> str:
    """The stream whose percentile has too few requests at this load, in words; else ""."""
    window = spec.workload.max_window
    for name, stream in spec.streams.items():
        metrics = [slo.metric for slo in spec.slos if slo.holds_for(name)]
        metrics += [minimised] if minimised else []
        metric = max(metrics, key=lambda m: m.requests_needed, default=None)
        rate = stream.rate or rate_per_s * spec.shares.get(name, 1.0)
        if metric is not None and 0 < rate * window < metric.requests_needed:
            needed, what = metric.requests_needed, labelled(name, metric.name, spec.streams)
            return (
                f"{what} needs {needed} requests, but {rate:g}/s for {window} gives "
                f"{int(rate * window)}; {advice} {-int(-needed // rate)}s or more"
            )
    return ""


def _check_fixed_load(spec: Spec) -> Iterator[Finding]:
    """The fixed load of `tune check`, see `Check`."""
    level, objective, arrivals = spec.check.at, spec.objective, spec.workload.arrivals
    if level is None:
        return
    if objective.at_level is not None and level != objective.at_level:
        text = f"the objective fixes the load at {objective.at_level:.12g}; leave check.at out"
        yield Finding(("check", "at"), text, key=True)
    if isinstance(arrivals, ClosedArrivals):
        if level != int(level):
            yield Finding(
                ("check", "at"), f"{level:g} is not a whole number of clients: arrivals are closed"
            )
        return
    if text := _too_few(spec, level, "raise workload.max_window to"):
        yield Finding(("check", "at"), text)


def _check_gpu_memory(spec: Spec) -> Iterator[Finding]:
    where = [(at, slo.metric) for at, slo in written_bounds(spec) if slo.metric in OF_GPUS]
    if (metric := spec.objective.metric) in OF_GPUS and metric is not None:
        where.append((("objective",), metric))
    if not where:
        return
    place, metric = where[0]
    if not spec.server.managed and not spec.server.metrics:
        text = f"{metric.name} of a remote server is read from server.metrics, which is missing"
        yield Finding(place, text)
    elif spec.server.gpus == "none":
        yield Finding(place, f"{metric.name} means nothing with server.gpus: none")


RULES: tuple[Rule, ...] = (
    check_names,
    check_calls,
    check_models_of_streams,
    check_stream_names,
    check_bounds_of_streams,
    check_shares,
    check_open_loop,
    check_fields_of_mode,
    check_needs_of_mode,
    check_arguments,
    check_mounts,
    check_variables,
    check_loaded_models,
    check_shared_memory,
    _check_longest_window,
    _check_levels,
    check_rates,
    _check_length_of_bursts,
    _check_lengths,
    _check_protocol,
    _check_batch_of_sequences,
    _check_shapes,
    _check_popularity,
    _check_log,
    _check_duplicates,
    check_recorded_inputs,
    check_batch_of_recording,
    check_cache_of_recording,
    check_rates_of_recording,
    check_generator_of_recording,
    check_pace,
    check_cache_state,
    _check_budget,
    _check_slos,
    _check_slos_are_different,
    _check_throughput,
    _check_goodput,
    _check_objective_load,
    _check_throughput_at_load,
    _check_sample_size,
    _check_fixed_load,
    _check_gpu_memory,
    check_fields,
    check_space,
    check_preferred_sizes,
    check_cache_sizes,
    check_cache_of_remote,
    check_cache_switches,
    check_cached_inputs,
    check_cached_batches,
    check_variables_of_remote,
    check_thread_counts,
    check_current_variables,
)
