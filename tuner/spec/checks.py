"""Rules between the parts of a spec: what each part allows, but not in combination.

Whether files, models and GPUs exist is not checked here, as it depends on the environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence

from tuner.spec.labels import labelled
from tuner.spec.metrics import GPU_MEMORY, THROUGHPUT, Metric, Scope
from tuner.spec.mistakes import Finding, Location
from tuner.spec.model import Spec, is_given
from tuner.spec.model_checks import (
    check_cache,
    check_cache_sizes,
    check_fields,
    check_models,
    check_open_loop,
    check_preferred_sizes,
    check_shares,
    check_space,
    check_stream_names,
    check_streams,
)
from tuner.spec.recording_checks import check_recording
from tuner.spec.server_checks import (
    check_addresses,
    check_cache_state,
    check_fields_of_mode,
    check_loaded_models,
    check_needs_of_mode,
    check_server_arguments,
    check_shared_memory,
)
from tuner.spec.shapes import check_shapes, mixed_in
from tuner.spec.slo import Goal, Slo
from tuner.spec.units import digits
from tuner.spec.workload import (
    BUSY_TIMES,
    BurstArrivals,
    ClosedArrivals,
    DuplicatesRepeat,
    LogRepeat,
    Protocol,
    RandomInputs,
    SequenceArrivals,
    ZipfRepeat,
)


def cross_checks(spec: Spec, gaps: Collection[Location] = ()) -> Iterator[Finding]:
    """Every violation of a rule that needs to know none of the ``gaps``.

    Args:
        gaps: Parts of the spec that were wrong. Where one may be left out, it has its default;
            a list has its valid items.
    """
    for check, needed in _CHECKS:
        if not any(_overlap(part.split("."), gap) for part in needed for gap in gaps):
            yield from check(spec)


def _overlap(pattern: Sequence[str], gap: Location) -> bool:
    """One is the other, or a part of it; ``*`` is any key."""
    return all(name in ("*", key) for name, key in zip(pattern, gap, strict=False))


def _check_windows(spec: Spec) -> Iterator[Finding]:
    if spec.workload.window <= 0:
        yield Finding(("workload", "window"), "must be above 0")


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


def _check_bursts(spec: Spec) -> Iterator[Finding]:
    arrivals, where = spec.workload.arrivals, ("workload", "arrivals")
    if not isinstance(arrivals, BurstArrivals):
        return
    share, length = arrivals.burst_share, arrivals.burst_length
    if not 0 < share < 1:
        yield Finding((*where, "burst_share"), f"must be above 0% and below 100%, not {share}")
    if length <= 0:
        yield Finding((*where, "burst_length"), "must be above 0")


def _check_length_of_bursts(spec: Spec) -> Iterator[Finding]:
    arrivals, where = spec.workload.arrivals, ("workload", "arrivals")
    if not isinstance(arrivals, BurstArrivals):
        return
    if not 0 < arrivals.burst_share < 1 or arrivals.burst_length <= 0:
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


def _check_sequences(spec: Spec) -> Iterator[Finding]:
    arrivals, where = spec.workload.arrivals, ("workload", "arrivals")
    if not isinstance(arrivals, SequenceArrivals):
        return
    if arrivals.interval <= 0:
        yield Finding((*where, "interval"), "must be above 0")
    low, high = arrivals.lengths
    if high < low:
        yield Finding((*where, "longest"), f"{high} is below length, {low}")
    if spec.workload.protocol is Protocol.HTTP:
        text = "sequences are sent over gRPC, on whose one connection they cannot meet in disorder"
        yield Finding(("workload", "protocol"), f"{text}: leave it out")
    for name, stream in spec.streams.items():
        if stream.batch_size > 1:
            text = (
                "a request of a sequence holds one inference (Triton's sequence batcher): write 1"
            )
            yield Finding(("streams", name, "batch_size"), text)


def _check_inputs(spec: Spec) -> Iterator[Finding]:
    for name, stream in spec.streams.items():
        inputs, where = stream.inputs, ("streams", name, "inputs")
        if isinstance(inputs, RandomInputs):
            yield from check_shapes(inputs.shapes, (*where, "shapes"))


def _check_repeats(spec: Spec) -> Iterator[Finding]:
    for name, stream in spec.streams.items():
        inputs, where = stream.inputs, ("streams", name, "inputs")
        random = inputs if isinstance(inputs, RandomInputs) else None
        if random and isinstance(random.repeat, LogRepeat) and mixed_in(random.shapes):
            text = "a log does not say which of the shapes its inputs have: send them from a file"
            yield Finding((*where, "repeat"), text)
        if random and random.unique == 1 and isinstance(random.repeat, ZipfRepeat):
            yield Finding((*where, "repeat"), "popularity needs more than one input; raise unique")
        if isinstance(inputs.repeat, DuplicatesRepeat) and random is None:
            text = (
                "a file does not have new inputs for every measurement: use random inputs, or "
                "kind log"
            )
            yield Finding((*where, "repeat"), text)
        elif isinstance(inputs.repeat, DuplicatesRepeat) and inputs.repeat.share >= 1:
            text = "not every request can repeat an earlier one; write less than 100%"
            yield Finding((*where, "repeat", "share"), text)


def written_bounds(spec: Spec) -> Iterator[tuple[Location, Slo]]:
    """Each SLO that is written, about the stream it is written for, with its place."""
    for index, slo in enumerate(spec.slo):
        yield ("slo", index), slo
    for name, stream in spec.streams.items():
        for index, slo in enumerate(stream.slo):
            yield ("streams", name, "slo", index), slo.about(name)


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
    """Goodput is found by raising the load until an SLO fails: lower must be easier."""
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
    """A percentile needs enough requests, and a given rate sends only so many in max_window."""
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
    """Which stream's percentile cannot be known at this load; "" if all can."""
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


