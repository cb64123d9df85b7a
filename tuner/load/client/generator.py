"""A load generator of our own, for what perf_analyzer cannot measure.

perf_analyzer gives no result when a request fails, so it cannot measure a queue timeout or a
full queue; and its export of every request's latency holds every tensor too, so that it cannot
measure large ones. This client sends each request once, without retries, as bytes that were made
before, never looks into an answer, and counts what was answered, rejected and failed. Everything
else means what it means in `perf_analyzer.generator`: the same arrivals for the same seed, the
same inputs, latency from the moment a request was due (closed loop: sent). Rejected requests have
no latency; they are in `Measurement.error_rate`.

What it costs, beside perf_analyzer: docs/measuring.md. Beyond what it can do, `tuner.load.validity`
says so.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, ModelFailsError, ServerGoneError, TunerError
from tuner.load.client.job import Answers, Job, Outcome, merge
from tuner.load.client.process import LEAD_NS
from tuner.load.generator import LatencyBound, Window
from tuner.load.latency.quiet import seconds_of, within
from tuner.load.latency.timeline import (
    LATE_US,
    Observed,
    begun_ns,
    figures_of,
    observe_closed,
    observe_open,
    percentile,
    within_bounds,
)
from tuner.load.measurement import LatencySource, LoadPoint, Measurement
from tuner.load.perf_analyzer.export import Requests
from tuner.load.perf_analyzer.process import TOO_LATE, never
from tuner.load.setup import Setup
from tuner.load.traffic.arrivals import Times, arrivals_of, expected_requests
from tuner.load.traffic.inputs import InputFile
from tuner.load.validity import (
    client_busy,
    client_kept_up,
    client_limit,
    ended_early,
    left_out,
    warnings_about,
)
from tuner.load.watch.early_end import (
    Hopeless,
    check_answered,
    check_decided,
    refuse_spoilt_end,
    truncate,
)
from tuner.load.watch.idle import becomes_idle
from tuner.load.watch.sampler import host_use, server_statistics
from tuner.triton import health
from tuner.triton.process import child, tail

_SLACK_S = 2.0  # perf_analyzer is given arrivals for so much longer; the same draw needs the same
_POLL_S = 0.01
_READY_S = 60.0  # for the processes to start and to make their requests
#: One process stands so many requests a second, and so many clients of a closed loop.
_PROCESS_PER_S, _PROCESS_CLIENTS = 2500.0, 64


class OpenClient(Setup):
    """Measures one model on one server; see `tuner.load.generator.LoadGenerator`."""

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        begin = time.monotonic()
        due_s = self._due(load, window, seed)
        count = expected_requests(load, window.total_s) if due_s is None else due_s.size
        given = self.inputs.file(seed, count * self.target.batch_size)
        with (
            tempfile.TemporaryDirectory(prefix="load-", dir=self.directory) as private,
            self.watched() as watched,
        ):
            job = self._job(load, window, given, Path(private), count)
            if due_s is not None:
                np.save(Path(private) / "due.npy", due_s)
            hopeless = never if due_s is None else Hopeless(due_s, window, self._settled_count)
            answers, command, stopped_ns = self._execute(job, load, window, hopeless)
        spells_ns = watched.spells(window)
        refuse_spoilt_end(stopped_ns, spells_ns)
        unanswered = (answers.outcomes == Outcome.UNANSWERED).any()
        at_rest = not unanswered or becomes_idle(self.scrape, self.target)
        planned = window
        if stopped_ns is not None and due_s is not None:
            window = truncate(window, begun_ns(*_answered(answers, due_s)), stopped_ns)
        check_sent(answers, load)
        observed = observe(answers, due_s, window, spells_ns)
        if due_s is not None:
            check_decided(observed.latencies_us, due_s, window, planned)
        samples = watched.between(observed.start_ns, observed.end_ns)
        result = replace(
            measurement(observed, answers, load, window.bounds, self.target.batch_size),
            seed=seed,
            server=server_statistics(samples),
            host=host_use(samples, self.target.model, observed.quiet_ns),
            backlog=not at_rest,
            wall_s=time.monotonic() - begin,
            command=command,
        )
        if client_kept_up(result):  # else it is the client's fault, and told as that
            check_answered(observed.answered_count, window, planned)
        ends = (*ended_early(window, planned), *left_out(window, observed.quiet))
        warnings = (*given.warnings, *ends, *_about_client(answers))
        return replace(result, warnings=(*warnings, *warnings_about(result, window.bounds)))

    def _due(self, load: LoadPoint, window: Window, seed: int) -> Times | None:
        """When requests are due, in seconds from the start; None for a closed loop."""
        if not load.arrivals.open_loop:
            return None
        spans_s = (window.warmup_s, window.duration_s, window.tail_s + _SLACK_S)
        due_s = arrivals_of(load, spans_s, seed, self.shape)
        return due_s[due_s < window.total_s]

    def _job(
        self, load: LoadPoint, window: Window, given: InputFile, private: Path, count: int
    ) -> Job:
        closed = not load.arrivals.open_loop
        return Job(
            self.target.address,
            self.form,
            given.path,
            None if closed else private / "due.npy",
            window.total_s,
            private / "answers.npz",
            private / "ready",
            private / "begin",
            self.target.protocol,
            clients=round(load.level) if closed else 0,
            most=count,
        )

    def _execute(
        self, job: Job, load: LoadPoint, window: Window, hopeless: Callable[[], bool]
    ) -> tuple[Answers, tuple[str, ...], int | None]:
        """What became of the requests, a command line, and when it was stopped early."""
        jobs = split_over(job, processes_for(load))
        private = job.answers.parent
        logs = [private / f"log-{part.first}" for part in jobs]
        commands = []
        with ExitStack() as stack:
            processes = []
            for part, log in zip(jobs, logs, strict=True):
                file = private / f"job-{part.first}"
                part.write(file)
                command = (sys.executable, "-P", "-m", "tuner.load.client.process", str(file))
                output = stack.enter_context(log.open("wb"))
                commands.append(command)
                processes.append(
                    stack.enter_context(child(command, env=self.program.environment, stdout=output))
                )
            _begin(jobs, processes)
            reason, stopped_ns = _wait(processes, window.deadline_s, hopeless)
        if not all(part.answers.exists() for part in jobs):
            said = next((words for log in logs if (words := tail(log, 1))), "")
            codes = f"exit code {next((p.returncode for p in processes if p.returncode), 0)}"
            raise self._failure(reason or said or codes)
        parts = [Answers.read(part.answers) for part in jobs]
        answers = merge(parts, open_loop=job.due is not None)
        if answers.lost:
            raise self._failure(answers.lost)
        return answers, commands[0], stopped_ns

    def _failure(self, reason: str) -> TunerError:
        if not health.live(self.target.endpoints):
            return ServerGoneError(f"the server stopped answering; tune's own client: {reason}")
        return LoadFailedError(f"tune's own client failed: {reason}")

    def _settled_count(self) -> int:
        """Requests answered or refused so far; only the metrics know of the refused."""
        metrics, name = self.scrape(), "nv_inference_request_failure"
        failed = [] if metrics is None else metrics.values(name, model=self.target.model)
        statistics = self.snapshot()
        return statistics.success_count + max(statistics.fail_count, int(sum(failed)))


def processes_for(load: LoadPoint) -> int:
    """How many processes share a load: no more than there are cores."""
    one = _PROCESS_PER_S if load.arrivals.open_loop else _PROCESS_CLIENTS
    return min(max(math.ceil(load.level / one), 1), os.cpu_count() or 1)


def split_over(job: Job, count: int) -> list[Job]:
    """The parts of a run that its processes carry out."""
    clients = [job.clients // count + (k < job.clients % count) for k in range(count)]
    return [
        replace(
            job,
            clients=clients[k],
            first=k,
            step=count,
            answers=job.answers.with_name(f"answers-{k}.npz"),
            ready=job.ready.with_name(f"ready-{k}"),
        )
        for k in range(count)
    ]


def _begin(jobs: Sequence[Job], processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Waits until all processes are ready, and lets them begin at the same moment."""
    deadline = time.monotonic() + _READY_S
    while not all(job.ready.exists() for job in jobs):
        if time.monotonic() > deadline or any(p.poll() is not None for p in processes):
            return  # whose fault it is, `_wait` and the logs will say
        time.sleep(_POLL_S / 5)
    begin = jobs[0].begin
    unfinished = begin.with_suffix(".part")
    unfinished.write_text(str(time.monotonic_ns() + LEAD_NS))
    unfinished.replace(begin)


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], deadline_s: float, hopeless: Callable[[], bool]
) -> tuple[str, int | None]:
    """Why the processes did not end by themselves in time, and when they were stopped early.

    Where one of them fails the others are not waited for.
    """
    deadline = time.monotonic() + deadline_s
    stopped_ns = None
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            return "", stopped_ns
        if time.monotonic() > deadline:
            return TOO_LATE, stopped_ns
        if stopped_ns is None and hopeless():
            stopped_ns = time.time_ns()
            for process in processes:
                process.send_signal(signal.SIGINT)
        time.sleep(_POLL_S)
    return "", stopped_ns


