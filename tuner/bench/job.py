"""From a spec file to a job: everything that can be known before a process is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.bench.recordings import RecordedFigures, figures_of, traffic_of
from tuner.bench.responses import refuse_other_latencies
from tuner.errors import SpecError
from tuner.load.probes.warmup import WarmUp, propose
from tuner.load.traffic.encoding import TensorShape, inputs_of, misfits, read_recorded, resolve
from tuner.load.traffic.recordings.replay import RecordedTraffic
from tuner.load.traffic.wire import Content
from tuner.machine.host import has_gpu
from tuner.modelconfig.backends import may_set_batch
from tuner.modelconfig.edit import edit, unified_diff
from tuner.modelconfig.encoding import UTF_8
from tuner.modelconfig.files import ModelFiles, model_directory, model_names
from tuner.modelconfig.served import Served, ServedModel, read_served
from tuner.record.result_schema import ChangedConfig
from tuner.score.next_load import LoadPlan, load_plan
from tuner.server.binaries import has_perf_analyzer
from tuner.space.build import build_space, refuse_unmeasurable
from tuner.space.candidate import Candidate, variable
from tuner.space.environment import with_variables
from tuner.space.sequences import refuse_misfit_load
from tuner.space.space import Space
from tuner.spec.fields import Gpus
from tuner.spec.load import LoadedSpec, load_spec
from tuner.spec.model import ModelSpec, Spec
from tuner.spec.paths import PRIORITY_LEVELS
from tuner.spec.units import Seconds, count_text
from tuner.spec.workload import FileInputs, NoRepeat, RandomInputs, StreamSpec


@dataclass(frozen=True)
class Request:
    """What the user asked for on the command line; None leaves it to the spec.

    See `tuner.record.manifest.Choices` for what is chosen.

    Attributes:
        resume: Directory of an earlier run to go on with.
        run_id: The new run's, where that is settled already.
        environment: Variables for child processes and for finding programs.
        command: How tune was called, for the manifest.
        state: The user's directory for state of tune; None: there is none.
        gpus: Those that the server may see instead of the spec's.
        on: What several benches are taken from, `ray`; None: from this machine, one.
        benches: How many of one SPEC at most; None: one for each GPU.
        ray: Address of the Ray cluster as HOST:PORT; None: one is started here.
    """

    spec: Path
    output: Path = Path("results")
    resume: Path | None = None
    run_id: str = ""
    trials: int | None = None
    time_budget_s: float | None = None
    seed: int | None = None
    write: bool = True
    accept_unsoaked: bool = False
    more_s: float | None = None
    overrides: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    state: Path | None = None
    gpus: Gpus | None = None
    on: str | None = None
    benches: int | None = None
    ray: str | None = None


@dataclass(frozen=True)
class Job:
    """A checked spec with the models it is about.

    Attributes:
        spec: With the options of the command line applied.
        served: The models, with their configs as far as they are known: what the files say, until
            a server was asked.
        space: Over these configs.
        recorded: By stream, what its file of requests holds.
        traffic: The recording that the run replays, if there is one.
        has_perf_analyzer: There is one here; otherwise our own client measures.
    """

    loaded: LoadedSpec
    spec: Spec
    served: Served
    space: Space
    plan: LoadPlan
    has_perf_analyzer: bool = True
    recorded: Mapping[str, RecordedFigures] = field(default_factory=dict)
    traffic: RecordedTraffic | None = None

    @property
    def searched(self) -> tuple[str, ...]:
        """Labels of the models whose configs the search changes, and may write."""
        return tuple(self.space.current.models)

    @property
    def searched_files(self) -> list[ModelFiles]:
        return [self.served.models[label].files for label in self.searched]

    def over(self, served: Served) -> Job:
        """The same over what a server completed.

        Raises:
            SpecError: The spec's space is wrong for it.
        """
        space, recorded = _space(self.loaded, self.spec, served), self.recorded
        if any(model.base.completes for model in served.models.values()):
            recorded = _recorded(self.spec, served, self.traffic)
        job = replace(self, served=served, space=space, recorded=recorded)
        return job.started_with(self.space.current.start.environment)

    def started_with(self, variables: Mapping[str, int | None]) -> Job:
        """The same whose current config has these variables of the server's environment."""
        chosen = {variable(name): count for name, count in variables.items()}
        current = Candidate({**self.space.current.values, **chosen})
        return replace(self, space=replace(self.space, current=current))


def prepare(request: Request, loaded: LoadedSpec | None = None) -> Job:
    """Reads and checks the spec, the configs of its models, and the space of both.

    ``loaded``: the request's spec, where that was read already.

    Raises:
        SpecError: The spec is wrong, by itself or for these models, or they are, by themselves or
            beside each other.
        EnvironmentNotReadyError: There is no such repository or model.
    """
    loaded = loaded or load_spec(request.spec, request.overrides)
    return job_from(loaded, _with_words_of(request, loaded.spec), request.environment)


