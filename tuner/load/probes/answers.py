"""What a model answers, and whether two configs answer the same.

The questions are the workload's own inputs. Each is asked on its own, and several times together
with all others: only that makes dynamic batches, and only they reveal a model whose ``execute``
mixes up its requests. Where a response cache may answer, some are asked once more in ways that are
alike to the cache alone: with other parameters, for some of the outputs, in another shape.
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
#: Of these, as many are asked once more in each way that the cache cannot tell apart.
_VARIED = 4
#: What no user sends, so that it is no default.
_PARAMETER = 7
_TIMES_TOGETHER = 4  # enough in flight that fast models get batches too
_DEADLINE_S = 60.0

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Answer:
    """What came back for one request.

    Attributes:
        outputs: By name; strings are arrays of bytes.
        error: The model's own words instead of outputs; or why these cannot be read.
        rejected: Refused by a queue policy before the model saw it.
    """

    outputs: Mapping[str, Array]
    error: str = ""
    rejected: bool = False


@dataclass(frozen=True)
class ConfigAnswers:
    """One config's answers to all questions.

    Attributes:
        alone: One a question, asked one after another.
        together: The questions over and over, asked at the same time.
        varied: What was asked otherwise, in words, with the answer.
        none_because: Why nothing could be asked; empty when it was.
    """

    alone: tuple[Answer, ...] = ()
    together: tuple[Answer, ...] = ()
    varied: tuple[tuple[str, Answer], ...] = ()
    none_because: str = ""


def ask(stream: Stream, config: Any) -> ConfigAnswers:
    """Asks the model that is loaded some of the workload's inputs.

    Together comes first: what is asked again may be answered from the response cache.

    Raises:
        ServerGoneError: No answer, or no server.
    """
    if config.model_transaction_policy.decoupled:
        return ConfigAnswers(
            none_because="a decoupled model may answer a request any number of times"
        )
    if config.HasField("sequence_batching"):
        return ConfigAnswers(none_because="answers of a sequence depend on what was asked before")
    try:
        questions = stream.questions(_QUESTIONS)
    except (LoadFailedError, SpecError) as error:
        return ConfigAnswers(none_because=error.message)
    with asking(stream.target.endpoints) as method:
        waiting = [method.future(q, timeout=_DEADLINE_S) for q in questions * _TIMES_TOGETHER]
        together = tuple(map(_answer, waiting))
        alone = tuple(_answer(method.future(q, timeout=_DEADLINE_S)) for q in questions)
        varied = tuple(
            (f"input {number} asked {how}", _answer(method.future(q, timeout=_DEADLINE_S)))
            for number, question in enumerate(questions[:_VARIED])
            for how, q in vary(question, config, stream.requests.varied)
        )
    return ConfigAnswers(alone, together, varied)


def vary(
    question: bytes, config: Any, parameters: Sequence[str] | None
) -> Iterator[tuple[str, bytes]]:
    """Requests with the input bytes of ``question`` that ask for something else, and how.

    Args:
        parameters: Names of those that the model may read; None: no cache can answer.
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
    """Whether the request has now other shapes, which the config allows for the same elements."""
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
    """Outputs of a serialised ``ModelInferResponse`` whose type or shape is not the config's.

    Triton does not check what a model returns, so clients that rely on the config fail.

    Args:
        config: The ``ModelConfig`` as it runs; -1 stands for any dimension.
    """
    from google.protobuf.message import DecodeError
    from tritonclient.grpc import service_pb2

    try:
        outputs = service_pb2.ModelInferResponse.FromString(answer).outputs
    except DecodeError:
        return []  # reported where answers are compared
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
    """A sentence for each input and output for which ``other`` answers otherwise than ``one``.

    Integers, booleans and strings must be equal. Floats may be off by ``tolerance`` of their own
    size, since a batch is summed in another order than a single input. They may also be off by
    that share of the mean size of the output's values, since a value near zero came about by
    cancellation.

    Both were asked the same questions; a ``tolerance`` of 0 asks for equal floats. ``by_output``
    has that of single outputs.
    """
    texts = []
    within = (tolerance, by_output)
    for how, expected, given in (
        ("alone", one.alone, other.alone),
        ("with others", one.together, other.together),
    ):
        for number, (a, b) in enumerate(zip(expected, given, strict=True)):
            if not (a.rejected or b.rejected):
                where = f"input {number % len(one.alone)} asked {how}"
                texts += [f"{where}: {text}" for text in _different(a, b, *within)]
    for (where, a), (_, b) in zip(one.varied, other.varied, strict=True):
        if not (a.rejected or b.rejected):
            texts += [f"{where}: {text}" for text in _different(a, b, *within)]
    return list(dict.fromkeys(texts))


def largest_differences(one: ConfigAnswers, other: ConfigAnswers) -> dict[str, float]:
    """By output with floats, how far answers are apart, as `differences` counts it; 0s left out."""
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
        if bool(one.error) != bool(other.error):
            yield f"only one config answers, the other fails: {one.error or other.error}"
        return
    for name in sorted({*one.outputs, *other.outputs}):
        a, b = one.outputs.get(name), other.outputs.get(name)
        if a is None or b is None:
            yield f"output {name} is missing"
        elif (a.dtype, a.shape) != (b.dtype, b.shape):
            was, now = (f"{x.dtype}{list(x.shape)}" for x in (a, b))
            yield f"output {name} was {was} and is {now}"
        elif text := _unequal(a, b, by_output.get(name, tolerance)):
            yield f"output {name} differs {text}"


def _unequal(one: Array, other: Array, tolerance: float) -> str:
    """How far two arrays are apart; empty when that is near enough."""
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
