"""Which load generator measures a run. Decided once: two generators are two definitions of latency.

perf_analyzer measures wherever it can: it is NVIDIA's own, well maintained, and what others use.
It cannot send several streams on one clock, the kinds of traffic of `tuner.load.traffic.kinds`, or
requests with a priority. It gives no result when a request is refused, and
one latency of a request that is answered many times. It should not be used where tensors are large:
its export of every request's times, without which a late client hides a stalled server, also holds
every tensor as text, and no option leaves them out.
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

#: Of one request in the export: 5,000/s for four seconds are 80 MB then.
MAX_EXPORT_BYTES = 4096
_NUMBER_BYTES = 20  # with its comma
_STRING_BYTES = 100
_VARIABLE = 128  # a dimension nobody gave


class LoadGenerator(Protocol):
    """Measures the model it was made for, on the server it was made for."""

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        """Puts ``load`` on the model and reports what happened.

        Args:
            seed: Seed of arrivals and input order (closed loops: input order only).

        Raises:
            LoadFailedError: No usable result; the message carries the generator's own words.
            UndecidedError: It ended early without need; with `EarlyEnd.NEVER` it does not.
            ServerGoneError: The server stopped answering meanwhile.
        """


@dataclass(frozen=True)
class Demand:
    """What a stream of a run asks of a load generator.

    Attributes:
        shapes: Of its inputs, for variable dimensions, without the batch.
        unlike: Why perf_analyzer cannot measure its kinds of traffic.
    """

    config: Any
    shapes: Mapping[str, Sequence[int]]
    batch_size: int
    may_refuse: bool
    priority: int = 0
    unlike: tuple[str, ...] = ()


def _why_not(demands: Sequence[Demand]) -> str:
    """Why it cannot measure a run with these streams; empty where it can."""
    if len(demands) > 1:
        return "perf_analyzer sends one stream of requests, to one model"
    (demand,) = demands
    if demand.unlike:
        return demand.unlike[0]
    if demand.priority:
        return "perf_analyzer has no option for the priority of requests"
    if demand.may_refuse:
        return "perf_analyzer gives no result when a request is refused"
    exported = demand.batch_size * export_bytes(demand.config, demand.shapes)
    if exported <= MAX_EXPORT_BYTES:
        return ""
    size = f"{exported / 1e6:.1f} MB" if exported >= 100_000 else f"{exported / 1e3:.0f} kB"
    return f"perf_analyzer writes each request and answer as text, here about {size}"


def export_bytes(config: Any, shapes: Mapping[str, Sequence[int]]) -> int:
    """About how much one inference takes in perf_analyzer's profile export."""
    # An output's variable dimension is mostly an input's: tokens in, tokens out.
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
        cannot: Why it cannot measure a run with these streams; empty where it can.
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
#: The first that can measure a run does; the last one always can.
GENERATORS = (PERF_ANALYZER, TUNE_CLIENT)


@dataclass(frozen=True)
class GeneratorChoice:
    """Which generator measures, and why none of those before it; empty for the first."""

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
    """What users read for a name in a file; an unknown name is returned as it is."""
    return {kind.name: kind.title for kind in GENERATORS}.get(name or "", str(name))
