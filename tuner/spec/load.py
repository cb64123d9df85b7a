"""A spec file, read and checked: a valid `Spec`, or every mistake with its line and column.

`effective_yaml` is the way back: a spec with all its defaults written out.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.spec.checks import cross_checks
from tuner.spec.explain import findings
from tuner.spec.fields import SpaceSpec
from tuner.spec.forms import long_form
from tuner.spec.mistakes import Finding, Location, Mistake, SpecMistakesError, path_meant
from tuner.spec.model import Spec
from tuner.spec.paths import REPOSITORY, SERVER
from tuner.spec.server import given_check
from tuner.spec.shapes import shape_places
from tuner.spec.workload import RandomInputs
from tuner.spec.yaml_tree import (
    BadYamlError,
    Position,
    Tree,
    dump_scalar,
    mistake_at,
    read_yaml,
    read_yaml_file,
)


@dataclass(frozen=True)
class LoadedSpec:
    """A spec with the file it came from.

    Attributes:
        text: The text to store: the file's, or the whole spec if that has values of
            ``server.environment`` (without them) or the command line set something.
        sha256: Identifies the spec, in hex: of the file's bytes, or of ``text`` and a check of
            those values.
        space_positions: By label of a model, or `SERVER`: each path of its space and the
            ``file:line:column`` where it is, for mistakes that only a model's own config brings
            to light.
        shape_positions: That of an input in random requests, by stream, number of the request's
            shape, and input.
        mistake: Tells something of a place in the long form where that was written.
    """

    spec: Spec
    path: Path
    text: str
    sha256: str
    space_positions: Mapping[str, Mapping[str, str]]
    mistake: Callable[[Location, str], Mistake]
    shape_positions: Mapping[tuple[str, int, str], str] = field(default_factory=dict)

    def place_of(self, *locations: Location) -> str:
        """``file:line:column`` of the first of these that the spec sets; empty if it sets none."""
        for location in locations:
            value: Any = self.spec
            for part in location:
                value = value[part] if isinstance(value, Mapping) else getattr(value, str(part))
            if value is not None:
                return self.mistake(location, "").place
        return ""

    @contextmanager
    def placing(self, *locations: Location) -> Iterator[None]:
        """Adds the place in the file to an error about what the spec names there."""
        try:
            yield
        except (SpecError, EnvironmentNotReadyError) as error:
            if place := self.place_of(*locations):
                raise type(error)(f"{place}: {error.message}", error.hint) from error
            raise


def load_spec(path: Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """Reads and checks a spec. Relative paths in it are taken from the spec file's directory.

    Args:
        overrides: What the command line sets instead, each as ``PATH=VALUE`` with a value in YAML.

    Raises:
        SpecMistakesError: A `SpecError` with every mistake in the file and in the overrides.
    """
    _refuse_no_spec(path)
    try:
        content, tree = read_yaml_file(path)
    except BadYamlError as error:
        raise SpecMistakesError([mistake_at(path, error.position, error.message)]) from error
    if not isinstance(tree.data, dict):
        kind = "is empty" if tree.data is None else "is not a mapping of keys to values"
        advice = "tune init MODEL drafts one"
        raise SpecMistakesError([mistake_at(path, Position(1, 1), f"the spec {kind}; {advice}")])
    given = {_override(tree.data, override): override for override in overrides}
    form = long_form(tree.data)
    spec, wrong = _validate(form.data, path.parent.absolute())
    found = form.found(wrong)
    meant = {(*finding.location[:-1], finding.meant) for finding in found if finding.meant}
    found = [f for f in found if not (f.absent and f.location in meant)]
    mistakes = [mistake_at(path, at, message, where) for at, where, message in tree.problems]
    for finding in found:
        file, position = _where(path, tree, given, finding)
        where, about = finding.location, finding.described
        mistakes.append(mistake_at(file, position, finding.message, where, about))
    if spec is None or mistakes:
        raise SpecMistakesError(mistakes)

    def mistake(location: Location, message: str, *, key: bool = True) -> Mistake:
        where = form.written(location)
        file, position = _where(path, tree, given, Finding(where, message, key=key))
        return mistake_at(file, position, message, where)

    spaces: dict[str, tuple[Location, SpaceSpec]] = {
        SERVER: (("server", "space"), spec.server.space)
    }
    spaces |= {label: (("models", label, "space"), m.space) for label, m in spec.models.items()}
    positions = {
        owner: {name: mistake((*at, name), "").place for name in space}
        for owner, (at, space) in spaces.items()
    }
    shapes = {
        (stream, number, name): mistake(at, "", key=False).place
        for stream, asked in spec.streams.items()
        if isinstance(asked.inputs, RandomInputs)
        for number, name, at in shape_places(asked.inputs.shapes, stream)
    }
    text = content.decode("utf-8-sig")
    check = given_check(spec.server.environment)
    if check or overrides:
        text = effective_yaml(spec)
        content = (f"{text}# environment {check}\n" if check else text).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    return LoadedSpec(spec, path, text, sha256, positions, mistake, shapes)


def _refuse_no_spec(path: Path) -> None:
    if os.access(path / "manifest.json", os.F_OK):
        raise SpecError(f"{path} is a run, not a spec", f"see it with: tune report {path}")
    if path.suffix == ".pbtxt":
        model = path.absolute().parent.name
        named = "MODEL" if model == "configs" else model
        raise SpecError(f"{path} is a model's config, not a spec", f"tune init {named} drafts one")
    if not os.path.lexists(path):
        meant = path_meant(path, lambda p: p.suffix in (".yaml", ".yml") and p.is_file())
        is_model = (REPOSITORY / path.name).is_dir()
        advice = f"tune init {path.name if is_model else 'MODEL'} drafts one"
        raise SpecError(f"there is no spec {path}", meant or advice)


def _override(data: dict[str, Any], override: str) -> Location:
    """Sets one value, and returns its place. A path in a space is one key, dots and all."""
    name = Path(f"--set {override}")
    path, equals, text = override.partition("=")
    if not equals:
        text = "PATH=VALUE is expected, such as budget.trials=3"
        raise SpecMistakesError([mistake_at(name, Position(1, 1), text)])
    parameter, _, form = path.rpartition(".")
    if form in ("int", "choice", "subsets") and "space" in parameter.split("."):
        better = shlex.quote(f"{parameter}={{{form}: {text}}}")
        text = f"the values of a field are set as a whole: --set {better}"
        raise SpecMistakesError([mistake_at(name, Position(1, 1), text, tuple(path.split(".")))])
    try:
        value = read_yaml(text).data
    except BadYamlError as error:
        at = Position(error.position.line, len(path) + 1 + error.position.column)
        raise SpecMistakesError([mistake_at(name, at, error.message)]) from error
    place: list[str] = []
    while path:
        there = [key for key in map(str, data) if f"{path}.".startswith(f"{key}.")]
        key = path if place[-1:] == ["space"] else max(there, key=len, default=path.split(".")[0])
        place.append(key)
        path = path.removeprefix(key).removeprefix(".")
        if not path:
            data[key] = value
        elif not isinstance(data.get(key), dict):
            data[key] = {}
        data = data[key]
    return tuple(place)


def _where(
    path: Path, tree: Tree, given: Mapping[Location, str], finding: Finding
) -> tuple[Path, Position]:
    own = [text for at, text in given.items() if at == finding.location[: len(at)]]
    return (Path(f"--set {own[-1]}"), Position(1, 1)) if own else (path, tree.position(finding))


def _validate(data: dict[str, Any], directory: Path) -> tuple[Spec | None, list[Finding]]:
    """Validates data in the long form; the findings have its places."""
    context = {"directory": directory, "is_long": True}
    try:
        spec = Spec.model_validate(data, context=context)
    except ValidationError as error:
        wrong = list(findings(error))
        return None, [*wrong, *_in_the_rest(data, wrong, context)]
    return spec, list(cross_checks(spec))


def _in_the_rest(
    data: dict[str, Any], wrong: Sequence[Finding], context: Mapping[str, Any]
) -> Iterator[Finding]:
    """What `cross_checks` finds in the values that are valid, whatever is wrong beside them."""
    gaps = [(*f.location[:-1], f.meant) for f in wrong if f.meant]
    gaps += [f.location for f in wrong if f.absent]
    rest, wrong = deepcopy(data), [f for f in wrong if not f.absent]
    while True:
        gone = set[Location]()
        for finding in wrong:
            if not any(finding.location[: len(part)] == part for part in gone):
                gone.add(_leave_out(rest, finding.location))
        gaps += (part[:-1] if isinstance(part[-1], int) else part for part in gone)
        try:
            spec = Spec.model_validate(_completed(rest), context=context)
            break
        except ValidationError as error:  # such as a mapping that lacks a required key
            wrong = list(findings(error))
    for finding in cross_checks(spec, gaps):
        yield replace(finding, location=_before_leaving_out(rest, finding.location))


def _leave_out(rest: dict[str, Any], location: Location) -> Location:
    """Leaves out the smallest part with ``location`` that can be: an SLO, else a key's value."""
    for end in range(len(location), 0, -1):
        holder, key = _at(rest, location[: end - 1]), location[end - 1]
        if isinstance(holder, dict) and key in holder:
            del holder[str(key)]
            return location[:end]
        if isinstance(holder, list) and location[end - 2] == "slo":
            holder[int(key)] = None  # the others keep their numbers
            return location[:end]
    return location


