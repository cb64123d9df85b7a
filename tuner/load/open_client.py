"""The load generator for configs that refuse requests: a small open-loop client of our own.

perf_analyzer gives no result when a request fails, so it cannot measure a queue timeout or a
full queue. This client sends each request once, without retries, and counts what was answered,
rejected and failed. Everything else means what it means in `tuner.load.perf_analyzer`: the
same arrivals for the same seed, the same inputs, latency from the moment a request was due.
Rejected requests have no latency; they are in `Measurement.error_rate`.

It is Python, so it costs more than perf_analyzer: latencies are some 0.35 ms longer, and on two
cores shared with the server it keeps up with about 1500 requests per second (perf_analyzer with
over 2000). Beyond that `tuner.load.checks` says that it does not.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, ModelFailsError, ServerGoneError, TunerError
from tuner.load.arrivals import Shape, Times, arrivals_of
from tuner.load.checks import client_busy, client_kept_up, ended_early, warnings_about
from tuner.load.client_process import Answers, Job, Outcome
from tuner.load.command import Target
from tuner.load.export import Requests
from tuner.load.generator import Window
from tuner.load.hopeless import Hopeless, check_answered, check_decided, cut_short
from tuner.load.inputs import InputFile, InputFiles
from tuner.load.measurement import LatencySource, LoadPoint, Measurement
from tuner.load.messages import RequestForm
from tuner.load.rest import comes_to_rest
from tuner.load.runner import TOO_LATE
from tuner.load.sampler import Sampler, Scrape, Snapshot, host_use, server_statistics
from tuner.load.timeline import (
    LATE_US,
    Observed,
    begun_ns,
    figures_of,
    observe_open,
    percentile,
    within_bounds,
)
from tuner.spec.fields import Gpus
from tuner.spec.model import ServerMode
from tuner.spec.workload import Protocol
from tuner.triton import health
from tuner.triton.process import child, tail

_SLACK_S = 2.0  # perf_analyzer is given arrivals for so much longer; the same draw needs the same
_POLL_S = 0.01


@dataclass(frozen=True)
class OpenClient:
    """Measures one model on one server; see `tuner.load.generator.LoadGenerator`.

    Open loops over gRPC only.

    Attributes:
        environment: Whole environment of the client's process.
        target: Model, server and protocol.
        form: What requests to the model look like.
        inputs: What they carry.
        directory: For its files, which it removes again; owned by the caller.
        snapshot: Reads the model's statistics.
        scrape: Reads the server's metrics.
        server: Who runs it; says what of this machine is the server's.
        shape: Of arrivals that have one beside their rate.
    """

    environment: Mapping[str, str]
    target: Target
    form: RequestForm
    inputs: InputFiles
    directory: Path
    snapshot: Snapshot
    scrape: Scrape
    shape: Shape | None = None
    server: ServerMode = ServerMode.REMOTE
    gpus: Gpus = "all"

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        if not load.arrivals.open_loop or self.target.protocol is not Protocol.GRPC:
            raise LoadFailedError(
                f"the open-loop client has no {load.arrivals.value} arrivals over "
                f"{self.target.protocol.value}",
                "ask for open-loop arrivals over grpc, or for a config that refuses no requests",
            )
        begin = time.monotonic()
        spans_s = (window.warmup_s, window.duration_s, window.tail_s + _SLACK_S)
        due_s = arrivals_of(load, spans_s, seed, self.shape)
        due_s = due_s[due_s < window.total_s]
        given = self.inputs.file(seed, due_s.size * self.target.batch_size)
        with (
            tempfile.TemporaryDirectory(prefix="load-", dir=self.directory) as private,
            Sampler(self.snapshot, self.scrape, self.server, gpus=self.gpus) as watched,
        ):
            hopeless = Hopeless(due_s, window, self._settled_count)
            answers, command, stopped_ns = self._execute(
                due_s, window, given, Path(private), hopeless
            )
        unanswered = (answers.outcomes == Outcome.UNANSWERED).any()
        at_rest = not unanswered or comes_to_rest(self.scrape, self.target)
        planned = window
        if stopped_ns is not None:
            window = cut_short(window, begun_ns(*_answered(answers, due_s)), stopped_ns)
        observed = observe(answers, due_s, window)
        check_decided(observed.latencies_us, due_s, window, planned)
        samples = watched.between(observed.start_ns, observed.end_ns)
        result = replace(
            measurement(observed, answers, load, window, self.target.batch_size),
            seed=seed,
            server=server_statistics(samples),
            host=host_use(samples, self.target.model),
            backlog=not at_rest,
            wall_s=time.monotonic() - begin,
            command=command,
        )
        if client_kept_up(result):  # else it is the client's fault, and told as that
            check_answered(observed.answered_count, window, planned)
        warnings = (*given.warnings, *ended_early(window, planned), *_about_client(answers))
        return replace(result, warnings=(*warnings, *warnings_about(result)))

    def _execute(
        self,
        due_s: Times,
        window: Window,
        given: InputFile,
        private: Path,
        hopeless: Callable[[], bool],
    ) -> tuple[Answers, tuple[str, ...], int | None]:
        """What became of the requests, the command line, and when it was stopped early."""
        due, job_file, log = private / "due.npy", private / "job.json", private / "log"
        np.save(due, due_s)
        job = Job(
            self.target.address, self.form, given.path, due, window.total_s, private / "answers.npz"
        )
        job.write(job_file)
        command = (sys.executable, "-P", "-m", "tuner.load.client_process", str(job_file))
        with (
            log.open("wb") as output,
            child(command, env=self.environment, stdout=output) as process,
        ):
            reason, stopped_ns = _wait(process, window.deadline_s, hopeless)
        if not job.answers.exists():
            raise self._failure(reason or tail(log, 1) or f"exit code {process.returncode}")
        answers = Answers.read(job.answers)
        if answers.lost:
            raise self._failure(answers.lost)
        return answers, command, stopped_ns

    def _failure(self, reason: str) -> TunerError:
        if not health.live(self.target.endpoints):
            return ServerGoneError(f"the server stopped answering; the open-loop client: {reason}")
        return LoadFailedError(f"the open-loop client failed: {reason}")

    def _settled_count(self) -> int:
        """Requests answered or refused so far; only the metrics know of the refused."""
        metrics, name = self.scrape(), "nv_inference_request_failure"
        failed = [] if metrics is None else metrics.values(name, model=self.target.model)
        statistics = self.snapshot()
        return statistics.success_count + max(statistics.fail_count, int(sum(failed)))


def _wait(
    process: subprocess.Popen[bytes], deadline_s: float, hopeless: Callable[[], bool]
) -> tuple[str, int | None]:
    """Why the process did not end by itself in time, and when it was stopped early."""
    deadline = time.monotonic() + deadline_s
    stopped_ns = None
    while process.poll() is None:
        if time.monotonic() > deadline:
            return TOO_LATE, stopped_ns
        if stopped_ns is None and hopeless():
            stopped_ns = time.time_ns()
            process.send_signal(signal.SIGINT)
        time.sleep(_POLL_S)
    return "", stopped_ns


def _answered(answers: Answers, due_s: Times) -> tuple[Requests, Times]:
    """The requests that were answered, and when they were due."""
    told = answers.outcomes == Outcome.ANSWERED
    if not told.any() and answers.failure:
        failed = int((answers.outcomes == Outcome.FAILED).sum())
        raise ModelFailsError(f"the model failed {failed} of {failed} requests: {answers.failure}")
    if not told.any():
        raise LoadFailedError("no request was answered before the run ended")
    return Requests(answers.sent_ns[told], answers.answered_ns[told], answers.end_ns), due_s[told]


def observe(answers: Answers, due_s: Times, window: Window) -> Observed:
    """The window as `observe_open` sees it, with the requests that were refused left out.

    Requests the client had no time to send count as unanswered, as perf_analyzer's do.

    Raises:
        LoadFailedError: Nothing was answered.
    """
    requests, answered_s = _answered(answers, due_s)
    open_ends = answers.outcomes <= Outcome.UNANSWERED
    waited_for_s = np.append(answered_s, due_s[open_ends])
    refused_s = due_s[answers.outcomes >= Outcome.REJECTED]
    observed = observe_open(requests, waited_for_s, window, refused_s)
    # what each request was due for is known here, and so is what was sent and never answered
    begin_ns = observed.start_ns - round(window.warmup_s * 1e9)
    sent = answers.outcomes > Outcome.UNSENT
    due_ns = np.rint(due_s * 1e9).astype(np.int64)
    never_us = window.total_s * 1e6
    lag_us = np.where(sent, (answers.sent_ns - begin_ns - due_ns) / 1e3, never_us)
    inside = (due_s >= window.warmup_s) & (due_s < window.warmup_s + window.duration_s)
    sent_count = int((sent & _within(answers.sent_ns, observed)).sum())
    return replace(
        observed,
        sent_per_s=sent_count / window.duration_s,
        due_per_s=float(inside.sum()) / window.duration_s,
        late_sends=float((lag_us[inside] > LATE_US).mean()),
        send_lag_p99_us=percentile(np.sort(lag_us[inside]), 0.99),
    )


def measurement(
    observed: Observed, answers: Answers, load: LoadPoint, window: Window, batch_size: int
) -> Measurement:
    """The figures; what the client cannot know is left to the caller."""
    told = _within(answers.answered_ns, observed)
    rejected = int((told & (answers.outcomes == Outcome.REJECTED)).sum())
    failed = int((told & (answers.outcomes == Outcome.FAILED)).sum())
    return Measurement(
        **figures_of(observed, window.duration_s, batch_size),
        load=load,
        seed=0,
        failed_count=rejected + failed,
        rejected_count=rejected,
        within_bounds=within_bounds(observed.latencies_us, rejected + failed, window.bounds),
        source=LatencySource.REQUESTS,
        batch_size=batch_size,
    )


def _within(moments_ns: npt.NDArray[np.int64], observed: Observed) -> npt.NDArray[np.bool_]:
    return (moments_ns >= observed.start_ns) & (moments_ns < observed.end_ns)


def _about_client(answers: Answers) -> tuple[str, ...]:
    warnings = []
    if failed := int((answers.outcomes == Outcome.FAILED).sum()):
        warnings.append(f"{failed} requests failed, the first of them: {answers.failure}")
    return (*warnings, *client_busy(answers.busy))
