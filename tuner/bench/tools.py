"""The programs of a run, seen to run here; which of them sends requests, and how large."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tuner import __version__
from tuner.bench.job import Job, drawn_tensors
from tuner.bench.sharing import room_note
from tuner.extras import Extra, lacking
from tuner.load.generators import OWN_CLIENT, Demand, GeneratorChoice, choose
from tuner.load.traffic.encoding import request_bytes
from tuner.load.traffic.kinds import unlike_perf_analyzer
from tuner.machine.cpus import ANY, Cores
from tuner.machine.host import Host
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.base import unragged_inputs
from tuner.modelconfig.queues import HANGS, may_be_full, may_reject
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin
from tuner.server.numpy2 import in_python, numpy_of_models
from tuner.server.server import ServerLauncher
from tuner.space.sequences import sequence_note
from tuner.spec.labels import of_label
from tuner.spec.mistakes import listed
from tuner.spec.model import StrategyName
from tuner.spec.paths import DYNAMIC_BATCHING
from tuner.spec.server import ServerMode, resolve
from tuner.spec.shapes import mixed_in
from tuner.spec.units import Percent, bytes_text
from tuner.spec.workload import (
    FileInputs,
    Protocol,
    RandomInputs,
    RecordingArrivals,
    RecordingInputs,
)
from tuner.triton.launchers import NAMED, cores_of, host_of, server_launcher
from tuner.triton.needs import refuse_names

#: A larger request mainly measures the network and the copies, perhaps unintentionally.
LARGE_BYTES = 1 << 20
_HERE = re.compile(r"\w+://(localhost|127\.[\d.]+|\[::1\]):\d+")


@dataclass(frozen=True)
class Programs:
    """What was found on this machine and seen to run.

    Attributes:
        launcher: Starts servers the way the spec says.
        cores: As the spec says.
        server_version: What its servers are, as exactly as that is known.
    """

    launcher: ServerLauncher
    perf_analyzer: Installation
    host: Host
    server_version: str
    cores: Cores = ANY

    def versions(self) -> dict[str, str]:
        return {
            "tune": __version__,
            "tritonserver": self.server_version,
            "perf_analyzer": self.perf_analyzer.version,
            "optuna": version("optuna"),
            "python": platform.python_version(),
        }

    def fingerprint(self) -> str:
        return self.host.fingerprint(self.server_version, self.cores)


@contextmanager
def find_programs(
    job: Job, environment: Mapping[str, str], note: Callable[[str], None] | None = None
) -> Iterator[Programs]:
    """Finds the programs the job needs and runs each once.

    The server gets the spec's arguments except those the search owns, which come with each
    candidate.

    Args:
        note: Receives lines about a server that is fetched because none is here; None: no fetch.

    Raises:
        EnvironmentNotReadyError: One is missing or does not run here, or would serve nonsense; or
            `/dev/shm` has no room for inputs that are to lie in it.
    """
    wanted = [Extra.RUN]
    if job.spec.search.strategy is StrategyName.MODEL_ANALYZER:
        wanted.append(Extra.MODEL_ANALYZER)
    for told in filter(None, map(lacking, wanted)):
        raise told
    room_note(job)
    server = job.spec.server.model_copy(update={"args": job.space.server_args})
    spec = job.spec.model_copy(update={"server": server})
    models, cores = job.served.models.values(), cores_of(spec)
    configs, files = {m.name: m.base.file for m in models}, [model.files for model in models]
    with ExitStack() as stack:
        with job.loaded.placing(*NAMED):
            if note is not None and server.mode is ServerMode.LOCAL:
                variables = {**environment, **resolve(server.environment, environment)}
                binaries.fetch_tritonserver(server.binary, variables, note)
            launcher = stack.enter_context(server_launcher(spec, configs, environment))
            server_version = launcher.version()
            launcher.check_backends(files)
        with job.loaded.placing(("workload", "perf_analyzer")):
            program = stack.enter_context(_load_program(job, environment))
        refuse_names(server_version, files)
        if launcher.python is not None and (asking := in_python(models)):
            numpy_of_models(launcher.python, asking)
        host = host_of(spec, environment)
        yield Programs(launcher, program, host, server_version, cores)


@contextmanager
def _load_program(job: Job, environment: Mapping[str, str]) -> Iterator[Installation]:
    """perf_analyzer, or this Python, which runs our own client, where there is none."""
    if not job.has_perf_analyzer:
        yield Installation(Path(sys.executable), "none", Origin.PATH, environment)
        return
    with binaries.perf_analyzer(job.spec.workload.perf_analyzer, environment) as found:
        yield found


def choose_generator(job: Job) -> GeneratorChoice:
    """Which load generator measures: the same in a run, its benches and a check of its config."""
    if not job.has_perf_analyzer:
        return GeneratorChoice(OWN_CLIENT, "there is no perf_analyzer here")
    if job.spec.server.headers_from_env:
        return GeneratorChoice(
            OWN_CLIENT, "perf_analyzer would show headers in the list of processes"
        )
    if job.spec.server.tls and job.spec.workload.protocol is Protocol.HTTP:
        return GeneratorChoice(OWN_CLIENT, "perf_analyzer is given TLS over gRPC only")
    configs = {name: model.base.completed for name, model in job.served.models.items()}
    may_refuse = any(map(may_reject, configs.values()))
    may_refuse |= any("queue_policy" in path for path in job.space.paths)
    demands = []
    for stream in job.spec.streams.values():
        shapes = stream.inputs.request_shapes if isinstance(stream.inputs, RandomInputs) else ()
        demand = Demand(
            configs[stream.model],
            shapes[0].dims if shapes else {},
            stream.batch_size,
            may_refuse,
            stream.priority or 0,
            unlike_perf_analyzer(job.spec.workload, stream, configs),
        )
        demands.append(demand)
    return choose(demands)


def client_notes(job: Job) -> list[str]:
    """One sentence where perf_analyzer does not measure.

    And one of connections on which headers can be read, of inputs in shared memory, and of
    sequences.

    Raises:
        EnvironmentNotReadyError: There is no room for these inputs.
    """
    choice = choose_generator(job)
    who = f"measured with {choice.kind.title}: {choice.why}" if choice.why else ""
    server = job.spec.server
    plain = [url for url in server.urls if "s://" not in url and not _HERE.fullmatch(url)]
    read = f"{' '.join(plain)} has no TLS: whoever is on the way can read the headers"
    read *= bool(plain and server.headers_from_env)
    notes = (who, sequence_note(job.spec), room_note(job), read)
    return [note for note in notes if note]


def queue_notes(job: Job) -> Iterator[str]:
    """Steps of ensembles whose queues may be full, and what becomes of requests then."""
    models, knobs = job.served.models, [p.knob for p in job.space.parameters]
    steps = [part for m in models.values() if is_ensemble(m.base.file) for part in m.parts]
    for label in dict.fromkeys(steps):
        searched = any(k.owner == label and "max_queue_size" in k.path for k in knobs)
        if searched or may_be_full(models[label].base.completed):
            yield f"requests that a full queue of the step {label} refuses {HANGS}"


def request_notes(job: Job, above_bytes: int = -1) -> Iterator[str]:
    """What a request of each stream carries, where that is large enough; what its figures count."""
    for name, stream in job.spec.streams.items():
        inputs = stream.inputs
        if stream.batch_size > 1:
            whose = of_label(name, job.spec.streams)
            yield (
                f"a request{whose} carries {stream.batch_size} inferences, which goodput and "
                "throughput count; loads are in requests"
            )
        arrivals = job.spec.workload.arrivals
        if isinstance(inputs, FileInputs):
            yield from _file_notes(name, inputs.file.name, job, above_bytes)
        if isinstance(inputs, RecordingInputs) and isinstance(arrivals, RecordingArrivals):
            yield from _file_notes(name, arrivals.file.name, job, above_bytes)
        if isinstance(inputs, RandomInputs):
            yield from _drawn_notes(name, inputs, job, above_bytes)


def _drawn_notes(name: str, inputs: RandomInputs, job: Job, above_bytes: int) -> Iterator[str]:
    """What the random requests of a stream carry, of each of their shapes."""
    stream, whose = job.spec.streams[name], of_label(name, job.spec.streams)
    model = job.served.models[stream.model]
    for shape, tensors in zip(inputs.request_shapes, drawn_tensors(stream, model), strict=False):
        size = request_bytes(tensors, inputs.string_length) * stream.batch_size
        if size <= above_bytes:
            continue
        shapes = listed(f"{t.name} {t.datatype}{list(t.shape)}" for t in tensors)
        left = {t.name for t in model.base.completed.input} - {t.name for t in tensors}
        without = f" (without the optional {listed(sorted(left))})" if left else ""
        share = f"{Percent(shape.share)} of the requests{whose} carry"
        carries = share if shape.name else f"a request{whose} carries"
        note = f"{carries} {bytes_text(size)}: {shapes}{without}"
        if size > LARGE_BYTES:
            where = f"streams.{name}.inputs" if whose else "workload.inputs"
            note += f"; where your users send less, say so in {where}.shapes"
        yield note
    mixed = {tensor: len(own) for tensor, own in mixed_in(inputs.shapes).items()}
    yield from _apart_notes(name, job, mixed, f"inputs{whose}")


def _file_notes(name: str, file: str, job: Job, above_bytes: int) -> Iterator[str]:
    """How many requests a stream's file has, how large, and of how many shapes."""
    stream, recorded = job.spec.streams[name], job.recorded[name]
    if recorded.most_bytes * stream.batch_size > above_bytes:
        least, most = bytes_text(recorded.least_bytes), bytes_text(recorded.most_bytes)
        what = "request" if stream.batch_size == 1 else "inference"
        size = f", {most}" if least == most else f", {least} to {most} each"
        size *= bool(recorded.most_bytes)  # of inputs that only a server knows, nothing is known
        yield f"{file}: {recorded.count} {what}{'s' * (recorded.count > 1)}{size}"
    yield from _apart_notes(name, job, recorded.shapes, file)


def _apart_notes(name: str, job: Job, shapes: Mapping[str, int], where: str) -> Iterator[str]:
    """The inputs by whose shapes, so many, the batcher keeps requests of a stream apart."""
    model = job.spec.streams[name].model
    own = [p.path for p in job.space.parameters if p.knob.owner == model]
    searched = any(path.startswith(DYNAMIC_BATCHING) for path in own)
    for tensor in unragged_inputs(job.served.models[model].base.completed, may_batch=searched):
        if shapes.get(tensor, 0) > 1:
            yield (
                f"{where}: {tensor} has {shapes[tensor]} different shapes and no "
                "allow_ragged_batch: requests of different shapes never share a batch"
            )