def _before_leaving_out(rest: dict[str, Any], location: Location) -> Location:
    """The place in the spec of what a rule found at ``location`` in the rest."""
    above = location[:1] if location[:1] == ("slo",) else location[:3]
    number = location[len(above) : len(above) + 1]
    if above[-1:] != ("slo",) or not number:
        return location
    left = [at for at, slo in enumerate(_at(rest, above)) if slo is not None]
    return (*above, left[int(number[0])])


def _at(data: Any, location: Location) -> Any:
    for key in location:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _completed(data: dict[str, Any]) -> dict[str, Any]:
    """Only the SLOs that are left, and placeholders for required fields that are not."""
    models = data.get("models") or {"": {}}
    models = {label: {"name": label or "model", **model} for label, model in models.items()}
    streams = data.get("streams") or {"": {}}
    first = next(iter(models))
    streams = {name: _with_slos_left({"model": first, **s}) for name, s in streams.items()}
    whole = {"repository": ".", **data, "models": models, "streams": streams}
    return _with_slos_left(whole)


def _with_slos_left(part: dict[str, Any]) -> dict[str, Any]:
    if "slo" not in part:
        return part
    return {**part, "slo": [slo for slo in part["slo"] if slo is not None]}


_MARK = "  # default"


@dataclass(frozen=True)
class _Shown:
    """A value as it is written; ``default``: the user did not set it."""

    text: str
    default: bool


