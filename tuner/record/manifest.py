"""What a run was made with: enough to repeat it, and to refuse to resume a different one."""

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
from tuner.facts import Facts
from tuner.load.generators import GENERATORS, title_of
from tuner.machine.cpus import Cores
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.encoding import ENCODINGS, UTF_8
from tuner.modelconfig.files import directory_of, read_config
from tuner.plain import plain
from tuner.space.candidate import Candidate
from tuner.spec.labels import of_label
from tuner.spec.paths import CONFIG_NAME
from tuner.spec.slo import Objective

#: Parts of a spec that say what was measured; the space and the search do not.
_QUESTION = ("model", "workload", "slo", "objective", "server", "mix")
#: Programs whose version changes what is measured.
_PROGRAMS = ("tune", "tritonserver", "perf_analyzer")


@dataclass(frozen=True)
class Identity:
    """What a result belongs to; what is left out is not compared.

    Attributes:
        machine: In words, by kind.
        programs: Their versions.
        question: What the spec says of each part that counts, and the hashes of its files.
        fingerprint: Of all of the machine, also of what is not in words.
    """

    machine: Mapping[str, str]
    programs: Mapping[str, str] = field(default_factory=dict)
    question: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""

    def differences(self, other: Identity, besides: str = "") -> list[tuple[str, Any, Any]]:
        """(name, this, other) of everything known of both, except ``besides``.

        The fingerprint is among them only where it alone tells the two apart.
        """
        mine = {**self.question, **self.machine, **self.programs}
        theirs = {**other.question, **other.machine, **other.programs}
        common = [name for name in mine if name in theirs and name != besides]
        differing = [
            (name, mine[name], theirs[name]) for name in common if mine[name] != theirs[name]
        ]
        known = bool(self.fingerprint and other.fingerprint)
        if known and not differing and self.fingerprint != other.fingerprint:
            differing.append(("fingerprint", self.fingerprint, other.fingerprint))
        return differing


