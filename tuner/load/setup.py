"""What every load generator is made with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner.load.perf_analyzer.process import PATIENCE_S
from tuner.load.stream import Stream
from tuner.load.traffic.arrivals import Shape
from tuner.load.watch.sampler import PERIOD_S, Sampler, becomes_idle
from tuner.load.watch.stalls import watch_stalls
from tuner.measurement.window import NO_BOUND, LatencyBound
from tuner.server.binaries import Installation
from tuner.server.control import Control, StatisticsSnapshot
from tuner.server.server import Endpoints, Place
from tuner.spec.fields import Gpus


@dataclass(frozen=True)
class Site:
    """The server that load is put on, and what that needs.

    Attributes:
        place: Where the server runs; ELSEWHERE assumes nothing about this machine.
        patience_s: See `perf_analyzer.process.run`; long for servers that are not ours to restart.
        server_words: The last error in the server's log; empty when it cannot be read.
    """

    control: Control
    endpoints: Endpoints
    program: Installation
    directory: Path
    place: Place = Place.ELSEWHERE
    gpus: Gpus = "all"
    patience_s: float = PATIENCE_S
    server_words: Callable[[], str] = str


@dataclass(frozen=True)
class Setup:
    """Models on a server, what they are to be asked, and what watches them meanwhile.

    Attributes:
        models: Names of all models that answer to it, the steps of ensembles too.
    """

    site: Site
    streams: tuple[Stream, ...]
    models: tuple[str, ...]
    shape: Shape | None = None

    @contextmanager
    def watched(
        self, bound: LatencyBound = NO_BOUND, period_s: float = PERIOD_S
    ) -> Iterator[Sampler]:
        """Samples the server, and this machine's stalls, for as long as the context is open.

        ``bound``: the tightest latency SLO.
        """
        site = self.site
        scrape = site.control.metrics
        with (
            watch_stalls(bound) as stalls,
            Sampler(self._snapshot, scrape, site.place, period_s, site.gpus, stalls) as sampler,
        ):
            yield sampler

    def at_rest(self) -> bool:
        """Whether the server has come to rest after a load that was cut off, see `watch.idle`."""
        return becomes_idle(self.site.control.metrics, self.models, self.site.endpoints)

    def _snapshot(self) -> Mapping[str, StatisticsSnapshot]:
        return {name: self.site.control.statistics(name) for name in self.models}