def refuse_no_repository(loaded: LoadedSpec) -> None:
    """Adds the place in the spec where it is named."""
    with loaded.placing(("repository",)):
        model_names(loaded.spec.repository)


def models_of(spec: Spec) -> Served:
    """The models that a spec is about; raises as `read_served` does."""
    calls = {label: model.calls for label, model in spec.models.items()}
    on_cpu = spec.server.gpus == "none" or (spec.server.managed and not has_gpu())
    return read_served(spec.repository, calls, calls, on_cpu=on_cpu, write_to=spec.write_to)


def named_models(loaded: LoadedSpec, spec: Spec) -> Served:
    """The same; adds the place in the spec where it names one in vain, or their repository."""
    refuse_no_repository(loaded)
    for label in spec.models:
        with loaded.placing(("models", label)):
            model_directory(spec.repository, label)
    return models_of(spec)


def job_from(loaded: LoadedSpec, spec: Spec, environment: Mapping[str, str]) -> Job:
    """The models that a checked spec is about, and the space of both.

    Raises:
        SpecError: The spec is wrong for these models, or they are.
        EnvironmentNotReadyError: There is no such repository or model.
    """
    served = named_models(loaded, spec)
    for label, model in spec.models.items():
        _refuse_mixed_encodings(served.models[label].files, model)
    space = _space(loaded, spec, served)
    traffic = traffic_of(spec)
    own_per_s = 1.0 if traffic is None else traffic.recording.rate_per_s
    return Job(
        loaded,
        spec,
        served,
        space,
        load_plan(spec.workload, spec.objective, spec.slos, spec.shares, own_per_s),
        has_perf_analyzer(spec.workload.perf_analyzer, environment),
        _recorded(spec, served, traffic),
        traffic,
    )


def _refuse_mixed_encodings(model: ModelFiles, spec: ModelSpec) -> None:
    """Early, not when a winner is to be written."""
    if model.encoding != UTF_8 and not spec.model_dump_json(include={"space"}).isascii():
        raise SpecError(
            f"{model.path} has comments in Latin-1, and the spec's space has text beyond ASCII",
            "save config.pbtxt as UTF-8",
        )


def _space(loaded: LoadedSpec, spec: Spec, served: Served) -> Space:
    for label in served.answering(stream.model for stream in spec.streams.values()):
        model = served.models[label]
        refuse_unmeasurable(model.name, model.base.completed)
    refuse_misfit_load(spec, served)
    _refuse_unknown_priorities(spec, served)
    refuse_other_latencies(loaded, spec, served)
    for name, stream in spec.streams.items():
        _refuse_misfits(loaded, name, stream, served.models[stream.model])
        drawn_tensors(stream, served.models[stream.model])
    return build_space(spec, served, loaded.space_positions)


def _refuse_misfits(loaded: LoadedSpec, name: str, stream: StreamSpec, model: ServedModel) -> None:
    """SpecError with the place of each shape that the model's config does not allow."""
    found = [
        ": ".join(filter(None, (loaded.shape_positions.get((name, number, tensor)), text)))
        for number, dims in enumerate(_known_dims(stream, model))
        for tensor, text in misfits(model.name, model.base.completed, dims)
    ]
    if found:
        raise SpecError("\n".join(dict.fromkeys(found)), "see inputs.shapes of the spec")


def drawn_tensors(stream: StreamSpec, model: ServedModel) -> tuple[tuple[TensorShape, ...], ...]:
    """What random requests carry, of each shape, as far as the config says it before a server does.

    Raises:
        SpecError: The spec does not say what the config leaves open.
    """
    every = _known_dims(stream, model)
    return tuple(resolve(model.name, model.base.completed, dims) for dims in every)


def _known_dims(stream: StreamSpec, model: ServedModel) -> list[Mapping[str, Sequence[int]]]:
    """The inputs that the config is known to have, for each shape of random requests."""
    inputs, base = stream.inputs, model.base
    if not isinstance(inputs, RandomInputs) or not base.completed.input:
        return []
    more = base.completes and not base.known  # inputs may come that the file does not have
    there = {tensor.name for tensor in base.completed.input}
    return [
        {name: dims for name, dims in shape.dims.items() if name in there or not more}
        for shape in inputs.request_shapes
    ]


