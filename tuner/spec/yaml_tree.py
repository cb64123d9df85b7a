"""YAML text as plain data, with the line and column of each key and value.

The text is YAML 1.1 as PyYAML reads it, except that ``20:00``, ``2024-01-01`` and ``010`` are text,
and ``1e5`` is a number. ``off`` and ``on`` are booleans, as specs need them.

The size of text and data is limited: some hundred bytes with anchors can expand to more data than
fits in a machine's memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tuner.spec.mistakes import Finding, Location, Mistake, dotted

#: Longest text that is read, in bytes: some thousand lines.
LARGEST_BYTES = 256 * 1024
#: Most values and keys, counted again wherever an alias repeats them.
MOST_NODES = 10_000
#: Most lists and mappings inside each other.
DEEPEST = 64
_TOO_DEEP = f"more than {DEEPEST} levels deep"
_TOO_LONG = f"longer than {LARGEST_BYTES >> 10} KiB"


@dataclass(frozen=True)
class Position:
    """A position in a text; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class _Place:
    key: Position
    value: Position


class BadYamlError(Exception):
    """The text is not YAML."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


@dataclass
class Tree:
    """The data of a YAML document, the position of each part, and mistakes in the YAML."""

    data: Any = None
    places: dict[Location, _Place] = field(default_factory=dict)
    problems: list[tuple[Position, Location, str]] = field(default_factory=list)

    def position(self, finding: Finding) -> Position:
        """The position of the finding's value or key, or of the key that lacks something."""
        place = self.places.get(finding.location)
        if place is not None:
            return place.key if finding.key else place.value
        for end in range(len(finding.location) - 1, 0, -1):
            if finding.location[:end] in self.places:
                return self.places[finding.location[:end]].key
        return Position(1, 1)


def mistake_at(
    path: Path, at: Position, message: str, where: Location = (), described: str = ""
) -> Mistake:
    """A mistake in a file, with its place in the text and in the data."""
    return Mistake(str(path), at.line, at.column, dotted(where), message, described)


#: What is wrong with a manifest of Kubernetes where another YAML is expected, and what to do.
MANIFEST = "this is a manifest of Kubernetes, which may hold the YAML as text"
MANIFEST_HINT = "save that text, of a ConfigMap what is below data, as a file, and give this file"


def is_manifest(data: Mapping[str, Any]) -> bool:
    """Whether a document is a manifest of Kubernetes, such as a ConfigMap."""
    return {"apiVersion", "kind"} <= data.keys()


