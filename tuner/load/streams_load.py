"""Load on a server's models according to a spec's streams, and probes outside of a load."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import LoadFailedError, ModelFailsError, ServerGoneError
from tuner.load import seeds
from tuner.load.generators import GENERATORS, GeneratorKind, LoadGenerator
from tuner.load.probes.answers import ConfigAnswers, ask
from tuner.load.probes.lone import LoneRequests, ask_alone
from tuner.load.probes.preparing import Filling, await_first_answers, fill, seconds_for, together
from tuner.load.probes.warming import FirstCalls
from tuner.load.probes.warmup import Note, WarmUp, warm_up
from tuner.load.restarts import combine, part_s
from tuner.load.setup import LoadTarget, Setup, ShapedInputs, Site, Stream, StreamRequests, in_turn
from tuner.load.traffic.arrivals import shape_of
from tuner.load.traffic.encoding import TensorShape, inputs_of, output_bytes, resolve
from tuner.load.traffic.inputs import DrawnInputs
from tuner.load.traffic.kinds import traffic_of
from tuner.load.traffic.recordings.contents import RecordedContents
from tuner.load.traffic.recordings.lines import RecordedStream
from tuner.load.traffic.recordings.replay import recorded_traffic
from tuner.load.traffic.recordings.shapes import groups_of
from tuner.load.traffic.sequences.contents import sequence_contents
from tuner.load.traffic.sequences.pace import ids_for
from tuner.load.traffic.wire import RequestForm
from tuner.load.validity import too_many_clients
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.modelconfig.queues import may_reject
from tuner.modelconfig.schema import shape_tensors
from tuner.server.control import Control
from tuner.spec.model import Spec
from tuner.spec.slo import Slo
from tuner.spec.workload import (
    FileInputs,
    Protocol,
    RandomInputs,
    RecordingInputs,
    Workload,
)


def stream_requests(
    spec: Spec, varied: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, StreamRequests]:
    """The requests of each stream of a spec; ``varied``: by model, see `StreamRequests.varied`."""
    shares = spec.shares
    return {
        name: StreamRequests(
            stream.model,
            stream.inputs,
            stream.batch_size,
            shares.get(name, 0.0),
            None if stream.rate is None else float(stream.rate),
            stream.priority or 0,
            (varied or {}).get(stream.model),
            min((s.within_s for s in spec.slos if _bounds(s, name)), default=math.inf),
            stream.version or 0,
        )
        for name, stream in spec.streams.items()
    }


def _bounds(slo: Slo, stream: str) -> bool:
    """Whether an SLO bounds the latency of the stream's requests."""
    return slo.metric.of_full_response and slo.holds_for(stream)


@dataclass(frozen=True)
class StreamsLoad:
    """Load from the run's generator, and probes of the models outside of it.

    Attributes:
        starts: Starts of each closed loop; an open loop has one.
        setup: The streams, and their server.
    """

    generator: LoadGenerator
    starts: int
    setup: Setup

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        if len(self.setup.streams) == 1:  # generators do not name a single stream
            bounds = window.of(self.setup.streams[0].name).bounds
            window = replace(window, bounds=tuple(replace(bound, stream="") for bound in bounds))
        if load.arrivals.open_loop:
            return self.generator.measure(load, window, seed)
        if self.starts == 1:
            with self._clients_fit(load, window):
                return self.generator.measure(load, window, seed)
        part = replace(window, duration_s=part_s(window.duration_s, self.starts))
        starts: list[Measurement] = []
        while len(starts) < self.starts:
            start_seed = seeds.of_start(seed, len(starts))
            with self._clients_fit(load, part):
                starts.append(self.generator.measure(load, part, start_seed))
        return combine(starts, window.bounds)

    @contextmanager
    def _clients_fit(self, load: LoadPoint, window: Window) -> Iterator[None]:
        """For one start of a closed loop: an error says so if its clients are too many."""
        before, begin_s = self._answered_count(), time.monotonic()
        try:
            yield
        except ModelFailsError:
            raise
        except LoadFailedError as error:
            with suppress(ServerGoneError):
                answered = self._answered_count() - before
                rate_per_s = answered / (time.monotonic() - begin_s)
                if better := too_many_clients(load, window, rate_per_s, error.reason):
                    raise better from error
            raise

    def _answered_count(self) -> int:
        models = {stream.requests.model for stream in self.setup.streams}
        return sum(self.setup.site.control.statistics(model).success_count for model in models)

    def answers(self) -> Mapping[str, ConfigAnswers]:
        """Answers to some of each stream's inputs; see `probes.answers.ask`."""
        return {s.name: ask(s, self._config(s)) for s in self.setup.streams}

    def await_first_answers(self, patience_s: float, note: Note) -> list[FirstCalls]:
        """The first calls of each stream's model; see `tuner.load.probes.preparing`."""
        return [
            await_first_answers(s, self._config(s), patience_s, note) for s in self.setup.streams
        ]

    def warm_up(self, texts: Mapping[str, str], patience_s: float, note: Note) -> WarmUp | None:
        """The test of a warm-up; see `tuner.load.probes.warmup`."""
        return warm_up(self.setup, texts, patience_s, note)

    def seconds_for(self, count: int, patience_s: float) -> float | None:
        """Sends requests at once, to each stream its share; see `probes.preparing`."""
        turns = in_turn(self.setup.streams, count).tolist()
        wanted = [(stream, turns.count(k)) for k, stream in enumerate(self.setup.streams)]
        return seconds_for(wanted, patience_s)

    def seconds_alone(self, patience_s: float) -> Mapping[str, float] | None:
        """Seconds for a lone request of each stream, and their mean under `""`."""
        seconds: dict[str, float] = {}
        for stream in self.setup.streams:
            took_s = seconds_for([(stream, 1)], patience_s)
            if took_s is None:
                return None
            seconds[stream.name] = took_s
        mean_s = sum(
            s.requests.share * seconds[s.name] for s in self.setup.streams if not s.background
        )
        return {**seconds, "": mean_s}

    def ask_alone(self, stream: str, patience_s: float) -> LoneRequests | None:
        """Sends a stream's requests one at a time; None if no queue policy refuses requests."""
        configs = map(self.setup.site.control.running_config, self.setup.models)
        if not any(map(may_reject, configs)):
            return None
        of_name = next(s for s in self.setup.streams if stream in ("", s.name))
        return ask_alone(of_name, patience_s)

    def fill(self, seed: int, size: int | None) -> Filling:
        """Fills an empty cache of this size in bytes; see `probes.preparing.fill`.

        The stream with most requests comes last: an LRU cache drops its entries last.
        """
        streams = [s for s in self.setup.streams if self._config(s).response_cache.enable]
        streams.sort(key=lambda s: 0.0 if s.background else s.requests.share)
        return together([fill(s, seed, size) for s in streams or self.setup.streams])

    def _config(self, stream: Stream) -> Any:
        return self.setup.site.control.running_config(stream.requests.model)


