"""Figures of every stream, and of all streams together, from the outcome of each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, ModelFailsError
from tuner.load import seeds
from tuner.load.client.job import Answers, Outcome, select
from tuner.load.latency import (
    AnsweredRequests,
    Observed,
    begun_ns,
    figures_of,
    lag_figures,
    observe_closed,
    observe_open,
)
from tuner.load.perf_analyzer.outputs import bare_words
from tuner.load.quiet import Span, seconds_of, within
from tuner.load.setup import Order, Schedule, Stream
from tuner.load.traffic.arrivals import Times
from tuner.load.traffic.kind import Traffic
from tuner.load.validity import answered_with_errors, client_limit
from tuner.measurement.measurement import FailureReason, Failures, Figures, LoadPoint, Measurement
from tuner.measurement.responses import percentile
from tuner.measurement.window import Window
from tuner.spec.slo import Slo
from tuner.spec.units import count_text

#: Start and end of stalls of the machine, on the wall clock.
Spells = Sequence[tuple[int, int]]
_REASONS = {
    Outcome.TIMED_OUT: FailureReason.TIMED_OUT,
    Outcome.QUEUE_FULL: FailureReason.QUEUE_FULL,
    Outcome.FAILED: FailureReason.OTHER,
    Outcome.INCOMPLETE: FailureReason.INCOMPLETE,
    Outcome.DOUBLED: FailureReason.DOUBLED,
}


@dataclass(frozen=True)
class StreamSlice:
    """Some requests of a run with their outcomes; ``due_s`` is None in a closed loop."""

    answers: Answers
    due_s: Times | None

    def any_in(self, window: Window, begin_ns: int) -> bool:
        """Whether a request was due in the window (closed loop: was answered in it)."""
        moments_s = self.due_s
        if moments_s is None:
            moments_s = (self.answers.answered_ns - begin_ns) / 1e9
        return bool(within(moments_s, [window.span_s]).any())


def by_stream(streams: Sequence[Stream], order: Order) -> dict[str, npt.NDArray[np.bool_]]:
    """A mask of each stream's requests; under ``""``, that of all streams that share the level."""
    each = {stream.name: order == k for k, stream in enumerate(streams)}
    shared = [k for k, stream in enumerate(streams) if not stream.background]
    return {**each, "": np.isin(order, shared)}


@dataclass(frozen=True)
class Run:
    """A finished run of tune's client, with the outcome of each request.

    Attributes:
        answers: The outcomes that figures are computed from.
        answered: The outcomes as received, where a kind of traffic changed ``answers``; else None.
    """

    streams: Sequence[Stream]
    answers: Answers
    plan: Schedule
    load: LoadPoint
    seed: int
    traffic: Sequence[Traffic] = ()
    answered: Answers | None = None

    @property
    def as_answered(self) -> Run:
        """The run with its outcomes as received."""
        return self if self.answered is None else replace(self, answers=self.answered)

    @cached_property
    def begun_ns(self) -> int:
        """The start of the load on the wall clock, the same for all streams."""
        (requests, answered), due_s = _answered(self.answers, or_waiting=False), self.plan.due_s
        return int(requests.sent_ns[0]) if due_s is None else begun_ns(requests, due_s[answered])

    def measured(self, window: Window, spells_ns: Spells = ()) -> tuple[Observed, Measurement]:
        """Figures of all streams; the caller adds what the client cannot know.

        Args:
            spells_ns: Stalls of the machine, see `observe_open`.

        Raises:
            LoadFailedError: The server answered nothing.
        """
        streams, judged = {}, replace(self, answered=self.answers)
        for kind in self.traffic:
            judged = kind.judged(judged, window)
        for k, stream in enumerate(self.streams):
            part = judged.part([k])
            if len(self.streams) > 1 and part.any_in(window, self.begun_ns):
                seen = observe(part, window, spells_ns, self.begun_ns)
                of_stream = self.of_stream(seen, part, stream, window.of(stream.name))
                of_stream = judged._with_figures(of_stream, k, window, seen)
                streams[stream.name] = replace(of_stream, background=stream.background)
        shared = judged.part([k for k, s in enumerate(self.streams) if not s.background])
        observed = observe(shared, window, spells_ns, self.begun_ns)
        size = self.streams[0].requests.batch_size
        bounds = window.of("").bounds
        total = part_figures(observed, shared, self.load, self.seed, bounds, size)
        if streams:
            return observed, _with_streams(total, streams)
        alone = judged._with_figures(total, 0, window, observed)
        return observed, Measurement.of_all(alone)

    def _with_figures(
        self, measured: Figures, number: int, window: Window, observed: Observed
    ) -> Figures:
        for kind in self.traffic:
            measured = kind.figures(self, number, window, observed, measured)
        return measured

    def of_stream(
        self, observed: Observed, part: StreamSlice, stream: Stream, window: Window
    ) -> Figures:
        return part_figures(
            observed,
            part,
            stream.load(self.load),
            seeds.of_stream(self.seed, stream.name, self.streams),
            window.bounds,
            stream.requests.batch_size,
        )

    def part(self, streams: Sequence[int], shape: int | None = None) -> StreamSlice:
        order, due_s = self.plan.order, self.plan.due_s
        numbers = self.answers.numbers % order.size
        which = np.isin(order[numbers], streams)
        if shape is not None:
            which &= self.plan.shape_of_each()[numbers] == shape
        return StreamSlice(select(self.answers, which), None if due_s is None else due_s[which])


