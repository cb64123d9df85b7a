"""What a run would do, without starting anything that measures a model.

A spec may be a stranger's, and planning it must be safe: what the spec itself chooses (programs,
variables, an image, a server) is named and neither run nor asked. Other installed programs tell
their versions; our own client, where it would measure, sends requests to a process of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tuner import extras
from tuner.bench.job import Job, Request, draw_up, prepare
from tuner.bench.sending import refuse_unreachable, sending_notes
from tuner.bench.serving import no_gpu_memory
from tuner.bench.tools import (
    choose_generator,
    client_notes,
    find_programs,
    queue_notes,
    request_notes,
)
from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.extras import Extra
from tuner.facts import Facts
from tuner.lint.repository import errors_of
from tuner.lint.rules import LintFinding
from tuner.load.generators import PERF_ANALYZER
from tuner.load.perf_analyzer.generator import RunFiles, command_line
from tuner.load.setup import LoadTarget
from tuner.load.traffic.encoding import TensorShape, content_bytes
from tuner.load.traffic.inputs import DEFAULT_UNIQUE
from tuner.load.traffic.repeats import ENTRY_OVERHEAD_BYTES, lru_hit_rate, popularity
from tuner.machine.host import has_gpu, read_gpus
from tuner.measurement.measurement import LoadPoint
from tuner.measurement.window import window_of
from tuner.modelconfig.keys import misread_values, unread_keys
from tuner.modelconfig.path import with_fields
from tuner.modelconfig.schema import enum_name
from tuner.search.cores import cores_note
from tuner.search.estimate import (
    Estimate,
    Seen,
    foresee_run,
    refuse_too_short,
    replay_notes,
    seen_before,
    window_notes,
)
from tuner.search.strategies.designs import designs
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.strategy import Proposal
from tuner.server import wheel
from tuner.server.binaries import (
    Installation,
    Origin,
    backends_beside,
    has_tritonserver,
    refuse_missing,
)
from tuner.server.server import Endpoints, ServerLauncher
from tuner.space.build import never_tried, refuse_empty
from tuner.space.candidate import list_sizes
from tuner.space.environment import assignments, needed_variables
from tuner.space.words import changes_text
from tuner.spec.labels import of_label
from tuner.spec.load import effective_yaml
from tuner.spec.model import Spec, StrategyName
from tuner.spec.paths import INSTANCE_GROUP
from tuner.spec.server import MODES, ServerMode
from tuner.spec.units import bytes_text, count_text
from tuner.spec.workload import (
    FileInputs,
    RandomInputs,
    RecordingArrivals,
    RecordingInputs,
    UniformRepeat,
    ZipfRepeat,
)
from tuner.triton.docker import DockerLauncher
from tuner.triton.local import LocalLauncher, find_backends
from tuner.triton.needs import holes_of_image
from tuner.writeback.repository import half_written, unwritable
from tuner.writeback.target import foreseen

#: The rate for which perf_analyzer's command line is shown, where rates are searched.
SHOWN_PER_S = 1000.0
_ON_GPU = "KIND_GPU"
#: What the machine keeps from its users, mounts that begin above it included.
_PRIVATE = tuple(
    map(Path, ("/dev", "/etc", "/proc", "/root", "/sys", "/var/lib/containers", "/var/lib/docker"))
)
#: Messages with keys that a backend may not read.
_KEYED = ("parameters", "optimization")
#: Values of one of them that are looked at.
MOST_VALUES = 64
_ENDPOINTS = Endpoints("127.0.0.1:HTTP", "127.0.0.1:GRPC", "127.0.0.1:METRICS")


@dataclass(frozen=True)
class Preview:
    """A candidate the search may begin with."""

    text: str
    diff: str
    server_args: tuple[str, ...]
    environment: tuple[str, ...] = ()


@dataclass(frozen=True)
class DrawnPlan(Facts):
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
        EnvironmentNotReadyError: A program that the spec does not name is missing here.
    """
    request = Request(spec=spec_path, overrides=overrides)
    job = prepare(request)
    refuse_empty(job.space)
    seen = seen_before(request.output, job)
    refuse_too_short(job, seen)
    size = job.space.size()
    unready = extras.lacking(Extra.RUN)
    commands, notes = _programs(job, environment, unready)
    served = [model.name for model in job.served.models.values()]
    wrong = [
        finding
        for name in served
        for finding in errors_of(job.spec.repository, name, job.spec.write_to)
    ]
    blind = job.spec.server.gpus == "none" or not read_gpus(environment)
    lacking = [*_without_gpu(job)] if blind else []
    return DrawnPlan(
        effective_spec=effective_yaml(job.spec),
        space_size=size.count,
        space_exact=size.exact,
        estimate=foresee_run(request.output, job, seen or Seen()),
        commands=commands,
        candidates=tuple(previews(job, candidates)),
        notes=(
            *notes,
            *request_notes(job),
            *client_notes(job),
            *filter(None, [cores_note(job)]),
            *queue_notes(job),
            *(() if unready else sending_notes(job, environment)),
            *window_notes(job.spec, job.plan, None if seen is None else seen.rate_per_s),
            *replay_notes(job),
            *_completion_notes(job),
            *_parameter_notes(job),
            *never_tried(job.space),
            *cache_notes(job),
            *foreseen(job.searched_files),
            *_unwritable_notes(job),
            *(told for ends, told in lacking if not ends),
        ),
        problems=[
            *(
                [f"{half.message} ({half.hint})"]
                if (half := half_written(job.spec.repository))
                else ()
            ),
            *dict.fromkeys(map(_problem, wrong)),
            *(told for ends, told in lacking if ends),
            *([] if unready else _unreachable(job, environment)),
        ],
    )