def _recorded(
    spec: Spec, served: Served, traffic: RecordedTraffic | None
) -> dict[str, RecordedFigures]:
    """The files of requests, as far as the configs say what fits before a server was asked.

    Raises:
        SpecError: Entries do not fit a model's inputs.
    """
    found = {}
    for number, (name, stream) in enumerate(spec.streams.items()):
        if isinstance(stream.inputs, RandomInputs):
            continue
        base = served.models[stream.model].base
        more = base.completes and not base.known
        tensors = () if more and may_set_batch(base.file) else inputs_of(base.completed)
        if isinstance(stream.inputs, FileInputs):
            entries = read_recorded(stream.inputs.file, tensors, all_known=not more)
            _refuse_mixed_batches(entries, stream.inputs, stream.batch_size)
            found[name] = RecordedFigures.of(
                {input_name: content.size for input_name, content in entry.items()}
                for entry in entries
            )
        elif traffic is not None:
            found[name] = figures_of(stream.inputs, traffic, number, tensors, all_known=not more)
    return found


def _refuse_mixed_batches(
    entries: Sequence[Mapping[str, Content]], inputs: FileInputs, size: int
) -> None:
    """All inferences of one request have the same inputs in the same shapes."""
    shapes = [{name: content.shape for name, content in entry.items()} for entry in entries]
    if size == 1 or all(own == shapes[0] for own in shapes):
        return
    for first in range(0, len(shapes) * size, size):  # then the same come again
        batch = [shapes[i % len(shapes)] for i in range(first, first + size)]
        if not isinstance(inputs.repeat, NoRepeat) or any(own != batch[0] for own in batch):
            raise SpecError(
                f"{inputs.file}: entry {first % len(shapes) + 1}: it and others make one request "
                f"of {size} inferences, and their shapes differ",
                "leave batch_size out, or use entries of equal shapes for each request",
            )


def _refuse_unknown_priorities(spec: Spec, served: Served) -> None:
    """Triton silently replaces a level that a model does not have by the model's default.

    An ensemble passes a request's priority on to its steps.
    """
    for name, stream in spec.streams.items():
        labels = served.answering([stream.model])
        levels = {
            label: served.models[label].base.completed.dynamic_batching.priority_levels
            for label in labels
        }
        label = max(reversed(labels), key=lambda label: levels[label])  # a step, of an ensemble
        searched = any(PRIORITY_LEVELS in m.space for la, m in spec.models.items() if la in labels)
        if (stream.priority or 0) > levels[label] and not searched:
            model, least = served.models[label], max(stream.priority or 0, 2)  # 1 tells none apart
            many = levels[label]
            has = count_text(many, "priority level") if many else "no priority levels"
            raise SpecError(
                f"{model.place(PRIORITY_LEVELS)}: {model.name} has {has}, and requests of the "
                f"stream {name} have priority {stream.priority}",
                f"write dynamic_batching {{ priority_levels: {least} "
                f"default_priority_level: {least} }}, or leave the priority out",
            )


def _with_words_of(request: Request, spec: Spec) -> Spec:
    budget: dict[str, Any] = {}
    if request.trials is not None:
        budget["trials"] = request.trials
    if request.time_budget_s is not None:
        budget["time"] = Seconds(request.time_budget_s)
    search = {} if request.seed is None else {"seed": request.seed}
    server = {} if request.gpus is None else {"gpus": request.gpus}
    return spec.model_copy(
        update={
            "budget": spec.budget.model_copy(update=budget),
            "search": spec.search.model_copy(update=search),
            "server": spec.server.model_copy(update=server),
        }
    )


@dataclass(frozen=True)
class Change:
    """A winner as text: each config that changes, by label, and the unified diff of them all."""

    configs: Mapping[str, ChangedConfig]
    diff: str


def draw_up(job: Job, winner: Candidate) -> Change:
    """The configs with what a winner needs; everything else byte for byte as it was.

    It is what the server was given for the winner's trials; what is completed is not written. What
    the winner needs of the server's environment is a comment.
    """
    after = {}
    for label in job.searched or job.served.models:
        model = job.served.models[label]
        after[label] = edit(model.files.text, model.base.changes(winner.of(label)))
    before = {label: job.served.models[label].files.text for label in after}
    return _change_to(job, with_variables(before, after, winner, job.space.current))


def with_proposal(job: Job, change: Change, found: WarmUp) -> Change:
    """The same with a `model_warmup` as a comment, where that spares users something."""
    after = {label: own.config_after for label, own in change.configs.items()}
    for label, text in after.items():
        if job.served.models[label].name == found.model:
            after[label] = propose(text, found)
    return _change_to(job, after)


def _change_to(job: Job, after: Mapping[str, str]) -> Change:
    configs, diffs = {}, []
    for label, text in after.items():
        model = job.served.models[label]
        before = model.files.text
        configs[label] = ChangedConfig(config_before=before, config_after=text)
        diffs.append(unified_diff(before, text, f"{model.name}/{model.files.write_to}"))
    return Change(configs, "".join(diffs))
