"""Rules for requests that come as they were recorded."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.spec.mistakes import Finding, Location
from tuner.spec.model import Spec
from tuner.spec.paths import CACHE_ENABLE, CACHE_SIZE
from tuner.spec.workload import RecordingArrivals, RecordingInputs


def check_recording(spec: Spec) -> Iterator[Finding]:
    """What a recording says is not said again, and who cannot replay one is not asked to."""
    arrivals = spec.workload.arrivals
    for name, stream in spec.streams.items():
        if isinstance(stream.inputs, RecordingInputs):
            yield from _check_inputs(spec, name)
        if isinstance(arrivals, RecordingArrivals) and stream.rate is not None:
            text = "a recording says when requests of each stream come: write share instead"
            yield Finding(("streams", name, "rate"), text, key=True)
    if isinstance(arrivals, RecordingArrivals):
        yield from _check_arrivals(spec, arrivals)


def _check_inputs(spec: Spec, name: str) -> Iterator[Finding]:
    where: Location = ("streams", name, "inputs")
    if not isinstance(spec.workload.arrivals, RecordingArrivals):
        text = "nothing is recorded: write workload.arrivals: {kind: recording, file: FILE}"
        yield Finding(where, text)
    if spec.streams[name].batch_size > 1:
        text = "a line of a recording is one request: leave batch_size out"
        yield Finding(("streams", name, "batch_size"), text, key=True)
    spaces = [spec.server.space, *(model.space for model in spec.models.values())]
    if any(path in space for space in spaces for path in (CACHE_SIZE, CACHE_ENABLE)):
        text = (
            "each measurement replays the same stretches, so a response cache would have all of "
            "their answers: search it under inputs: {kind: file, repeat: {kind: log, ...}}"
        )
        yield Finding(where, text)


def _check_arrivals(spec: Spec, arrivals: RecordingArrivals) -> Iterator[Finding]:
    where: Location = ("workload", "arrivals")
    if spec.workload.perf_analyzer is not None:
        text = (
            "perf_analyzer cannot replay a recording, which gives each request its time and its "
            "inputs; tune's own client does: leave perf_analyzer out"
        )
        yield Finding(("workload", "perf_analyzer"), text, key=True)
    if arrivals.pace is None:
        return
    if len(set(arrivals.pace)) < len(arrivals.pace):
        yield Finding((*where, "pace"), "a pace is listed twice")
    fixed = spec.objective.at_level is not None
    usual = RecordingArrivals.model_fields
    for name in ("rate", "max_rate"):
        if getattr(arrivals, name) == usual[name].default:
            continue
        text = f"pace says how fast the recording is replayed: leave {name} or pace out"
        yield Finding((*where, name), text, key=True)
    if fixed:
        level = f"{spec.objective.at_level:.12g}"
        text = f"the objective fixes the load at {level}/s; leave pace out"
        yield Finding((*where, "pace"), text, key=True)
