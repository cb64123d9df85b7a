"""From a spec file to a job: all facts that are known before a process starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tuner.checks.case import Case
from tuner.checks.table import checked, checked_again
from tuner.load.probes.warmup import WarmUp, propose
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.files import ModelFiles, model_names
from tuner.modelconfig.served import Served
from tuner.record.result_schema import Change, ChangedConfig
from tuner.score.next_load import LoadPlan, load_plan
from tuner.server.binaries import has_perf_analyzer
from tuner.space.analyzer_results import first_configs
from tuner.space.candidate import Candidate, variable
from tuner.space.environment import texts_of
from tuner.space.recipes import recipe_configs
from tuner.spec.checks import cross_checks
from tuner.spec.fields import Gpus
from tuner.spec.load import LoadedSpec, read_spec
from tuner.spec.model import Spec
from tuner.spec.units import Seconds


@dataclass(frozen=True)
class Request:
    """The options of the command line; None: as the spec says.

    `tuner.record.manifest.Choices` describes the options that a run keeps.

    Attributes:
        output: Directory that runs are stored in.
        resume: Directory of the run to resume.
        run_id: Id of the new run; empty: choose one.
        environment: Environment variables, for child processes and for finding programs.
        command: The command line, for the manifest.
        state: The user's state directory for tune; None: there is none.
        gpus: GPUs that the server may see, in place of the spec's.
        on: Where benches run: `ray`; None: one bench on this machine.
        benches: The most benches for one spec; None: one for each GPU.
        ray: Address of the Ray cluster as HOST:PORT; None: `tune` starts Ray.
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
class Job(Case):
    """A checked spec with its models and their space.

    Attributes:
        plan: The loads to measure.
        has_perf_analyzer: perf_analyzer is installed here; otherwise tune's own client measures.
    """

    plan: LoadPlan = field(kw_only=True)
    has_perf_analyzer: bool = field(default=True, kw_only=True)

    @property
    def searched(self) -> tuple[str, ...]:
        """Labels of the models whose configs the search changes, and may write."""
        return tuple(self.space.current.models)

    @property
    def searched_files(self) -> list[ModelFiles]:
        return [self.served.models[label].files for label in self.searched]

    @property
    def first(self) -> tuple[Candidate, ...]:
        """Those that the search begins with: recipes, and the best of Model Analyzer's results."""
        search = self.spec.search
        recipes = recipe_configs(search.recipes, self.space).values()
        if search.first is None or self.analyzed is None:
            return tuple(recipes)
        return (*recipes, *first_configs(self.analyzed, search.first, self.space).candidates)

    def over(self, served: Served) -> Job:
        """The job over the configs as a server completes them.

        Raises:
            SpecError: The spec does not fit these configs.
        """
        job = checked_again(self, served)
        return job.started_with(self.space.current.start.environment)

    def started_with(self, variables: Mapping[str, int | None]) -> Job:
        """The job whose current config sets these environment variables of the server."""
        chosen = {variable(name): count for name, count in variables.items()}
        current = Candidate({**self.space.current.values, **chosen})
        return replace(self, known_space=replace(self.space, current=current))


def prepare(request: Request, loaded: LoadedSpec | None = None) -> Job:
    """Reads and checks the spec, the configs of its models, and the search space.

    Args:
        loaded: The request's spec, if it has been read already.

    Raises:
        SpecError: All mistakes of the spec, of its models and of both together.
        EnvironmentNotReadyError: There is no such repository or model.
    """
    loaded = loaded or requested_spec(request)
    return job_from(loaded, _with_options_of(request, loaded.spec), request.environment)


def requested_spec(request: Request) -> LoadedSpec:
    """Reads the spec of a request, and checks that its repository exists.

    Raises:
        SpecError: The spec has mistakes; also lists the mistakes of its models.
        EnvironmentNotReadyError: There is no such repository.
    """
    loaded = read_spec(request.spec, request.overrides)
    if loaded.mistakes or loaded.findings or any(cross_checks(loaded.spec)):
        checked(loaded, loaded.spec, request.environment)
    with loaded.with_position(("repository",)):
        model_names(loaded.spec.repository)
    return loaded


def job_from(loaded: LoadedSpec, spec: Spec, environment: Mapping[str, str]) -> Job:
    """Reads and checks the models and the space of a spec; raises as `prepare` does."""
    case = checked(loaded, spec, environment)
    recorded_per_s = 1.0 if case.traffic is None else case.traffic.recording.rate_per_s
    return Job(
        **{f.name: getattr(case, f.name) for f in fields(case)},
        plan=load_plan(spec.workload, spec.objective, spec.slos, spec.shares, recorded_per_s),
        has_perf_analyzer=has_perf_analyzer(spec.workload.perf_analyzer, environment),
    )


def _with_options_of(request: Request, spec: Spec) -> Spec:
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


def draw_up(job: Job, winner: Candidate) -> Change:
    """The configs with the winner's changes; every other byte stays as it is.

    The text is what the server received in the winner's trials, without the fields that the server
    completes. Environment variables that the winner needs are written as a comment.
    """
    models = job.served.models
    read = {la: (models[la].files.text, models[la].base) for la in job.searched or models}
    return _change_to(job, texts_of(winner, job.space.current, read))


def with_proposal(job: Job, change: Change, warm_up: WarmUp) -> Change:
    """The change with a proposed `model_warmup` as a comment in the config of its model."""
    after = {label: config.config_after for label, config in change.configs.items()}
    for label, text in after.items():
        if job.served.models[label].name == warm_up.model:
            after[label] = propose(text, warm_up)
    return _change_to(job, after)


def _change_to(job: Job, after: Mapping[str, str]) -> Change:
    configs, diffs = {}, []
    for label, text in after.items():
        model = job.served.models[label]
        before = model.files.text
        configs[label] = ChangedConfig(config_before=before, config_after=text)
        diffs.append(unified_diff(before, text, f"{model.name}/{model.files.write_to}"))
    return Change(configs, "".join(diffs))
