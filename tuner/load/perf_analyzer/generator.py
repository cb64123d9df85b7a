"""The load generator perf_analyzer, with tune's arrivals and inputs and its own latencies."""

from __future__ import annotations

import math
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import LoadFailedError, ServerGoneError
from tuner.load.latency import Observed, begun_ns, figures_of, observe_closed, observe_open
from tuner.load.perf_analyzer import outputs
from tuner.load.perf_analyzer.input_file import write_inputs
from tuner.load.setup import TOO_LATE, LoadTarget, Setup, Stream, StreamRequests, spans_of
from tuner.load.traffic import arrivals
from tuner.load.traffic.inputs import MAX_THREADS, RunInputs
from tuner.load.validity import (
    client_busy,
    client_limit,
    ended_early,
    received_count,
    refuse_failures,
    warnings_about,
)
from tuner.load.watch.early_end import (
    SloLost,
    check_answered,
    check_decided,
    no_early_end,
    truncate,
)
from tuner.load.watch.sampler import Sampler
from tuner.machine.process import child
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.reason import Fact, Reason, ReasonKind
from tuner.sentences import failed
from tuner.server import health
from tuner.server.control import StatisticsSnapshot

_RECEIVED_SHARE = 0.9  # requests in execution at that moment are not counted

# perf_analyzer always measures three windows of 1.2 times its measurement interval.
_WINDOWS = 3
_WINDOW_FACTOR = 1.2
_LEAD_S = 0.02  # its first window starts a little before the first request
_TLS_FILES = ("root-certifications", "private-key", "certificate-chain")
_ANY = "1000000000"  # percent

_POLL_S = 0.01
# After an error, perf_analyzer may wait forever for answers that do not come.
_GRACE_AFTER_ERROR_S = 1.0
_GAVE_UP = "it gave up"
_MEANINGS = {
    2: "its windows were not stable",
    3: "a whole window passed without an answer",
    99: _GAVE_UP,
}


@dataclass(frozen=True)
class RunFiles:
    """Files of one perf_analyzer run."""

    inputs: Path
    intervals: Path
    csv: Path
    export: Path


class PerfAnalyzer(Setup):
    """Measures one stream of one server; see `tuner.load.generators`."""

    @property
    def stream(self) -> Stream:
        """The only stream."""
        (stream,) = self.streams
        return stream

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="load-", dir=self.site.directory) as private:
            run = self._prepare(load, window, seed, Path(private))
            with self.watched(window) as watched:
                try:
                    ended = run.execute()
                except LoadFailedError as error:
                    run.check_model(watched, dropped=_is_late(error))
                    run.check_sent(watched, error)
                    raise
                run.check_model(watched, dropped=ended.killed)
            result = run.measured(watched, ended)
        return replace(result, wall_s=time.monotonic() - begin)

    def _prepare(self, load: LoadPoint, window: Window, seed: int, private: Path) -> _Run:
        """Writes the inputs and the intervals between requests."""
        requests = self.stream.requests
        seconds = load_s(interval_ms(window.total_s))
        steps = arrivals.expected_requests(load, seconds) * requests.batch_size
        given = self.stream.shapes[0].inputs.of_run(seed, steps)
        files = RunFiles(
            *(private / "inputs.json", private / "intervals"),
            *(private / "report.csv", private / "export.json"),
        )
        write_inputs(given.inferences, files.inputs)
        due_s = None
        if load.arrivals.open_loop:
            times = arrivals.arrivals_of(load, spans_of(window), seed, self.shape)
            due_s = arrivals.write_intervals(times, files.intervals)
        to = self.stream.target, requests
        command = command_line(self.site.program.binary, *to, load, window, files)
        return _Run(self, load, window, seed, given, files, command, due_s, private / "log")


@dataclass(frozen=True)
class _Ended:
    """How a run with results ended.

    Attributes:
        at_rest: The server is alive and has no waiting requests; False: it is busy or gone, and
            should be restarted.
        killed: perf_analyzer was still waiting for answers; Triton may have dropped those requests.
        stopped_ns: Wall-clock time of an early stop; None without one.
        busiest_thread_s: CPU time of the busiest perf_analyzer thread.
        sending_s: CPU time of all its sending threads.
    """

    at_rest: bool
    killed: bool
    stopped_ns: int | None
    busiest_thread_s: float
    sending_s: float


