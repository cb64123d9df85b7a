"""The load generator: NVIDIA's perf_analyzer with our arrivals, our inputs and our clock."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import LoadFailedError, ServerGoneError
from tuner.load.latency import Observed, begun_ns, measurement_of, observe_closed, observe_open
from tuner.load.perf_analyzer import outputs, process
from tuner.load.perf_analyzer.outputs import model_words
from tuner.load.setup import Setup, Stream, Target
from tuner.load.traffic import arrivals
from tuner.load.traffic.inputs import MAX_THREADS, InputFile
from tuner.load.validity import (
    client_busy,
    client_limit,
    ended_early,
    received_count,
    refuse_failures,
    warnings_about,
)
from tuner.load.watch.early_end import (
    Hopeless,
    check_answered,
    check_decided,
    truncate,
)
from tuner.load.watch.sampler import Sampler
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server import health
from tuner.server.control import StatisticsSnapshot

_RECEIVED_SHARE = 0.9  # what is being executed just then is not counted

# perf_analyzer always measures three windows of 1.2 times its measurement interval.
_WINDOWS = 3
_WINDOW_FACTOR = 1.2
_LEAD_S = 0.02  # its first window begins a little before the first request
_TLS_FILES = ("root-certifications", "private-key", "certificate-chain")
_ANY = "1000000000"  # percent


@dataclass(frozen=True)
class RunFiles:
    """Files of one run of perf_analyzer."""

    inputs: Path
    intervals: Path
    csv: Path
    export: Path


class PerfAnalyzer(Setup):
    """Measures one stream on one server; see `tuner.load.generators`."""

    @property
    def stream(self) -> Stream:
        """The one that there is."""
        (stream,) = self.streams
        return stream

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="load-", dir=self.site.directory) as private:
            run = self._prepare(load, window, seed, Path(private))
            with self.watched(window) as watched:
                try:
                    ended = process.run(
                        run.command,
                        self.site.program,
                        run.log,
                        alive=lambda: health.live(self.site.endpoints),
                        complete=lambda: outputs.is_complete(run.files.export),  # written last
                        at_rest=self.at_rest,
                        deadline_s=window.deadline_s,
                        patience_s=self.site.patience_s,
                        hopeless=run.hopeless(),
                    )
                except LoadFailedError as error:
                    run.check_model(watched, dropped=process.TOO_LATE in error.message)
                    run.check_sent(watched, error)
                    raise
                run.check_model(watched, dropped=ended.killed)
            result = run.measured(watched, ended)
        return replace(result, wall_s=time.monotonic() - begin)

    def _prepare(self, load: LoadPoint, window: Window, seed: int, private: Path) -> _Run:
        """Writes the inputs, and when requests are due."""
        target = self.stream.target
        seconds = load_s(interval_ms(window.total_s))
        steps = arrivals.expected_requests(load, seconds) * target.batch_size
        given = self.stream.inputs.file(seed, steps)
        files = RunFiles(
            given.path, private / "intervals", private / "report.csv", private / "export.json"
        )
        due_s = None
        if load.arrivals.open_loop:
            spans_s = (window.warmup_s, window.duration_s, window.tail_s + arrivals.SLACK_S)
            times = arrivals.arrivals_of(load, spans_s, seed, self.shape)
            due_s = arrivals.write_intervals(times, files.intervals)
        command = command_line(self.site.program.binary, target, load, window, files)
        return _Run(self, load, window, seed, given, files, command, due_s, private / "log")


@dataclass(frozen=True)
class _Run:
    """One run of perf_analyzer: what it was given, and what its results mean."""

    tool: PerfAnalyzer
    load: LoadPoint
    window: Window
    seed: int
    given: InputFile
    files: RunFiles
    command: list[str]
    due_s: arrivals.Times | None
    log: Path

    def measured(self, watched: Sampler, ended: process.Ended) -> Measurement:
        """Figures from the time stamps of every request."""
        tool, stream = self.tool, self.tool.stream
        observed, window = self._observe(watched, ended)
        result = measurement_of(
            observed, self.load, self.seed, stream.target.batch_size, bounds=window.bounds
        )
        if ended.stopped_ns is None:  # else it wrote no report
            report = outputs.read_report(self.files.csv)
            result = replace(
                result,
                client_send_us=report["client_send_us"],
                client_recv_us=report["client_recv_us"],
                network_us=report["network_us"],
            )
        result = replace(
            tool.with_readings(result, observed, watched),
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
        return replace(result, warnings=warnings)

    def _observe(self, watched: Sampler, ended: process.Ended) -> tuple[Observed, Window]:
        """The window, and what is left of it where the run was ended early."""
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

    def hopeless(self) -> Callable[[], bool]:
        if self.due_s is None:
            return process.never

        def answered() -> int:
            counted = self._statistics()
            return counted.success_count + counted.fail_count

        return Hopeless({"": self.due_s}, self.window, answered)

    def _statistics(self) -> StatisticsSnapshot:
        return self.tool.site.control.statistics(self._model)

    @property
    def _model(self) -> str:
        return self.tool.stream.target.model

    def check_model(self, watched: Sampler, *, dropped: bool) -> None:
        """perf_analyzer may blame nobody, or leave failed requests out of its results.

        Raises:
            ModelFailsError: The model answered with errors.
        """

        def words() -> str:
            said = self.log.read_text(errors="replace") if self.log.exists() else ""
            return model_words(said) or self.tool.site.server_words()

        with suppress(ServerGoneError):  # what happened is known already
            after = self._statistics()
            if before := watched.between(0, 0):
                then = before[0].statistics[self._model]
                refuse_failures(then, after, words, dropped=dropped)

    def check_sent(self, watched: Sampler, error: LoadFailedError) -> None:
        """Under a load far beyond the server, perf_analyzer never gets to its results.

        Raises:
            ClientLimitError: The server was not sent what was due.
        """
        window, due_s = self.window, self.due_s
        all_due = window.deadline_s > window.total_s
        if due_s is None or not all_due or process.TOO_LATE not in error.message:
            return
        due = int((due_s < window.total_s).sum())
        samples = watched.between(0, time.time_ns())
        received = received_count(samples, self._model, self.tool.models)
        if received is not None and received < _RECEIVED_SHARE * due:
            raise client_limit(self.load, received / due * self.load.level) from error


def interval_ms(total_s: float) -> int:
    """Measurement interval for which perf_analyzer keeps up load for ``total_s``."""
    return math.ceil((total_s + _LEAD_S) * 1000.0 / (_WINDOWS * _WINDOW_FACTOR))


def load_s(interval: int) -> float:
    """How long perf_analyzer keeps up load with a measurement interval in milliseconds."""
    return interval * _WINDOWS * _WINDOW_FACTOR / 1000.0


def command_line(
    binary: Path, target: Target, load: LoadPoint, window: Window, files: RunFiles
) -> list[str]:
    """Arguments of one run: fixed windows, asynchronous requests, our inputs and arrivals.

    Any deviation counts as stable, so that the run always ends after exactly three windows.
    Otherwise perf_analyzer repeats until its numbers agree, and gives no result when they never do
    (three windows of a few Poisson arrivals differ by more than a factor of ten).
    """
    argv = [str(binary), "-m", target.model, "-u", target.address, "-i", target.protocol.value]
    if (tls := target.endpoints.tls_of("grpc")) is not None:
        given = zip(_TLS_FILES, tls.ca_key_and_cert, strict=True)
        argv += ["--ssl-grpc-use-ssl", *(f"--ssl-grpc-{n}-file={f}" for n, f in given if f)]
    argv += ["--async", "--max-threads", str(MAX_THREADS), "-b", str(target.batch_size)]
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


def warn_of_repeats(given: InputFile, result: Measurement, window: Window) -> tuple[str, ...]:
    """A warning where a response cache saw inputs more often than the spec asks for."""
    used = result.throughput_infer_per_s * load_s(interval_ms(window.total_s))
    cached = any(one.cache_hit_count + one.cache_miss_count for one in result.models.values())
    if not cached or given.sampled_steps is None or used <= given.sampled_steps:
        return ()
    times = f"{used / given.sampled_steps:.1f} times"
    sentence = f"The list of {given.sampled_steps} sampled inputs was used {times} over"
    return (f"{sentence}: inputs repeated more often than the spec asks for.",)