def _answers_of(answers: Answers) -> tuple[Requests, npt.NDArray[np.bool_]]:
    """The requests that were answered, and which ones these are."""
    told = answers.outcomes == Outcome.ANSWERED
    if not told.any() and answers.failure:
        failed = int((answers.outcomes == Outcome.FAILED).sum())
        raise ModelFailsError(f"the model failed {failed} of {failed} requests: {answers.failure}")
    if not told.any():
        raise LoadFailedError("no request was answered before the run ended")
    return Requests(answers.sent_ns[told], answers.answered_ns[told], answers.end_ns), told


def _answered(answers: Answers, due_s: Times) -> tuple[Requests, Times]:
    """The requests that were answered, and when they were due."""
    requests, told = _answers_of(answers)
    return requests, due_s[told]


def check_sent(answers: Answers, load: LoadPoint) -> None:
    """Without an answer nothing else tells of a client that was behind.

    Raises:
        ClientLimitError: It was.
    """
    unsent = float((answers.outcomes == Outcome.UNSENT).mean())
    if unsent and not (answers.outcomes == Outcome.ANSWERED).any():
        raise client_limit(load, (1.0 - unsent) * load.level)


def observe(
    answers: Answers,
    due_s: Times | None,
    window: Window,
    spells_ns: Sequence[tuple[int, int]] = (),
) -> Observed:
    """The window as `observe_open` sees it, with the requests that were refused left out.

    Without due times, as `observe_closed` does.

    Requests the client had no time to send count as unanswered, as perf_analyzer's do.

    Raises:
        LoadFailedError: Nothing was answered.
    """
    if due_s is None:
        return observe_closed(_answers_of(answers)[0], window)
    requests, answered_s = _answered(answers, due_s)
    open_ends = answers.outcomes <= Outcome.UNANSWERED
    waited_for_s = np.append(answered_s, due_s[open_ends])
    refused_s = due_s[answers.outcomes >= Outcome.REJECTED]
    observed = observe_open(requests, waited_for_s, window, refused_s, spells_ns)
    # what each request was due for is known here, and so is what was sent and never answered
    begin_ns = observed.start_ns - round(window.warmup_s * 1e9)
    sent = answers.outcomes > Outcome.UNSENT
    due_ns = np.rint(due_s * 1e9).astype(np.int64)
    never_us = window.total_s * 1e6
    lag_us = np.where(sent, (answers.sent_ns - begin_ns - due_ns) / 1e3, never_us)
    inside = within(due_s, observed.quiet)
    sent_count = int((sent & _within(answers.sent_ns, observed)).sum())
    seconds = seconds_of(observed.quiet)
    return replace(
        observed,
        sent_per_s=sent_count / seconds,
        due_per_s=float(inside.sum()) / seconds,
        late_sends=float((lag_us[inside] > LATE_US).mean()),
        send_lag_p99_us=percentile(np.sort(lag_us[inside]), 0.99),
    )


