"""Load on a model as a spec's workload says, and what is asked of the model apart from load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.load.generator import LoadGenerator, Target, Window
from tuner.load.generators import GENERATORS, GeneratorKind
from tuner.load.measurement import LoadPoint, Measurement
from tuner.load.perf_analyzer.process import PATIENCE_S
from tuner.load.probes.answers import Answers, ask
from tuner.load.probes.cache_fill import Filling, fill
from tuner.load.probes.first_answers import await_first_answers
from tuner.load.probes.slow_model import seconds_for
from tuner.load.restarts import Restarted
from tuner.load.setup import Setup
from tuner.load.traffic.arrivals import BurstShape, Shape, read_trace
from tuner.load.traffic.encoding import RequestForm
from tuner.load.traffic.inputs import InputFiles
from tuner.load.traffic.tensors import TensorShape, resolve
from tuner.spec.fields import Gpus
from tuner.spec.workload import (
    ArrivalsSpec,
    BurstArrivals,
    ClosedArrivals,
    RandomInputs,
    Requests,
    TraceArrivals,
    Workload,
)
from tuner.triton.binaries import Installation
from tuner.triton.control import Control, ModelMetadata
from tuner.triton.server import Endpoints, Place

#: Random tensors, one in each request.
ANY = Requests()


@dataclass(frozen=True)
class ModelLoad:
    """Load on a model by the generator of the run, and what is asked of it apart from that."""

    generator: LoadGenerator
    setup: Setup
    running_config: Callable[[], Any]

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        """See `tuner.load.generator.LoadGenerator`."""
        return self.generator.measure(load, window, seed)

    def answers(self) -> Answers:
        """What the running config answers to some of the inputs; see `probes.answers.ask`."""
        return ask(*self._asked, self.running_config())

    def await_first_answers(self, patience_s: float, note: Callable[[str], None]) -> None:
        """See `tuner.load.probes.first_answers`."""
        await_first_answers(*self._asked, self.running_config(), patience_s, note)

    def seconds_for(self, count: int, patience_s: float) -> float | None:
        """See `tuner.load.probes.slow_model.seconds_for`."""
        return seconds_for(*self._asked, count, patience_s)

    def fill(self, seed: int, size: int | None) -> Filling:
        """Fills an empty cache of this size in bytes; see `probes.cache_fill.fill`."""
        return fill(*self._asked, seed, size)

    @property
    def _asked(self) -> tuple[str, RequestForm, InputFiles]:
        return self.setup.target.endpoints.grpc, self.setup.form, self.setup.inputs


def model_load(
    workload: Workload,
    model: str,
    control: Control,
    endpoints: Endpoints,
    program: Installation,
    directory: Path,
    *,
    place: Place = Place.ELSEWHERE,
    gpus: Gpus = "all",
    patience_s: float = PATIENCE_S,
    server_words: Callable[[], str] = str,
    kind: GeneratorKind = GENERATORS[0],
    requests: Requests = ANY,
) -> ModelLoad:
    """Load on a model that is loaded; it stays good when it is reloaded.

    Args:
        workload: From the spec.
        model: Name of the model.
        control: Of the server, open for as long as the load is used.
        endpoints: Of the server.
        program: perf_analyzer.
        directory: For input files; the same one may serve several servers.
        place: Where the server runs; ELSEWHERE assumes nothing about this machine.
        gpus: Of this machine's GPUs those that the server may see.
        patience_s: See `perf_analyzer.process.run`; long for servers that are not ours to restart.
        server_words: The last error in the server's log; empty when it cannot be read.
        kind: Who measures.
        requests: What each carries.

    Raises:
        SpecError: The workload does not fit the model's inputs.
    """
    metadata = control.metadata(model)
    batched = control.running_config(model).max_batch_size > 0
    target = Target(model, endpoints, workload.protocol, requests.batch_size)
    setup = Setup(
        program,
        target,
        _request_form(target, metadata, batched),
        InputFiles(
            requests.inputs,
            _tensors(requests, metadata, batched),
            directory,
            cached=lambda: control.running_config(model).response_cache.enable,
        ),
        directory,
        snapshot=lambda: control.statistics(model),
        scrape=control.metrics,
        shape=shape_of(workload.arrivals),
        place=place,
        gpus=gpus,
        patience_s=patience_s,
        server_words=server_words,
    )
    generator, arrivals = kind.make(setup), workload.arrivals
    if isinstance(arrivals, ClosedArrivals):
        generator = Restarted(generator, arrivals.restarts)
    return ModelLoad(generator, setup, lambda: control.running_config(model))


def _tensors(requests: Requests, metadata: ModelMetadata, batched: bool) -> Sequence[TensorShape]:
    """What is to be drawn at random; nothing when inputs come from a file."""
    if not isinstance(requests.inputs, RandomInputs):
        return ()
    return resolve(metadata.inputs, batched, requests.inputs.shapes)


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