def effective_yaml(spec: Spec) -> str:
    """The spec as YAML with every field; those the user did not set end in ``# default``.

    Loading the text gives an equal spec, where ``server.environment`` gives no values: they are
    hidden.
    """
    return "\n".join(_lines(spec.as_written(_fields(spec, default=False)), 0)) + "\n"


def _fields(model: BaseModel, *, default: bool) -> dict[str, Any]:
    plain = model.model_dump(mode="json", by_alias=True)
    fields = {}
    for name, info in type(model).model_fields.items():
        key = info.alias or name
        if key not in plain:
            continue  # written only where it is given
        is_default = default or name not in model.model_fields_set
        fields[key] = _shown(key, getattr(model, name), plain[key], default=is_default)
    return fields


def _shown(key: str, value: Any, plain: Any, *, default: bool) -> Any:
    if isinstance(value, BaseModel):
        return _fields(value, default=default)
    if isinstance(value, dict) and (value or key == "space"):
        return {name: _shown(name, v, plain[name], default=default) for name, v in value.items()}
    return _Shown(_switches(key, dump_scalar(plain)), default)


def _lines(fields: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in fields.items():
        start = f"{'  ' * depth}{dump_scalar(key)}:"
        if isinstance(value, _Shown):
            yield f"{start} {value.text}{_MARK if value.default else ''}"
        elif not value:
            yield f"{start} {{}}{_MARK}"
        else:
            yield start + (_MARK if _is_default(value) else "")
            yield from _lines(value, depth + 1)


def _is_default(value: Any) -> bool:
    if isinstance(value, _Shown):
        return value.default
    return all(map(_is_default, value.values()))


def _switches(key: str, text: str) -> str:
    """Choices between off and on read better in the words of the spec."""
    if key != "choice":
        return text
    words = {"true": "on", "false": "off"}
    items = text.removeprefix("[").removesuffix("]").split(", ")
    return f"[{', '.join(words.get(item, item) for item in items)}]"
