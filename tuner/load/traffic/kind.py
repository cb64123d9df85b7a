"""The interface of a kind of traffic: how it changes a load, from the schedule to the figures.

A kind is a package beside this file and a row in `tuner.load.traffic.kinds`. The rest of
`tuner.load` calls these methods, and has no case for any kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tuner.load.client.figures import Run
    from tuner.load.client.job import Answers
    from tuner.load.latency import Observed
    from tuner.load.setup import Schedule, Setup, Stream
    from tuner.load.traffic.repeats import Order
    from tuner.load.traffic.wire import Lay
    from tuner.measurement.measurement import Figures, LoadPoint, Measurement
    from tuner.measurement.window import Window
    from tuner.modelconfig.schema import ModelConfig
    from tuner.reason import Reason
    from tuner.server.server import Endpoints
    from tuner.spec.workload import StreamSpec, Workload


@dataclass(frozen=True)
class CallerJob:
    """What a process of the client needs to make the caller for a kind of traffic.

    Attributes:
        maker: ``module:function``; it takes a `tuner.load.client.job.ProcessPart` and ``facts``
            and returns a `tuner.load.client.calls.Caller`.
        facts: Plain JSON.
        one_process: Requests depend on each other, so that one process sends them all.
        by_answer: Only the caller knows when a request counts as answered; the server's counters
            do not show it.
    """

    maker: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    one_process: bool = False
    by_answer: bool = False


class Traffic:
    """One kind of traffic in a load.

    The methods here are those of independent requests, each with one answer, sent at once.
    """

    #: Why perf_analyzer cannot measure this kind.
    unlike_perf_analyzer: ClassVar[str] = ""

    @classmethod
    def in_spec(
        cls, workload: Workload, stream: StreamSpec, configs: Mapping[str, ModelConfig]
    ) -> bool:
        """Whether a stream has this kind; ``configs``: those of all models, by name."""
        raise NotImplementedError

    @classmethod
    def of(cls, workload: Workload, streams: Sequence[Stream]) -> Traffic | None:
        """The kind for a load with these streams; None if no stream has it.

        Raises:
            SpecError: A file that the kind needs cannot be used.
        """
        raise NotImplementedError

    def schedule(
        self, streams: Sequence[Stream], load: LoadPoint, window: Window, seed: int
    ) -> Schedule | None:
        """When the requests of an open loop are due; None: another kind decides."""

    def mark(self, plan: Schedule, streams: Sequence[Stream], spans: Order, seed: int) -> Schedule:
        """Adds properties to each request; ``spans``: the part of the run that it is due in."""
        del streams, spans, seed
        return plan

    def peak(self, load: LoadPoint) -> float:
        """The rate of the busiest second over the mean rate, as far as it exceeds Poisson's."""
        del load
        return 1.0

    def laid(self, endpoints: Endpoints) -> AbstractContextManager[Lay | None]:
        """Puts inputs outside of requests while the context is open; None: requests have them."""
        del endpoints
        return nullcontext()

    def caller(self, streams: Sequence[Stream], window: Window) -> CallerJob | None:
        """How requests are sent, if not separately. At most one kind of a load has a caller."""

    def judged(self, run: Run, window: Window) -> Run:
        """The run, with each request answered at the moment that counts for this kind."""
        del window
        return run

    def figures(
        self, run: Run, number: int, window: Window, observed: Observed, measured: Figures
    ) -> Figures:
        """Adds figures of one stream.

        Args:
            run: The run as `judged` returned it; ``run.answered`` has the answers as received.
            number: Index of the stream.
            observed: The stream's requests according to ``run``.
            measured: The stream's figures so far.
        """
        del run, number, window, observed
        return measured

    def totals(self, setup: Setup, load: LoadPoint, measured: Measurement) -> Measurement:
        """Adds figures of all streams together."""
        del setup, load
        return measured

    def warnings(self, answers: Answers) -> Iterator[Reason]:
        """What a reader must know about how requests were answered."""
        del answers
        return iter(())