def _problem(finding: LintFinding) -> str:
    cure = f" ({finding.hint})" if finding.hint else ""
    return f"{finding.place}: {finding.message}{cure}"


def _programs(
    job: Job, environment: Mapping[str, str], unready: EnvironmentNotReadyError | None
) -> tuple[dict[str, list[str]], list[str]]:
    """Command lines, and notes on what was not tried: what a spec chooses is only named."""
    chosen, notes = _chosen_by(job.spec), []
    for name, named, where in (
        ("tritonserver", job.spec.server.binary, ("server", "binary")),
        ("perf_analyzer", job.spec.workload.perf_analyzer, ("workload", "perf_analyzer")),
    ):
        if named is not None:
            with job.loaded.placing(where):
                refuse_missing(name, named, environment)
    if chosen:
        why = "a plan starts and contacts nothing that a spec names"
        notes = [f"not verified: {' and '.join(chosen)} ({why})"]
        notes += mount_notes(job.spec)
        notes += filter(None, (holes_of_image(job.spec.server.image or ""),))
    if unready is not None:
        notes.append(f"tune run is not installed here: {unready.hint}")
    if (binary := job.spec.server.binary) is not None:
        files = [model.files for model in job.served.models.values()]
        find_backends(files, job.spec.server.args, backends_beside(binary, environment))
    local = job.spec.server.mode is ServerMode.LOCAL
    absent = local and not has_tritonserver(job.spec.server.binary, environment)
    if absent:
        error = wheel.not_found(environment)
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


def _completion_notes(job: Job) -> Iterator[str]:
    """Notes on what only a server knows, since a plan starts none."""
    for label, model in job.served.models.items():
        if model.base.leaves_batch_open:
            yield (
                f"config.pbtxt{of_label(label, job.served.models)} leaves max_batch_size to the "
                "server, which is asked when the run starts; this plan takes it to be "
                f"{model.base.completed.max_batch_size}, Triton's default"
            )


def _without_gpu(job: Job) -> Iterator[tuple[bool, str]]:
    """What a run does without, and whether it would end there."""
    server = job.spec.server
    if lacking := no_gpu_memory(job.spec, seen=has_gpu() or not server.managed):
        yield True, f"{lacking.message}: {lacking.hint}"
    docker = server.mode is ServerMode.DOCKER
    if server.gpus != "none" and (docker or "gpus" in server.model_fields_set):
        named = server.gpus if server.gpus == "all" else [*server.gpus]
        then = ("the container runs" if docker else "models run") + " on the CPU"
        then = "the container is refused" if docker and named != "all" else then
        told = f"{named}, and no GPU is seen here: {then}"
        yield False, str(job.loaded.mistake(("server", "gpus"), told))
    if server.mode is not ServerMode.LOCAL:
        return
    for model in job.served.models.values():
        if any(enum_name(g, "kind") == _ON_GPU for g in model.base.completed.instance_group):
            yield True, f"{model.place(INSTANCE_GROUP)}: {_ON_GPU}, and no GPU is seen: not loaded"
    for found in (p for p in job.space.parameters if _ON_GPU in p):
        place = job.loaded.space_positions[found.knob.owner][found.path]
        yield False, f"{place}: {_ON_GPU}, and no GPU is seen: configs with it fail"


def _parameter_notes(job: Job) -> Iterator[str]:
    """Searched parameters, and values, that the model's backend does not read as they are."""
    for parameter in job.space.parameters:
        model = job.served.models.get(parameter.knob.owner)
        values = [value for value in islice(parameter, MOST_VALUES) if value is not None]
        if model is None or not parameter.path.startswith(_KEYED):
            continue
        base, backend = model.base.file, model.files.backend(model.base.file)
        known = [*unread_keys(base, backend), *misread_values(base, backend)]
        for value in values:
            config = with_fields(base, {parameter.path: value})
            for found in (*unread_keys(config, backend), *misread_values(config, backend)):
                if found not in known:
                    known.append(found)
                    _, text, hint = found
                    near = f" ({hint})" if hint else ""
                    yield f"{parameter.path}: {text}{near}"


