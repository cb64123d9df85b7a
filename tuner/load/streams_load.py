"""Load on the models of a server as a spec's streams say, and what is asked apart from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.load.generators import GENERATORS, GeneratorKind
from tuner.load.probes.answers import Answers, ask
from tuner.load.probes.preparing import Filling, await_first_answers, fill, seconds_for, together
from tuner.load.restarts import Restarted
from tuner.load.setup import Setup, Site, Stream, Target, in_turn
from tuner.load.traffic.arrivals import BurstShape, Shape, read_trace
from tuner.load.traffic.encoding import RequestForm, datatype_of, resolve
from tuner.load.traffic.inputs import InputFiles
from tuner.spec.model import Spec
from tuner.spec.workload import (
    ArrivalsSpec,
    BurstArrivals,
    ClosedArrivals,
    Inputs,
    Protocol,
    RandomInputs,
    TraceArrivals,
    Workload,
)


@dataclass(frozen=True)
class Asked:
    """What a stream asks; see `tuner.load.setup.Stream`."""

    model: str
    inputs: Inputs = field(default_factory=lambda: RandomInputs(kind="random"))
    batch_size: int = 1
    share: float = 1.0
    rate_per_s: float | None = None
    priority: int = 0


def asked_of(spec: Spec) -> dict[str, Asked]:
    """What each stream of a spec asks."""
    shares = spec.shares
    return {
        name: Asked(
            stream.model,
            stream.inputs,
            stream.batch_size,
            shares.get(name, 0.0),
            None if stream.rate is None else float(stream.rate),
            stream.priority or 0,
        )
        for name, stream in spec.streams.items()
    }


@dataclass(frozen=True)
class StreamsLoad(Restarted):
    """Load by the generator of the run, and what is asked of the models apart from that."""

    setup: Setup

    def answers(self) -> Mapping[str, Answers]:
        """What is answered to some of each stream's inputs; see `probes.answers.ask`."""
        return {s.name: ask(s, self._config(s)) for s in self.setup.streams}

    def await_first_answers(self, patience_s: float, note: Callable[[str], None]) -> None:
        """See `tuner.load.probes.preparing`."""
        for stream in self.setup.streams:
            await_first_answers(stream, self._config(stream), patience_s, note)

    def seconds_for(self, count: int, patience_s: float) -> float | None:
        """Sends requests at once, from each stream its share; see `probes.preparing`."""
        turns = in_turn(self.setup.streams, count).tolist()
        asked = [(stream, turns.count(k)) for k, stream in enumerate(self.setup.streams)]
        return seconds_for(asked, patience_s)

    def seconds_alone(self, patience_s: float) -> Mapping[str, float] | None:
        """One request of each stream by itself, and the mean of a mix as `""`."""
        found: dict[str, float] = {}
        for stream in self.setup.streams:
            took_s = seconds_for([(stream, 1)], patience_s)
            if took_s is None:
                return None
            found[stream.name] = took_s
        mean_s = sum(s.share * found[s.name] for s in self.setup.streams if not s.background)
        return {**found, "": mean_s}

    def fill(self, seed: int, size: int | None) -> Filling:
        """Fills an empty cache of this size in bytes; see `probes.preparing.fill`.

        The stream with most requests comes last: an LRU cache drops its entries last.
        """
        streams = [s for s in self.setup.streams if self._config(s).response_cache.enable]
        streams.sort(key=lambda s: 0.0 if s.background else s.share)
        return together([fill(s, seed, size) for s in streams or self.setup.streams])

    def _config(self, stream: Stream) -> Any:
        return self.setup.site.control.running_config(stream.target.model)


def streams_load(
    workload: Workload,
    streams: Mapping[str, Asked],
    served: Iterable[str],
    site: Site,
    kind: GeneratorKind = GENERATORS[0],
) -> StreamsLoad:
    """Load on models that are loaded; it stays good when they are reloaded.

    Args:
        served: Names of all models that answer to it, the steps of ensembles too.

    Raises:
        SpecError: The inputs do not fit a model's.
    """
    arrivals = workload.arrivals
    asked = tuple(_stream(name, own, workload.protocol, site) for name, own in streams.items())
    setup = Setup(site, asked, tuple(served), shape_of(arrivals))
    starts = arrivals.restarts if isinstance(arrivals, ClosedArrivals) else 1
    return StreamsLoad(kind.make(setup), starts, setup)


def _stream(name: str, asked: Asked, protocol: Protocol, site: Site) -> Stream:
    control, model, own = site.control, asked.model, asked.inputs
    config = control.running_config(model)
    target = Target(model, site.endpoints, protocol, asked.batch_size)
    inputs = InputFiles(
        own,
        resolve(model, config, own.shapes) if isinstance(own, RandomInputs) else (),
        site.directory,
        cached=lambda: control.running_config(model).response_cache.enable,
    )
    form = RequestForm(
        model=model,
        datatypes={t.name: datatype_of(t) for t in config.input},
        shapes={t.name: tuple(t.dims) for t in config.input},
        batched=config.max_batch_size > 0,
        batch_size=asked.batch_size,
        priority=asked.priority,
        optional=tuple(t.name for t in config.input if t.optional),
    )
    return Stream(name, target, form, inputs, asked.share, asked.rate_per_s)


def shape_of(arrivals: ArrivalsSpec) -> Shape | None:
    """What arrivals have beside their rate: bursts, or a recorded trace."""
    if isinstance(arrivals, TraceArrivals):
        return read_trace(arrivals.file)
    if isinstance(arrivals, BurstArrivals):
        length_s = float(arrivals.burst_length)
        return BurstShape(arrivals.burst_ratio, float(arrivals.burst_share), length_s)
    return None