def _with_streams(together: Figures, streams: Mapping[str, Figures]) -> Measurement:
    """Adds figures by stream, and figures that a sum over streams needs them for."""
    total = replace(Measurement.of_all(together), streams=streams)
    shared = total.shared.values()
    sizes = {stream.batch_size for stream in shared}
    verdicts = [m.within_bounds for m in (total, *streams.values()) if m.within_bounds is not None]
    return replace(
        total,
        throughput_infer_per_s=sum(stream.throughput_infer_per_s for stream in shared),
        batch_size=sizes.pop() if len(sizes) == 1 else 1,
        within_bounds=all(verdicts) if verdicts else None,
    )


def _answered(
    answers: Answers, *, or_waiting: bool
) -> tuple[AnsweredRequests, npt.NDArray[np.bool_]]:
    """The answered requests, and a mask of them.

    ``or_waiting``: no answer is a valid result if some requests are still waiting.
    """
    answered = answers.outcomes == Outcome.ANSWERED
    errors = int((answers.outcomes == Outcome.FAILED).sum())
    if not answered.any() and (lost := int((answers.outcomes == Outcome.INCOMPLETE).sum())):
        all_lost = f"{lost:,} of {count_text(lost, 'request')}"
        raise ModelFailsError(f"the model sent no final response to {all_lost}")
    if not answered.any() and errors:
        raise answered_with_errors(errors, errors, bare_words(answers.failure))
    waiting = or_waiting and (answers.outcomes <= Outcome.UNANSWERED).any()
    if not answered.any() and not waiting:
        raise LoadFailedError("no request was answered before the run ended")
    return AnsweredRequests(
        answers.sent_ns[answered], answers.answered_ns[answered], answers.end_ns
    ), answered


def check_sent(answers: Answers, load: LoadPoint) -> None:
    """Checks that the client sent its requests, where no answer shows it.

    Raises:
        ClientLimitError: The client fell behind.
    """
    unsent = float((answers.outcomes == Outcome.UNSENT).mean())
    if unsent and not (answers.outcomes == Outcome.ANSWERED).any():
        raise client_limit(load, (1.0 - unsent) * load.level)


def observe(
    part: StreamSlice,
    window: Window,
    spells_ns: Spells = (),
    begin_ns: int | None = None,
    quiet: tuple[Span, ...] = (),
) -> Observed:
    """The window as `observe_open` sees it (closed loop: `observe_closed`), without refusals.

    Requests that the client had no time to send count as unanswered, as with perf_analyzer.

    Args:
        part: The requests and their outcomes.
        spells_ns: Stalls of the machine, see `observe_open`.
        begin_ns: Start of the load on the wall clock; None: derived from these requests. With a
            known start, a window without an answer is a valid result.
        quiet: Parts of the window that count, if already known.

    Raises:
        LoadFailedError: The server answered nothing.
    """
    answers, due_s = part.answers, part.due_s
    if due_s is None:
        return observe_closed(_answered(answers, or_waiting=False)[0], window, begin_ns)
    requests, answered = _answered(answers, or_waiting=begin_ns is not None)
    waited_for_s = np.append(due_s[answered], due_s[answers.outcomes <= Outcome.UNANSWERED])
    refused_s = due_s[answers.outcomes > Outcome.ANSWERED]
    observed = observe_open(requests, waited_for_s, window, refused_s, spells_ns, begin_ns, quiet)
    # here, unlike in an export, it is known when each request was due, and what stayed unanswered
    sent = answers.outcomes > Outcome.UNSENT
    due_ns = np.rint(due_s * 1e9).astype(np.int64)
    never_us = window.total_s * 1e6
    lag_us = np.where(sent, (answers.sent_ns - observed.begin_ns - due_ns) / 1e3, never_us)
    inside = within(due_s, observed.quiet)
    sent_count = int((sent & _within(answers.sent_ns, observed)).sum())
    seconds = seconds_of(observed.quiet)
    return replace(
        observed,
        sent_per_s=sent_count / seconds,
        due_per_s=float(inside.sum()) / seconds,
        **lag_figures(lag_us[inside]),
    )


def part_figures(
    observed: Observed,
    part: StreamSlice,
    load: LoadPoint,
    seed: int,
    bounds: Sequence[Slo],
    batch_size: int,
) -> Figures:
    """Figures of the requests; the caller adds what the client cannot know."""
    failures = failures_in(part, observed)
    counts = {reason: result.count for reason, result in failures.items()}
    failed = sum(counts.values())
    result = figures_of(
        observed,
        load,
        seed,
        batch_size,
        bounds=bounds,
        failed_count=failed,
        rejected_count=sum(count for reason, count in counts.items() if reason.by_queue),
    )
    return replace(result, failures=failures)


def failures_in(part: StreamSlice, observed: Observed) -> dict[FailureReason, Failures]:
    """Requests that failed within the window, by reason."""
    answers, due_s = part.answers, part.due_s
    begun_ns = answers.sent_ns
    if due_s is not None:
        begun_ns = observed.begin_ns + np.rint(due_s * 1e9).astype(np.int64)
    in_window, after_us = (
        _within(answers.answered_ns, observed),
        (answers.answered_ns - begun_ns) / 1e3,
    )
    counts = {}
    for outcome, reason in _REASONS.items():
        if (reported_us := np.sort(after_us[in_window & (answers.outcomes == outcome)])).size:
            counts[reason] = Failures(
                reported_us.size, percentile(reported_us, 0.5), percentile(reported_us, 0.99)
            )
    return counts


def _within(moments_ns: npt.NDArray[np.int64], observed: Observed) -> npt.NDArray[np.bool_]:
    return within((moments_ns - observed.begin_ns) / 1e9, observed.quiet)
