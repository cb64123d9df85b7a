"""The manifest of a run: enough to repeat the run, and to refuse to resume a different one."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from tuner.errors import SpecError, StalePlanError, TunerError
from tuner.facts import Facts, is_empty, is_none
from tuner.load.generators import GENERATORS, title_of
from tuner.machine.cpus import Cores
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.encoding import ENCODINGS, UTF_8
from tuner.modelconfig.files import directory_of, read_config
from tuner.plain import plain
from tuner.record.identity import Identity, machine_of, programs_of, question_in
from tuner.space.candidate import Candidate
from tuner.spec.labels import of_label
from tuner.spec.paths import CONFIG_NAME
from tuner.spec.slo import Objective


@dataclass(frozen=True)
class Choices(Facts):
    """Choices of the command line; None: the spec decides.

    Attributes:
        write: Write the winner into the repository.
        trials: Maximum number of configs to measure.
        directory: Directory that relative paths of the command line start from.
        accept_unsoaked: Also accept a winner whose soaks show nothing.
        overrides: Values that replace those of the spec, each as ``PATH=VALUE``.
        on: Where benches come from, such as ``ray``.
        benches: Maximum number of benches; None: one for each GPU.
        storage: Stored by earlier versions only: where a run met its workers. Never written.
    """

    write: bool = True
    trials: int | None = None
    time_budget_s: float | None = None
    directory: str = ""
    accept_unsoaked: Annotated[bool, Field(exclude_if=is_empty)] = False
    overrides: Annotated[tuple[str, ...], Field(exclude_if=is_empty)] = ()
    on: Annotated[str | None, Field(exclude_if=is_empty)] = None
    benches: Annotated[int | None, Field(exclude_if=is_empty)] = None
    storage: Annotated[str | None, Field(exclude=True)] = None

    @property
    def options(self) -> list[str]:
        """The choices as options of `tune run`."""
        given = {"--trials": self.trials, "--on": self.on, "--benches": self.benches}
        time = None if self.time_budget_s is None else f"{self.time_budget_s:g}s"
        named = {**given, "--time-budget": time}
        options = [f"{name}={value}" for name, value in named.items() if value is not None]
        flags = {"--no-write": not self.write, "--accept-unsoaked": self.accept_unsoaked}
        options += [f"--set={override}" for override in self.overrides]
        return [*options, *(name for name, given in flags.items() if given)]


def resume_command(run: Path, specs: Sequence[str], choices: Choices) -> str:
    """The command that continues a run or a series, on one line.

    It includes every option that can select code to run: a run does not take these from its files.
    """
    again = Choices(overrides=choices.overrides)
    return run_command(specs, again, "--resume", str(run))


def run_command(specs: Sequence[str], choices: Choices, *more: str) -> str:
    """A `tune run` command with these choices, on one line."""
    return plain(shlex.join(["tune", "run", *specs, *choices.options, *more]))


def check_options(choices: Choices, results: Path) -> list[str]:
    """Options with which `tune check` asks the same question, and finds its earlier results."""
    usual = Path(choices.directory, "results").resolve() == results.resolve()
    where = [] if usual else [f"--output={results}"]
    return [*Choices(overrides=choices.overrides).options, *where]


def check_command(spec: str, options: Sequence[str], *more: str) -> str:
    """A `tune check` command with `check_options`, on one line."""
    return plain(shlex.join(["tune", "check", spec or "SPEC", *options, *more]))


SCHEMA_VERSION = 1

#: Parts of a spec that readers of a manifest use.
_SECTIONS = ("confirm", "models", "server")
_NO_FILE = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class KeptConfig(Facts):
    """The config of one served model: as the run read it, and as the server completes it.

    Attributes:
        path: Path of its config.pbtxt, or of ``write_to`` if that file existed.
        text: Content of the file; empty without a file.
        sha256: Hash of the file; None without a file.
        encoding: Encoding of the file, see `tuner.modelconfig.encoding`.
        completed: The config as the server completes it, as text; None before a server started.
        overridden: Fields that the server sets whatever config.pbtxt says.
        parts: Names of the models in its steps, and of those that its code calls.
        write_to: Name of the file in the model's directory that a winner is written to.
    """

    unknown = "ignore"

    name: str
    path: str
    text: str
    sha256: str | None
    encoding: str = UTF_8
    completed: str | None = None
    overridden: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    write_to: str = CONFIG_NAME

    @property
    def is_ensemble(self) -> bool:
        """Whether it is an ensemble, which only passes tensors between its steps."""
        return "ensemble_scheduling" in (self.completed or self.text)


@dataclass(frozen=True)
class Manifest(Facts):
    """Facts of a run, fixed at its start; resuming may change only ``choices``.

    Attributes:
        spec: The effective spec with all defaults, as plain values.
        name: Name of the run: its model's name, or several names joined by ``+``.
        models: The configs of the served models by name, in the order in which they load.
        versions: Version by program (tune, tritonserver, perf_analyzer, optuna, python).
        host: CPU, cores, memory and governor, as `tuner.machine.host` reads them.
        fingerprint: Hash of the machine and its GPUs.
        current: The config in the repository, as a candidate.
        arrivals: Seed of the arrivals in the first round of a proof or a check; each later round
            takes the next seed. It comes from the run's id, so that another run is a replication.
        streams: Name of the model that each stream sends requests to, by stream.
        client: The load generator, see `tuner.load.generators.GENERATORS`; None before a server
            started.
        load_files: Hash of each file that defines the load, by the spec field that names it.
        cores: The CPUs of server and load generator; None before that was decided.
    """

    unknown = "ignore"

    run_id: str
    created_at: str
    spec_path: str
    spec_text: str
    spec_sha256: str
    spec: Mapping[str, Any]
    name: str
    seed: int
    models: Mapping[str, KeptConfig]
    versions: Mapping[str, str]
    host: Mapping[str, Any]
    gpus: Sequence[Mapping[str, Any]]
    fingerprint: str
    current: Candidate
    arrivals: int
    streams: Mapping[str, str]
    command: Sequence[str] = field(default_factory=list)
    space_size: int | None = None
    client: str | None = None
    choices: Choices = field(default_factory=Choices)
    load_files: Annotated[Mapping[str, str], Field(exclude_if=is_empty)] = field(
        default_factory=dict
    )
    cores: Annotated[Cores | None, Field(exclude_if=is_none)] = None
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads a manifest.

        Raises:
            SpecError: Another version of tune wrote it, with an unknown schema version.
            ValueError: It has values that no run writes.
        """
        if data["schema_version"] != SCHEMA_VERSION or "models" not in data:
            version = data["schema_version"]
            raise SpecError(
                f"run {data.get('run_id')} has manifest version {version} of another tune; this "
                f"one reads only its own version {SCHEMA_VERSION}",
                "use the version of tune that made it",
            )
        manifest = super().from_json(data)
        for name in _SECTIONS:
            if not isinstance(manifest.spec.get(name, {}), Mapping):
                raise TypeError(f"spec.{name} is {manifest.spec[name]!r}, not a mapping")
        loaded = {
            *manifest.streams.values(),
            *(p for c in manifest.models.values() for p in c.parts),
        }
        if not manifest.streams or not loaded <= manifest.models.keys():
            raise ValueError("a model that gets requests is not served")
        for config in manifest.models.values():
            if config.encoding not in ENCODINGS:
                raise ValueError(f"encoding {config.encoding!r} is not a config's encoding")
        if manifest.arrivals < 0:
            raise ValueError(f"arrivals {manifest.arrivals!r} is not a seed")
        if wrong := [g for g in manifest.gpus if not {"name", "driver"} <= set(g)]:
            raise ValueError(f"a GPU without a name or a driver: {wrong[0]}")
        return manifest

    @property
    def identity(self) -> Identity:
        """What another result must have in common with this run to be compared."""
        machine, programs = machine_of(self.host, self.gpus), programs_of(self.versions)
        question = {**question_in(self.spec), **self.load_files}
        return Identity(machine, programs, question, self.fingerprint)

    @property
    def objective(self) -> str:
        """The objective, as text of the spec."""
        return str(self.spec.get("objective", Objective.goodput()))

    @property
    def repository(self) -> Path:
        """The model repository that the run read."""
        config = next(iter(self.models.values()))
        return directory_of(Path(config.path)).parent

    @property
    def config_sha256(self) -> str:
        """One hash of the configs of all models, as the run read them."""
        return sha256_of_configs({la: c.sha256 or _NO_FILE for la, c in self.models.items()})

    @property
    def is_edited(self) -> bool:
        """Whether a config changed since the run read it; the run cannot continue then."""
        for config in self.models.values():
            with suppress(TunerError):
                now = read_config(Path(config.path))
                if now is not None and hashlib.sha256(now).hexdigest() != config.sha256:
                    return True
        return False

    def refuse_if_different(self, now: Manifest) -> None:
        """Refuses to resume with changed inputs; the error lists every change.

        Raises:
            StalePlanError: Only configs changed.
            SpecError: The spec, the machine or a program changed.
        """
        wrong, advice, edited = list[str](), "", list[str]()
        if self.spec_sha256 != now.spec_sha256:
            then, today = (Path(m.choices.directory, m.spec_path).resolve() for m in (self, now))
            wrong = [f"{self.spec_path} was edited, or --set or a variable changes its values"]
            if then != today:
                wrong = [f"it is a run of {self.spec_path}, not of {now.spec_path}"]
                advice = f"leave the spec out: tune run --resume {self.run_id}"
        else:
            before, after = (
                {f"{Path(m.path).name} of {m.name}": m.sha256 for m in run.models.values()}
                for run in (self, now)
            )
            both = {**before, **after}
            edited = [f"{n} was edited" for n in both if before.get(n, "") != after.get(n, "")]
        facts = [
            {"seed": m.seed, "machine (fingerprint)": m.fingerprint, **m.versions}
            for m in (self, now)
        ]
        names = [n for n in {**facts[0], **facts[1]} if facts[0].get(n) != facts[1].get(n)]
        wrong += [f"{n}: {facts[0].get(n)} then, {facts[1].get(n)} now" for n in names]
        now_in = now.load_files
        files = [n for n, stored in self.load_files.items() if now_in.get(n, stored) != stored]
        wrong += [f"{n}: the content of its file changed" for n in files]
        refuse_changes(f"run {self.run_id}", wrong, edited, advice)

    def refuse_if_completed_otherwise(self, now: Manifest) -> None:
        """SpecError if the server completes a config differently than when the run started."""
        for label, config in self.models.items():
            before, after = config.completed, now.models[label].completed
            if before is None or after is None or before == after:
                continue
            whose = of_label(label, self.models)
            diff = unified_diff(before, after, f"config{whose} as the server completes it")
            raise SpecError(
                f"run {self.run_id} cannot be continued, the server now completes the model's "
                f"config differently:\n{diff.rstrip()}",
                "start a new run, or restore the model's files",
            )

    def refuse_if_measured_otherwise(self, now: Manifest) -> None:
        """SpecError if a different load generator would continue the run."""
        started = any(config.completed is not None for config in self.models.values())
        if not started or comparable(self.client, now.client):
            return
        raise SpecError(
            f"run {self.run_id} cannot be continued: {title_of(now.client)} would measure now, "
            "but did not measure the run's latencies",
            "start a new run",
        )


