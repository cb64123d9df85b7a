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

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, ServerGoneError, TunerError
from tuner.load.arrivals import Shape, Times, arrivals_of
from tuner.load.checks import warnings_about
from tuner.load.client_process import Answers, Job, Outcome
from tuner.load.command import Target
from tuner.load.export import Requests
from tuner.load.generator import Window
from tuner.load.inputs import InputFile, InputFiles
from tuner.load.measurement import LatencySource, LoadPoint, Measurement
from tuner.load.messages import RequestForm
from tuner.load.runner import REST_S
from tuner.load.sampler import Sampler, Scrape, Snapshot, host_use, server_statistics
from tuner.load.timeline import Observed, observe_open, percentile
from tuner.spec.model import Protocol
from tuner.triton import health
from tuner.triton.process import child, tail

_SLACK_S = 2.0  # perf_analyzer is given arrivals for so much longer; the same draw needs the same
_LATE_NS = 1_000_000
_BUSY = 0.7  # of a core: beyond it, answers wait for the client
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
            Sampler(self.snapshot, self.scrape) as watched,
        ):
            answers, command = self._execute(due_s, window, given, Path(private))
        at_rest = self._at_rest()
        observed = observe(answers, due_s, window)
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
        warnings = (*given.warnings, *_about_client(answers))
        return replace(result, warnings=(*warnings, *warnings_about(result)))

    def _execute(
        self, due_s: Times, window: Window, given: InputFile, private: Path
    ) -> tuple[Answers, tuple[str, ...]]:
        """What became of the requests, and the command line."""
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
            reason = ""
            try:
                process.wait(window.deadline_s)
            except subprocess.TimeoutExpired:
                reason = "no results by the deadline"
        if not job.answers.exists():
            raise self._failure(reason or tail(log, 1) or f"exit code {process.returncode}")
        answers = Answers.read(job.answers)
        if answers.lost:
            raise self._failure(answers.lost)
        return answers, command

    def _failure(self, reason: str) -> TunerError:
        if not health.live(self.target.endpoints):
            return ServerGoneError(f"the server stopped answering; the open-loop client: {reason}")
        return LoadFailedError(f"the open-loop client failed: {reason}")

    def _at_rest(self) -> bool:
        """Waits until no request waits for the model; False when that takes too long."""
        give_up = time.monotonic() + REST_S
        while True:
            metrics = self.scrape()
            name = "nv_inference_pending_request_count"
            if metrics is None or not any(metrics.values(name, model=self.target.model)):
                return True
            if time.monotonic() > give_up:
                return False
            time.sleep(_POLL_S)


def observe(answers: Answers, due_s: Times, window: Window) -> Observed:
    """The window as `observe_open` sees it, with the requests that were refused left out.

    Requests the client had no time to send count as unanswered, as perf_analyzer's do.

    Raises:
        LoadFailedError: Nothing was answered.
    """
    answered = answers.outcomes == Outcome.ANSWERED
    if not answered.any():
        reason = answers.failure or "none was answered before the run ended"
        raise LoadFailedError(f"no request was answered: {reason}")
    open_ends = answers.outcomes <= Outcome.UNANSWERED
    requests = Requests(answers.sent_ns[answered], answers.answered_ns[answered], answers.end_ns)
    observed = observe_open(requests, np.append(due_s[answered], due_s[open_ends]), window)
    # what each request was due for is known here, and so is what was sent and never answered
    begin_ns = observed.start_ns - round(window.warmup_s * 1e9)
    sent = answers.outcomes > Outcome.UNSENT
    due_ns = np.rint(due_s * 1e9).astype(np.int64)
    late = ~sent | (answers.sent_ns - begin_ns - due_ns > _LATE_NS)
    inside = (due_s >= window.warmup_s) & (due_s < window.warmup_s + window.duration_s)
    sent_count = int((sent & _within(answers.sent_ns, observed)).sum())
    return replace(
        observed,
        sent_per_s=sent_count / window.duration_s,
        late_sends=float(late[inside].mean()),
    )


def measurement(
    observed: Observed, answers: Answers, load: LoadPoint, window: Window, batch_size: int
) -> Measurement:
    """The figures; what the client cannot know is left to the caller."""
    latencies = observed.latencies_us
    told = _within(answers.answered_ns, observed)
    rejected = int((told & (answers.outcomes == Outcome.REJECTED)).sum())
    failed = int((told & (answers.outcomes == Outcome.FAILED)).sum())
    return Measurement(
        load=load,
        seed=0,
        duration_s=window.duration_s,
        completed_count=observed.answered_count,
        failed_count=rejected + failed,
        rejected_count=rejected,
        throughput_infer_per_s=observed.answered_count * batch_size / window.duration_s,
        avg_latency_us=float(latencies.mean()),
        p50_latency_us=percentile(latencies, 0.50),
        p90_latency_us=percentile(latencies, 0.90),
        p95_latency_us=percentile(latencies, 0.95),
        p99_latency_us=percentile(latencies, 0.99),
        source=LatencySource.REQUESTS,
        sent_per_s=observed.sent_per_s,
        late_sends=observed.late_sends,
        batch_size=batch_size,
        unanswered_count=observed.unanswered_count,
        mean_in_flight=observed.mean_in_flight,
        latencies_us=latencies,
    )


def _within(moments_ns: npt.NDArray[np.int64], observed: Observed) -> npt.NDArray[np.bool_]:
    return (moments_ns >= observed.start_ns) & (moments_ns < observed.end_ns)


def _about_client(answers: Answers) -> tuple[str, ...]:
    warnings = []
    if failed := int((answers.outcomes == Outcome.FAILED).sum()):
        warnings.append(f"{failed} requests failed, the first of them: {answers.failure}")
    if answers.busy > _BUSY:
        warnings.append(
            f"The open-loop client was busy for {answers.busy:.0%} of the time: latencies include "
            "what answers waited for it."
        )
    return tuple(warnings)
