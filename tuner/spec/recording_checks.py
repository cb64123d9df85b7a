"""Rules for requests that come as they were recorded."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.spec.arrivals import RecordingArrivals
from tuner.spec.mistakes import Finding
from tuner.spec.model import Spec, is_given
from tuner.spec.paths import CACHE_ENABLE, CACHE_SIZE
from tuner.spec.rules import for_each_stream
from tuner.spec.workload import RecordingInputs


@for_each_stream
def check_recorded_inputs(spec: Spec, name: str) -> Iterator[Finding]:
    """Inputs may be those of a recording only with arrivals of that recording."""
    recorded = isinstance(spec.workload.arrivals, RecordingArrivals)
    if isinstance(spec.streams[name].inputs, RecordingInputs) and not recorded:
        text = "nothing is recorded: write workload.arrivals: {kind: recording, file: FILE}"
        yield Finding(("streams", name, "inputs"), text)


@for_each_stream
def check_batch_of_recording(spec: Spec, name: str) -> Iterator[Finding]:
    """The spec sets no batch size: a recorded request has the recorded one."""
    stream = spec.streams[name]
    if isinstance(stream.inputs, RecordingInputs) and stream.batch_size > 1:
        text = "a line of a recording is one request: leave batch_size out"
        yield Finding(("streams", name, "batch_size"), text, key=True)


@for_each_stream
def check_cache_of_recording(spec: Spec, name: str) -> Iterator[Finding]:
    """No response cache is searched with a recording, which does not show its effect."""
    if not isinstance(spec.streams[name].inputs, RecordingInputs):
        return
    spaces = [spec.server.space, *(model.space for model in spec.models.values())]
    if any(path in space for space in spaces for path in (CACHE_SIZE, CACHE_ENABLE)):
        text = (
            "each measurement replays the same stretches, so a response cache would have all of "
            "their answers: search it under inputs: {kind: file, repeat: {kind: log, ...}}"
        )
        yield Finding(("streams", name, "inputs"), text)


@for_each_stream
def check_rates_of_recording(spec: Spec, name: str) -> Iterator[Finding]:
    """No stream has a rate, since a recording has the times of all requests."""
    recorded = isinstance(spec.workload.arrivals, RecordingArrivals)
    if recorded and spec.streams[name].rate is not None:
        text = "a recording says when requests of each stream come: write share instead"
        yield Finding(("streams", name, "rate"), text, key=True)


def check_generator_of_recording(spec: Spec) -> Iterator[Finding]:
    """Only the built-in client of tune can replay a recording."""
    recorded = isinstance(spec.workload.arrivals, RecordingArrivals)
    if recorded and spec.workload.perf_analyzer is not None:
        text = (
            "perf_analyzer cannot replay a recording, which gives each request its time and its "
            "inputs; tune's own client does: leave perf_analyzer out"
        )
        yield Finding(("workload", "perf_analyzer"), text, key=True)


def check_pace(spec: Spec) -> Iterator[Finding]:
    """The load of a recording is its pace."""
    arrivals, where = spec.workload.arrivals, ("workload", "arrivals")
    if not isinstance(arrivals, RecordingArrivals) or arrivals.pace is None:
        return
    if len(set(arrivals.pace)) < len(arrivals.pace):
        yield Finding((*where, "pace"), "a pace is listed twice")
    for name in ("rate", "max_rate"):
        if is_given(arrivals, name):
            text = f"pace says how fast the recording is replayed: leave {name} or pace out"
            yield Finding((*where, name), text, key=True)
    if spec.objective.at_level is not None:
        level = f"{spec.objective.at_level:.12g}"
        text = f"the objective fixes the load at {level}/s; leave pace out"
        yield Finding((*where, "pace"), text, key=True)