def machine_of(host: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A machine in words."""
    words = {
        "CPU": f"{host.get('cpu')}, {host.get('cores')} cores",
        "GPUs": ", ".join(f"{g['name']} (driver {g['driver']})" for g in gpus) or "none",
    }
    threads = host.get("threads")  # older runs do not know them
    if isinstance(threads, dict):
        named = (f"{name}={value}" for name, value in sorted(threads.items()))
        words["variables for threads"] = ", ".join(named) or "none"
    return words


def programs_of(versions: Mapping[str, str]) -> dict[str, str]:
    """Those that change what is measured."""
    return {name: versions.get(name, "unknown") for name in _PROGRAMS}


def question_in(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a spec asks; where a program lies does not matter, its version does."""
    places = ("binary", "perf_analyzer", "space", "tls", "headers_from_env")
    full = {**spec, "mix": mix_in(spec)}
    parts = {name: full.get(name) for name in _QUESTION}
    return {
        name: {k: v for k, v in part.items() if k not in places} if isinstance(part, dict) else part
        for name, part in parts.items()
    }


def mix_in(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The streams of a spec and the models beside which they are served; None of one model alone.

    Without streams those count that are only loaded; the others are what is searched.
    """
    models, streams = spec.get("models", {}), spec.get("streams")
    if streams:
        return {"streams": streams, "models": sorted(models)}
    loaded = sorted(name for name, model in models.items() if not model.get("space"))
    return {"models": loaded} if loaded else None


@dataclass(frozen=True)
class Choices(Facts):
    """Choices of the command line; None: as the spec says.

    Attributes:
        write: Write the winner into the repository.
        accept_unsoaked: Also one of which no soak could tell whether its load lasts.
        trials: Most configs to measure.
        overrides: Values of the spec set instead, each as ``PATH=VALUE``.
        storage: Of an earlier version's run: where it met its workers. Never written.
        directory: Where the command line's relative paths begin.
        on: What several benches are taken from.
        benches: How many, at most; None: one for each GPU.
    """

    write: bool = True
    trials: int | None = None
    time_budget_s: float | None = None
    directory: str = ""
    accept_unsoaked: Annotated[bool, Field(exclude_if=lambda given: not given)] = False
    overrides: Annotated[tuple[str, ...], Field(exclude_if=lambda given: not given)] = ()
    on: Annotated[str | None, Field(exclude_if=lambda given: not given)] = None
    benches: Annotated[int | None, Field(exclude_if=lambda given: not given)] = None
    storage: Annotated[str | None, Field(exclude=True)] = None

    @property
    def options(self) -> list[str]:
        """The options in the form `tune run` takes."""
        given = {"--trials": self.trials, "--on": self.on, "--benches": self.benches}
        time = None if self.time_budget_s is None else f"{self.time_budget_s:g}s"
        named = {**given, "--time-budget": time}
        options = [f"{name}={value}" for name, value in named.items() if value is not None]
        flags = {"--no-write": not self.write, "--accept-unsoaked": self.accept_unsoaked}
        options += [f"--set={override}" for override in self.overrides]
        return [*options, *(name for name, given in flags.items() if given)]


def resume_command(run: Path, specs: Sequence[str], choices: Choices) -> str:
    """The command that continues a run or a series, on one line.

    It spells out what may choose code, which no run is asked for.
    """
    again = Choices(overrides=choices.overrides)
    return run_command(specs, again, "--resume", str(run))


def run_command(specs: Sequence[str], choices: Choices, *more: str) -> str:
    """A `tune run` with these choices, on one line."""
    return plain(shlex.join(["tune", "run", *specs, *choices.options, *more]))


SCHEMA_VERSION = 1

#: Parts of a spec that readers of a manifest look into.
_SECTIONS = ("confirm", "models", "server")
_NO_FILE = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class KeptConfig(Facts):
    """The config of one served model: as the run read it, and as the server completes it.

    Attributes:
        path: Of its config.pbtxt, or of ``write_to`` where that was there.
        text: Of that file; empty when there was none.
        sha256: Of that file; None when there was none.
        encoding: Of the text in the file, see `tuner.modelconfig.encoding`.
        completed: The config as the server completes it, as text; None until a server was queried.
        overridden: Fields that the server sets whatever config.pbtxt says.
        parts: Names of the models in its steps, and of those that its code calls.
        write_to: The file in the model's directory that a winner is written to.
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
        """It only passes tensors on, each request for itself."""
        return "ensemble_scheduling" in (self.completed or self.text)


@dataclass(frozen=True)
class Manifest(Facts):
    """Facts of a run, fixed when it starts; only its choices may change when it is resumed.

    Attributes:
        spec: The effective spec with all defaults, as plain values.
        name: What the run is called: its model's name, or those of several, joined by ``+``.
        models: The configs of the models it serves, by name, in the order they are loaded.
        streams: Name of the model that each stream sends requests to, by the stream's name.
        versions: Program to version (tune, tritonserver, perf_analyzer, optuna, python).
        host: CPU, cores, memory, governor, as `tuner.machine.host` reads them.
        fingerprint: Of the machine and its GPUs.
        current: The config in the repository, as a candidate.
        arrivals: Seed of the arrivals of a proof's first round, or a check's; each round
            takes the next. Drawn from the run's id, so that another run is a replication.
        client: The load generator, see `tuner.load.generators.GENERATORS`; None until a server was
            queried.
        cores: The CPUs of server and load generator; None until that was decided.
        load_files: A hash for each file that says what the load is, by the field that names it.
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
    load_files: Annotated[Mapping[str, str], Field(exclude_if=lambda files: not files)] = field(
        default_factory=dict
    )
    cores: Annotated[Cores | None, Field(exclude_if=lambda cores: cores is None)] = None
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises:
        SpecError: It is of a version that this tune does not read.
        ValueError: It holds what no run does.
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
        """What another result must have in common to be comparable."""
        machine, programs = machine_of(self.host, self.gpus), programs_of(self.versions)
        question = {**question_in(self.spec), **self.load_files}
        return Identity(machine, programs, question, self.fingerprint)

    @property
    def objective(self) -> str:
        """The text of the spec."""
        return str(self.spec.get("objective", Objective.goodput()))

    @property
    def repository(self) -> Path:
        """The model repository that the run read."""
        config = next(iter(self.models.values()))
        return directory_of(Path(config.path)).parent

    @property
    def config_sha256(self) -> str:
        """The hash of the configs of all models as the run read them."""
        return sha256_of_configs({la: c.sha256 or _NO_FILE for la, c in self.models.items()})

    @property
    def is_edited(self) -> bool:
        """Whether a config holds something else than the run read, so that it cannot go on."""
        for config in self.models.values():
            with suppress(TunerError):
                now = read_config(Path(config.path))
                if now is not None and hashlib.sha256(now).hexdigest() != config.sha256:
                    return True
        return False

    def refuse_if_different(self, now: Manifest) -> None:
        """Names each fact that changed since this run was started.

        Raises:
            StalePlanError: Only configs did.
            SpecError: The spec is another or was edited, or the machine or a program is another.
        """
        wrong, advice, edited = list[str](), "", list[str]()
        if self.spec_sha256 != now.spec_sha256:
            then, today = (Path(m.choices.directory, m.spec_path).resolve() for m in (self, now))
            wrong = [f"{self.spec_path} was edited, or --set or a variable changes what it says"]
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
        wrong += [f"{n}: its file holds something else now" for n in files]
        refuse_changes(f"run {self.run_id}", wrong, edited, advice)

    def refuse_if_completed_otherwise(self, now: Manifest) -> None:
        """SpecError where the server completes a config differently than it did then."""
        for label, config in self.models.items():
            before, after = config.completed, now.models[label].completed
            if before is None or after is None or before == after:
                continue
            whose = of_label(label, self.models)
            diff = unified_diff(before, after, f"config{whose} as the server completes it")
            raise SpecError(
                f"run {self.run_id} cannot be continued, the server now completes the model's "
                f"config differently:\n{diff.rstrip()}",
                "start a new run, or put back the model's files",
            )

    def refuse_if_measured_otherwise(self, now: Manifest) -> None:
        """SpecError where a different load generator would continue the run."""
        started = any(config.completed is not None for config in self.models.values())
        if not started or comparable(self.client, now.client):
            return
        raise SpecError(
            f"run {self.run_id} cannot be continued: its latencies were not taken by "
            f"{title_of(now.client)}, which would measure now",
            "start a new run",
        )


def refuse_changes(
    what: str, wrong: Sequence[str], edited: Sequence[str] = (), advice: str = ""
) -> None:
    """Refuses to go on with a run or a series of which something is another one now.

    Raises:
        StalePlanError: Only configs were ``edited``.
        SpecError: Something else is ``wrong``.
    """
    if wrong or edited:
        kind = SpecError if wrong else StalePlanError
        raise kind(
            f"{what} cannot be resumed: its inputs have changed:"
            + "".join(f"\n  {line}" for line in (*wrong, *edited)),
            advice or "start a new run, or put back what changed",
        )


def sha256_of_configs(by_label: Mapping[str, str]) -> str:
    """One hash of the hashes of several models' configs; that of one config is its own."""
    if len(by_label) == 1:
        return next(iter(by_label.values()))
    text = "".join(f"{label} {sha256}\n" for label, sha256 in sorted(by_label.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def comparable(one: str | None, other: str | None) -> bool:
    """Whether two clients take latencies in the same way; None: the usual one."""
    usual = GENERATORS[0].name
    return (one or usual) == (other or usual)
