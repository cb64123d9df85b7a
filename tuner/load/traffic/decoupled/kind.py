"""Requests to decoupled models, which answer a request with any number of responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tuner.load.client.figures import Run, observe
from tuner.load.client.job import Answers
from tuner.load.latency import Observed
from tuner.load.quiet import seconds_of
from tuner.load.setup import Stream
from tuner.load.traffic.decoupled.responses import (
    SILENCE_S,
    response_figures,
    until_first,
    warnings_of,
)
from tuner.load.traffic.kind import CallerJob, Traffic
from tuner.measurement.measurement import Figures
from tuner.measurement.window import Window
from tuner.modelconfig.ensembles import answers_many_times
from tuner.modelconfig.schema import ModelConfig
from tuner.reason import Reason
from tuner.spec.workload import StreamSpec, Workload


class Decoupled(Traffic):
    """Requests to decoupled models; see `Traffic`."""

    unlike_perf_analyzer = "perf_analyzer does not measure first responses, or report lost ones"

    @classmethod
    def in_spec(cls, _: Workload, stream: StreamSpec, configs: Mapping[str, ModelConfig]) -> bool:
        return answers_many_times(stream.model, configs)

    @classmethod
    def of(cls, _: Workload, streams: Sequence[Stream]) -> Decoupled | None:
        return cls() if any(stream.target.streamed for stream in streams) else None

    def caller(self, streams: Sequence[Stream], window: Window) -> CallerJob:
        each = [stream for stream in streams for _ in stream.shapes]
        facts = {
            "streamed": [stream.target.streamed for stream in each],
            "until_first": [window.of(stream.name).until_first for stream in each],
            "silence_s": max(SILENCE_S, window.tail_s),
        }
        maker = "tuner.load.traffic.decoupled.streaming:streamed_calls"
        return CallerJob(maker, facts, by_answer=True)

    def judged(self, run: Run, window: Window) -> Run:
        """Takes each request's first or last response as its answer.

        Only the latencies come from the returned run.
        """
        first = [k for k, stream in enumerate(run.streams) if window.of(stream.name).until_first]
        if not first:
            return run
        which = np.isin(run.plan.order[run.answers.numbers % run.plan.order.size], first)
        return replace(run, answers=until_first(run.answers, which))

    def figures(
        self, run: Run, number: int, window: Window, observed: Observed, measured: Figures
    ) -> Figures:
        """Adds figures of the first and the last response."""
        if not run.streams[number].target.streamed:
            return measured
        plain = run.as_answered
        part = plain.part([number])
        begun = replace(part, answers=until_first(part.answers))
        first, last = (
            observe(each, replace(window, slice_s=None), (), plain.begun_ns, observed.quiet)
            for each in (begun, part)
        )
        seconds = seconds_of(last.quiet)
        return replace(
            measured,
            completed_count=last.answered_count,
            throughput_infer_per_s=last.answered_count * measured.batch_size / seconds,
            mean_in_flight=last.mean_in_flight,
            responses=response_figures(part.answers, first, last),
        )

    def warnings(self, answers: Answers) -> Iterator[Reason]:
        return warnings_of(answers.outcomes)
