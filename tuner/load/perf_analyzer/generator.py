"""The load generator: NVIDIA's perf_analyzer with our arrivals, our inputs and our clock."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import LoadFailedError, ServerGoneError
from tuner.load.latency.timeline import (
    Observed,
    begun_ns,
    figures_of,
    observe_closed,
    observe_open,
    within_bounds,
)
from tuner.load.perf_analyzer import csv_report, export, process
from tuner.load.perf_analyzer.command import RunFiles, command_line, interval_ms, load_s
from tuner.load.perf_analyzer.error_text import model_words
from tuner.load.setup import Setup
from tuner.load.stream import Stream
from tuner.load.traffic import arrivals
from tuner.load.traffic.inputs import InputFile
from tuner.load.validity import (
    client_busy,
    client_limit,
    ended_early,
    left_out,
    received_count,
    refuse_failures,
    warnings_about,
)
from tuner.load.watch.early_end import (
    Hopeless,
    answered_count,
    check_answered,
    check_decided,
    refuse_spoilt_end,
    truncate,
)
from tuner.load.watch.sampler import Sampler, host_use, server_statistics
from tuner.measurement.measurement import LatencySource, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server import health
from tuner.server.statistics import StatisticsSnapshot

_SLACK_S = 2.0  # arrivals beyond the end of the run: perf_analyzer must not start over
_RECEIVED_SHARE = 0.9  # what is being executed just then is not counted


class PerfAnalyzer(Setup):
    """Measures one stream on one server; see `tuner.load.generator.LoadGenerator`."""

    @property
    def stream(self) -> Stream:
        """The one that there is, see `perf_analyzer.limits`."""
        (stream,) = self.streams
        return stream

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="load-", dir=self.directory) as private:
            steps = _expected_requests(load, window) * self.stream.target.batch_size
            given = self.stream.inputs.file(seed, steps)
            run = _Run(self, load, window, seed, given, Path(private))
            result = run.measured()
            name = self.stream.name
            own = replace(result, warnings=(), command=())
            result = replace(result, streams={name: own} if name else {})
        warnings = (*result.warnings, *given.warnings, *_repeats(given, result, window))
        warnings = (*warnings, *warnings_about(result, window.bounds))
        return replace(result, wall_s=time.monotonic() - begin, warnings=warnings)


@dataclass(frozen=True)
class _Run:
    """One run of perf_analyzer in the making; its files go to ``private``."""

    tool: PerfAnalyzer
    load: LoadPoint
    window: Window
    seed: int
    given: InputFile
    private: Path

    def measured(self) -> Measurement:
        """Figures from the time stamps of every request."""
        due_s = self._write_schedule()
        files = self._files
        with self.tool.watched() as watched:
            command, ended = self._execute(files, watched, due_s)
        requests = export.read(files.export)
        files.export.unlink()
        window = self.window
        if due_s is None:
            observed = observe_closed(requests, window)
        else:
            if ended.stopped_ns is not None:
                window = truncate(window, begun_ns(requests, due_s), ended.stopped_ns)
            spells_ns = watched.spells(self.window)
            refuse_spoilt_end(ended.stopped_ns, spells_ns)
            observed = observe_open(requests, due_s, window, spells_ns=spells_ns)
            check_answered(observed.answered_count, window, self.window)
            name = self.tool.stream.name
            latencies_us = {name: observed.latencies_us}
            check_decided(latencies_us, {name: due_s}, window, self.window)
        samples = watched.between(observed.start_ns, observed.end_ns)
        counted = server_statistics(samples, self.tool.served)
        return Measurement(
            **self._common(command, ended),
            **figures_of(observed, self.tool.stream.target.batch_size),
            failed_count=0,  # perf_analyzer gives up at the first
            within_bounds=within_bounds(observed.latencies_us, 0, window.bounds),
            **(_client_times(files.csv) if ended.stopped_ns is None else {}),
            source=LatencySource.REQUESTS,
            server=self.tool.own(counted, self.tool.stream),
            models=counted,
            host=host_use(samples, self.tool.models, observed.quiet_ns),
            warnings=(
                *ended_early(window, self.window),
                *left_out(window, observed.quiet),
                *client_busy(ended.busiest_thread_s / self._loaded_s(ended, observed)),
            ),
        )

    @property
    def _log(self) -> Path:
        return self.private / "log"

    @property
    def _intervals(self) -> Path:
        return self.private / "intervals"

    @property
    def _files(self) -> RunFiles:
        csv, exported = self.private / "report.csv", self.private / "export.json"
        return RunFiles(self.given.path, self._intervals, csv, exported)

    def _common(self, command: list[str], ended: process.Ended) -> dict[str, Any]:
        return {
            "load": self.load,
            "seed": self.seed,
            "batch_size": self.tool.stream.target.batch_size,
            "command": tuple(command),
            "backlog": not ended.at_rest,
        }

    def _loaded_s(self, ended: process.Ended, observed: Observed) -> float:
        """How long load was on the model."""
        if ended.stopped_ns is None:
            return self.window.total_s
        return (ended.stopped_ns - observed.start_ns) / 1e9 + self.window.warmup_s

    def _write_schedule(self) -> arrivals.Times | None:
        """When requests are due, in seconds from the start; None for a closed loop."""
        if not self.load.arrivals.open_loop:
            return None
        window = self.window
        spans_s = (window.warmup_s, window.duration_s, window.tail_s + _SLACK_S)
        times = arrivals.arrivals_of(self.load, spans_s, self.seed, self.tool.shape)
        return arrivals.write_intervals(times, self._intervals)

    def _execute(
        self, files: RunFiles, watched: Sampler, due_s: arrivals.Times | None
    ) -> tuple[list[str], process.Ended]:
        """The command line, and how it ended."""
        tool = self.tool
        target = tool.stream.target
        command = command_line(tool.program.binary, target, self.load, self.window, files)
        try:
            ended = process.run(
                command,
                tool.program.environment,
                self._log,
                alive=lambda: health.live(tool.endpoints),
                complete=lambda: export.is_complete(files.export),  # written last
                at_rest=tool.at_rest,
                deadline_s=self.window.deadline_s,
                patience_s=tool.patience_s,
                hopeless=self._hopeless(due_s),
            )
        except LoadFailedError as error:
            self._check_model(watched, dropped=process.TOO_LATE in error.message)
            self._check_sent(due_s, watched, error)
            raise
        self._check_model(watched, dropped=ended.killed)
        return command, ended

    def _hopeless(self, due_s: arrivals.Times | None) -> Callable[[], bool]:
        if due_s is None:
            return process.never
        return Hopeless(
            {self.tool.stream.name: due_s}, self.window, answered_count(self._statistics)
        )

    def _statistics(self) -> StatisticsSnapshot:
        return self.tool.statistics(self._model)

    @property
    def _model(self) -> str:
        return self.tool.stream.target.model

    def _check_model(self, watched: Sampler, *, dropped: bool) -> None:
        """perf_analyzer may blame nobody, or leave failed requests out of its results.

        Args:
            watched: Knows how many had failed before.
            dropped: It was killed; see `refuse_failures`.

        Raises:
            ModelFailsError: The model answered with errors.
        """

        def words() -> str:
            said = self._log.read_text(errors="replace") if self._log.exists() else ""
            return model_words(said) or self.tool.server_words()

        with suppress(ServerGoneError):  # what happened is known already
            after = self._statistics()
            if before := watched.between(0, 0):
                then = before[0].statistics[self._model]
                refuse_failures(then, after, words, dropped=dropped)

    def _check_sent(
        self, due_s: arrivals.Times | None, watched: Sampler, error: LoadFailedError
    ) -> None:
        """Under a load that is far beyond it, perf_analyzer never comes to its results.

        Raises:
            ClientLimitError: The server was not sent what was due.
        """
        window = self.window
        all_due = window.deadline_s > window.total_s
        if due_s is None or not all_due or process.TOO_LATE not in error.message:
            return
        due = int((due_s < window.total_s).sum())
        samples = watched.between(0, time.time_ns())
        received = received_count(samples, self._model, self.tool.models)
        if received is not None and received < _RECEIVED_SHARE * due:
            raise client_limit(self.load, received / due * self.load.level) from error


def _expected_requests(load: LoadPoint, window: Window) -> int:
    return arrivals.expected_requests(load, load_s(interval_ms(window.total_s)))


def _client_times(csv: Path) -> dict[str, Any]:
    report = csv_report.read(csv)
    return {
        "client_send_us": report.client_send_us,
        "client_recv_us": report.client_recv_us,
        "network_us": report.network_us,
    }


def _repeats(given: InputFile, result: Measurement, window: Window) -> tuple[str, ...]:
    used = result.throughput_infer_per_s * load_s(interval_ms(window.total_s))
    if given.sampled_steps is None or used <= given.sampled_steps:
        return ()
    times = f"{used / given.sampled_steps:.1f} times"
    sentence = f"The list of {given.sampled_steps} sampled inputs was gone through {times}"
    return (f"{sentence}: inputs came back more often than asked for.",)
