"""The answers of a model, and whether two configs give the same answers.

The probe sends the workload's own inputs: each alone, and several times together with all others.
Only the latter forms dynamic batches, which reveal a model whose ``execute`` mixes up its requests.
With a response cache, some inputs are sent again in ways that only the cache takes for the same:
with other parameters, for some of the outputs, in another shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, SpecError
from tuner.load.client.calls import asking, reply_to
from tuner.load.setup import Stream
from tuner.load.traffic.encoding import datatype_of
from tuner.load.traffic.reply import UnreadableAnswerError, outputs_in
from tuner.spec.units import count_text, digits

_QUESTIONS = 16
#: Number of inputs that are sent again in each way that the cache cannot tell apart.
_VARIED = 4
#: A value that no user sends, so that it is not a default.
_PARAMETER = 7
_TIMES_TOGETHER = 4  # enough in flight that fast models form batches too
_DEADLINE_S = 60.0

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Answer:
    """The answer to one request.

    Attributes:
        outputs: Arrays by name; strings are arrays of bytes.
        error: The model's own words instead of outputs, or why the outputs cannot be read.
        rejected: A queue policy refused the request before the model received it.
    """

    outputs: Mapping[str, Array]
    error: str = ""
    rejected: bool = False


@dataclass(frozen=True)
class ConfigAnswers:
    """The answers of one config to all inputs of the probe.

    Attributes:
        alone: One answer per input, sent one after another.
        together: Answers to repeated inputs, sent at the same time.
        varied: How a request was varied, in words, and its answer.
        none_because: Why the probe cannot run; empty if it ran.
    """

    alone: tuple[Answer, ...] = ()
    together: tuple[Answer, ...] = ()
    varied: tuple[tuple[str, Answer], ...] = ()
    none_because: str = ""


def ask(stream: Stream, config: Any) -> ConfigAnswers:
    """Sends some of the workload's inputs to the loaded model.

    Simultaneous requests come first: the response cache may answer repeated ones.

    Args:
        stream: The stream whose inputs are sent.
        config: The ``ModelConfig`` of its model, as it runs.

    Raises:
        ServerGoneError: An answer did not come, or the server is gone.
    """
    if config.model_transaction_policy.decoupled:
        return ConfigAnswers(
            none_because="a decoupled model may answer a request any number of times"
        )
    if config.HasField("sequence_batching"):
        return ConfigAnswers(none_because="answers of a sequence depend on its earlier requests")
    try:
        questions = stream.questions(_QUESTIONS)
    except (LoadFailedError, SpecError) as error:
        return ConfigAnswers(none_because=error.message)
    with asking(stream.target.endpoints) as method:
        waiting = [method.future(q, timeout=_DEADLINE_S) for q in questions * _TIMES_TOGETHER]
        together = tuple(map(_answer, waiting))
        alone = tuple(_answer(method.future(q, timeout=_DEADLINE_S)) for q in questions)
        varied = tuple(
            (f"input {number} {how}", _answer(method.future(q, timeout=_DEADLINE_S)))
            for number, question in enumerate(questions[:_VARIED])
            for how, q in vary(question, config, stream.requests.varied)
        )
    return ConfigAnswers(alone, together, varied)


def vary(
    question: bytes, config: Any, parameters: Sequence[str] | None
) -> Iterator[tuple[str, bytes]]:
    """Variants of a request with the same input bytes, each with the difference in words.

    Args:
        question: The serialized request.
        config: The ``ModelConfig`` of its model.
        parameters: Names of request parameters that the model may read; None: there is no cache.
    """
    from tritonclient.grpc import service_pb2

    def copy() -> Any:
        return service_pb2.ModelInferRequest.FromString(question)

    if parameters is None:
        return
    if parameters:
        request = copy()
        for name in parameters:
            request.parameters[name].int64_param = _PARAMETER
        yield "with other parameters", request.SerializeToString()
    if len(config.output) > 1:
        request = copy()
        del request.outputs[:]
        request.outputs.add(name=config.output[-1].name)
        yield f"for {config.output[-1].name} alone", request.SerializeToString()
    request = copy()
    if _reshaped(request, config):
        yield "in another shape", request.SerializeToString()


def _reshaped(request: Any, config: Any) -> bool:
    """Reshapes the request's inputs, within the config's dimensions; whether any could be."""
    batched = config.max_batch_size > 0
    dims = {tensor.name: [*tensor.dims] for tensor in config.input}
    reshaped = False
    for tensor in request.inputs:
        opened = [at + batched for at, dim in enumerate(dims.get(tensor.name, ())) if dim < 0]
        for one, other in pairwise(opened):
            if tensor.shape[one] != tensor.shape[other]:
                both = tensor.shape[other], tensor.shape[one]
                tensor.shape[one], tensor.shape[other] = both
                reshaped = True
                break
    if reshaped or not batched or not request.inputs:
        return reshaped
    rows = 2 * request.inputs[0].shape[0]
    halved = []
    for tensor in request.inputs:
        opened = [at for at, dim in enumerate(dims.get(tensor.name, ()), 1) if dim < 0]
        halved.append(next((at for at in opened if tensor.shape[at] % 2 == 0), 0))
    if rows > config.max_batch_size or not all(halved):
        return False
    for tensor, at in zip(request.inputs, halved, strict=True):
        tensor.shape[0] = rows
        tensor.shape[at] //= 2
    return True


def unlike_config(answer: bytes, config: Any) -> list[str]:
    """Outputs of a serialized ``ModelInferResponse`` whose type or shape is not the config's.

    Triton does not check what a model returns, so clients that rely on the config fail.

    Args:
        answer: The serialized response.
        config: The ``ModelConfig`` as it runs; -1 stands for any dimension.

    Returns:
        One clause per output.
    """
    from google.protobuf.message import DecodeError
    from tritonclient.grpc import service_pb2

    try:
        outputs = service_pb2.ModelInferResponse.FromString(answer).outputs
    except DecodeError:
        return []  # the comparison of answers reports it
    batched = config.max_batch_size > 0
    declared = {o.name: (datatype_of(o), [-1] * batched + [*o.dims]) for o in config.output}
    texts = []
    for output in outputs:
        datatype, dims = declared.get(output.name, (output.datatype, [*output.shape]))
        fits = len(dims) == len(output.shape) and all(
            dim in (-1, size) for dim, size in zip(dims, output.shape, strict=True)
        )
        if output.datatype != datatype or not fits:
            given = f"{output.datatype} {[*output.shape[batched:]]}"
            texts.append(f"{output.name} is {given}, not {datatype} {dims[batched:]}")
    return texts


def differences(
    one: ConfigAnswers,
    other: ConfigAnswers,
    tolerance: float,
    by_output: Mapping[str, float] = MappingProxyType({}),
) -> list[str]:
    """A sentence for each input and output for which ``other`` answers differently than ``one``.

    Integers, booleans and strings must be equal. Floats may differ by ``tolerance`` as a share of
    their size, since a batch is summed in another order than a single input. They may also differ
    by that share of the mean size of the output's values, since values near zero can result from
    cancellation.

    Args:
        one: Answers of one config.
        other: Answers of the other config, to the same requests.
        tolerance: Share of the size, 0..1; 0: floats must be equal.
        by_output: Tolerances of single outputs, by name.
    """
    texts = []
    within = (tolerance, by_output)
    for how, expected, given in (
        ("alone", one.alone, other.alone),
        ("with others", one.together, other.together),
    ):
        for number, (a, b) in enumerate(zip(expected, given, strict=True)):
            if not (a.rejected or b.rejected):
                where = f"input {number % len(one.alone)} {how}"
                texts += [f"{where}: {text}" for text in _different(a, b, *within)]
    for (where, a), (_, b) in zip(one.varied, other.varied, strict=True):
        if not (a.rejected or b.rejected):
            texts += [f"{where}: {text}" for text in _different(a, b, *within)]
    return list(dict.fromkeys(texts))


def largest_differences(one: ConfigAnswers, other: ConfigAnswers) -> dict[str, float]:
    """Largest difference by float output, relative as in `differences`; without equal outputs."""
    largest = dict[str, float]()
    for a, b in zip((*one.alone, *one.together), (*other.alone, *other.together), strict=True):
        for name in a.outputs.keys() & b.outputs.keys():
            was, now = a.outputs[name], b.outputs[name]
            if was.dtype.kind == "f" and was.shape == now.shape and was.size:
                sizes = np.abs(was.astype(float))
                off = np.abs(was.astype(float) - now.astype(float))
                with np.errstate(all="ignore"):
                    apart = off / (sizes + sizes.mean())
                worst = float(np.max(apart, initial=0.0, where=np.isfinite(apart)))
                largest[name] = max(largest.get(name, 0.0), worst)
    return {name: worst for name, worst in sorted(largest.items()) if worst > 0.0}


def _answer(call: Any) -> Answer:
    reply = reply_to(call, "comparing answers")
    if reply.answer is None:
        return Answer({}, reply.words, reply.refused)
    try:
        return Answer(outputs_in(reply.answer))
    except UnreadableAnswerError as error:
        return Answer({}, str(error))


def _different(
    one: Answer, other: Answer, tolerance: float, by_output: Mapping[str, float]
) -> Iterator[str]:
    if one.error or other.error:
        if not one.error:
            yield f"it fails: {other.error}"
        elif not other.error:
            yield f"it no longer fails (before: {one.error})"
        return
    for name in sorted({*one.outputs, *other.outputs}):
        a, b = one.outputs.get(name), other.outputs.get(name)
        if b is None:
            yield f"output {name} is missing"
        elif a is None:
            yield f"output {name} is new"
        elif (a.dtype, a.shape) != (b.dtype, b.shape):
            was, now = (f"{x.dtype}{list(x.shape)}" for x in (a, b))
            yield f"output {name} was {was} and is {now}"
        elif text := _unequal(a, b, by_output.get(name, tolerance)):
            yield f"output {name} differs {text}"


def _unequal(one: Array, other: Array, tolerance: float) -> str:
    """How far two arrays differ, in words; empty within the tolerance."""
    if one.dtype.kind != "f":
        count = int((one != other).sum())
        return f"in {count:,} of {count_text(one.size, 'value')}" if count else ""
    a, b = one.astype(float), other.astype(float)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    both = np.isfinite(a) & np.isfinite(b)
    if not (same | both).all():
        return "where it is not a finite number"
    if not both.any():
        return ""
    a, b = a[both], b[both]
    off, sizes = np.abs(a - b), np.abs(a)
    if (off <= tolerance * (sizes + sizes.mean())).all():
        return ""
    worst = int(off.argmax())
    return f"by up to {digits(off[worst])} ({digits(a[worst], 6)} became {digits(b[worst], 6)})"
