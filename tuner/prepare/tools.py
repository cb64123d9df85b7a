"""The programs of a run, checked by running them; the choice of the load generator."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tuner.extras import Extra, lacking
from tuner.load.generators import TUNE_CLIENT, Demand, GeneratorChoice, choose
from tuner.load.traffic.kinds import unlike_perf_analyzer
from tuner.machine.cpus import ANY, Cores
from tuner.machine.host import Host
from tuner.modelconfig.queues import may_reject
from tuner.prepare.job import Job
from tuner.prepare.sharing import room_note
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin
from tuner.server.numpy2 import in_python, numpy_of_models
from tuner.server.server import ServerLauncher
from tuner.space.sequences import sequence_note
from tuner.spec.metrics import ERROR_RATE
from tuner.spec.model import StrategyName
from tuner.spec.server import ServerMode, resolve
from tuner.spec.workload import (
    Protocol,
    RandomInputs,
)
from tuner.triton.launchers import NAMED, cores_of, host_of, server_launcher
from tuner.triton.needs import refuse_names
from tuner.version import VERSION

_HERE = re.compile(r"\w+://(localhost|127\.[\d.]+|\[::1\]):\d+")


@dataclass(frozen=True)
class Programs:
    """Programs of this machine that were checked by running them.

    Attributes:
        launcher: Starts servers in the mode of the spec.
        perf_analyzer: perf_analyzer, or this Python if there is none.
        host: Facts about this machine.
        server_version: Version of the servers, as exact as it can be known.
        cores: CPUs that the spec assigns.
    """

    launcher: ServerLauncher
    perf_analyzer: Installation
    host: Host
    server_version: str
    cores: Cores = ANY

    def versions(self) -> dict[str, str]:
        return {
            "tune": VERSION,
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
    """Finds the programs of the job, and runs each once.

    The server gets the arguments of the spec, without those that the search sets for each
    candidate.

    Args:
        note: Receives lines about the download of a server if there is none; None: do not download.

    Raises:
        EnvironmentNotReadyError: A program is missing or does not run here, or would serve the
            models wrongly; or `/dev/shm` is too small for the inputs.
    """
    wanted = [Extra.RUN]
    if job.spec.search.strategy is StrategyName.MODEL_ANALYZER:
        wanted.append(Extra.MODEL_ANALYZER)
    for error in filter(None, map(lacking, wanted)):
        raise error
    room_note(job)
    server = job.spec.server.model_copy(update={"args": job.space.server_args})
    spec = job.spec.model_copy(update={"server": server})
    models, cores = job.served.models.values(), cores_of(spec)
    configs, files = {m.name: m.base.file for m in models}, [model.files for model in models]
    with ExitStack() as stack:
        with job.loaded.with_position(*NAMED):
            if note is not None and server.mode is ServerMode.LOCAL:
                variables = {**environment, **resolve(server.environment, environment)}
                binaries.fetch_tritonserver(server.binary, variables, note)
            launcher = stack.enter_context(server_launcher(spec, configs, environment))
            server_version = launcher.version()
            launcher.check_backends(files)
        with job.loaded.with_position(("workload", "perf_analyzer")):
            program = stack.enter_context(_load_program(job, environment))
        refuse_names(server_version, files)
        if launcher.python is not None and (asking := in_python(models)):
            numpy_of_models(launcher.python, asking)
        host = host_of(spec, environment)
        yield Programs(launcher, program, host, server_version, cores)


@contextmanager
def _load_program(job: Job, environment: Mapping[str, str]) -> Iterator[Installation]:
    """perf_analyzer, or else this Python, which runs tune's own client."""
    if not job.has_perf_analyzer:
        yield Installation(Path(sys.executable), "none", Origin.PATH, environment)
        return
    with binaries.perf_analyzer(job.spec.workload.perf_analyzer, environment) as program:
        yield program


def choose_generator(job: Job) -> GeneratorChoice:
    """The load generator, the same for a run, its benches and later checks of its config."""
    if not job.has_perf_analyzer:
        return GeneratorChoice(TUNE_CLIENT, "there is no perf_analyzer here")
    if job.spec.server.headers_from_env:
        return GeneratorChoice(
            TUNE_CLIENT, "perf_analyzer would show the headers in the process list"
        )
    protocol = job.spec.workload.protocol
    if protocol is Protocol.HTTP_JSON:
        return GeneratorChoice(TUNE_CLIENT, "tune's own client writes tensors as JSON")
    if job.spec.server.tls and protocol.over_http:
        return GeneratorChoice(TUNE_CLIENT, "with perf_analyzer, tune supports TLS over gRPC only")
    configs = {name: model.base.completed for name, model in job.served.models.items()}
    may_refuse = any(map(may_reject, configs.values()))
    may_refuse |= any("queue_policy" in path for path in job.space.paths)
    demands = []
    for name, stream in job.spec.streams.items():
        shapes = stream.inputs.request_shapes if isinstance(stream.inputs, RandomInputs) else ()
        demand = Demand(
            configs[stream.model],
            shapes[0].dims if shapes else {},
            stream.batch_size,
            may_refuse,
            stream.priority or 0,
            unlike_perf_analyzer(job.spec.workload, stream, configs),
            stream.version or 0,
            any(s.metric is ERROR_RATE and s.bound and s.holds_for(name) for s in job.spec.slos),
        )
        demands.append(demand)
    return choose(demands)


def client_notes(job: Job) -> list[str]:
    """Notes: why tune's own client measures, sequences, shared memory, headers without TLS.

    Raises:
        EnvironmentNotReadyError: `/dev/shm` is too small for the inputs.
    """
    choice = choose_generator(job)
    who = f"measured with {choice.kind.title}: {choice.why}" if choice.why else ""
    server = job.spec.server
    plain = [url for url in server.urls if "s://" not in url and not _HERE.fullmatch(url)]
    read = f"{' '.join(plain)} has no TLS: the headers can be read on the network"
    read *= bool(plain and server.headers_from_env)
    notes = (who, sequence_note(job.spec), room_note(job), read)
    return [note for note in notes if note]
