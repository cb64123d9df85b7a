"""Whether a spec asks of a decoupled model what it has, and of others what they have."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.checks.case import Case
from tuner.modelconfig.ensembles import answers_many_times
from tuner.spec.checks import written_bounds
from tuner.spec.metrics import Metric, Scope, Until
from tuner.spec.mistakes import Finding
from tuner.spec.workload import Protocol


def check_bounded_latencies(case: Case) -> Iterator[Finding]:
    """A request that is answered once has one latency, and others have two."""
    spec, decoupled = case.spec, _decoupled(case)
    for where, slo in written_bounds(spec):
        named = [name for name in spec.streams if slo.holds_for(name)]
        if slo.metric.is_latency and slo.metric.scope is Scope.STREAM:
            texts = (_advice(slo.metric, spec.streams[n].model, decoupled[n]) for n in named)
            for text in dict.fromkeys(filter(None, texts)):
                yield Finding(where, text, key=True)


def check_minimized_latency(case: Case) -> Iterator[Finding]:
    """The latency to minimize is one that the requests have."""
    spec, decoupled = case.spec, _decoupled(case)
    metric = spec.objective.metric
    for name in spec.shares if metric is not None and metric.is_latency else ():
        if metric and (text := _advice(metric, spec.streams[name].model, decoupled[name])):
            yield Finding(("objective",), text, key=True)
            break


def check_protocol_of_decoupled(case: Case) -> Iterator[Finding]:
    """Decoupled models answer through gRPC streams."""
    for name, many in _decoupled(case).items():
        if many and case.spec.workload.protocol is Protocol.HTTP:
            model = case.spec.streams[name].model
            text = f"{model} is decoupled: it answers through gRPC streams only; write grpc"
            yield Finding(("workload", "protocol"), text, key=True)
            break


def _decoupled(case: Case) -> dict[str, bool]:
    configs = {name: model.base.completed for name, model in case.served.models.items()}
    streams = case.spec.streams.items()
    return {name: answers_many_times(stream.model, configs) for name, stream in streams}


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
