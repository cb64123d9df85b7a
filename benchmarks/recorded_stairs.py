"""Several rates in one run of perf_analyzer: arrivals that climb, cut into windows afterwards.

Starting and ending perf_analyzer takes about a second, as long as a window of a table does. Each
step has its own seed and its own settling time before its window, and holds the same arrivals as
a run of its own would, see `tuner.load.traffic.arrivals`. Only the queue at its beginning differs:
it is what the step below left, which is negligible while the server keeps up.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tuner.load.latency.timeline import measurement_of, observe_open
from tuner.load.perf_analyzer import export, process
from tuner.load.perf_analyzer.command import RunFiles, command_line
from tuner.load.perf_analyzer.generator import PerfAnalyzer
from tuner.load.traffic import arrivals
from tuner.load.validity import warnings_about
from tuner.load.watch.disturbance import disturbances
from tuner.load.watch.sampler import host_use, server_statistics
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.score.capacity import SATURATED
from tuner.server import health

#: Load after the last step, above any SLO of the tables, so that late answers are still seen.
TAIL_S = 0.15
_SLACK_S = 2.0  # arrivals beyond the end of the run: perf_analyzer must not start over
_DEADLINE_S = 60.0
#: The server's statistics are cut at samples, so they are off by at most one period.
_SAMPLES_EVERY_S = 0.15
#: Inputs in the list perf_analyzer goes round.
_INPUTS = 500


@dataclass(frozen=True)
class Step:
    """A rate that is held for ``duration_s`` after settling."""

    rate_per_s: float
    duration_s: float
    seed: int

    @property
    def load(self) -> LoadPoint:
        return LoadPoint(Arrivals.POISSON, self.rate_per_s)


def climb(tool: PerfAnalyzer, steps: Sequence[Step], settle_s: float) -> list[Measurement]:
    """Measures each step, ascending, and leaves out those that began with a queue.

    Raises:
        LoadFailedError: No usable result.
        ServerGoneError: The server died.
    """
    begin = time.monotonic()
    due_s, windows = schedule(steps, settle_s)
    with tempfile.TemporaryDirectory(prefix="stairs-", dir=tool.site.directory) as private:
        directory = Path(private)
        due_s = arrivals.write_intervals(due_s, directory / "intervals")
        inputs = tool.stream.inputs.file(0, _INPUTS).path
        files = RunFiles(
            inputs, directory / "intervals", directory / "report.csv", directory / "export.json"
        )
        with tool.watched(period_s=_SAMPLES_EVERY_S) as watched:
            ended = _run(tool, files, windows[-1], steps[0].load)
        assert files.export is not None
        requests = export.read(files.export)
    wall_s = (time.monotonic() - begin) / len(steps)
    found: list[Measurement] = []
    for step, window in zip(steps, windows, strict=True):
        if found and _saturated(found[-1]):
            break
        observed = observe_open(requests, due_s, window)
        samples = watched.between(observed.start_ns, observed.end_ns)
        batch_size = tool.stream.target.batch_size
        measurement = replace(
            measurement_of(observed, step.load, step.seed, batch_size),
            server=tool.own(server_statistics(samples, tool.served), tool.stream),
            host=host_use(samples, tool.models, watched.stalls),
            backlog=step is steps[-1] and not ended.at_rest,
            wall_s=wall_s,
        )
        found.append(
            replace(
                measurement,
                disturbances=disturbances(measurement),
                warnings=warnings_about(measurement),
            )
        )
    return found


def schedule(steps: Sequence[Step], settle_s: float) -> tuple[arrivals.Times, list[Window]]:
    """When requests are due, and each step's window relative to the start of the load."""
    times, windows, start_s = [], [], 0.0
    for step in steps:
        spans_s = (settle_s, step.duration_s, TAIL_S + _SLACK_S)
        own = arrivals.arrivals_of(step.load, spans_s, step.seed)
        length_s = settle_s + step.duration_s
        last = step is steps[-1]
        times.append(start_s + (own if last else own[own < length_s]))
        windows.append(Window(step.duration_s, start_s + settle_s, _DEADLINE_S, TAIL_S))
        start_s += length_s
    return np.concatenate(times), windows


def _run(tool: PerfAnalyzer, files: RunFiles, window: Window, load: LoadPoint) -> process.Ended:
    exported = files.export
    assert exported is not None
    return process.run(
        command_line(tool.site.program.binary, tool.stream.target, load, window, files),
        tool.site.program.environment,
        files.intervals.with_name("log"),
        alive=lambda: health.live(tool.site.endpoints),
        complete=lambda: export.is_complete(exported),
        at_rest=tool.at_rest,
        deadline_s=window.deadline_s,
        patience_s=tool.site.patience_s,
    )


def _saturated(measurement: Measurement) -> bool:
    served = measurement.throughput_infer_per_s / measurement.batch_size
    return served < SATURATED * measurement.load.level