def previews(job: Job, count: int) -> list[Preview]:
    """The first proposals: those that do not depend on scores."""
    if job.spec.search.strategy is StrategyName.GP:
        count = min(count, len(designs(job.space)))
    strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
    taken = {job.space.canonical(job.space.current).key}
    shown: list[Preview] = []
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
        shown.append(Preview(text, change.diff, candidate.server_args, variables))
    return shown


def _chosen_by(spec: Spec) -> list[str]:
    """What a run would start or contact because the spec says so."""
    server, mounts = spec.server, spec.server.mounts.items()
    carry: list[object] = [stream.inputs for stream in spec.streams.values()]
    kinds = (FileInputs, RecordingInputs, RecordingArrivals)
    files = [own.file for own in (*carry, spec.workload.arrivals) if isinstance(own, kinds)]
    sent = [] if server.managed else [*dict.fromkeys(str(file) for file in files if file)]
    found = {
        f"the tritonserver {server.binary}": server.binary is not None,
        f"the server's variables {', '.join(server.environment)}": bool(server.environment),
        f"the image {server.image}": server.image is not None,
        f"the mounts {', '.join(f'{a} at {b}' for a, b in mounts)}": bool(mounts),
        f"the remote server {' '.join(server.urls)}": not server.managed,
        f"your {', '.join(server.headers_from_env.values())} as headers": server.headers_from_env,
        f"requests from {', '.join(sent)}": bool(sent),
        f"the perf_analyzer {spec.workload.perf_analyzer}": spec.workload.perf_analyzer is not None,
    }
    return [what for what, there in found.items() if there]


def mount_notes(spec: Spec) -> Iterator[str]:
    """A warning of each mount of all files, an engine's socket, or what a machine keeps private."""
    for source in spec.server.mounts:
        real = Path(source).resolve()
        with_mount = f"with the mount {source} the server may reach"
        if Path("/run") in (real, *real.parents) or real.suffix == ".sock" or real == Path("/"):
            reach = "the container engine's socket or all files, and so be root on this machine"
            yield f"{with_mount} {reach}"
        elif any(real in (place, *place.parents) or place in real.parents for place in _PRIVATE):
            yield f"{with_mount} this machine's devices or secrets"


def _named_by(spec: Spec) -> tuple[ServerLauncher | None, Path]:
    """Server and perf_analyzer by their names alone."""
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
    if launcher is not None and (shown := launcher.shown()):
        commands["tritonserver"] = list(shown)
    if choose_generator(job).kind is not PERF_ANALYZER:
        return commands
    load = LoadPoint(
        job.plan.arrivals, (job.plan.listed or (job.plan.levels.nearest(SHOWN_PER_S),))[0]
    )
    files = RunFiles(*(Path(n) for n in ("INPUTS.json", "INTERVALS.txt", "OUT.csv", "OUT.json")))
    (stream,) = spec.streams.values()  # it takes no more
    endpoints = replace(_ENDPOINTS, tls=spec.server.tls)
    target = LoadTarget(stream.model, endpoints, spec.workload.protocol, stream.batch_size)
    commands["perf_analyzer"] = command_line(
        perf_analyzer, target, load, window_of(spec, load), files
    )
    return commands


def cache_notes(job: Job) -> list[str]:
    """A sentence for each size; none where popularity or the size of an answer is not known."""
    stream, *others = job.spec.streams.values()
    if others:  # how much of the cache each has is not known
        return []
    inputs = stream.inputs
    answer = _answer_bytes(job.served.models[stream.model].base.completed)
    repeat = inputs.repeat
    known = isinstance(inputs, RandomInputs) and isinstance(repeat, (UniformRepeat, ZipfRepeat))
    if not known or answer is None:
        return []
    exponent = repeat.exponent if isinstance(repeat, ZipfRepeat) else 0.0
    unique = inputs.unique if isinstance(inputs, RandomInputs) else None
    probabilities = popularity(unique or DEFAULT_UNIQUE, exponent)
    return [
        f"a cache of {bytes_text(size)} holds about {count_text(size // answer, 'answer')}; "
        f"expected hit rate {lru_hit_rate(probabilities, size / answer):.0%}"
        for size in sorted(list_sizes(job.spec))
    ]


def _answer_bytes(config: Any) -> int | None:
    """What one takes in Triton's local cache; None for strings and variable dimensions."""
    total = 0
    for output in config.output:
        datatype = enum_name(output, "data_type").removeprefix("TYPE_")
        if datatype in ("STRING", "INVALID") or min(output.dims, default=1) < 1:
            return None
        shape = TensorShape(output.name, datatype, tuple(output.dims))
        total += content_bytes(shape, 0) + ENTRY_OVERHEAD_BYTES
    return total or None
