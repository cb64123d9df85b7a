"""From a spec file to a job: everything that can be known before a process is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.checks.case import Case
from tuner.checks.recordings import RecordedFigures
from tuner.checks.table import checked, checked_again
from tuner.load.probes.warmup import WarmUp, propose
from tuner.load.traffic.recordings.replay import RecordedTraffic
from tuner.modelconfig.edit import edit, unified_diff
from tuner.modelconfig.files import ModelFiles, model_names
from tuner.modelconfig.served import Served
from tuner.record.result_schema import Change, ChangedConfig
from tuner.score.next_load import LoadPlan, load_plan
from tuner.server.binaries import has_perf_analyzer
from tuner.space.candidate import Candidate, variable
from tuner.space.environment import with_variables
from tuner.space.space import Space
from tuner.spec.checks import cross_checks
from tuner.spec.fields import Gpus
from tuner.spec.load import LoadedSpec, read_spec
from tuner.spec.model import Spec
from tuner.spec.units import Seconds


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
        environment: Variables by which programs of this machine are found.
    """

    loaded: LoadedSpec
    spec: Spec
    served: Served
    space: Space
    plan: LoadPlan
    has_perf_analyzer: bool = True
    recorded: Mapping[str, RecordedFigures] = field(default_factory=dict)
    traffic: RecordedTraffic | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def searched(self) -> tuple[str, ...]:
        """Labels of the models whose configs the search changes, and may write."""
        return tuple(self.space.current.models)

    @property
    def searched_files(self) -> list[ModelFiles]:
        return [self.served.models[label].files for label in self.searched]

    @property
    def case(self) -> Case:
        """What checks look at."""
        known = (self.loaded, self.spec, self.environment, self.served, self.space)
        return Case(*known, self.recorded, self.traffic)

    def over(self, served: Served) -> Job:
        """The same over what a server completed.

        Raises:
            SpecError: The spec is wrong for it.
        """
        case = checked_again(self.case, served)
        job = replace(self, served=served, space=case.space, recorded=case.recorded)
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
            beside each other: every mistake.
        EnvironmentNotReadyError: There is no such repository or model.
    """
    loaded = loaded or settled(request)
    return job_from(loaded, _with_words_of(request, loaded.spec), request.environment)


def settled(request: Request) -> LoadedSpec:
    """The spec of a request, and its repository is there.

    Raises:
        SpecError: The spec is wrong by itself: with what is wrong with its models.
        EnvironmentNotReadyError: There is no such repository.
    """
    loaded = read_spec(request.spec, request.overrides)
    if loaded.mistakes or loaded.findings or any(cross_checks(loaded.spec)):
        checked(loaded, loaded.spec, request.environment)
    with loaded.with_position(("repository",)):
        model_names(loaded.spec.repository)
    return loaded


def job_from(loaded: LoadedSpec, spec: Spec, environment: Mapping[str, str]) -> Job:
    """The models that a spec is about, and the space of both; raises as `prepare`."""
    case = checked(loaded, spec, environment)
    recorded_per_s = 1.0 if case.traffic is None else case.traffic.recording.rate_per_s
    return Job(
        loaded,
        spec,
        case.served,
        case.space,
        load_plan(spec.workload, spec.objective, spec.slos, spec.shares, recorded_per_s),
        has_perf_analyzer(spec.workload.perf_analyzer, environment),
        case.recorded,
        case.traffic,
        environment,
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


def with_proposal(job: Job, change: Change, warm_up: WarmUp) -> Change:
    """The same with a `model_warmup` as a comment, where that spares users something."""
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
