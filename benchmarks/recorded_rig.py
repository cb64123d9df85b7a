"""A real server and a real perf_analyzer for recording tables, put together as a run does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tuner.load.perf_analyzer.generator import PerfAnalyzer
from tuner.load.setup import Site
from tuner.load.streams_load import asked_of, streams_load
from tuner.machine.private import private_directory
from tuner.server.server import Place
from tuner.space.candidate import Candidate
from tuner.steps.job import Job
from tuner.steps.tools import Programs
from tuner.triton.deploy import Deployer, Deployment


@dataclass
class Rig:
    """Serves one config at a time."""

    job: Job
    programs: Programs
    deployer: Deployer
    directory: Path
    _tools: dict[str, PerfAnalyzer] = field(default_factory=dict)

    def deploy(self, candidate: Candidate) -> tuple[Deployment, PerfAnalyzer]:
        """Serves the candidate; with the load generator for the server it is on."""
        deployment = self.deployer.deploy(candidate)
        address = deployment.endpoints.grpc
        if address not in self._tools:
            self._tools = {address: self._tool(deployment)}
        return deployment, self._tools[address]

    def fresh(self) -> None:
        """Lets the next deployment begin with a new server."""
        self.deployer.fresh()

    def _tool(self, deployment: Deployment) -> PerfAnalyzer:
        spec = self.job.spec
        load = streams_load(
            spec.workload,
            asked_of(spec),
            {label: model.name for label, model in spec.models.items()},
            Site(
                self.deployer.control,
                deployment.endpoints,
                self.programs.perf_analyzer,
                self.directory,
                place=Place.HERE,
            ),
        )
        return PerfAnalyzer(**vars(load.setup))


@contextmanager
def rig(job: Job, programs: Programs) -> Iterator[Rig]:
    """Nothing of it is left afterwards."""
    with private_directory() as directory:
        log = directory / "server.log"
        with Deployer(programs.launcher, job.served, log) as deployer:
            yield Rig(job, programs, deployer, directory)


def machine_of(programs: Programs) -> dict[str, object]:
    """The first line of a table."""
    host = programs.host
    return {
        "cpu": host.cpu,
        "cores": host.cores,
        "memory_bytes": host.memory_bytes,
        "gpus": [gpu.name for gpu in host.gpus],
        "versions": programs.versions(),
    }