def read_yaml(text: str) -> Tree:
    """Reads one document.

    Raises:
        BadYamlError: The text is not YAML.
    """
    tree = Tree()
    if len(text.encode("utf-8", "surrogatepass")) > LARGEST_BYTES:
        raise BadYamlError(Position(1, 1), _TOO_LONG)
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is not None:
            tree.data = _Reader(loader, tree).read(root, ())
    except yaml.MarkedYAMLError as error:
        key = error.context_mark if error.context == "while scanning a simple key" else None
        at = _at(key or error.problem_mark or error.context_mark)
        wrong = "".join(text.split("\n")[at.line - 1 : at.line])
        raise BadYamlError(at, _problem(error, wrong)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadYamlError(Position(line, 1), "a character that YAML does not allow") from error
    return tree


def read_yaml_file(path: Path) -> tuple[bytes, Tree]:
    """The bytes of a UTF-8 file, and the document in it.

    Raises:
        BadYamlError: It cannot be read, is too long, or is not UTF-8 or not YAML.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)  # what never ends is no spec
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadYamlError(Position(1, 1), f"cannot be read: {reason}") from error
    if len(content) > LARGEST_BYTES:
        raise BadYamlError(Position(1, 1), _TOO_LONG)
    try:
        return content, read_yaml(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadYamlError(Position(line, 1), "not UTF-8 text") from error


_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_SCALARS = (*_NUMBERS, *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "bool", "null")))
_LONGEST_NUMBER = 40
#: NUL, and halves of characters: `"\0"` and `"\ud800"` are YAML, and break the code that uses them.
_UNUSABLE = re.compile(r"[\0\ud800-\udfff]")
_NO_TAGS = "tags (!...) are not used in a spec"


class _RefusedError(yaml.MarkedYAMLError):
    """The text is YAML, but of a kind or size that is not accepted."""


class _Loader(yaml.SafeLoader):
    """A SafeLoader with other rules for plain words that are not text, and with limits of size."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._depth = 0
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Counts every node, and everything in one that an alias repeats."""
        before, mark = self._nodes, self.peek_event().start_mark  # type: ignore[no-untyped-call]
        self._depth += 1
        if self._depth > DEEPEST:
            raise _refused(_TOO_DEEP, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            self._nodes += self._sizes.get(node, 1)
            self._sizes[node] = self._nodes - before
        if self._nodes > MOST_NODES:
            raise _refused(f"more than {MOST_NODES} keys and values", mark)
        return node


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes texts which `_Loader` would not read as text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """A text as YAML, in double quotes if it has line breaks, which these escape."""
    style = '"' if re.search("[\n\r\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
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
        if len(location) > DEEPEST:  # an alias inside what an alias repeats
            raise _refused(_TOO_DEEP, node.start_mark)
        place = _Place(_at((key or node).start_mark), _at(node.start_mark))
        self._tree.places[location] = place
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node in self._open:
            self._note(node, location, "an alias is inside its own anchor")
            return None
        if node.tag not in _COLLECTIONS:
            self._note(node, location, _NO_TAGS)
        self._open.append(node)
        if isinstance(node, yaml.MappingNode):
            data: Any = self._mapping(node, location)
        else:
            data = [self.read(item, (*location, i)) for i, item in enumerate(node.value)]
        self._open.pop()
        return data

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        """A scalar as Python data; refuses values that fit in no field."""
        if node.tag not in _SCALARS:
            raise _refused(_NO_TAGS, node.start_mark)
        if _UNUSABLE.search(node.value):
            raise _refused("a character that no name or path can have", node.start_mark)
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise _refused(f"a number of {len(node.value)} characters", node.start_mark)
        try:
            value = self._loader.construct_object(node)
        except (ValueError, LookupError) as error:  # !!int before what is no number
            raise _refused(_NO_TAGS, node.start_mark) from error
        if isinstance(value, int) and abs(value) >= 1 << 64:
            raise _refused(f"{value} does not fit in a field of 64 bits", node.start_mark)
        return value

    def _mapping(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or _UNUSABLE.search(key.value):
                text = "a key must be one word"
                if isinstance(key, yaml.MappingNode):
                    text += "; where {{ }} is of a template, fill that in first"
                self._note(key, location, text)
            elif key.value in data:
                first = self._tree.places[(*location, key.value)].key.line
                again = f"is given twice, first on line {first}"
                self._note(key, (*location, key.value), again)
            else:
                data[key.value] = self.read(value, (*location, key.value), key)
        return data

    def _note(self, node: yaml.Node, location: Location, message: str) -> None:
        self._tree.problems.append((_at(node.start_mark), location, message))


def dump_scalar(value: Any) -> str:
    """A scalar or a list of scalars as YAML on one line, which `read_yaml` reads back."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=10_000, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def dump_item(value: Any) -> str:
    """A scalar as an item of a list in YAML, on one line."""
    return dump_scalar([value])[1:-1]


def _at(mark: yaml.Mark | None) -> Position:
    return Position(1, 1) if mark is None else Position(mark.line + 1, mark.column + 1)


def _refused(problem: str, mark: yaml.Mark) -> _RefusedError:
    return _RefusedError(problem=problem, problem_mark=mark)


#: A key whose value begins without the space that YAML wants after the colon.
_WITHOUT_SPACE = re.compile(r"[ -]*[\w.]+:[^\s:/]")


def _problem(error: yaml.MarkedYAMLError, line: str) -> str:
    """What is wrong in a line."""
    problem = str(error.problem or error.context or "not YAML")
    if isinstance(error, _RefusedError):
        return problem
    if "mapping values are not allowed" in problem:
        return "one ': ' too many in this line, or wrong indentation; quote text that has a ': '"
    if _WITHOUT_SPACE.match(line):
        return "a space is missing after the ':' of a key in this line"
    if "found character '\\t'" in problem:
        return "a tab indents this line; use spaces"
    if "undefined alias" in problem:  # it may be a password
        return "an alias (*name) without its anchor; quote text that begins with *"
    if "could not determine a constructor" in problem:
        return _NO_TAGS
    context = f" ({error.context})" if error.context and error.problem else ""
    return f"not YAML: {problem}{context}"