@dataclass(frozen=True)
class _Run:
    """One perf_analyzer run: its inputs, and the meaning of its results."""

    tool: PerfAnalyzer
    load: LoadPoint
    window: Window
    seed: int
    given: RunInputs
    files: RunFiles
    command: list[str]
    due_s: arrivals.Times | None
    log: Path

    def execute(self) -> _Ended:
        """Runs perf_analyzer until its results are written.

        When interrupted, it stops sending at once, waits for answers until the end of its current
        window (a third of the run) and writes its export, but no report.

        After it has written its results, perf_analyzer waits for all outstanding answers, which
        takes seconds after an overload. So it is killed after a while. Triton then drops requests
        that it has not started (gRPC, with a batcher) or executes them, and sometimes it crashes
        (tritonserver 2.51, an assertion in gRPC's handling of canceled requests).

        Raises:
            LoadFailedError: No results; the message has perf_analyzer's own words.
            ServerGoneError: No results, and the server does not answer.
        """
        site, deadline = self.tool.site, time.monotonic() + self.window.deadline_s
        program = site.program
        with (
            self.log.open("wb") as output,
            child(
                self.command,
                env=program.environment,
                stdout=output,
                cpus=program.cpus,
                priority=program.priority,
            ) as process,
        ):
            reason, stopped_ns = self._wait(process, deadline)
            if reason:
                words = outputs.useful_words(self._said)
                if not health.live(site.endpoints):
                    facts: dict[str, Fact] = {"generator": "perf_analyzer", "words": words}
                    raise failed(
                        ServerGoneError, Reason(ReasonKind.SERVER_STOPPED_ANSWERING, facts=facts)
                    )
                late = reason is TOO_LATE
                kind = ReasonKind.GENERATOR_LATE if late else ReasonKind.GENERATOR_FAILED
                facts = {"generator": "perf_analyzer", "why": reason, "words": words}
                raise failed(LoadFailedError, Reason(kind, facts=facts))
            threads_s, killed = _sending_threads_s(process.pid), False
            left_s = max(deadline - time.monotonic(), 0.0)
            try:
                process.wait(min(site.patience_s, left_s))
            except subprocess.TimeoutExpired:
                killed = True
        used_s = max(threads_s, default=0.0), sum(threads_s)
        return _Ended(not killed or self.tool.at_rest(), killed, stopped_ns, *used_s)

    def _wait(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[str, int | None]:
        """Why there are no results (empty if there are), and the time of an early stop."""
        give_up, reason, stopped_ns = deadline, TOO_LATE, None
        slo_lost = self._until_lost()
        while not outputs.is_complete(self.files.export):  # perf_analyzer writes it last
            code = process.poll()
            if code is not None:
                complete = outputs.is_complete(self.files.export)
                return "" if complete else _MEANINGS.get(code, f"exit code {code}"), stopped_ns
            if time.monotonic() > give_up:
                return reason, stopped_ns
            if reason is TOO_LATE and outputs.tells_of_error(self._said):
                give_up, reason = min(deadline, time.monotonic() + _GRACE_AFTER_ERROR_S), _GAVE_UP
            if stopped_ns is None and slo_lost():
                stopped_ns = time.time_ns()
                process.send_signal(signal.SIGINT)
            time.sleep(_POLL_S)
        return "", stopped_ns

    @property
    def _said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def measured(self, watched: Sampler, ended: _Ended) -> Measurement:
        """Figures from the time stamps of every request."""
        tool, stream = self.tool, self.tool.stream
        observed, window = self._observe(watched, ended)
        result = figures_of(
            observed, self.load, self.seed, stream.requests.batch_size, bounds=window.bounds
        )
        if ended.stopped_ns is None:  # a stopped run writes no report
            report = outputs.read_report(self.files.csv)
            result = replace(
                result,
                client_send_us=report["client_send_us"],
                client_recv_us=report["client_recv_us"],
                network_us=report["network_us"],
            )
        result = replace(
            tool.with_readings(Measurement.of_all(result), observed, watched),
            command=tuple(self.command),
            backlog=not ended.at_rest,
        )
        loaded_s = self.window.total_s
        if ended.stopped_ns is not None:
            loaded_s = (ended.stopped_ns - observed.begin_ns) / 1e9
        warnings = (
            *ended_early(window, self.window),
            *client_busy(ended.busiest_thread_s / loaded_s),
            *self.given.warnings,
            *warn_of_repeats(self.given, result, self.window),
            *warnings_about(result, self.window.bounds),
        )
        return replace(result, client_cores=ended.sending_s / loaded_s, warnings=warnings)

    def _observe(self, watched: Sampler, ended: _Ended) -> tuple[Observed, Window]:
        """The observed window, shortened if the run was stopped early."""
        requests, window, due_s = outputs.read_export(self.files.export), self.window, self.due_s
        if due_s is None:
            return observe_closed(requests, window), window
        if ended.stopped_ns is not None:
            window = truncate(window, begun_ns(requests, due_s), ended.stopped_ns)
        spells_ns = watched.spells(self.window, ended.stopped_ns)
        observed = observe_open(requests, due_s, window, spells_ns=spells_ns)
        check_answered(observed.answered_count, window, self.window)
        check_decided({"": observed.latencies_us}, {"": due_s}, window, self.window)
        return observed, window

    def _until_lost(self) -> Callable[[], bool]:
        if self.due_s is None:
            return no_early_end

        def answered() -> int:
            counted = self._statistics()
            return counted.success_count + counted.fail_count

        return SloLost({"": self.due_s}, self.window, answered)

    def _statistics(self) -> StatisticsSnapshot:
        return self.tool.site.control.statistics(self._model)

    @property
    def _model(self) -> str:
        return self.tool.stream.requests.model

    def check_model(self, watched: Sampler, *, dropped: bool) -> None:
        """Checks for failed requests, which perf_analyzer may leave out of its results.

        Raises:
            ModelFailsError: The model answered with errors.
            LoadFailedError: A queue policy refused requests.
        """
        answered = outputs.answered_errors(self._said)
        with suppress(ServerGoneError):  # the caller reports it
            after = self._statistics()
            if before := watched.between(0, 0):
                then = before[0].statistics[self._model]
                logged = self.tool.site.server_words
                refuse_failures(then, after, answered, logged, dropped=dropped)

    def check_sent(self, watched: Sampler, error: LoadFailedError) -> None:
        """Checks that perf_analyzer kept up: far beyond the server's capacity it gives no results.

        Raises:
            ClientLimitError: The server received fewer requests than were due.
        """
        window, due_s = self.window, self.due_s
        all_due = window.deadline_s > window.total_s
        if due_s is None or not all_due or not _is_late(error):
            return
        due = int((due_s < window.total_s).sum())
        samples = watched.between(0, time.time_ns())
        received = received_count(samples, self._model, self.tool.models)
        if received is not None and received < _RECEIVED_SHARE * due:
            raise client_limit(self.load, received / due * self.load.level) from error


def _is_late(error: LoadFailedError) -> bool:
    return error.reason.kind is ReasonKind.GENERATOR_LATE


def _sending_threads_s(pid: int) -> list[float]:
    """CPU time of each sending thread; the main thread only writes the results."""
    import psutil

    with suppress(psutil.Error):
        threads = psutil.Process(pid).threads()
        return [t.user_time + t.system_time for t in threads if t.id != pid]
    return []


def interval_ms(total_s: float) -> int:
    """Measurement interval in ms with which perf_analyzer keeps up load for ``total_s``."""
    return math.ceil((total_s + _LEAD_S) * 1000.0 / (_WINDOWS * _WINDOW_FACTOR))


def load_s(interval: int) -> float:
    """Seconds for which perf_analyzer keeps up load with a measurement interval in ms."""
    return interval * _WINDOWS * _WINDOW_FACTOR / 1000.0


def command_line(
    binary: Path,
    target: LoadTarget,
    requests: StreamRequests,
    load: LoadPoint,
    window: Window,
    files: RunFiles,
) -> list[str]:
    """Arguments of one run: fixed windows, asynchronous requests, tune's inputs and arrivals.

    Any deviation counts as stable, so that the run always ends after exactly three windows.
    Otherwise perf_analyzer repeats until its figures agree, and gives no result if they never do
    (three windows of a few Poisson arrivals differ by more than a factor of ten).
    """
    argv = [str(binary), "-m", requests.model, "-u", target.address, "-i", target.protocol.value]
    if (tls := target.endpoints.tls_of("grpc")) is not None:
        given = zip(_TLS_FILES, tls.ca_key_and_cert, strict=True)
        argv += ["--ssl-grpc-use-ssl", *(f"--ssl-grpc-{n}-file={f}" for n, f in given if f)]
    argv += ["--async", "--max-threads", str(MAX_THREADS), "-b", str(requests.batch_size)]
    if load.arrivals.open_loop:
        argv += ["--request-intervals", str(files.intervals)]
    else:
        argv += ["--concurrency-range", str(round(load.level))]
    argv += ["--input-data", str(files.inputs)]
    argv += ["--measurement-interval", str(interval_ms(window.total_s))]
    argv += ["--stability-percentage", _ANY, "--max-trials", str(_WINDOWS)]
    argv += ["-f", str(files.csv), "--verbose-csv"]
    argv += ["--profile-export-file", str(files.export)]
    return argv


def warn_of_repeats(given: RunInputs, result: Measurement, window: Window) -> tuple[Reason, ...]:
    """A warning if a response cache received inputs more often than the spec asks for."""
    used = result.throughput_infer_per_s * load_s(interval_ms(window.total_s))
    cached = any(one.cache_hit_count + one.cache_miss_count for one in result.models.values())
    if not cached or given.sampled_count is None or used <= given.sampled_count:
        return ()
    facts: dict[str, Fact] = {
        "sampled_count": given.sampled_count,
        "times": float(used / given.sampled_count),
    }
    return (Reason(ReasonKind.INPUTS_REPEATED, facts=facts),)