def refuse_changes(
    what: str, wrong: Sequence[str], edited: Sequence[str] = (), advice: str = ""
) -> None:
    """Refuses to resume a run or a series whose inputs have changed.

    Args:
        what: The run or series, in words.
        wrong: Changes of anything but configs, one line each.
        edited: Changes of configs, one line each.
        advice: The next step; empty for the usual one.

    Raises:
        StalePlanError: Only configs were ``edited``.
        SpecError: Something else is ``wrong``.
    """
    if wrong or edited:
        kind = SpecError if wrong else StalePlanError
        raise kind(
            f"{what} cannot be resumed: its inputs have changed:"
            + "".join(f"\n  {line}" for line in (*wrong, *edited)),
            advice or "start a new run, or restore what changed",
        )


def sha256_of_configs(by_label: Mapping[str, str]) -> str:
    """One hash of several models' configs, from the hash of each; a single hash stays as it is."""
    if len(by_label) == 1:
        return next(iter(by_label.values()))
    text = "".join(f"{label} {sha256}\n" for label, sha256 in sorted(by_label.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def comparable(one: str | None, other: str | None) -> bool:
    """Whether two load generators define latency in the same way; None: perf_analyzer."""
    usual = GENERATORS[0].name
    return (one or usual) == (other or usual)
