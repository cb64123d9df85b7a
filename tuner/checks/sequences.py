"""Checks that models which take sequences get them, and no other models."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.checks.case import Case
from tuner.load.traffic.request_file import place_in_data
from tuner.modelconfig.base import DEFAULT_SEQUENCE_IDLE_US
from tuner.modelconfig.schema import ModelConfig, takes_sequences
from tuner.modelconfig.served import ServedModel
from tuner.space.sequences import DECOUPLED, EXAMPLE
from tuner.spec.arrivals import SequenceArrivals
from tuner.spec.labels import of_label
from tuner.spec.mistakes import Finding, in_brackets, listed
from tuner.spec.paths import SEQUENCE_IDLE
from tuner.spec.workload import FileInputs, NoRepeat, StreamSpec

_ARRIVALS = ("workload", "arrivals")


def check_arrivals(case: Case) -> Iterator[Finding]:
    """Refuses sequences for models that take none, and other arrivals for those that do."""
    arrivals, taking = case.spec.workload.arrivals, _taking(case)
    if isinstance(arrivals, SequenceArrivals) and not taking:
        names = listed(dict.fromkeys(stream.model for stream in case.spec.streams.values()))
        yield Finding(
            _ARRIVALS,
            f"arrivals are sequences, and {names} has no sequence_batching",
            hint="take other arrivals, such as {kind: poisson}; what keeps no state needs no "
            "sequences",
        )
    elif taking and not isinstance(arrivals, SequenceArrivals):
        yield Finding(
            _ARRIVALS,
            f"{taking[0].name} takes sequences of requests (sequence_batching), and arrivals are "
            f"{arrivals.kind}",
            hint=f"write workload.arrivals: {EXAMPLE}, with what your users send",
        )


def check_played(case: Case) -> Iterator[Finding]:
    """Refuses a file of sequences for a model that takes none, and repeats of such a file."""
    for name, stream in case.spec.streams.items():
        inputs = stream.inputs
        if not isinstance(inputs, FileInputs) or not _lengths(case, name):
            continue
        if not _takes(case, stream):
            yield Finding(
                (),
                f"a list in the list is a sequence of requests, and {stream.model} takes none (it "
                "has no sequence_batching)",
                hint='write one list of requests: {"data": [{"INPUT": [1, 2, 3]}, ...]}',
                at=place_in_data(inputs.file, (0,)),
            )
        elif not isinstance(inputs.repeat, NoRepeat):
            yield Finding(
                ("streams", name, "inputs", "repeat"),
                f"{inputs.file.name} holds sequences, whose requests are sent in its order",
                hint="leave repeat out",
            )


def check_lengths(case: Case) -> Iterator[Finding]:
    """Refuses sequences whose length neither the spec nor a file gives, or both do."""
    arrivals, streams = case.spec.workload.arrivals, case.spec.streams
    if not isinstance(arrivals, SequenceArrivals):
        return
    taking = [name for name, stream in streams.items() if _takes(case, stream)]
    unread = [n for n in taking if isinstance(streams[n].inputs, FileInputs)]
    if any(name not in case.recorded for name in unread):
        return  # what is wrong with the file is said elsewhere
    drawn = [name for name in taking if not _lengths(case, name)]
    if drawn and arrivals.length is None:
        yield Finding(
            (*_ARRIVALS, "length"),
            f"is missing: how many requests a sequence{of_label(drawn[0], streams)} has",
            absent=True,
            hint='write length: 10, or give a file of sequences as inputs: {"data": [[REQUEST, '
            "REQUEST], ...]}",
        )
    elif taking and not drawn and arrivals.length is not None:
        yield Finding(
            (*_ARRIVALS, "length"),
            "the requests come from a file of sequences, which says how many each has",
            hint="leave length and longest out",
        )


def check_decoupled(case: Case) -> Iterator[Finding]:
    """Refuses sequences for decoupled models."""
    if not isinstance(case.spec.workload.arrivals, SequenceArrivals) or not _taking(case):
        return
    for model in _loaded_models(case):
        if _config(model).model_transaction_policy.decoupled:
            text = f"{model.name} is decoupled, and arrivals are sequences: not measured together"
            both = takes_sequences(_config(model))
            hint = DECOUPLED if both else "tune it without the others, or the models that it calls"
            yield Finding(_ARRIVALS, text, hint=hint)


def check_idle_time(case: Case) -> Iterator[Finding]:
    """Refuses an interval in which a model would drop an idle sequence."""
    spec, arrivals = case.spec, case.spec.workload.arrivals
    if not isinstance(arrivals, SequenceArrivals):
        return
    for model in _taking(case):
        searched = spec.models[model.name].space if model.name in spec.models else {}
        batching = _config(model).sequence_batching
        idle_us = batching.max_sequence_idle_microseconds or DEFAULT_SEQUENCE_IDLE_US
        if SEQUENCE_IDLE not in searched and idle_us <= 1e6 * float(arrivals.interval):
            yield Finding(
                (*_ARRIVALS, "interval"),
                f"{model.name} drops a sequence after {idle_us / 1e6:g} s without a request, and "
                f"the next one comes after {arrivals.interval}",
                hint=f"write {SEQUENCE_IDLE.replace('.', ' { ')}: ... }} in config.pbtxt, well "
                "above it",
            )


def check_count_output(case: Case) -> Iterator[Finding]:
    """Refuses a `count_output` that the model does not have."""
    arrivals, models = case.spec.workload.arrivals, case.served.models
    name = arrivals.count_output if isinstance(arrivals, SequenceArrivals) else None
    for stream in case.spec.streams.values() if name is not None else ():
        if _takes(case, stream):
            outputs = [tensor.name for tensor in _config(models[stream.model]).output]
            if name not in outputs:
                text = f"{name} is no output of {stream.model}{in_brackets(str(name), outputs)}"
                yield Finding((*_ARRIVALS, "count_output"), text)


def _lengths(case: Case, stream: str) -> tuple[int, ...]:
    """Lengths of the sequences in a stream's file."""
    return case.recorded[stream].lengths if stream in case.recorded else ()


def _takes(case: Case, stream: StreamSpec) -> bool:
    answering = case.served.answering([stream.model])
    return any(takes_sequences(_config(case.served.models[label])) for label in answering)


def _loaded_models(case: Case) -> list[ServedModel]:
    labels = case.served.answering(stream.model for stream in case.spec.streams.values())
    return [case.served.models[label] for label in labels]


def _taking(case: Case) -> list[ServedModel]:
    return [model for model in _loaded_models(case) if takes_sequences(_config(model))]


def _config(model: ServedModel) -> ModelConfig:
    return model.base.completed
