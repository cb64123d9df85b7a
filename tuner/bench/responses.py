"""Whether a spec asks of a decoupled model what it has, and of others what they have."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.modelconfig.ensembles import answers_many_times
from tuner.modelconfig.served import Served
from tuner.spec.checks import written_bounds
from tuner.spec.load import LoadedSpec
from tuner.spec.metrics import Metric, Scope, Until
from tuner.spec.mistakes import Location, SpecMistakesError
from tuner.spec.model import Spec
from tuner.spec.workload import Protocol


def refuse_other_latencies(loaded: LoadedSpec, spec: Spec, served: Served) -> None:
    """A request that is answered once has one latency, and others have two.

    Raises:
        SpecError: The spec bounds or minimises one that a stream's requests do not have, or asks a
            decoupled model over HTTP.
    """
    configs = {name: model.base.completed for name, model in served.models.items()}
    decoupled = {
        name: answers_many_times(stream.model, configs) for name, stream in spec.streams.items()
    }
    found = [loaded.mistake(*finding) for finding in _wrong(spec, decoupled)]
    if found:
        raise SpecMistakesError(found)


def _wrong(spec: Spec, decoupled: dict[str, bool]) -> Iterator[tuple[Location, str]]:
    for where, slo in written_bounds(spec):
        named = [name for name in spec.streams if slo.holds_for(name)]
        if slo.metric.is_latency and slo.metric.scope is Scope.STREAM:
            texts = (_advice(slo.metric, spec.streams[n].model, decoupled[n]) for n in named)
            yield from ((where, text) for text in dict.fromkeys(filter(None, texts)))
    metric = spec.objective.metric
    for name in spec.shares if metric is not None and metric.is_latency else ():
        if metric and (text := _advice(metric, spec.streams[name].model, decoupled[name])):
            yield ("objective",), text
            break
    for name, many in decoupled.items():
        if many and spec.workload.protocol is Protocol.HTTP:
            text = f"{spec.streams[name].model} is decoupled: it answers through gRPC streams only"
            yield ("workload", "protocol"), f"{text}; write grpc"
            break


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
