"""The interface of everything that can put load on a model and measure the answers."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server.server import Endpoints
from tuner.spec.workload import Protocol


@dataclass(frozen=True)
class Target:
    """What load is put on."""

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
        shapes: Of its inputs, for variable dimensions, without the batch.
    """

    config: typing.Any
    shapes: Mapping[str, Sequence[int]]
    batch_size: int
    may_refuse: bool
    priority: int = 0


class LoadGenerator(typing.Protocol):
    """Measures the model it was made for, on the server it was made for."""

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        """Puts ``load`` on the model and reports what happened.

        Args:
            seed: Seed of arrivals and input order (closed loops: input order only).

        Raises:
            LoadFailedError: No usable result; the message carries the generator's own words.
            UndecidedError: It ended early without need; it will not without ``window.ends_early``.
            ServerGoneError: The server stopped answering meanwhile.
        """
