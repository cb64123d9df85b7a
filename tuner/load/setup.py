"""What every load generator is made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.load.perf_analyzer.process import PATIENCE_S
from tuner.load.stream import Stream
from tuner.load.traffic.arrivals import Shape
from tuner.load.watch.idle import becomes_idle
from tuner.load.watch.sampler import PERIOD_S, Sampler, Scrape
from tuner.measurement.measurement import ServerStatistics
from tuner.server.binaries import Installation
from tuner.server.server import Endpoints, Place
from tuner.server.statistics import StatisticsSnapshot
from tuner.spec.fields import Gpus


@dataclass(frozen=True)
class Setup:
    """Models on a server, what they are to be asked, and what watches them meanwhile.

    Attributes:
        program: perf_analyzer, and the environment of every process.
        streams: What is asked; at least one.
        served: Names of all models that answer to it, the steps of ensembles too, by label.
        directory: For files, which a generator removes again; owned by the caller.
        statistics: Reads a model's counters.
        scrape: Reads the server's metrics.
        shape: Of arrivals that have one beside their rate.
        place: Where the server runs; says what of this machine is the server's.
        gpus: Of this machine's GPUs those that the server may see.
        patience_s: How long perf_analyzer may wait for late answers; see `process.run`.
        server_words: The last error in the server's log; empty when it cannot be read.
    """

    program: Installation
    streams: tuple[Stream, ...]
    served: Mapping[str, str]
    directory: Path
    statistics: Callable[[str], StatisticsSnapshot]
    scrape: Scrape
    shape: Shape | None = None
    place: Place = Place.ELSEWHERE
    gpus: Gpus = "all"
    patience_s: float = PATIENCE_S
    server_words: Callable[[], str] = str

    @property
    def endpoints(self) -> Endpoints:
        """Of the server."""
        return self.streams[0].target.endpoints

    @property
    def models(self) -> tuple[str, ...]:
        """Names of all models that are watched."""
        return tuple(self.served.values())

    def watched(self, period_s: float = PERIOD_S) -> Sampler:
        """Samples the server for as long as its context is open."""
        return Sampler(self._snapshot, self.scrape, self.place, period_s, gpus=self.gpus)

    def at_rest(self) -> bool:
        """Whether the server has come to rest after a load that was cut off, see `watch.idle`."""
        return becomes_idle(self.scrape, self.models, self.endpoints)

    def _snapshot(self) -> Mapping[str, StatisticsSnapshot]:
        return {name: self.statistics(name) for name in self.models}

    def own(
        self, counted: Mapping[str, ServerStatistics], *streams: Stream
    ) -> ServerStatistics | None:
        """What the one model counted that these streams ask; None where there are several."""
        asked = {stream.target.model for stream in streams}
        found = [counted[label] for label in counted if {self.served[label]} == asked]
        return found[0] if found else None
