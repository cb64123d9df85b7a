"""What a run would do, without a server and without load.

Planning an untrusted spec must be safe: programs, variables, images and servers that the spec names
are listed, and neither run nor contacted. Other installed programs are run for their versions, and
tune's own client, if it would measure, is measured against a process of tune.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner import extras
from tuner.checks.table import sentences
from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.extras import Extra
from tuner.facts import Facts
from tuner.load.generators import PERF_ANALYZER
from tuner.load.perf_analyzer.generator import RunFiles, command_line
from tuner.load.setup import LoadTarget
from tuner.load.streams_load import stream_requests
from tuner.measurement.measurement import LoadPoint
from tuner.measurement.window import window_of
from tuner.prepare.job import Job, Request, draw_up, prepare
from tuner.prepare.sending import refuse_unreachable, sending_notes
from tuner.prepare.tools import (
    choose_generator,
    client_notes,
    find_programs,
)
from tuner.search.cores import cores_note
from tuner.search.estimate import (
    LONGER,
    Estimate,
    Seen,
    estimate_run,
    foresee_run,
    refuse_too_short,
    seen_before,
)
from tuner.search.strategies.designs import designs
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.strategy import Proposal
from tuner.search.window_notes import fast_per_s, replay_notes, window_notes
from tuner.server import wheel
from tuner.server.binaries import (
    Installation,
    Origin,
    backends_beside,
    has_tritonserver,
    refuse_missing,
)
from tuner.server.server import Endpoints, ServerLauncher
from tuner.space.build import refuse_empty
from tuner.space.environment import assignments, needed_variables
from tuner.space.words import changes_text
from tuner.spec.arrivals import RecordingArrivals
from tuner.spec.load import effective_yaml
from tuner.spec.mistakes import FindingSeverity
from tuner.spec.model import Spec, StrategyName
from tuner.spec.server import MODES, ServerMode
from tuner.spec.units import count_text, digits
from tuner.spec.workload import FileInputs, RecordingInputs
from tuner.triton.docker import DockerLauncher
from tuner.triton.local import LocalLauncher, find_backends
from tuner.writeback.repository import half_written, unwritable
from tuner.writeback.target import write_notes

#: Rate in perf_analyzer's command line, in requests per second, if the run searches the rate.
EXAMPLE_PER_S = 1000.0
#: Where no run shows the model's rate: the plan also estimates the time at this part of the rate
#: from which on windows are as short as the spec says.
SLOWER = 0.2
_ENDPOINTS = Endpoints("127.0.0.1:HTTP", "127.0.0.1:GRPC", "127.0.0.1:METRICS")


@dataclass(frozen=True)
class Preview:
    """A candidate that the search may begin with, as a diff."""

    text: str
    diff: str
    server_args: tuple[str, ...]
    environment: tuple[str, ...] = ()


@dataclass(frozen=True)
class DrawnPlan(Facts):
    """Everything that `tune plan` shows.

    Attributes:
        space_exact: ``space_size`` is exact, not an upper bound.
        commands: Command lines of server and load generator, by program.
        problems: Errors of the models.
        seen: What the model's last run shows.
        slower: A rate of a slower model, in requests per second, and the estimate for it.
    """

    effective_spec: str
    space_size: int
    space_exact: bool
    estimate: Estimate
    commands: Mapping[str, Sequence[str]]
    candidates: Sequence[Preview]
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()
    seen: Seen = field(default_factory=Seen)
    slower: tuple[float, Estimate] | None = None

    @property
    def time_text(self) -> str:
        """`about 2:29 (search 1:04, proof 1:25); at 32/s about 6:49 (…)`."""
        if self.slower is None:
            return self.estimate.text
        rate_per_s, estimate = self.slower
        return f"{self.estimate.text}; at {digits(rate_per_s, 2)}/s {estimate.text}"

    @property
    def loads_text(self) -> str:
        """The number of model loads, and their time in the last run."""
        return f"about {count_text(self.estimate.loads, 'model load')}; {self.seen.loads_text}"

    @property
    def space_text(self) -> str:
        return count_text(self.space_size, "config") + ("" if self.space_exact else " at most")


def draw_plan(
    spec_path: Path,
    environment: Mapping[str, str],
    candidates: int,
    overrides: tuple[str, ...] = (),
) -> DrawnPlan:
    """Draws the plan of a run with this spec.

    Raises:
        SpecError: The spec is wrong.
        EnvironmentNotReadyError: A program is missing that the spec does not name.
    """
    request = Request(spec=spec_path, overrides=overrides)
    job = prepare(request)
    refuse_empty(job.space)
    seen = seen_before(request.output, job)
    refuse_too_short(job, seen)
    size = job.space.size()
    unready = extras.lacking(Extra.RUN)
    commands, notes = _programs(job, environment, unready)
    case = replace(job, environment=environment)
    estimate = foresee_run(request.output, job, seen or Seen())
    return DrawnPlan(
        effective_spec=effective_yaml(job.spec),
        space_size=size.count,
        space_exact=size.exact,
        estimate=estimate,
        commands=commands,
        candidates=tuple(previews(job, candidates)),
        notes=(
            *notes,
            *sentences(case, FindingSeverity.NOTED, FindingSeverity.MINOR),
            *client_notes(job),
            *filter(None, [cores_note(job)]),
            *(() if unready else sending_notes(job, environment)),
            *window_notes(job.spec, job.plan, None if seen is None else seen.rate_per_s),
            *replay_notes(job),
            *write_notes(job.searched_files),
            *_unwritable_notes(job),
        ),
        problems=[
            *(
                [f"{half.message} ({half.hint})"]
                if (half := half_written(job.spec.repository))
                else ()
            ),
            *sentences(case, FindingSeverity.DOUBTED),
            *([] if unready else _unreachable(job, environment)),
        ],
        seen=seen or Seen(),
        slower=_slower(job, estimate) if seen is None else None,
    )


def _slower(job: Job, estimate: Estimate) -> tuple[float, Estimate] | None:
    """A rate at which a run takes far longer than the estimate for a fast model, and how long."""
    if not job.plan.searches_rates:
        return None
    rate_per_s = SLOWER * fast_per_s(job.spec)
    slower = estimate_run(job, Seen(rate_per_s))
    return (rate_per_s, slower) if slower.total_s > LONGER * estimate.total_s else None


def _programs(
    job: Job, environment: Mapping[str, str], unready: EnvironmentNotReadyError | None
) -> tuple[dict[str, list[str]], list[str]]:
    """Command lines, and notes on programs that are not verified, since the spec names them."""
    chosen, notes = _chosen_by(job.spec), []
    for name, named, where in (
        ("tritonserver", job.spec.server.binary, ("server", "binary")),
        ("perf_analyzer", job.spec.workload.perf_analyzer, ("workload", "perf_analyzer")),
    ):
        if named is not None:
            with job.loaded.with_position(where):
                refuse_missing(name, named, environment)
    if chosen:
        why = "tune plan neither starts nor contacts what the spec names"
        notes = [f"not verified: {' and '.join(chosen)} ({why})"]
    if unready is not None:
        notes.append(f"tune run is not installed here: {unready.hint}")
    if (binary := job.spec.server.binary) is not None:
        files = [model.files for model in job.served.models.values()]
        find_backends(files, job.spec.server.args, backends_beside(binary, environment))
    local = job.spec.server.mode is ServerMode.LOCAL
    absent = local and not has_tritonserver(job.spec.server.binary, environment)
    if absent:
        error = wheel.missing_server(environment)
        notes.append(f"{error.message}: {error.hint}")
    if chosen or unready or absent:
        return _commands(job, *_named_by(job.spec)), notes
    with find_programs(job, environment) as programs:
        return _commands(job, programs.launcher, programs.perf_analyzer.binary), notes


def _unreachable(job: Job, environment: Mapping[str, str]) -> Iterator[str]:
    try:
        refuse_unreachable(job, environment)
    except SpecError as error:
        yield f"{error.message}; {error.hint}"


def _unwritable_notes(job: Job) -> Iterator[str]:
    if refusal := unwritable(job.spec.repository, job.searched_files):
        yield f"tune run will not start: {refusal.message}; {refusal.hint}"


def previews(job: Job, count: int) -> list[Preview]:
    """The first proposals, as far as they do not depend on scores."""
    if job.spec.search.strategy is StrategyName.GP:
        count = min(count, len(designs(job.space)))
    strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
    taken = {job.space.canonical(job.space.current).key}
    rows: list[Preview] = []
    for number in range(1, count + 1):
        proposal = strategy.propose(number, [], taken)
        if not isinstance(proposal, Proposal):
            break
        candidate = proposal.candidate
        taken.add(candidate.key)
        change = draw_up(job, candidate)
        text = changes_text(candidate, job.space.current)
        needed = needed_variables(candidate, job.space.current)
        variables = tuple(assignments(needed))
        rows.append(Preview(text, change.diff, candidate.server_args, variables))
    return rows


def _chosen_by(spec: Spec) -> list[str]:
    """What a run would start or contact because the spec says so."""
    server, mounts = spec.server, spec.server.mounts.items()
    carry: list[object] = [stream.inputs for stream in spec.streams.values()]
    kinds = (FileInputs, RecordingInputs, RecordingArrivals)
    files = [
        source.file for source in (*carry, spec.workload.arrivals) if isinstance(source, kinds)
    ]
    sent = [] if server.managed else [*dict.fromkeys(str(file) for file in files if file)]
    choices = {
        f"the tritonserver {server.binary}": server.binary is not None,
        f"the server's variables {', '.join(server.environment)}": bool(server.environment),
        f"the image {server.image}": server.image is not None,
        f"the mounts {', '.join(f'{a} at {b}' for a, b in mounts)}": bool(mounts),
        f"the remote server {' '.join(server.urls)}": not server.managed,
        f"your {', '.join(server.headers_from_env.values())} as headers": server.headers_from_env,
        f"requests from {', '.join(sent)}": bool(sent),
        f"the perf_analyzer {spec.workload.perf_analyzer}": spec.workload.perf_analyzer is not None,
    }
    return [what for what, there in choices.items() if there]


def _named_by(spec: Spec) -> tuple[ServerLauncher | None, Path]:
    """The server's launcher and perf_analyzer by their names, unverified."""
    perf_analyzer = Path(spec.workload.perf_analyzer or "perf_analyzer")
    server = spec.server
    if server.image is not None:
        return DockerLauncher(server.image, spec.repository, {}, server.args), perf_analyzer
    if "binary" not in MODES[server.mode].fields:
        return None, perf_analyzer
    unseen = Installation(Path(server.binary or "tritonserver"), "unknown", Origin.SPEC, {})
    return LocalLauncher(unseen, spec.repository, server.args), perf_analyzer


def _commands(
    job: Job, launcher: ServerLauncher | None, perf_analyzer: Path
) -> dict[str, list[str]]:
    spec = job.spec
    commands = {}
    if launcher is not None and (command := launcher.command_line()):
        commands["tritonserver"] = list(command)
    if choose_generator(job).kind is not PERF_ANALYZER:
        return commands
    load = LoadPoint(
        job.plan.arrivals, (job.plan.listed or (job.plan.levels.nearest(EXAMPLE_PER_S),))[0]
    )
    files = RunFiles(*(Path(n) for n in ("INPUTS.json", "INTERVALS.txt", "OUT.csv", "OUT.json")))
    (requests,) = stream_requests(spec).values()  # perf_analyzer supports one stream
    endpoints = replace(_ENDPOINTS, tls=spec.server.tls)
    target = LoadTarget(endpoints, spec.workload.protocol)
    commands["perf_analyzer"] = command_line(
        perf_analyzer, target, requests, load, window_of(spec, load), files
    )
    return commands
