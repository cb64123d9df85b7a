"""Requests of sequences: on a clock per sequence, and in the order within a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.load import seeds
from tuner.load.client.job import Answers
from tuner.load.setup import Schedule, Setup, Stream, on_one_clock, spans_of
from tuner.load.traffic.arrivals import STEPS, Times, arrivals_of
from tuner.load.traffic.kind import CallerJob, Traffic
from tuner.load.traffic.repeats import Order
from tuner.load.traffic.sequences.contents import played_by
from tuner.load.traffic.sequences.pace import (
    SequencedTimes,
    SequencePace,
    first_id,
    sequence_arrivals,
)
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.modelconfig.schema import ModelConfig
from tuner.reason import Reason, ReasonKind
from tuner.spec.arrivals import SequenceArrivals
from tuner.spec.workload import StreamSpec, Workload


@dataclass(frozen=True)
class Sequences(Traffic):
    """Requests of sequences; see `Traffic`. Without ``pace``, each is a sequence of one request."""

    pace: SequencePace | None = None

    unlike_perf_analyzer = (
        "perf_analyzer does not check the order of answers, or keep a pace within sequences"
    )

    @classmethod
    def in_spec(cls, workload: Workload, _: StreamSpec, __: Mapping[str, ModelConfig]) -> bool:
        return isinstance(workload.arrivals, SequenceArrivals)

    @classmethod
    def of(cls, workload: Workload, streams: Sequence[Stream]) -> Sequences | None:
        if not any(stream.takes_sequences for stream in streams):
            return None
        arrivals = workload.arrivals
        if not isinstance(arrivals, SequenceArrivals):
            return cls()
        output = arrivals.count_output or ""
        return cls(SequencePace(arrivals.lengths, float(arrivals.interval), output))

    def schedule(
        self, streams: Sequence[Stream], load: LoadPoint, window: Window, seed: int
    ) -> Schedule | None:
        """Sequences; single requests of other models are Poisson."""
        if self.pace is None:
            return None
        spans_s = spans_of(window)
        times, numbers, entries, count = list[Times](), list[Order](), list[Order](), 0
        for stream in streams:
            stream_seed = seeds.of_stream(seed, stream.name, streams)
            part = stream.load(load)
            if stream.takes_sequences:
                steps = STEPS if part.arrivals is Arrivals.STEP else (1.0,) * len(spans_s)
                rates = [step * part.level for step in steps]
                played = played_by(stream)
                planned = sequence_arrivals(rates, spans_s, stream_seed, self.pace, played)
            else:
                due_s = arrivals_of(part, spans_s, stream_seed)
                planned = SequencedTimes(due_s, np.full(due_s.size, -1))
            inside = planned.due_s < window.total_s
            of_stream = planned.numbers[inside]
            times.append(planned.due_s[inside])
            numbers.append(np.where(of_stream < 0, -1, of_stream + count))
            entries.append(
                np.full(of_stream.size, -1) if planned.entries is None else planned.entries[inside]
            )
            count += int(planned.numbers.max(initial=-1)) + 1
        return on_one_clock(times, numbers, entries)

    def caller(self, streams: Sequence[Stream], window: Window) -> CallerJob:
        ids = [s.form.sequence_ids for s in streams for _ in s.shapes]
        facts = {
            "ids": [None if one is None else one.value for one in ids],
            "first_id": first_id(),
            "count_output": "" if self.pace is None else self.pace.count_output,
        }
        maker = "tuner.load.traffic.sequences.sender:sequence_caller"
        return CallerJob(maker, facts, one_process=True)

    def totals(self, setup: Setup, load: LoadPoint, measured: Measurement) -> Measurement:
        """Adds the mean number of sequences in progress, over the streams that share a load."""
        pace = self.pace if load.arrivals is Arrivals.SEQUENCES else None
        shares = [s.requests.share for s in setup.streams if s.takes_sequences and not s.background]
        if pace is None or not shares:
            return measured
        return replace(measured, sequences_at_once=pace.at_once(sum(shares) * load.level))

    def warnings(self, answers: Answers) -> Iterator[Reason]:
        if answers.unended:
            facts = {"sequence_count": int(answers.unended)}
            yield Reason(ReasonKind.SEQUENCES_UNENDED, facts=facts)
