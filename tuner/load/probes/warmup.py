"""A `model_warmup` for sizes and shapes with slow first calls, and a test of it on the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Annotated

from pydantic import Field

from tuner.errors import TrialError
from tuner.load.probes.preparing import await_first_answers
from tuner.load.probes.warming import FirstCalls, Sizes, listed
from tuner.load.setup import Setup, Stream
from tuner.modelconfig.message import parse, to_load_json
from tuner.server.control import Control
from tuner.spec.units import digits

_WIDTH = 96  # of the lines of a comment
#: Receives a sentence before something that takes long.
Note = Callable[[str], None]
Seconds = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class WarmUp:
    """Duration of a model's first calls after a load, without a `model_warmup` and with one.

    Attributes:
        model: Name of the model.
        batch_sizes: Batch sizes with slow first calls.
        block: The `model_warmup`, as text of config.pbtxt.
        first_s: Duration of the slowest first call.
        usual_s: Duration of the slowest later call.
        load_s: Duration of a load without the block.
        first_warm_s: Duration of the slowest first call with the block; None if the server refused
            the block, or died on it.
        load_warm_s: Duration of a load with the block; None likewise.
        refused: The server's words in that case.
    """

    model: str
    batch_sizes: tuple[int, ...]
    block: str
    first_s: Seconds
    usual_s: Seconds
    load_s: Seconds
    first_warm_s: Seconds | None = None
    load_warm_s: Seconds | None = None
    refused: str = ""

    @property
    def helps(self) -> bool:
        """Whether the block saves users at least half of the wait."""
        return self.first_warm_s is not None and self.first_warm_s <= self.first_s / 2

    @property
    def sentence(self) -> str:
        """The result in words."""
        cold = (
            f"After each load of {self.model} the first calls of {listed(self.batch_sizes)} take "
            f"up to {_seconds(self.first_s)}, later ones {_seconds(self.usual_s)}."
        )
        if self.first_warm_s is None or self.load_warm_s is None:
            return f"{cold} A model_warmup for them was tried, and refused: {self.refused}."
        warm = (
            f"with a model_warmup for them it was {_seconds(self.first_warm_s)}, and the load took "
            f"{_seconds(self.load_warm_s)} instead of {_seconds(self.load_s)}"
        )
        return f"{cold} Tried {warm}{'' if self.helps else ': it does not help'}."


def _seconds(seconds: float) -> str:
    return f"{digits(seconds, 2)} s" if seconds >= 1.0 else f"{digits(1e3 * seconds, 2)} ms"


def warm_up(setup: Setup, texts: Mapping[str, str], patience_s: float, note: Note) -> WarmUp | None:
    """Tests a `model_warmup` for the first model with slow first calls; None if all are fast.

    The model is loaded with its config, then with a `model_warmup` added to it.

    Args:
        setup: The streams, and their server.
        texts: Config of each model, as text.
        patience_s: Longest wait for a first answer.
        note: Receives a sentence before something that takes long.

    Raises:
        TrialError: A model does not load with its config, or does not answer.
    """
    streams = {s.requests.model: s for s in setup.streams if s.requests.model in texts}
    control = setup.site.control
    results = (_tried(s, control, texts[m], patience_s, note) for m, s in streams.items())
    return next(filter(None, results), None)


def _tried(
    stream: Stream, control: Control, text: str, patience_s: float, note: Note
) -> WarmUp | None:
    load_s, cold = _loaded(stream, control, text, patience_s, note)
    slow = cold.slow_sizes
    if not slow:
        return None
    result = WarmUp(
        stream.requests.model,
        tuple(sorted(slow)),
        block_for(stream, slow),
        max(calls.longest_s for calls in slow.values()),
        max(calls.usual_s for calls in slow.values()),
        load_s,
    )
    try:
        load_s, warm = _loaded(stream, control, f"{text}\n{result.block}", patience_s, note)
    except TrialError as error:  # tritonserver 2.51 may die on samples that a model refuses
        return replace(result, refused=error.message.rstrip("."))
    first_s = max((warm.sizes[size].longest_s for size in slow if size in warm.sizes), default=0.0)
    return replace(result, first_warm_s=first_s, load_warm_s=load_s)


def _loaded(
    stream: Stream, control: Control, text: str, patience_s: float, note: Note
) -> tuple[float, FirstCalls]:
    """Duration of a load of an unloaded model, and its first calls."""
    model = stream.requests.model
    control.unload(model, patience_s)
    begin = time.monotonic()
    control.load(model, to_load_json(parse(text)), patience_s)
    took_s = time.monotonic() - begin
    return took_s, await_first_answers(stream, control.running_config(model), patience_s, note)


def block_for(stream: Stream, slow: Sizes) -> str:
    """Samples of zeros for each size and shape; every model that numbers its tokens accepts zeros.

    A sample runs as often as calls of its size were slow.
    """
    samples = ",\n".join(_samples(stream, slow))
    return f"model_warmup [\n{samples}\n]\n"


def _samples(stream: Stream, slow: Sizes) -> Iterator[str]:
    for size, calls in sorted(slow.items()):
        for shape in stream.shapes:
            (inputs,) = shape.inputs.first(1)
            dims = {name: content.shape for name, content in inputs.items()}
            name = " ".join(filter(None, (f"batch of {size}", shape.name)))
            yield _sample(name, size, calls.slow_count, dims, stream.form.datatypes)


def _sample(
    name: str,
    size: int,
    count: int,
    dims: Mapping[str, Sequence[int]],
    datatypes: Mapping[str, str],
) -> str:
    lines = [f'    name: "{name}"', f"    batch_size: {size}"]
    lines += [f"    count: {count}"] if count > 1 else []
    for tensor, sizes in dims.items():
        kind = datatypes[tensor].replace("BYTES", "STRING")
        value = f"data_type: TYPE_{kind} dims: {list(sizes)} zero_data: true"
        lines.append(f'    inputs {{ key: "{tensor}" value {{ {value} }} }}')
    return "\n".join(["  {", *lines, "  }"])


def propose(text: str, warm_up: WarmUp) -> str:
    """A config's text with the block appended as a comment; unchanged if it has a warm-up."""
    if "model_warmup" in text or not warm_up.helps:
        return text
    end = "\r\n" if "\r\n" in text else "\n"
    lines = (
        *wrap(f"tune: {warm_up.sentence}", _WIDTH),
        "To use it, take the # from the lines below.",
    )
    comment = end.join(f"# {line}" for line in (*lines, *warm_up.block.splitlines()))
    return f"{text}{'' if text.endswith(end) or not text else end}{comment}{end}"
