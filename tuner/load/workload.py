"""The load generator a spec's workload asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.load.arrivals import read_trace
from tuner.load.command import Target
from tuner.load.inputs import InputFiles
from tuner.load.perf_analyzer import PerfAnalyzer
from tuner.load.tensors import resolve
from tuner.spec.model import RandomInputs, TraceArrivals, Workload
from tuner.triton.binaries import Installation
from tuner.triton.control import Control, ModelMetadata, Tensor
from tuner.triton.server import Endpoints

_NUMBER_BYTES = 20  # a float in the export, with its comma
_STRING_BYTES = 100
_VARIABLE = 128  # a dimension nobody gave


def load_generator(
    workload: Workload,
    model: str,
    control: Control,
    endpoints: Endpoints,
    program: Installation,
    directory: Path,
) -> PerfAnalyzer:
    """perf_analyzer, set up for a model that is loaded; it stays good when it is reloaded.

    Args:
        workload: From the spec.
        model: Name of the model.
        control: Of the server, open for as long as the generator is used.
        endpoints: Of the server.
        program: perf_analyzer.
        directory: For input files; the same one may serve generators on other servers.

    Raises:
        SpecError: The workload does not fit the model's inputs.
    """
    metadata = control.metadata(model)
    batched = control.running_config(model).max_batch_size > 0
    spec = workload.inputs
    shapes: Mapping[str, Sequence[int]] = spec.shapes if isinstance(spec, RandomInputs) else {}
    random = isinstance(spec, RandomInputs)
    tensors = resolve(metadata.inputs, batched, shapes) if random else ()
    recorded = workload.arrivals if isinstance(workload.arrivals, TraceArrivals) else None
    return PerfAnalyzer(
        binary=program.binary,
        environment=program.environment,
        target=Target(model, endpoints, workload.protocol, workload.batch_size),
        inputs=InputFiles(spec, tensors, directory),
        directory=directory,
        request_export_bytes=workload.batch_size * export_bytes(metadata, batched, shapes),
        snapshot=lambda: control.statistics(model),
        scrape=control.metrics,
        trace_us=read_trace(recorded.file) if recorded else None,
    )


def export_bytes(
    metadata: ModelMetadata, batched: bool, shapes: Mapping[str, Sequence[int]]
) -> int:
    """About how much one inference takes in perf_analyzer's profile export."""
    # An output's variable dimension is mostly an input's: tokens in, tokens out.
    variable = max((d for shape in shapes.values() for d in shape), default=_VARIABLE)

    def size(tensor: Tensor) -> int:
        own = shapes.get(tensor.name) or (tensor.shape[1:] if batched else tensor.shape)
        elements = math.prod(variable if d < 0 else d for d in own)
        return elements * (_STRING_BYTES if tensor.datatype == "BYTES" else _NUMBER_BYTES)

    return sum(map(size, (*metadata.inputs, *metadata.outputs)))
