"""Rules between the parts of a spec: what each part allows, but not in combination.

Whether files, models and GPUs exist is not checked here, as it depends on the environment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator

from pydantic import BaseModel

from tuner.hiding import HIDDEN
from tuner.spec.labels import labelled
from tuner.spec.metrics import GPU_MEMORY, THROUGHPUT, Metric, Scope
from tuner.spec.mistakes import Finding, Location
from tuner.spec.model import Spec
from tuner.spec.model_checks import (
    check_cache,
    check_cache_sizes,
    check_models,
    check_open_loop,
    check_preferred_sizes,
    check_shares,
    check_space,
    check_streams,
)
from tuner.spec.paths import SEVERAL_REPOSITORIES
from tuner.spec.recording_checks import check_recording
from tuner.spec.server import MODES, is_own_argument
from tuner.spec.shapes import check_shapes, mixed_in
from tuner.spec.slo import Goal, Slo
from tuner.spec.units import digits
from tuner.spec.workload import (
    BUSY_TIMES,
    BurstArrivals,
    CacheState,
    ClosedArrivals,
    DuplicatesRepeat,
    LogRepeat,
    Protocol,
    RandomInputs,
    SequenceArrivals,
    SharedMemory,
    ZipfRepeat,
)


def cross_checks(spec: Spec, broken: Collection[str] = ()) -> Iterator[Finding]:
    """Every violation of a rule that reads none of the ``broken`` sections."""
    for check, sections in _CHECKS:
        if not set(sections) & set(broken):
            yield from check(spec)


def _check_server_mode(spec: Spec) -> Iterator[Finding]:
    server, own = spec.server, MODES[spec.server.mode]
    for name in dict.fromkeys(name for facts in MODES.values() for name in facts.fields):
        if name not in own.fields and _is_given(server, name):
            allowed = " and ".join(m.value for m, facts in MODES.items() if name in facts.fields)
            text = f"is for mode {allowed}, not {server.mode.value}"
            yield Finding(("server", name), text, key=True)
    for name, what in own.needed.items():
        if not getattr(server, name):
            text = f"is missing: mode {server.mode.value} needs {what}"
            yield Finding(("server", name), text)
    for name in ("http", "grpc", "metrics"):
        address = getattr(server, name)
        if address and not re.fullmatch(r"[^\s/:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", address):
            advice = "; leave out http:// and paths" if "/" in address else ""
            yield Finding(("server", name), f"'{address}' is not host:port{advice}")


def _check_shared_memory(spec: Spec) -> Iterator[Finding]:
    if spec.workload.shared_memory is not SharedMemory.NONE and not spec.server.managed:
        text = (
            "is for a server that tune starts, on this machine: use server.mode local or docker, "
            "or leave it out"
        )
        yield Finding(("workload", "shared_memory"), text, key=True)


def _check_server_arguments(spec: Spec) -> Iterator[Finding]:
    for index, argument in enumerate(spec.server.args):
        name = re.split(r"[=\s]", argument, maxsplit=1)[0]
        where = ("server", "args", index)
        if name == "--load-model" and (text := _loads_tuned(spec, index)):
            yield Finding(where, text)
        if is_own_argument(name):
            links = f"; {SEVERAL_REPOSITORIES}" if "--model-rep" in name else ""
            yield Finding(where, f"{name} is tune's own to set; leave it out{links}")
        elif argument.startswith("--") and " " in argument:
            better = argument.replace(" ", "=", 1)
            yield Finding(where, f"contains a space; write {better}, or two items")
    for source, target in spec.server.mounts.items():
        if not (source.startswith("/") and target.startswith("/")):
            text = "both paths of a mount must start with /"
            yield Finding(("server", "mounts", source), text, key=True)
    for name, variable in spec.server.environment.items():
        if variable.given == HIDDEN:
            text = (
                f"{HIDDEN} stands for a value that was not stored: write it, or {{from: VARIABLE}}"
            )
            yield Finding(("server", "environment", name), text)
    if spec.server.load_timeout <= 0:
        yield Finding(("server", "load_timeout"), "must be above 0")


def _loads_tuned(spec: Spec, index: int) -> str:
    """Why a --load-model is wrong; empty for a model that is to run next to the tuned one."""
    args = spec.server.args
    named = args[index].partition("=")[2] or "".join(args[index + 1 : index + 2])
    names = [model.name for model in spec.models.values()]
    if named.strip() in names:
        return f"{named.strip()} is loaded by tune itself; name the models that it calls"
    if named.strip() == "*":
        served = " and ".join(names)
        return (
            f"would load {served} too, which tune loads itself; name only the models that it calls"
        )
    return ""


def _check_windows(spec: Spec) -> Iterator[Finding]:
    workload = spec.workload
    if workload.window <= 0:
        yield Finding(("workload", "window"), "must be above 0")
    if workload.max_window < workload.window:
        text = f"max_window, {workload.max_window}, is shorter than window, {workload.window}"
        name = "max_window" if _is_given(workload, "max_window") else "window"
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
    if levels and _is_given(arrivals, f"max_{name}"):
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
    elif length <= 0:
        yield Finding((*where, "burst_length"), "must be above 0")
    elif BUSY_TIMES * arrivals.cycle_s > spec.workload.max_window:
        needs_s = math.ceil(BUSY_TIMES * arrivals.cycle_s)
        text = (
            f"a busy time comes every {digits(arrivals.cycle_s)}s on average, and a measurement "
            f"needs {BUSY_TIMES} of them: raise max_window, {spec.workload.max_window}, to "
            f"{needs_s}s or more"
        )
        given = [n for n in ("burst_length", "burst_share") if _is_given(arrivals, n)]
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
            if isinstance(inputs.repeat, LogRepeat) and mixed_in(inputs.shapes):
                text = (
                    "a log does not say which of the shapes its inputs have: send them from a file"
                )
                yield Finding((*where, "repeat"), text)
        single = isinstance(inputs, RandomInputs) and inputs.unique == 1
        if single and isinstance(inputs.repeat, ZipfRepeat):
            yield Finding((*where, "repeat"), "popularity needs more than one input; raise unique")
        if isinstance(inputs.repeat, DuplicatesRepeat) and not isinstance(inputs, RandomInputs):
            text = (
                "a file does not have new inputs for every measurement: use random inputs, or "
                "kind log"
            )
            yield Finding((*where, "repeat"), text)
        elif isinstance(inputs.repeat, DuplicatesRepeat) and inputs.repeat.share >= 1:
            text = "not every request can repeat an earlier one; write less than 100%"
            yield Finding((*where, "repeat", "share"), text)


def _check_cache_state(spec: Spec) -> Iterator[Finding]:
    if spec.workload.cache is CacheState.EMPTY and not spec.server.managed:
        text = "only a new server has an empty cache, and a remote one cannot be restarted"
        yield Finding(("workload", "cache"), text)


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
        yield Finding(("slo",), "must not be empty" if empty else "is missing")
    seen: set[tuple[Metric, str]] = set()
    for where, slo in written_bounds(spec):
        above = slo.stream and slo.metric.scope is Scope.STREAM and (slo.metric, "") in seen
        if above:
            text = f"{slo.metric.name} is bounded twice: for each stream at the top, and here"
            yield Finding(where, text)
        elif (slo.metric, slo.stream) in seen:
            yield Finding(where, f"{slo.metric.name} is bounded twice")
        seen.add((slo.metric, slo.stream))


def _check_goodput(spec: Spec) -> Iterator[Finding]:
    """Goodput is found by raising the load until an SLO fails: lower must be easier."""
    if spec.objective.goal is not Goal.MAXIMIZE_GOODPUT or not spec.slos:
        return
    for where, slo in written_bounds(spec):
        constant = slo.stream and spec.streams[slo.stream].rate is not None
        if slo.metric is THROUGHPUT and not constant:
            text = (
                "low loads fail this, and goodput is already the throughput: leave it out, or fix "
                "the load, e.g. objective: minimize p99_latency at 300/s"
            )
            yield Finding(where, text)
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


def _is_given(model: BaseModel, name: str) -> bool:
    """The spec sets the field, and not to its default."""
    default = type(model).model_fields[name].get_default(call_default_factory=True)
    return name in model.model_fields_set and getattr(model, name) != default


#: Each rule with the sections it reads.
_CHECKS: tuple[tuple[Callable[[Spec], Iterator[Finding]], tuple[str, ...]], ...] = (
    (check_models, ("models",)),
    (check_streams, ("models", "slo")),
    (check_shares, ("shares",)),
    (check_open_loop, ("shares", "workload")),
    (_check_server_mode, ("server",)),
    (_check_server_arguments, ("server", "models")),
    (_check_shared_memory, ("workload", "server")),
    (_check_windows, ("workload",)),
    (_check_levels, ("workload",)),
    (_check_bursts, ("workload",)),
    (_check_sequences, ("workload", "streams")),
    (_check_inputs, ("streams",)),
    (check_recording, ("streams", "workload", "server", "models", "objective")),
    (_check_cache_state, ("workload", "server")),
    (_check_budget, ("workload", "budget")),
    (_check_slos, ("slo",)),
    (_check_goodput, ("slo", "objective", "workload", "shares")),
    (_check_objective_load, ("slo", "objective", "workload", "shares")),
    (_check_sample_size, ("slo", "objective", "workload", "shares")),
    (_check_load_held, ("check", "slo", "objective", "workload", "shares")),
    (_check_gpu_memory, ("slo", "objective", "server")),
    (check_space, ("space",)),
    (check_preferred_sizes, ("space",)),
    (check_cache_sizes, ("space",)),
    (check_cache, ("space", "server", "streams")),
)
