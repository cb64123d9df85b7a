"""A spec file, read and checked: a valid `Spec`, or every mistake with its line and column.

`effective_yaml` is the way back: a spec with all its defaults written out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.spec.checks import cross_checks
from tuner.spec.forms import long_form, written
from tuner.spec.mistakes import (
    Finding,
    Location,
    Mistake,
    SpecMistakesError,
    lines_and_hint,
    path_meant,
)
from tuner.spec.model import Spec
from tuner.spec.paths import CONFIG_NAME, REPOSITORY
from tuner.spec.server import given_check
from tuner.spec.validation import Validation
from tuner.spec.yaml_tree import (
    MANIFEST,
    MANIFEST_HINT,
    BadYamlError,
    Position,
    Tree,
    dump_scalar,
    is_manifest,
    mistake_at,
    read_yaml,
    read_yaml_file,
)


@dataclass(frozen=True)
class LoadedSpec:
    """A spec with the file it came from.

    Attributes:
        text: The text to store: that of the file, or the effective spec if the spec has values of
            ``server.environment`` (which are left out) or the command line sets a value.
        sha256: Identifies the spec, in hex: the hash of the file's bytes, or of ``text`` and a
            check value of the secret values.
        placed: Gives findings their positions in the file.
        mistakes: Mistakes in the YAML text and on the command line.
        findings: Mistakes in single values; ``spec`` has only the other values.
    """

    spec: Spec
    path: Path
    text: str
    sha256: str
    placed: Callable[[Iterable[Finding]], list[Mistake]]
    mistakes: tuple[Mistake, ...] = ()
    findings: tuple[Finding, ...] = ()

    def mistake(self, location: Location, message: str, *, key: bool = True) -> Mistake:
        """A mistake at a place in the long form, with the position where that is written."""
        (placed,) = self.placed([Finding(location, message, key=key)])
        return placed

    def refuse(self, more: Iterable[Finding] = ()) -> None:
        """Raises if the spec has a mistake, or ``found`` has one.

        Raises:
            SpecMistakesError: A `SpecError` with every mistake.
            EnvironmentNotReadyError: Only the machine or the repository is not ready.
        """
        every = (*self.findings, *more)
        placed = [*self.mistakes, *self.placed(every)]
        mistakes = [*{str(mistake): mistake for mistake in placed}.values()]
        if not mistakes:
            return
        if not self.mistakes and all(finding.environment for finding in every):
            lines = [(str(mistake), mistake.hint) for mistake in mistakes]
            raise EnvironmentNotReadyError(*lines_and_hint(lines, len(lines)))
        raise SpecMistakesError(mistakes)

    def place_of(self, *locations: Location) -> str:
        """``file:line:column`` of the first of these that the spec sets; empty without any."""
        for location in locations:
            value: Any = self.spec
            for part in location:
                value = value[part] if isinstance(value, Mapping) else getattr(value, str(part))
            if value is not None:
                return self.mistake(location, "").place
        return ""

    @contextmanager
    def with_position(self, *locations: Location) -> Iterator[None]:
        """Adds the position in the file to an error about a value of the spec."""
        try:
            yield
        except (SpecError, EnvironmentNotReadyError) as error:
            if place := self.place_of(*locations):
                raise type(error)(f"{place}: {error.message}", error.hint) from error
            raise


def load_spec(path: Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """Reads a spec, and checks it by itself; `tuner.checks` also looks at its models.

    Args, Raises: As `read_spec`, and SpecMistakesError with every mistake of the values too.
    """
    loaded = read_spec(path, overrides)
    loaded.refuse(cross_checks(loaded.spec))
    return loaded


def read_spec(path: Path, overrides: Sequence[str] = (), draft: str | None = None) -> LoadedSpec:
    """Reads a spec, even with wrong values. Relative paths are relative to its directory.

    Args:
        overrides: Values that the command line sets, each as ``PATH=VALUE`` with a value in YAML.
        draft: The text of a file that is not written yet; None: the file exists.

    Raises:
        SpecMistakesError: The file is no YAML mapping.
    """
    if draft is None:
        _refuse_no_spec(path)
    try:
        if draft is None:
            content, tree = read_yaml_file(path)
        else:
            content, tree = draft.encode(), read_yaml(draft)
    except BadYamlError as error:
        raise SpecMistakesError([mistake_at(path, error.position, error.message)]) from error
    if not isinstance(tree.data, dict):
        kind = "is empty" if tree.data is None else "is not a mapping of keys to values"
        advice = "tune init MODEL drafts one"
        raise SpecMistakesError([mistake_at(path, Position(1, 1), f"the spec {kind}; {advice}")])
    _refuse_other(path, tree)
    mistakes = [mistake_at(path, at, message, where) for at, where, message in tree.problems]
    given: dict[Location, str] = {}
    for override in overrides:
        try:
            given[_override(tree.data, override)] = override
        except SpecMistakesError as error:
            mistakes += error.mistakes
    mistakes += [
        mistake_at(path, tree.position(Finding(at, "")), _NO_VARIABLES, at)
        for at in _variables(tree.data)
    ]
    validation = Validation({"directory": path.parent.absolute()})
    spec = validation.model(Spec, long_form(tree.data))

    def placed(findings: Iterable[Finding]) -> list[Mistake]:
        return _placed(path, tree, given, findings)

    text = content.decode("utf-8-sig")
    if not (mistakes or validation.findings):
        check = given_check(spec.server.environment)
        if check or overrides:
            text = effective_yaml(spec)
            content = (f"{text}# environment {check}\n" if check else text).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    findings = tuple(validation.findings)
    return LoadedSpec(spec, path, text, sha256, placed, tuple(mistakes), findings)


_VARIABLE = re.compile(r"\$\{\w+(:?[-?+=][^}]*)?\}")
_NO_VARIABLES = (
    "a spec has no variables (${...}): write the value, or give it with --set PATH=VALUE"
)


def _variables(data: Any, at: Location = ()) -> Iterator[Location]:
    """The texts with a variable of a shell, which nothing replaces."""
    if isinstance(data, str) and _VARIABLE.search(data):
        yield at
    items = enumerate(data) if isinstance(data, list) else ()
    for key, value in data.items() if isinstance(data, dict) else items:
        yield from _variables(value, (*at, key))


def _placed(
    path: Path, tree: Tree, given: Mapping[Location, str], findings: Iterable[Finding]
) -> list[Mistake]:
    """Each finding with its position, without those about a key that an unknown key replaces."""
    in_file = [replace(f, location=written(f.location, tree.data)) for f in findings]
    meant = {(*finding.location[:-1], finding.meant) for finding in in_file if finding.meant}
    mistakes = []
    for finding in dict.fromkeys(in_file):
        if finding.absent and finding.location in meant:
            continue
        if finding.location:
            file, position = _where(path, tree, given, finding)
            where, about = finding.location, finding.described
            mistake = mistake_at(file, position, finding.message, where, about)
        else:
            mistake = _elsewhere(finding)
        mistakes.append(replace(mistake, hint=finding.hint))
    return mistakes


def _elsewhere(finding: Finding) -> Mistake:
    """A finding with its place in another file, or without one, as a mistake."""
    file, *position = finding.at.rsplit(":", 2)
    if len(position) == 2 and all(number.isdecimal() for number in position):
        line, column = map(int, position)
        return Mistake(file, line, column, "", finding.message)
    return Mistake(finding.at, 0, 0, "", finding.message)


def _refuse_no_spec(path: Path) -> None:
    if os.access(path / "manifest.json", os.F_OK):
        raise SpecError(
            f"{path} is a run, not a spec", f"see it with: tune report {shlex.quote(str(path))}"
        )
    if path.suffix == ".pbtxt":
        above = path.parent.parent if path.absolute().parent.name == "configs" else path.parent
        named = shlex.quote(above.name if above.parent == REPOSITORY else str(above))
        raise SpecError(f"{path} is a model's config, not a spec", f"tune init {named} drafts one")
    if path.is_dir():
        if not (path / CONFIG_NAME).is_file():
            raise SpecError(f"{path} is a directory, not a spec", "name the spec's file")
        advice = f"tune init {shlex.quote(str(path))} drafts one"
        raise SpecError(f"{path} is the directory of a model, not a spec", advice)
    if not os.path.lexists(path):
        meant = path_meant(path, lambda p: p.suffix in (".yaml", ".yml") and p.is_file())
        is_model = (REPOSITORY / path.name).is_dir()
        advice = f"tune init {shlex.quote(path.name) if is_model else 'MODEL'} drafts one"
        raise SpecError(f"there is no spec {path}", meant or advice)


#: Keys of Model Analyzer's YAML that no spec has.
_OF_MODEL_ANALYZER = ("profile_models", "analysis_models", "model_names")


def _refuse_other(path: Path, tree: Tree) -> None:
    """Refuses a file of another program, whose keys would each be unknown."""
    text = hint = ""
    key = next((key for key in _OF_MODEL_ANALYZER if key in tree.data), "")
    if key:
        text = "this is a YAML of Model Analyzer, no spec"
        hint = f"draft a spec of it: tune init --from-model-analyzer {shlex.quote(str(path))}"
    elif is_manifest(tree.data):
        key, text, hint = "kind", MANIFEST, MANIFEST_HINT
    if key:
        at = tree.position(Finding((key,), "", key=True))
        raise SpecMistakesError([replace(mistake_at(path, at, text, (key,)), hint=hint)])


def _override(data: dict[str, Any], override: str) -> Location:
    """Sets one value, and returns its place. A path in a space is one key, dots included."""
    name = Path(f"--set {override}")
    path, equals, text = override.partition("=")
    if not equals:
        text = "PATH=VALUE is expected, such as budget.trials=3"
        raise SpecMistakesError([mistake_at(name, Position(1, 1), text)])
    parameter, _, form = path.rpartition(".")
    if form in ("int", "choice", "subsets") and "space" in parameter.split("."):
        better = shlex.quote(f"{parameter}={{{form}: {text}}}")
        text = f"set all values of a field together: --set {better}"
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
    texts = [text for at, text in given.items() if at == finding.location[: len(at)]]
    return (Path(f"--set {texts[-1]}"), Position(1, 1)) if texts else (path, tree.position(finding))


_MARK = "  # default"


@dataclass(frozen=True)
class _Text:
    """A value as text; ``default``: the user did not set it."""

    text: str
    default: bool


def effective_yaml(spec: Spec) -> str:
    """The spec as YAML with every field; lines of defaults end in ``# default``.

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
        fields[key] = _text_of(key, getattr(model, name), plain[key], default=is_default)
    return fields


def _text_of(key: str, value: Any, plain: Any, *, default: bool) -> Any:
    if isinstance(value, BaseModel):
        return _fields(value, default=default)
    if isinstance(value, dict) and (value or key == "space"):
        return {name: _text_of(name, v, plain[name], default=default) for name, v in value.items()}
    return _Text(_switches(key, dump_scalar(plain)), default)


def _lines(fields: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in fields.items():
        start = f"{'  ' * depth}{dump_scalar(key)}:"
        if isinstance(value, _Text):
            yield f"{start} {value.text}{_MARK if value.default else ''}"
        elif not value:
            yield f"{start} {{}}{_MARK}"
        else:
            yield start + (_MARK if _is_default(value) else "")
            yield from _lines(value, depth + 1)


def _is_default(value: Any) -> bool:
    if isinstance(value, _Text):
        return value.default
    return all(map(_is_default, value.values()))


def _switches(key: str, text: str) -> str:
    """The values of a choice, with `off` and `on` for booleans, as in specs."""
    if key != "choice":
        return text
    words = {"true": "on", "false": "off"}
    items = text.removeprefix("[").removesuffix("]").split(", ")
    return f"[{', '.join(words.get(item, item) for item in items)}]"
