"""What every load generator is made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner.load.generator import Target
from tuner.load.perf_analyzer.process import PATIENCE_S
from tuner.load.traffic.arrivals import Shape
from tuner.load.traffic.encoding import RequestForm
from tuner.load.traffic.inputs import InputFiles
from tuner.load.watch.sampler import Sampler, Scrape, Snapshot
from tuner.spec.fields import Gpus
from tuner.triton.binaries import Installation
from tuner.triton.server import Place


@dataclass(frozen=True)
class Setup:
    """A model on a server, what it is to be asked, and what watches it meanwhile.

    Attributes:
        program: perf_analyzer, and the environment of every process.
        target: Model, server and protocol.
        form: What requests to the model look like.
        inputs: What they carry.
        directory: For files, which a generator removes again; owned by the caller.
        snapshot: Reads the model's statistics.
        scrape: Reads the server's metrics.
        shape: Of arrivals that have one beside their rate.
        place: Where the server runs; says what of this machine is the server's.
        gpus: Of this machine's GPUs those that the server may see.
        patience_s: How long perf_analyzer may wait for late answers; see `process.run`.
        server_words: The last error in the server's log; empty when it cannot be read.
    """

    program: Installation
    target: Target
    form: RequestForm
    inputs: InputFiles
    directory: Path
    snapshot: Snapshot
    scrape: Scrape
    shape: Shape | None = None
    place: Place = Place.ELSEWHERE
    gpus: Gpus = "all"
    patience_s: float = PATIENCE_S
    server_words: Callable[[], str] = str

    def watched(self) -> Sampler:
        """Samples the server for as long as its context is open."""
        return Sampler(self.snapshot, self.scrape, self.place, gpus=self.gpus)
