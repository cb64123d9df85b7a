"""Checks of what a spec expects of responses."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.checks.case import Case
from tuner.load.traffic.encoding import output_bytes
from tuner.modelconfig.ensembles import answers_many_times
from tuner.spec.arrivals import SequenceArrivals
from tuner.spec.checks import written_bounds
from tuner.spec.metrics import Metric, Scope, Until
from tuner.spec.mistakes import Finding, in_brackets


def check_bounded_latencies(case: Case) -> Iterator[Finding]:
    """Refuses a latency SLO that requests to its model do not have."""
    spec, decoupled = case.spec, _decoupled(case)
    for where, slo in written_bounds(spec):
        named = [name for name in spec.streams if slo.holds_for(name)]
        if slo.metric.is_latency and slo.metric.scope is Scope.STREAM:
            named = [n for n in named if decoupled[n] or not _is_left_to_code(case, n)]
            texts = (_advice(slo.metric, spec.streams[n].model, decoupled[n]) for n in named)
            for text in dict.fromkeys(filter(None, texts)):
                yield Finding(where, text, key=True)


def check_minimized_latency(case: Case) -> Iterator[Finding]:
    """Refuses an objective on a latency that the requests do not have."""
    spec, decoupled = case.spec, _decoupled(case)
    metric = spec.objective.metric
    for name in spec.shares if metric is not None and metric.is_latency else ():
        if metric and (text := _advice(metric, spec.streams[name].model, decoupled[name])):
            yield Finding(("objective",), text, key=True)
            break


def check_protocol_of_decoupled(case: Case) -> Iterator[Finding]:
    """Refuses HTTP for decoupled models, which answer through gRPC streams."""
    for name, many in _decoupled(case).items():
        if many and case.spec.workload.protocol.over_http:
            model = case.spec.streams[name].model
            text = f"{model} is decoupled: it answers through gRPC streams only; write grpc"
            yield Finding(("workload", "protocol"), text, key=True)
            break


def check_tolerances(case: Case) -> Iterator[Finding]:
    """Refuses tolerances of outputs that no model with requests has."""
    models = [case.served.models[s.model].base.completed for s in case.spec.streams.values()]
    outputs = list(dict.fromkeys(tensor.name for model in models for tensor in model.output))
    for name in case.spec.confirm.tolerances if all(model.output for model in models) else ():
        if name not in outputs:
            text = f"no model that gets requests has an output {name}{in_brackets(name, outputs)}"
            yield Finding(("confirm", "tolerances", name), text, key=True)


def check_shared_outputs(case: Case) -> Iterator[Finding]:
    """Refuses shared outputs where a request has several responses or no output of fixed size."""
    where, arrivals = ("workload", "shared_outputs"), case.spec.workload.arrivals
    if not case.spec.workload.shared_outputs:
        return
    if isinstance(arrivals, SequenceArrivals) and arrivals.count_output is not None:
        text = "count_output is read from responses: leave out one of the two"
        yield Finding(where, text, key=True)
    for name, many in _decoupled(case).items():
        stream = case.spec.streams[name]
        base = case.served.models[stream.model].base
        sizes = output_bytes(base.completed, stream.batch_size)
        if many:
            text = f"{stream.model} is decoupled: its responses would overwrite each other"
            yield Finding(where, f"{text}; leave it out", key=True)
        elif sizes and not any(sizes.values()) and (base.known or not base.completes):
            text = f"no output of {stream.model} has a fixed size"
            yield Finding(where, f"{text}; leave it out", key=True)


def _decoupled(case: Case) -> dict[str, bool]:
    configs = {name: model.base.completed for name, model in case.served.models.items()}
    streams = case.spec.streams.items()
    return {name: answers_many_times(stream.model, configs) for name, stream in streams}


def _is_left_to_code(case: Case, stream: str) -> bool:
    """Whether a model's code may make it decoupled, which only a server shows."""
    answering = case.served.answering([case.spec.streams[stream].model])
    models = (case.served.models[label] for label in answering)
    return any(
        m.base.completes and not m.base.known and m.files.backend(m.base.file) == "python"
        for m in models
    )


def _advice(metric: Metric, model: str, many: bool) -> str:
    """What to write instead; empty where the requests to a model have such a latency."""
    if many and metric.until is Until.ANSWER:
        first, last = (metric.lasting(until).name for until in (Until.FIRST, Until.LAST))
        text = f"{model} is decoupled: it may answer a request many times"
        return f"{text}; write {first} or {last}"
    if not many and metric.until is not Until.ANSWER:
        text = f"{model} is not decoupled: it answers a request once"
        return f"{text}; write {metric.lasting(Until.ANSWER).name}"
    return ""
