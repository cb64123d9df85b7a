"""The rig of a run: programs found, server launcher, load generator, bench."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from tuner import __version__
from tuner.bench.bench import Bench, BenchRules
from tuner.bench.cache import CacheRules, cache_of
from tuner.load.generator import LatencyBound, Window
from tuner.load.length import window_for
from tuner.load.measurement import LoadPoint
from tuner.load.runner import PATIENCE_S
from tuner.load.workload import load_generator
from tuner.run.rejected import Rejected
from tuner.run.timebook import TimeBook
from tuner.spec.model import ServerMode, Spec
from tuner.spec.slo import Comparison
from tuner.steps.events import Events
from tuner.steps.job import Job
from tuner.triton import binaries
from tuner.triton.binaries import Installation
from tuner.triton.deploy import Deployer
from tuner.triton.host import Host, read_host
from tuner.triton.launchers import server_launcher
from tuner.triton.local import LocalLauncher
from tuner.triton.models_python import numpy_of_models
from tuner.triton.private import private_directory
from tuner.triton.server import ServerLauncher

#: Killing perf_analyzer over a queue can crash Triton: never done to a server somebody else runs.
REMOTE_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Programs:
    """What was found on this machine and seen to run.

    Attributes:
        launcher: Starts servers the way the spec says.
        server_version: What its servers are, as exactly as it can be told.
    """

    launcher: ServerLauncher
    perf_analyzer: Installation
    host: Host
    server_version: str

    def versions(self) -> dict[str, str]:
        return {
            "tune": __version__,
            "tritonserver": self.server_version,
            "perf_analyzer": self.perf_analyzer.version,
            "optuna": version("optuna"),
            "python": platform.python_version(),
        }

    def fingerprint(self) -> str:
        return self.host.fingerprint(self.server_version)


@contextmanager
def installed(job: Job, environment: Mapping[str, str]) -> Iterator[Programs]:
    """Finds the programs the job needs and runs each once.

    The server gets the spec's arguments without those the search owns: a candidate brings these
    itself.

    Raises:
        EnvironmentNotReadyError: One is missing or does not run here, or would serve nonsense.
    """
    server = job.spec.server.model_copy(update={"args": job.space.server_args})
    spec = job.spec.model_copy(update={"server": server})
    with (
        server_launcher(spec, environment) as launcher,
        binaries.perf_analyzer(spec.workload.perf_analyzer, environment) as perf_analyzer,
    ):
        if isinstance(launcher, LocalLauncher) and job.config.backend in ("", "python"):
            _check_python_models(launcher.installation)
        yield Programs(launcher, perf_analyzer, read_host(environment), launcher.version())


def _check_python_models(installation: Installation) -> None:
    if installation.python is not None:
        numpy_of_models(installation.python)


@contextmanager
def rigged(job: Job, programs: Programs, logs: Path, watch: Watch) -> Iterator[Bench]:
    """A bench that is ready to measure; every process and file of it is gone afterwards."""
    spec = job.spec
    with ExitStack() as stack:
        directory = stack.enter_context(private_directory())
        deployer = stack.enter_context(
            Deployer(
                programs.launcher,
                spec.model,
                job.config,
                logs / "server.log",
                load_timeout_s=float(spec.server.load_timeout),
                unload_first=spec.server.unload_first,
            )
        )
        rules = BenchRules(
            slos=spec.slo,
            arrivals=job.plan.arrivals,
            window=lambda load: window_of(spec, load),
            checkpoint=watch.checkpoint,
            measured=watch.events.measured,
            rejected=watch.rejected,
            cache=CacheRules(
                spec.workload.cache,
                lambda candidate: cache_of(
                    job.space, candidate, remote=spec.server.mode is ServerMode.REMOTE
                ),
                watch.events.note,
            ),
        )
        yield Bench(
            deployer,
            lambda endpoints: load_generator(
                spec.workload,
                spec.model,
                deployer.control,
                endpoints,
                programs.perf_analyzer,
                directory,
                server=spec.server.mode,
                gpus=spec.server.gpus,
                patience_s=PATIENCE_S if programs.launcher.restartable else REMOTE_PATIENCE_S,
            ),
            rules,
            watch.book,
        )


@dataclass(frozen=True)
class Watch:
    """Who follows a run: what it spends, says and rejects, and whether it is to stop."""

    book: TimeBook
    events: Events
    checkpoint: Callable[[], None]
    rejected: Callable[[Rejected], None] = lambda _: None


def window_of(spec: Spec, load: LoadPoint) -> Window:
    workload = spec.workload
    tails = [s for s in spec.slo if s.metric.is_latency]
    bounds = tuple(
        LatencyBound(s.metric.quantile, s.bound / 1e6)
        for s in tails
        if s.metric.quantile is not None and s.comparison is Comparison.AT_MOST
    )
    window = window_for(
        [bound.share for bound in bounds],
        load.level if load.arrivals.open_loop else None,
        window_s=float(workload.window),
        max_window_s=float(workload.max_window),
        warmup_s=float(workload.warmup),
        latency_bound_s=max((s.bound for s in tails), default=0.0) / 1e6,
    )
    return replace(window, bounds=bounds)
