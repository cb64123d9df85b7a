"""What a spec means, wherever its file lies and however it is written; two are compared by it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.spec.mistakes import Finding, Location, dotted
from tuner.spec.model import Spec
from tuner.spec.yaml_tree import dump_scalar

#: What each machine may have in its own way, and what the run alone decides, even by an option.
_LEFT_OUT: frozenset[Location] = frozenset(
    {
        ("repository",),
        ("server", "binary"),
        ("server", "cpus"),
        ("server", "gpus"),
        ("workload", "cpus"),
        ("workload", "perf_analyzer"),
        ("budget",),
        ("search", "seed"),
    }
)


def meaning(spec: Spec) -> dict[str, Any]:
    """All fields in the long form as plain values, so that defaults are the same as written out.

    Of variables the names count, of mounts the places in the container, of files that they are
    there: what these hold is compared apart, see `files_of`.
    """
    left_out = _LEFT_OUT.union(location for location, _ in _files(spec.model_dump(by_alias=True)))
    kept = _without(spec.model_dump(mode="json", by_alias=True), left_out)
    kept["server"]["environment"] = sorted(spec.server.environment)
    kept["server"]["mounts"] = sorted(spec.server.mounts.values())
    return kept


def files_of(spec: Spec) -> dict[str, Path]:
    """The files that say what the load is, by the fields that name them."""
    files = _files(spec.model_dump(by_alias=True))
    return {dotted(location): path for location, path in files if location not in _LEFT_OUT}


def differences(
    there: Mapping[str, Any], here: Mapping[str, Any], at: Location = ()
) -> Iterator[Finding]:
    """Yields where one's own spec means something else than a run's, by places in the long form.

    Of what is of another kind, only the kind is compared.
    """
    same_kind = there.get("kind") == here.get("kind")
    for key in {**there, **here} if same_kind else ["kind"]:
        place = (*at, key)
        if key not in here:
            yield Finding(place, "only the run's spec has it")
        elif key not in there:
            yield Finding(place, "the run's spec does not have it")
        elif isinstance(there[key], dict) and isinstance(here[key], dict):
            yield from differences(there[key], here[key], place)
        elif there[key] != here[key]:
            theirs, ours = (dump_scalar(side[key]) for side in (there, here))
            yield Finding(place, f"{ours} here, {theirs} in the run's spec")


def _files(part: object, at: Location = ()) -> Iterator[tuple[Location, Path]]:
    if isinstance(part, Path):
        yield at, part
    elif isinstance(part, dict):
        for key, value in part.items():
            yield from _files(value, (*at, key))


def _without(
    data: Mapping[str, Any], left_out: Collection[Location], at: Location = ()
) -> dict[str, Any]:
    return {
        key: _without(value, left_out, (*at, key)) if isinstance(value, dict) else value
        for key, value in data.items()
        if (*at, key) not in left_out
    }
