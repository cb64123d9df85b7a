"""What a run would do, without starting anything but the programs' own version checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.load.command import RunFiles, Target, command_line
from tuner.load.measurement import LoadPoint
from tuner.modelconfig.lint import errors_of
from tuner.run.noise_file import read_noise
from tuner.search.designs import designs
from tuner.search.strategy import STRATEGIES, Proposal
from tuner.space.words import changes_text
from tuner.spec.effective import effective_yaml
from tuner.spec.model import Strategy
from tuner.steps.cache_outlook import cache_notes
from tuner.steps.estimate import Estimate, estimated
from tuner.steps.job import Job, Request, prepare
from tuner.steps.noise import too_fine
from tuner.steps.programs import Programs, installed
from tuner.steps.rig import window_of
from tuner.steps.writing import draw_up
from tuner.triton.local import LocalLauncher
from tuner.triton.server import Endpoints

_ENDPOINTS = Endpoints("127.0.0.1:HTTP", "127.0.0.1:GRPC", "127.0.0.1:METRICS")


@dataclass(frozen=True)
class Preview:
    """A candidate the search may begin with."""

    text: str
    diff: str
    server_args: tuple[str, ...]


@dataclass(frozen=True)
class DrawnPlan:
    """Everything `tune plan` shows; ``problems`` are errors of the model or of one it calls."""

    effective_spec: str
    space_size: int
    space_exact: bool
    estimate: Estimate
    commands: Mapping[str, Sequence[str]]
    candidates: Sequence[Preview]
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()

    @property
    def space_text(self) -> str:
        return f"{self.space_size} configs" + ("" if self.space_exact else " at the most")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def drawn_plan(spec_path: Path, environment: Mapping[str, str], candidates: int) -> DrawnPlan:
    """Draws the plan of a run with this spec.

    Raises:
        SpecError: The spec is wrong.
        EnvironmentNotReadyError: A program is missing.
    """
    request = Request(spec=spec_path)
    job = prepare(request)
    size = job.space.size()
    with installed(job, environment) as programs:
        commands = _commands(job, programs)
        recorded = read_noise(request.output, programs.fingerprint(), job.spec.model)
    warning = too_fine(recorded, job.spec)
    wrong = errors_of(job.spec.repository, job.spec.model)
    return DrawnPlan(
        effective_spec=effective_yaml(job.spec),
        space_size=size.count,
        space_exact=size.exact,
        estimate=estimated(job),
        commands=commands,
        candidates=tuple(_previews(job, candidates)),
        notes=(*([warning] if warning else []), *cache_notes(job)),
        problems=[f"{finding.place}: {finding.message}" for finding in wrong],
    )


def _previews(job: Job, count: int) -> list[Preview]:
    """The first proposals: those that do not depend on scores."""
    if job.spec.search.strategy is Strategy.TWIN:
        count = min(count, len(designs(job.space)))
    strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
    taken = {job.space.canonical(job.space.current).key}
    previews: list[Preview] = []
    for number in range(1, count + 1):
        proposal = strategy.propose(number, [], taken)
        if not isinstance(proposal, Proposal):
            break
        candidate = proposal.candidate
        taken.add(candidate.key)
        change = draw_up(job, candidate)
        text = changes_text(candidate, job.space.current)
        previews.append(Preview(text, change.diff, candidate.server_args))
    return previews


def _commands(job: Job, programs: Programs) -> dict[str, list[str]]:
    spec = job.spec
    commands = {}
    launcher = programs.launcher
    if isinstance(launcher, LocalLauncher):
        commands["tritonserver"] = launcher.command(
            (), repository=spec.repository, ports=(0, 0, 0), shm_prefix="PREFIX"
        )
    load = LoadPoint(job.plan.arrivals, (job.plan.listed or (job.plan.levels.lowest,))[0])
    files = RunFiles(*(Path(n) for n in ("INPUTS.json", "INTERVALS.txt", "OUT.csv", "OUT.json")))
    target = Target(spec.model, _ENDPOINTS, spec.workload.protocol, spec.workload.batch_size)
    commands["perf_analyzer"] = command_line(
        programs.perf_analyzer.binary, target, load, window_of(spec, load), files
    )
    return commands
