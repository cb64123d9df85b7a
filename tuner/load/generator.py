"""The interface of everything that can put load on a model and measure the answers."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.load.measurement import LoadPoint, Measurement
from tuner.server.server import Endpoints
from tuner.spec.workload import Protocol


@dataclass(frozen=True)
class LatencyBound:
    """An SLO on a percentile: so large a ``share`` of a stream's requests is in time."""

    share: float
    within_s: float
    stream: str = ""


@dataclass(frozen=True)
class Window:
    """How long to measure.

    Attributes:
        duration_s: Length of the measured window.
        warmup_s: Load before it that is not counted.
        deadline_s: The whole run is killed after this long.
        tail_s: Load kept up after the window, so that late answers are still seen. A request
            that is not answered by then took at least this long: choose it above the latency
            SLO, and an unanswered request can never pass for one in time.
        slice_s: Length of the stretches of `Measurement.slices`; None for none.
        bounds: Latency SLOs; see `Measurement.within_bounds`.
        ends_early: Whether an open loop ends once it has certainly missed one of them.
        quiet_only: Spells in which the hypervisor gave the CPU away do not count (open loop
            only), see `tuner.load.latency.quiet`.
    """

    duration_s: float
    warmup_s: float
    deadline_s: float
    tail_s: float = 0.5
    slice_s: float | None = None
    bounds: tuple[LatencyBound, ...] = ()
    ends_early: bool = True
    quiet_only: bool = False

    def of(self, stream: str) -> Window:
        """With the bounds of one stream."""
        return replace(self, bounds=tuple(b for b in self.bounds if b.stream == stream))

    @property
    def span_s(self) -> tuple[float, float]:
        """What is measured, from and to, from the start of the load."""
        return self.warmup_s, self.warmup_s + self.duration_s

    @property
    def total_s(self) -> float:
        """How long load is on the model."""
        return self.warmup_s + self.duration_s + self.tail_s


@dataclass(frozen=True)
class Target:
    """What load is put on.

    Attributes:
        batch_size: Inferences in one request.
    """

    model: str
    endpoints: Endpoints
    protocol: Protocol = Protocol.GRPC
    batch_size: int = 1

    @property
    def address(self) -> str:
        """host:port requests go to."""
        return self.endpoints.grpc if self.protocol is Protocol.GRPC else self.endpoints.http


@dataclass(frozen=True)
class Demand:
    """What a stream of a run asks of a load generator.

    Attributes:
        config: The model's ``ModelConfig``, completed.
        shapes: Of its inputs, for variable dimensions, without the batch.
        batch_size: Inferences in one request.
        may_refuse: Whether a config of the run can refuse requests.
    """

    config: typing.Any
    shapes: Mapping[str, Sequence[int]]
    batch_size: int
    may_refuse: bool


class LoadGenerator(typing.Protocol):
    """Measures the model it was made for, on the server it was made for."""

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        """Puts ``load`` on the model and reports what happened.

        Args:
            load: Arrivals and level.
            window: Warm-up, length and deadline.
            seed: Seed of arrivals and input order (closed loops: input order only).

        Raises:
            LoadFailedError: No usable result; the message carries the generator's own words.
            UndecidedError: It ended early without need; without ``window.ends_early`` it will not.
            ServerGoneError: The server stopped answering meanwhile.
        """
