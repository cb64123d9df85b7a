"""What a run was made with: enough to repeat it, and to refuse to resume it as something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tuner.errors import SpecError
from tuner.facts import Facts
from tuner.load.generators import GENERATORS, title_of
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.encoding import ENCODINGS, UTF_8
from tuner.run.choices import Choices
from tuner.run.identity import Identity, machine_of, programs_of, question_in
from tuner.run.noise_file import is_noise
from tuner.space.candidate import Candidate

SCHEMA_VERSION = 1

#: What must be equal for a run to be resumed: another value would mix two experiments.
_IDENTITY = ("spec_sha256", "config_sha256", "seed", "fingerprint", "versions")


@dataclass(frozen=True)
class Manifest(Facts):
    """Facts of a run, fixed when it starts; only its choices may change when it is resumed.

    Attributes:
        spec: The effective spec with all defaults, as plain values.
        config_sha256: Of config.pbtxt as the run read it; None when there was no file.
        versions: Program to version (tune, tritonserver, perf_analyzer, optuna, python).
        host: CPU, cores, memory, governor, as `tuner.triton.host` reads them.
        fingerprint: Of the machine and its GPUs.
        command: How the run was started.
        current: The config in the repository, as a candidate; None in runs of an older tune, whose
            trial 0 it is.
        completed: config.pbtxt as the server completes it, as text; None in runs of an older tune
            and of one that ended before a server was asked.
        overridden: Fields that the server sets whatever config.pbtxt says.
        choices: What the command line said beside the spec.
        config_encoding: Of config_text in config.pbtxt, see `tuner.modelconfig.encoding`.
        arrivals: Seed of the arrivals of a confirmation's first round, or a check's; each round
            takes the next. Drawn from the run's id, so that another run is a replication; None in
            runs of an older tune.
        client: Who measures, see `tuner.load.generators.GENERATORS`; None until a server was asked,
            and in runs of an older tune.
        noise: The newest that `tune doctor --noise` measured here for this model, with its date.
    """

    unknown = "ignore"

    run_id: str
    created_at: str
    spec_path: str
    spec_text: str
    spec_sha256: str
    spec: Mapping[str, Any]
    model: str
    seed: int
    config_path: str
    config_text: str
    config_sha256: str | None
    versions: Mapping[str, str]
    host: Mapping[str, Any]
    gpus: Sequence[Mapping[str, Any]]
    fingerprint: str
    command: Sequence[str] = field(default_factory=list)
    space_size: int | None = None
    current: Candidate | None = None
    noise: Mapping[str, Any] | None = None
    completed: str | None = None
    overridden: Sequence[str] = field(default_factory=list)
    client: str | None = None
    choices: Choices = field(default_factory=Choices)
    config_encoding: str = UTF_8
    arrivals: int | None = None
    schema_version: int = field(default=SCHEMA_VERSION)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises:
        SpecError: It is of another version.
        ValueError: It holds what no run does.
        """
        if data["schema_version"] != SCHEMA_VERSION:
            raise SpecError(
                f"run {data.get('run_id')} has manifest version {data['schema_version']}, "
                f"this tune reads version {SCHEMA_VERSION}",
                "use the tune it was made with",
            )
        written = {"write": "--no-write" not in data.get("command", ())}  # by an older tune
        manifest = super().from_json({"choices": written, **data})
        if manifest.noise is not None and not is_noise(manifest.noise):
            raise ValueError("noise is not what `tune doctor --noise` writes")
        if manifest.config_encoding not in ENCODINGS:
            raise ValueError(f"config_encoding {manifest.config_encoding!r} is none of a config")
        if manifest.arrivals is not None and manifest.arrivals < 0:
            raise ValueError(f"arrivals {manifest.arrivals!r} is no seed")
        if wrong := [g for g in manifest.gpus if not {"name", "driver"} <= set(g)]:
            raise ValueError(f"a GPU without a name or a driver: {wrong[0]}")
        return manifest

    @property
    def identity(self) -> Identity:
        """What another result must have in common to be comparable."""
        machine, programs = machine_of(self.host, self.gpus), programs_of(self.versions)
        return Identity(machine, programs, question_in(self.spec), self.fingerprint)

    def refuse_if_different(self, now: Manifest) -> None:
        """SpecError naming each fact that changed since this run was started."""
        before, after = self.to_json(), now.to_json()
        changed = [key for key in _IDENTITY if before[key] != after[key]]
        if changed:
            lines = [f"  {key}: {before[key]} then, {after[key]} now" for key in changed]
            raise SpecError(
                f"run {self.run_id} cannot be resumed, it is another experiment by now:\n"
                + "\n".join(lines),
                "start a new run, or put back what changed",
            )

    def refuse_if_completed_otherwise(self, now: Manifest) -> None:
        """SpecError where the server makes another config of the file than it did then."""
        if self.completed is None or now.completed is None or self.completed == now.completed:
            return
        diff = unified_diff(self.completed, now.completed, "config as the server completes it")
        raise SpecError(
            f"run {self.run_id} cannot be continued, the server completes the model's config "
            f"otherwise by now:\n{diff.rstrip()}",
            "start a new run, or put back the model's files",
        )

    def refuse_if_measured_otherwise(self, now: Manifest) -> None:
        """SpecError where another load generator would go on with the run."""
        started = self.completed is not None
        if not started or comparable(self.client, now.client):
            return
        raise SpecError(
            f"run {self.run_id} cannot be continued: its latencies were not taken by "
            f"{title_of(now.client)}, which would measure now",
            "start a new run",
        )


def comparable(one: str | None, other: str | None) -> bool:
    """Whether two clients take latencies in the same way; None is that of an older tune.

    That one changed the client from load to load, unless perf_analyzer could measure them all.
    """
    usual = GENERATORS[0].name
    return (one or usual) == (other or usual)
