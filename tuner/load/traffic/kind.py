"""The seam for a kind of traffic: what it changes of a load, from its schedule to its figures.

A kind is a package beside this file and a row of `tuner.load.traffic.kinds`. The rest of
`tuner.load` calls these methods and knows no kind by name.
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
    """What a process of the client needs to make the caller of a kind.

    Attributes:
        maker: ``module:function``; it takes a `tuner.load.client.job.ProcessPart` and ``facts``
            and returns a `tuner.load.client.calls.Caller`.
        facts: Plain JSON.
        one_process: Requests hang together, so that one process sends them all.
        by_answer: The caller itself knows when a request counts as answered: the server's counters
            do not show that.
    """

    maker: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    one_process: bool = False
    by_answer: bool = False


class Traffic:
    """One kind of traffic in a load that has it.

    The methods here are those of independent requests, each answered once, as soon as it can be.
    """

    #: Why perf_analyzer cannot measure it.
    unlike_perf_analyzer: ClassVar[str] = ""

    @classmethod
    def in_spec(
        cls, workload: Workload, stream: StreamSpec, configs: Mapping[str, ModelConfig]
    ) -> bool:
        """Whether a stream has it; ``configs``: of all models, by name."""
        raise NotImplementedError

    @classmethod
    def of(cls, workload: Workload, streams: Sequence[Stream]) -> Traffic | None:
        """The kind for a load with these streams; None where none has it.

        Raises:
            SpecError: A file that it needs cannot be used.
        """
        raise NotImplementedError

    def schedule(
        self, streams: Sequence[Stream], load: LoadPoint, window: Window, seed: int
    ) -> Schedule | None:
        """When the requests of an open loop are due; None leaves that to another kind."""

    def mark(self, plan: Schedule, streams: Sequence[Stream], spans: Order, seed: int) -> Schedule:
        """Says more about each request; ``spans``: the part of the run in which it is due."""
        del streams, spans, seed
        return plan

    def peak(self, load: LoadPoint) -> float:
        """The rate of its busiest second over its mean rate, as far as that is above Poisson's."""
        del load
        return 1.0

    def laid(self, endpoints: Endpoints) -> AbstractContextManager[Lay | None]:
        """Puts inputs elsewhere than into requests, for as long as the context is open."""
        del endpoints
        return nullcontext()

    def caller(self, streams: Sequence[Stream], window: Window) -> CallerJob | None:
        """How requests are sent, if not each by itself. At most one kind of a load has a caller."""

    def judged(self, run: Run, window: Window) -> Run:
        """The run with each request answered when that counts."""
        del window
        return run

    def figures(
        self, run: Run, number: int, window: Window, observed: Observed, measured: Figures
    ) -> Figures:
        """Adds figures of one stream.

        Args:
            run: As it was judged, with the answers as they came in ``run.answered``.
            number: The stream's place.
            observed: The stream's requests, as they were judged.
        """
        del run, number, window, observed
        return measured

    def totals(self, setup: Setup, load: LoadPoint, measured: Measurement) -> Measurement:
        """Adds figures of all streams together."""
        del setup, load
        return measured

    def warnings(self, answers: Answers) -> Iterator[Reason]:
        """What a reader must know of how requests were answered."""
        del answers
        return iter(())
