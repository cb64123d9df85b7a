"""The load generator a spec's workload asks for, and the running config allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.load.choice import Client
from tuner.load.client.generator import OpenClient
from tuner.load.generator import LoadGenerator, Window
from tuner.load.measurement import LoadPoint, Measurement
from tuner.load.perf_analyzer.command import Target
from tuner.load.perf_analyzer.generator import PerfAnalyzer
from tuner.load.perf_analyzer.process import PATIENCE_S
from tuner.load.probes.answers import Answers, ask
from tuner.load.probes.cache_fill import Filling, fill
from tuner.load.probes.first_answers import await_first_answers
from tuner.load.probes.slow_model import seconds_for
from tuner.load.restarts import Restarted
from tuner.load.traffic.arrivals import BurstShape, Shape, read_trace
from tuner.load.traffic.encoding import RequestForm
from tuner.load.traffic.inputs import InputFiles
from tuner.load.traffic.tensors import TensorShape, resolve
from tuner.spec.fields import Gpus
from tuner.spec.model import ServerMode
from tuner.spec.workload import (
    ArrivalsSpec,
    BurstArrivals,
    ClosedArrivals,
    RandomInputs,
    TraceArrivals,
    Workload,
)
from tuner.triton.binaries import Installation
from tuner.triton.control import Control, ModelMetadata
from tuner.triton.server import Endpoints


@dataclass(frozen=True)
class ByClient:
    """The generator that was chosen; itself a `LoadGenerator`.

    Attributes:
        client: Which one measures; our own asks and fills in any case.
        restarts: Times each closed loop is started.
    """

    perf_analyzer: PerfAnalyzer
    open_client: OpenClient
    running_config: Callable[[], Any]
    restarts: int = 1
    client: Client = Client.PERF_ANALYZER

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        clients: dict[Client, LoadGenerator] = {
            Client.PERF_ANALYZER: self.perf_analyzer,
            Client.OWN: self.open_client,
        }
        return Restarted(clients[self.client], self.restarts).measure(load, window, seed)

    def answers(self) -> Answers:
        """What the running config answers to some of the inputs; see `probes.answers.ask`."""
        client = self.open_client
        address = client.target.endpoints.grpc
        return ask(address, client.form, client.inputs, self.running_config())

    def await_first_answers(self, patience_s: float, note: Callable[[str], None]) -> None:
        """See `tuner.load.probes.first_answers`."""
        client = self.open_client
        address, config = client.target.endpoints.grpc, self.running_config()
        await_first_answers(address, client.form, client.inputs, config, patience_s, note)

    def seconds_for(self, count: int, patience_s: float) -> float | None:
        """See `tuner.load.probes.slow_model.seconds_for`."""
        client = self.open_client
        address = client.target.endpoints.grpc
        return seconds_for(address, client.form, client.inputs, count, patience_s)

    def fill(self, seed: int, size: int | None) -> Filling:
        """Fills an empty cache of this size in bytes; see `tuner.load.probes.cache_fill.fill`."""
        client = self.open_client
        address = client.target.endpoints.grpc
        return fill(address, client.form, client.inputs, seed, size)


def load_generator(
    workload: Workload,
    model: str,
    control: Control,
    endpoints: Endpoints,
    program: Installation,
    directory: Path,
    *,
    server: ServerMode = ServerMode.REMOTE,
    gpus: Gpus = "all",
    patience_s: float = PATIENCE_S,
    server_words: Callable[[], str] = str,
    client: Client = Client.PERF_ANALYZER,
) -> ByClient:
    """The generator, set up for a model that is loaded; it stays good when it is reloaded.

    Args:
        workload: From the spec.
        model: Name of the model.
        control: Of the server, open for as long as the generator is used.
        endpoints: Of the server.
        program: perf_analyzer.
        directory: For input files; the same one may serve generators on other servers.
        server: Who runs it; REMOTE assumes nothing about this machine.
        gpus: Of this machine's GPUs those that the server may see.
        patience_s: See `perf_analyzer.process.run`; long for servers that are not ours to restart.
        server_words: The last error in the server's log; empty when it cannot be read.
        client: Who measures.

    Raises:
        SpecError: The workload does not fit the model's inputs.
    """
    metadata = control.metadata(model)
    batched = control.running_config(model).max_batch_size > 0
    perf_analyzer = PerfAnalyzer(
        binary=program.binary,
        environment=program.environment,
        target=Target(model, endpoints, workload.protocol, workload.batch_size),
        inputs=InputFiles(
            workload.inputs,
            _tensors(workload, metadata, batched),
            directory,
            cached=lambda: control.running_config(model).response_cache.enable,
        ),
        directory=directory,
        snapshot=lambda: control.statistics(model),
        scrape=control.metrics,
        server=server,
        gpus=gpus,
        patience_s=patience_s,
        server_words=server_words,
        shape=shape_of(workload.arrivals),
    )
    arrivals = workload.arrivals
    return ByClient(
        perf_analyzer,
        _open_client(perf_analyzer, metadata, batched),
        lambda: control.running_config(model),
        restarts=arrivals.restarts if isinstance(arrivals, ClosedArrivals) else 1,
        client=client,
    )


def _open_client(like: PerfAnalyzer, metadata: ModelMetadata, batched: bool) -> OpenClient:
    """Asks the same things of the same server."""
    return OpenClient(
        environment=like.environment,
        target=like.target,
        form=_request_form(like.target, metadata, batched),
        inputs=like.inputs,
        directory=like.directory,
        snapshot=like.snapshot,
        scrape=like.scrape,
        shape=like.shape,
        server=like.server,
        gpus=like.gpus,
    )


def _tensors(workload: Workload, metadata: ModelMetadata, batched: bool) -> Sequence[TensorShape]:
    """What is to be drawn at random; nothing when inputs come from a file."""
    if not isinstance(workload.inputs, RandomInputs):
        return ()
    return resolve(metadata.inputs, batched, workload.inputs.shapes)


def shape_of(arrivals: ArrivalsSpec) -> Shape | None:
    """What arrivals have beside their rate: bursts, or a recorded trace."""
    if isinstance(arrivals, TraceArrivals):
        return read_trace(arrivals.file)
    if isinstance(arrivals, BurstArrivals):
        length_s = float(arrivals.burst_length)
        return BurstShape(arrivals.burst_ratio, float(arrivals.burst_share), length_s)
    return None


def _request_form(target: Target, metadata: ModelMetadata, batched: bool) -> RequestForm:
    return RequestForm(
        model=target.model,
        datatypes={t.name: t.datatype for t in metadata.inputs},
        shapes={t.name: t.shape[1:] if batched else t.shape for t in metadata.inputs},
        batched=batched,
        batch_size=target.batch_size,
    )
