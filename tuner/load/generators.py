"""The choice of the load generator. A run has one: two generators are two definitions of latency.

perf_analyzer measures wherever it can: it is NVIDIA's tool, well maintained and widely used. It
cannot send several streams on one clock, the kinds of traffic in `tuner.load.traffic.kinds`, or
requests with a priority. It gives no result when a request is refused or fails, and a single
latency for a request with several responses. It is a poor choice for large tensors: only its export
has the time of every request, without which a late client hides a stalled server; the export also
has every tensor as text, and no option leaves tensors out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.modelconfig.schema import enum_name

if TYPE_CHECKING:
    from tuner.load.setup import Setup

#: Largest size of a request in the export: 5,000/s for four seconds are 80 MB then.
MAX_EXPORT_BYTES = 4096
_NUMBER_BYTES = 20  # with its comma
_STRING_BYTES = 100
_VARIABLE = 128  # a variable dimension without a value in the spec


class LoadGenerator(Protocol):
    """Measures the models and the server that it was made for."""

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        """Puts ``load`` on the model and returns the figures.

        Args:
            window: Lengths of the measurement, and what may end it early.
            seed: Seed of arrivals and input order (closed loops: input order only).

        Raises:
            LoadFailedError: There is no usable result; the message has the generator's own words.
            UndecidedError: The load ended early without need; never with `EarlyEnd.NEVER`.
            ServerGoneError: The server stopped answering during the load.
        """


@dataclass(frozen=True)
class Demand:
    """Properties of a stream that decide which load generator can send it.

    Attributes:
        config: The ``ModelConfig`` of its model.
        shapes: Dimensions of its inputs without the batch, for inputs of variable dimensions.
        batch_size: Inferences in one request.
        may_refuse: A queue policy may refuse requests.
        priority: Priority of its requests; 0: none.
        unlike: Why perf_analyzer cannot send its kinds of traffic.
        version: Version of the model that its requests ask for; 0: none.
        may_fail: An SLO allows the model to answer some requests with an error.
    """

    config: Any
    shapes: Mapping[str, Sequence[int]]
    batch_size: int
    may_refuse: bool
    priority: int = 0
    unlike: tuple[str, ...] = ()
    version: int = 0
    may_fail: bool = False


def _why_not(demands: Sequence[Demand]) -> str:
    """Why perf_analyzer cannot measure a run with these streams; empty if it can."""
    if len(demands) > 1:
        return "perf_analyzer sends one stream of requests, to one model"
    (demand,) = demands
    if demand.unlike:
        return demand.unlike[0]
    if demand.priority:
        return "perf_analyzer has no option for the priority of requests"
    if demand.version:
        return "tune's own client asks for a version of the model"
    if demand.may_refuse:
        return "perf_analyzer gives no result when a request is refused"
    if demand.may_fail:
        return "perf_analyzer gives no result when a request fails, and an SLO allows some to"
    exported = demand.batch_size * export_bytes(demand.config, demand.shapes)
    if exported <= MAX_EXPORT_BYTES:
        return ""
    size = f"{exported / 1e6:.1f} MB" if exported >= 100_000 else f"{exported / 1e3:.0f} kB"
    return f"perf_analyzer writes each request and answer as text, here about {size}"


def export_bytes(config: Any, shapes: Mapping[str, Sequence[int]]) -> int:
    """Approximate size of one inference in perf_analyzer's profile export."""
    # An output's variable dimension usually equals an input's: tokens in, tokens out.
    variable = max((d for shape in shapes.values() for d in shape), default=_VARIABLE)

    def size(tensor: Any) -> int:
        dims = shapes.get(tensor.name) or tensor.dims
        elements = math.prod(variable if d < 0 else d for d in dims)
        text = enum_name(tensor, "data_type") == "TYPE_STRING"
        return elements * (_STRING_BYTES if text else _NUMBER_BYTES)

    return sum(map(size, (*config.input, *config.output)))


@dataclass(frozen=True)
class GeneratorKind:
    """A way to send requests and measure their latencies.

    Attributes:
        name: Name in files.
        title: Name for users.
        cannot: Why it cannot measure a run with these streams; empty if it can.
        make: Makes the generator for streams on a server.
    """

    name: str
    title: str
    cannot: Callable[[Sequence[Demand]], str]
    make: Callable[[Setup], LoadGenerator]


def _perf_analyzer(setup: Setup) -> LoadGenerator:
    from tuner.load.perf_analyzer.generator import PerfAnalyzer

    return PerfAnalyzer(**vars(setup))


def _tune_client(setup: Setup) -> LoadGenerator:
    from tuner.load.client.generator import OpenClient

    return OpenClient(**vars(setup))


PERF_ANALYZER = GeneratorKind("perf_analyzer", "perf_analyzer", _why_not, _perf_analyzer)
TUNE_CLIENT = GeneratorKind("tune", "tune's own client", lambda _: "", _tune_client)
#: The first one that can measure a run is used; the last one can measure every run.
GENERATORS = (PERF_ANALYZER, TUNE_CLIENT)


@dataclass(frozen=True)
class GeneratorChoice:
    """The load generator of a run, and why those before it cannot measure; empty for the first."""

    kind: GeneratorKind
    why: str = ""


def choose(demands: Sequence[Demand]) -> GeneratorChoice:
    """Chooses the generator for a run with these streams."""
    reasons: list[str] = []
    for kind in GENERATORS:
        reason = kind.cannot(demands)
        if not reason:
            break
        reasons.append(reason)
    return GeneratorChoice(kind, "; ".join(reasons))


def title_of(name: str | None) -> str:
    """The name for users of a generator in a file; an unknown name is returned unchanged."""
    return {kind.name: kind.title for kind in GENERATORS}.get(name or "", str(name))
