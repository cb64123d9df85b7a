"""A spec file, read and checked: a valid `Spec`, or every mistake with its line and column."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tuner.spec.checks import cross_checks
from tuner.spec.effective import effective_yaml
from tuner.spec.environment import given_check
from tuner.spec.explain import findings
from tuner.spec.mistakes import Finding, Location, Mistake, SpecMistakesError, dotted
from tuner.spec.model import Spec
from tuner.spec.yaml_tree import BadYamlError, Position, read_yaml_file

#: Stands in for required fields that are wrong, so that the rest can be checked.
_STAND_INS: dict[str, Any] = {
    "model": "model",
    "repository": ".",
    "slo": ["p99_latency <= 1s"],
    "space": {"max_batch_size": {"choice": [1]}},
}


@dataclass(frozen=True)
class LoadedSpec:
    """A spec with the file it came from.

    Attributes:
        text: As it may be stored: the file's, or, where that gives values of
            ``server.environment``, the whole spec without them.
        sha256: What identifies the spec, in hex: of the file's bytes, or of ``text`` with a check
            of those values.
        space_positions: Path in ``space`` to the ``file:line:column`` it stands at, for mistakes
            that only the model's own config brings to light.
    """

    spec: Spec
    path: Path
    text: str
    sha256: str
    space_positions: Mapping[str, str]


def load_spec(path: Path) -> LoadedSpec:
    """Reads and checks a spec. Relative paths in it are taken from the spec file's directory.

    Raises:
        SpecMistakesError: A `SpecError` with every mistake in the file.
    """
    try:
        content, tree = read_yaml_file(path)
    except BadYamlError as error:
        raise SpecMistakesError([_mistake(path, error.position, error.message)]) from error
    if not isinstance(tree.data, dict):
        kind = "is empty" if tree.data is None else "is no mapping of keys to values"
        advice = "tune init MODEL drafts one"
        raise SpecMistakesError([_mistake(path, Position(1, 1), f"the spec {kind}; {advice}")])
    spec, found = _validate(tree.data, path.parent.absolute())
    mistakes = [_mistake(path, at, message, where) for at, where, message in tree.problems]
    mistakes += [_mistake(path, tree.position(f), f.message, f.location) for f in found]
    if spec is None or mistakes:
        raise SpecMistakesError(mistakes)
    at = {name: tree.position(Finding(("space", name), "", key=True)) for name in spec.space}
    positions = {name: f"{path}:{place.line}:{place.column}" for name, place in at.items()}
    text = content.decode("utf-8-sig")
    if check := given_check(spec.server.environment):
        text = effective_yaml(spec)
        content = f"{text}# environment {check}\n".encode()
    return LoadedSpec(spec, path, text, hashlib.sha256(content).hexdigest(), positions)


def _validate(data: dict[str, Any], directory: Path) -> tuple[Spec | None, list[Finding]]:
    context = {"directory": directory}
    try:
        spec = Spec.model_validate(data, context=context)
    except ValidationError as error:
        found = list(findings(error))
        wrong = {finding.location for finding in found}
        rest, broken = _without(data, wrong)
        partial = Spec.model_validate(rest, context=context)
        return None, [*found, *cross_checks(partial, broken)]
    return spec, list(cross_checks(spec))


def _without(data: dict[str, Any], wrong: Iterable[Location]) -> tuple[dict[str, Any], set[str]]:
    """What is valid of ``data``, made complete, and the names of the sections that are not.

    A wrong parameter of the space is left out alone; any other mistake takes its section along.
    """
    rest, broken = dict(data), set()
    for location in wrong:
        section = str(location[0])
        if section == "space" and len(location) > 1 and isinstance(rest.get("space"), dict):
            rest["space"] = {k: v for k, v in rest["space"].items() if k != location[1]}
        else:
            rest.pop(section, None)
            broken.add(section)
    if not rest.get("space"):
        rest.pop("space", None)
        broken.add("space")
    return {**_STAND_INS, **rest}, broken


def _mistake(path: Path, at: Position, message: str, where: Location = ()) -> Mistake:
    return Mistake(str(path), at.line, at.column, dotted(where), message)