def streams_load(
    workload: Workload,
    streams: Mapping[str, StreamRequests],
    served: Iterable[str],
    site: Site,
    kind: GeneratorKind = GENERATORS[0],
) -> StreamsLoad:
    """Load on loaded models; it remains usable after they are reloaded.

    Args:
        served: Names of all models that take part in answers, including steps of ensembles.

    Raises:
        SpecError: The inputs do not fit a model's.
    """
    arrivals = workload.arrivals
    traffic = recorded_traffic(
        arrivals, {name: requests.model for name, requests in streams.items()}
    )
    prepared = tuple(
        _stream(name, requests, workload.protocol, site, traffic.of(number) if traffic else None)
        for number, (name, requests) in enumerate(streams.items())
    )
    kinds = traffic_of(workload, prepared)
    setup = Setup(site, prepared, tuple(served), shape_of(arrivals), kinds)
    return StreamsLoad(kind.make(setup), workload.starts, setup)


def _stream(
    name: str,
    requests: StreamRequests,
    protocol: Protocol,
    site: Site,
    recorded: RecordedStream | None,
) -> Stream:
    control, model = site.control, requests.model
    config = control.running_config(model)
    streamed = config.model_transaction_policy.decoupled
    ids = ids_for(_answering(control, model))
    target = LoadTarget(site.endpoints, protocol, streamed)
    if isinstance(requests.inputs, RecordingInputs):
        assert recorded is not None  # the spec's checks require it
        shapes = tuple(_recorded(requests.inputs, recorded, inputs_of(config)))
    elif (
        ids
        and isinstance(requests.inputs, FileInputs)
        and (contents := sequence_contents(requests.inputs, inputs_of(config)))
    ):
        shapes = (ShapedInputs(contents),)
    else:
        shapes = tuple(
            ShapedInputs(
                DrawnInputs(
                    inputs,
                    tensors,
                    cached=lambda: control.running_config(model).response_cache.enable,
                ),
                shape_name,
                share,
            )
            for inputs, tensors, shape_name, share in _shaped(requests.inputs, model, config)
        )
    form = RequestForm(
        model=model,
        datatypes={t.name: t.datatype for t in inputs_of(config)},
        batched=config.max_batch_size > 0,
        batch_size=requests.batch_size,
        priority=requests.priority,
        version=requests.version,
        sequence_ids=ids,
        shape_tensors=shape_tensors(config),
        outputs=output_bytes(config, requests.batch_size),
    )
    return Stream(name, target, form, shapes, requests)


def _recorded(
    inputs: RecordingInputs, recorded: RecordedStream, tensors: Sequence[TensorShape]
) -> Iterator[ShapedInputs]:
    """Recorded inputs of each shape, with its share of the stream's requests."""
    for group in groups_of(recorded):
        of_group = RecordedStream(recorded.recording, group.numbers)
        contents = RecordedContents(inputs, of_group, tensors)
        yield ShapedInputs(contents, group.name, group.numbers.size / recorded.numbers.size)


def _answering(control: Control, model: str) -> Iterator[Any]:
    """The configs of a model, and of the steps of an ensemble."""
    config = control.running_config(model)
    yield config
    for step in config.ensemble_scheduling.step:
        yield from _answering(control, step.model_name)


def _shaped(
    inputs: RandomInputs | FileInputs, model: str, config: Any
) -> Iterator[tuple[RandomInputs | FileInputs, tuple[TensorShape, ...], str, float]]:
    """Inputs of each shape, with tensors, name and share of the shape.

    The distinct inputs that come back are divided among shapes according to their shares.
    """
    if not isinstance(inputs, RandomInputs):
        yield inputs, inputs_of(config), "", 1.0
        return
    for shape in inputs.request_shapes:
        changed = inputs.model_copy(update={"unique": inputs.unique_of(shape)})
        yield changed, resolve(model, config, shape.dims), shape.name, shape.share
