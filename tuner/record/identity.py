"""What two results must have in common to be compared: machine, programs and the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Parts of a spec that determine what is measured; the space and the search do not.
_QUESTION = ("model", "workload", "slo", "objective", "server", "mix")
#: Programs whose version affects measurements.
_PROGRAMS = ("tune", "tritonserver", "perf_analyzer")


@dataclass(frozen=True)
class Identity:
    """What two results must have in common to be compared; empty parts are not compared.

    Attributes:
        machine: The machine in words, by component.
        programs: Versions of programs.
        question: The relevant parts of the spec, and the hashes of its files.
        fingerprint: Hash of the whole machine, including properties that have no words.
    """

    machine: Mapping[str, str]
    programs: Mapping[str, str] = field(default_factory=dict)
    question: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""

    def differences(self, other: Identity, besides: str = "") -> list[tuple[str, Any, Any]]:
        """(name, this value, other value) of each fact that both have, except ``besides``.

        The fingerprint is included only if nothing else differs.
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
    """The machine in words, by component."""
    words = {
        "CPU": f"{host.get('cpu')}, {host.get('cores')} cores",
        "GPUs": ", ".join(f"{g['name']} (driver {g['driver']})" for g in gpus) or "none",
    }
    threads = host.get("threads")  # manifests of older versions have none
    if isinstance(threads, dict):
        named = (f"{name}={value}" for name, value in sorted(threads.items()))
        words["variables for threads"] = ", ".join(named) or "none"
    return words


def programs_of(versions: Mapping[str, str]) -> dict[str, str]:
    """The versions of programs that affect measurements."""
    return {name: versions.get(name, "unknown") for name in _PROGRAMS}


def question_in(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The relevant parts of a spec; of a program its version counts, not its path."""
    places = ("binary", "perf_analyzer", "space", "tls", "headers_from_env")
    full = {**spec, "mix": mix_in(spec)}
    parts = {name: full.get(name) for name in _QUESTION}
    return {
        name: {k: v for k, v in part.items() if k not in places} if isinstance(part, dict) else part
        for name, part in parts.items()
    }


def mix_in(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The streams of a spec, and the models served beside them; None with a single model.

    Without streams, only the models that are loaded but not searched count.
    """
    models, streams = spec.get("models", {}), spec.get("streams")
    if streams:
        return {"streams": streams, "models": sorted(models)}
    loaded = sorted(name for name, model in models.items() if not model.get("space"))
    return {"models": loaded} if loaded else None
