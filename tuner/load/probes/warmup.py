"""A `model_warmup` for the sizes and shapes whose first calls are slow, tried on the server."""

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

_WIDTH = 96  # of a comment's lines
#: Receives a sentence about what takes long.
Note = Callable[[str], None]
Seconds = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class WarmUp:
    """What the first calls of a model take just after a load, without a `model_warmup` and with it.

    Attributes:
        block: The `model_warmup`, as text of config.pbtxt.
        first_s: The slowest of these first calls.
        usual_s: The slowest of the later ones.
        first_warm_s: With the block; None where the server refused it, or ended over it.
        refused: What was said of it then.
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
        """Whether it spares users at least half of the wait."""
        return self.first_warm_s is not None and self.first_warm_s <= self.first_s / 2

    @property
    def sentence(self) -> str:
        """For a reader."""
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
    """What was found of the first model whose first calls are slow; None where all are fast.

    It is loaded as its config, one of ``texts`` by model, has it, then with a `model_warmup`.

    Raises:
        TrialError: A model does not load as its config has it, or does not answer.
    """
    streams = {s.target.model: s for s in setup.streams if s.target.model in texts}
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
        stream.target.model,
        tuple(sorted(slow)),
        block_for(stream, slow),
        max(calls.longest_s for calls in slow.values()),
        max(calls.usual_s for calls in slow.values()),
        load_s,
    )
    try:
        load_s, warm = _loaded(stream, control, f"{text}\n{result.block}", patience_s, note)
    except TrialError as error:  # tritonserver 2.51 may end over samples that a model refuses
        return replace(result, refused=error.message.rstrip("."))
    first_s = max((warm.sizes[size].longest_s for size in slow if size in warm.sizes), default=0.0)
    return replace(result, first_warm_s=first_s, load_warm_s=load_s)


def _loaded(
    stream: Stream, control: Control, text: str, patience_s: float, note: Note
) -> tuple[float, FirstCalls]:
    """How long a load of a model that was gone took, and its first calls."""
    model = stream.target.model
    control.unload(model, patience_s)
    begin = time.monotonic()
    control.load(model, to_load_json(parse(text)), patience_s)
    took_s = time.monotonic() - begin
    return took_s, await_first_answers(stream, control.running_config(model), patience_s, note)


def block_for(stream: Stream, slow: Sizes) -> str:
    """A sample of zeros, which every model that numbers its tokens takes, of each size and shape.

    It is run as often as calls of that size were slow.
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
    """A config's text with the block behind it as a comment; one that has any stays as it is."""
    if "model_warmup" in text or not warm_up.helps:
        return text
    end = "\r\n" if "\r\n" in text else "\n"
    lines = (
        *wrap(f"tune: {warm_up.sentence}", _WIDTH),
        "To use it, take the # from the lines below.",
    )
    comment = end.join(f"# {line}" for line in (*lines, *warm_up.block.splitlines()))
    return f"{text}{'' if text.endswith(end) or not text else end}{comment}{end}"
