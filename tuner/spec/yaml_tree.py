"""YAML text as plain data, with the line and column of everything in it.

YAML 1.1 as PyYAML reads it, without its surprises: ``20:00`` and ``2024-01-01`` are text, ``1e5``
is a number, ``010`` is text. ``off`` and ``on`` stay booleans: specs use them so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from tuner.spec.mistakes import Finding, Location


@dataclass(frozen=True)
class Position:
    """Counts from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class _Place:
    key: Position
    value: Position


class BadYamlError(Exception):
    """The text is no YAML at all."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


@dataclass
class Tree:
    """The data of a YAML document, where each part of it stands, and what YAML itself forbids."""

    data: Any = None
    places: dict[Location, _Place] = field(default_factory=dict)
    problems: list[tuple[Position, Location, str]] = field(default_factory=list)

    def position(self, finding: Finding) -> Position:
        """Of the finding's value or key; what is missing is sought at the key it belongs to."""
        place = self.places.get(finding.location)
        if place is not None:
            return place.key if finding.key else place.value
        for end in range(len(finding.location) - 1, 0, -1):
            if finding.location[:end] in self.places:
                return self.places[finding.location[:end]].key
        return Position(1, 1)


def read_yaml(text: str) -> Tree:
    """Reads one document.

    Raises:
        BadYamlError: The text is no YAML.
    """
    tree = Tree()
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is not None:
            tree.data = _Reader(loader, tree).read(root, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYamlError(_at(mark), _problem(error)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadYamlError(Position(line, 1), "a character that YAML does not allow") from error
    return tree


_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_NO_TAGS = "tags (!...) are not used in a spec"


class _Loader(yaml.SafeLoader):
    """SafeLoader with its own idea of which plain words are not text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader` would not read as text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_RESOLVERS = (
    ("bool", r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF", "yYnNoO"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("float", r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
)  # fmt: skip
for _tag, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
        )


class _Reader:
    """Turns nodes into data, noting places and mistakes in the tree."""

    def __init__(self, loader: _Loader, tree: Tree) -> None:
        self._loader = loader
        self._tree = tree
        self._open: list[yaml.Node] = []  # guards against a node that holds itself

    def read(self, node: yaml.Node, location: Location, key: yaml.Node | None = None) -> Any:
        place = _Place(_at((key or node).start_mark), _at(node.start_mark))
        self._tree.places[location] = place
        if isinstance(node, yaml.ScalarNode):
            return self._loader.construct_object(node)
        if node in self._open:
            self._note(node, location, "an alias stands inside its own anchor")
            return None
        if node.tag not in _COLLECTIONS:
            self._note(node, location, _NO_TAGS)
        self._open.append(node)
        is_mapping = isinstance(node, yaml.MappingNode)
        data = self._mapping(node, location) if is_mapping else self._sequence(node, location)
        self._open.pop()
        return data

    def _sequence(self, node: yaml.Node, location: Location) -> list[Any]:
        return [self.read(item, (*location, i)) for i, item in enumerate(node.value)]

    def _mapping(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._note(key, location, "a key must be one word")
            elif key.value in data:
                first = self._tree.places[(*location, key.value)].key.line
                again = f"is given twice, first in line {first}"
                self._note(key, (*location, key.value), again)
            else:
                data[key.value] = self.read(value, (*location, key.value), key)
        return data

    def _note(self, node: yaml.Node, location: Location, message: str) -> None:
        self._tree.problems.append((_at(node.start_mark), location, message))


def dump_scalar(value: Any) -> str:
    """A scalar or a list of scalars on one line, so that `read_yaml` gives it back."""
    # PyYAML writes these as they are, and reads them as line breaks.
    breaks = any(c in str(value) for c in "\x85\u2028\u2029")
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=10_000, allow_unicode=not breaks
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _at(mark: yaml.Mark | None) -> Position:
    return Position(1, 1) if mark is None else Position(mark.line + 1, mark.column + 1)


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or error.context or "not YAML")
    if "mapping values are not allowed" in problem:
        return "a ': ' too many in this line, or wrong indentation; quote text that has a ': '"
    if "found character '\\t'" in problem:
        return "a tab indents this line; use spaces"
    if "could not determine a constructor" in problem:
        return _NO_TAGS
    context = f" ({error.context})" if error.context and error.problem else ""
    return f"not YAML: {problem}{context}"
