"""Models that take sequences of requests, and the load that fits them."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.errors import SpecError
from tuner.modelconfig.base import DEFAULT_SEQUENCE_IDLE_US
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import Served, ServedModel
from tuner.spec.mistakes import in_brackets, listed
from tuner.spec.model import Spec
from tuner.spec.paths import SEQUENCE_BATCHING, SEQUENCE_IDLE
from tuner.spec.units import digits
from tuner.spec.workload import SequenceArrivals

#: What a draft writes, and what a mistake says.
EXAMPLE = "{kind: sequences, length: 20, interval: 100ms}"


def takes_sequences(config: ModelConfig) -> bool:
    return bool(config.HasField(SEQUENCE_BATCHING))


def refuse_misfit_load(spec: Spec, served: Served) -> None:
    """Refuses a load of sequences on models that take none, and any other on those that do.

    Raises:
        SpecError: With what to write.
    """
    arrivals = spec.workload.arrivals
    asked = served.answering(stream.model for stream in spec.streams.values())
    taking = [m for m in map(served.models.__getitem__, asked) if takes_sequences(_config(m))]
    if not isinstance(arrivals, SequenceArrivals):
        if taking:
            raise SpecError(
                f"{taking[0].name} takes sequences of requests (sequence_batching), and arrivals "
                f"are {arrivals.kind}",
                f"write workload.arrivals: {EXAMPLE}, with what your users send",
            )
        return
    if not taking:
        names = listed(dict.fromkeys(stream.model for stream in spec.streams.values()))
        raise SpecError(
            f"arrivals are sequences, and {names} has no sequence_batching",
            "take other arrivals, such as {kind: poisson}; what keeps no state needs no sequences",
        )
    for model in map(served.models.__getitem__, asked):
        if _config(model).model_transaction_policy.decoupled:
            text = f"{model.name} is decoupled, and arrivals are sequences: not measured together"
            raise SpecError(text, "tune it without the others, or the models that it calls")
    for found in (*_forgotten(spec, taking, arrivals), *_uncounted(spec, served, arrivals)):
        raise found


def sequence_note(spec: Spec) -> str:
    """How many sequences a load is, and whether their order is checked; empty without any."""
    arrivals = spec.workload.arrivals
    if not isinstance(arrivals, SequenceArrivals):
        return ""
    one = digits(1.0 / float(arrivals.interval))
    checked = f"their order is checked in {arrivals.count_output}"
    if arrivals.count_output is None:
        checked = "their order is kept, not checked: no count_output is named"
    return f"each sequence at once is {one}/s; {checked}"


def _forgotten(
    spec: Spec, taking: list[ServedModel], arrivals: SequenceArrivals
) -> Iterator[SpecError]:
    """Models that drop a sequence before its next request comes."""
    for model in taking:
        searched = spec.models[model.name].space if model.name in spec.models else {}
        batching = _config(model).sequence_batching
        idle_us = batching.max_sequence_idle_microseconds or DEFAULT_SEQUENCE_IDLE_US
        if SEQUENCE_IDLE not in searched and idle_us <= 1e6 * float(arrivals.interval):
            yield SpecError(
                f"{model.name} drops a sequence after {idle_us / 1e6:g} s without a request, and "
                f"the next one comes after {arrivals.interval}",
                f"write {SEQUENCE_IDLE.replace('.', ' { ')}: ... }} in config.pbtxt, well above it",
            )


def _uncounted(spec: Spec, served: Served, arrivals: SequenceArrivals) -> Iterator[SpecError]:
    name = arrivals.count_output
    for stream in spec.streams.values() if name is not None else ():
        answering = served.answering([stream.model])
        if not any(takes_sequences(_config(served.models[model])) for model in answering):
            continue
        outputs = [tensor.name for tensor in _config(served.models[stream.model]).output]
        if name not in outputs:
            text = f"workload.arrivals.count_output: {name} is no output of {stream.model}"
            yield SpecError(f"{text}{in_brackets(str(name), outputs)}")


def _config(model: ServedModel) -> ModelConfig:
    return model.base.completed