def _check_load_held(spec: Spec) -> Iterator[Finding]:
    """The load that a check holds the config to, see `Check`."""
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
    where: list[Location] = [at for at, slo in written_bounds(spec) if slo.metric is GPU_MEMORY]
    where += [("objective",)] if spec.objective.metric is GPU_MEMORY else []
    if where and not spec.server.managed and not spec.server.metrics:
        text = "gpu_memory of a remote server is read from server.metrics, which is missing"
        yield Finding(where[0], text)
    elif where and spec.server.gpus == "none":
        yield Finding(where[0], "gpu_memory means nothing with server.gpus: none")


_SERVER_MODE, _OBJECTIVE = "server.mode", "objective"
_ARRIVALS, _KIND = "workload.arrivals", "workload.arrivals.kind"
_NAMES, _SPACES = "models.*.name", "models.*.space"
_LOADS = ("streams.*.share", "streams.*.rate")
_BOUNDS = ("slo", "streams.*.slo")
_CACHE = ("server.space", "server.args", _SERVER_MODE)

#: Each rule with what it needs to know: where that is wrong, the rule could report what is right.
_CHECKS: tuple[tuple[Callable[[Spec], Iterator[Finding]], tuple[str, ...]], ...] = (
    (check_models, ()),
    (check_stream_names, ()),
    (check_streams, (_NAMES, "streams.*.model")),
    (check_shares, _LOADS),
    (check_open_loop, (*_LOADS, _KIND)),
    (check_fields_of_mode, (_SERVER_MODE,)),
    (check_needs_of_mode, (_SERVER_MODE, "server.image", "server.http", "server.grpc")),
    (check_addresses, ()),
    (check_server_arguments, ()),
    (check_loaded_models, (_NAMES,)),
    (check_shared_memory, (_SERVER_MODE,)),
    (_check_windows, ()),
    (_check_longest_window, ("workload.window", "workload.max_window")),
    (_check_levels, ()),
    (_check_bursts, ()),
    (_check_length_of_bursts, (_ARRIVALS, "workload.max_window")),
    (_check_sequences, ()),
    (_check_inputs, ()),
    (_check_repeats, ("streams.*.inputs",)),
    (check_recording, (_KIND,)),
    (check_cache_state, (_SERVER_MODE,)),
    (_check_budget, ("workload.window", "workload.warmup")),
    (_check_slos, _BOUNDS),
    (_check_slos_are_different, ()),
    (_check_throughput, (_OBJECTIVE, "streams.*.rate")),
    (_check_goodput, (*_BOUNDS, *_LOADS, _OBJECTIVE, _KIND)),
    (_check_objective_load, (_OBJECTIVE, _KIND)),
    (_check_throughput_at_load, (_OBJECTIVE, *_LOADS, "streams.*.batch_size")),
    (_check_sample_size, (_OBJECTIVE, *_LOADS, _ARRIVALS, "workload.max_window")),
    (_check_load_held, (_OBJECTIVE, *_LOADS, _ARRIVALS, "workload.max_window")),
    (_check_gpu_memory, (_SERVER_MODE, "server.metrics", "server.gpus")),
    (check_fields, ()),
    (check_space, (_SPACES, "server.space")),
    (check_preferred_sizes, ()),
    (check_cache_sizes, ()),
    (check_cache, _CACHE),
)
