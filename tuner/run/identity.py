"""Whether two results may be compared: same question, same machine, same programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
        question: What the spec says of each part that counts.
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
        found = [(name, mine[name], theirs[name]) for name in common if mine[name] != theirs[name]]
        known = bool(self.fingerprint and other.fingerprint)
        if known and not found and self.fingerprint != other.fingerprint:
            found.append(("fingerprint", self.fingerprint, other.fingerprint))
        return found


def machine_of(host: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A machine in words."""
    return {
        "CPU": f"{host.get('cpu')}, {host.get('cores')} cores",
        "GPUs": ", ".join(f"{g['name']} (driver {g['driver']})" for g in gpus) or "none",
    }


def programs_of(versions: Mapping[str, str]) -> dict[str, str]:
    """Those that change what is measured."""
    return {name: versions.get(name, "unknown") for name in _PROGRAMS}


def question_in(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a spec asks; where a program lies does not matter, its version does."""
    places = ("binary", "perf_analyzer", "space", "tls", "headers_from_env")
    whole = {**spec, "mix": mix_in(spec)}
    parts = {name: whole.get(name) for name in _QUESTION}
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