def measurement(
    observed: Observed,
    answers: Answers,
    load: LoadPoint,
    bounds: Sequence[LatencyBound],
    batch_size: int,
) -> Measurement:
    """The figures; what the client cannot know is left to the caller."""
    told = _within(answers.answered_ns, observed)
    rejected = int((told & (answers.outcomes == Outcome.REJECTED)).sum())
    failed = int((told & (answers.outcomes == Outcome.FAILED)).sum())
    return Measurement(
        **figures_of(observed, batch_size),
        load=load,
        seed=0,
        failed_count=rejected + failed,
        rejected_count=rejected,
        within_bounds=within_bounds(observed.latencies_us, rejected + failed, bounds),
        source=LatencySource.REQUESTS,
        batch_size=batch_size,
    )


def _within(moments_ns: npt.NDArray[np.int64], observed: Observed) -> npt.NDArray[np.bool_]:
    begin_ns = observed.start_ns - round(observed.quiet[0][0] * 1e9)
    return within((moments_ns - begin_ns) / 1e9, observed.quiet)


def _about_client(answers: Answers) -> tuple[str, ...]:
    warnings = []
    if failed := int((answers.outcomes == Outcome.FAILED).sum()):
        warnings.append(f"{failed} requests failed, the first of them: {answers.failure}")
    return (*warnings, *client_busy(answers.busy))
