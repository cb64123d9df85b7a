"""config.pbtxt as Triton's own `ModelConfig` message: parse, send to a server, read back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tuner.errors import SpecError
from tuner.modelconfig.encoding import as_python_reads, foreign
from tuner.modelconfig.path_steps import is_map
from tuner.modelconfig.schema import ModelConfig, message_types, new_config
from tuner.modelconfig.values import is_list, type_name
from tuner.spec.mistakes import did_you_mean, meant_or_listed

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_UNKNOWN_FIELD = re.compile(r'Message type "(?P<type>[\w.]+)" has no field named "(?P<name>[^"]*)"')
_UNKNOWN_ENUM = re.compile(r'Enum type "(?P<type>[\w.]+)" has no value named (?P<name>\w+)')
_HINTS = {
    'Expected "}"': "a { is not closed",
    'Expected ">"': "a < is not closed",
    'Expected ","': "values in [ ] are separated by commas",
    "Expected string but found": "put text in quotes",
    "missing ending quote": "close the string on the line it begins",
    "should not have multiple": "give the field once",
    "member of oneof": "these fields exclude each other: keep one",
    "codec can't decode": "a config is sent to Triton as JSON, which holds UTF-8 only: write the "
    "character itself",
}
#: Fields that releases after the schema of tritonclient 2.51 have: in what, and their numbers.
_NEWER = {"model_metrics": ("ModelConfig", 26), "max_inflight_requests": ("ModelEnsembling", 2)}
#: Data types by the names that they have in requests.
_RENAMED = {"TYPE_BYTES": "text is TYPE_STRING in a config; BYTES is its name in requests"}
#: What a script is to replace, by the marks around it.
PLACEHOLDERS = r"\$\{\w+\}|\{\{.*?\}\}|<[A-Z][A-Z_]+>|%\w+%|@\w+@|__[A-Z_]+__"
#: What an unparsable text most likely is: a template, or a merge conflict.
_PLACEHOLDER = re.compile(rf"{PLACEHOLDERS}|\$\{{|\{{\{{|\{{%|\$[A-Za-z_]|%%\w|%[sd]\b|TYPE_#")
_TEMPLATE = "this is a template: fill in its placeholders first"
#: What stands where a value is wanted, by the parser's words.
_VALUES = {
    "Couldn't parse integer": "write a whole number, without quotes",
    'Expected "true" or "false"': "write true or false, without quotes",
}
_LONGEST_NAME = 100  # of a field: a search through a long text would take seconds
_LISTED = "-0123456789, \t\r\n[]"  # of a list of numbers
_CONFLICT = re.compile(r"(<{7}|={7}|>{7}|\|{7})( |$)")
_POSITION = re.compile(r"^\d+(:\d+)? : ")
_NOT_UTF8 = re.compile(r".*codec can't decode bytes? (0x\w+|in).*", re.DOTALL)
_SOURCE_LINE = re.compile(r"^'.*': (?=[A-Z])", re.DOTALL)


@dataclass(frozen=True)
class ParseMistake:
    """Why a text is not a config. ``line`` and ``column`` count from 1.

    ``newer`` is the field if Triton may know it, and only the installed tritonclient does not.
    """

    line: int
    column: int
    message: str
    hint: str
    newer: str = ""


def parse(text: str, source: str = "config.pbtxt") -> ModelConfig:
    """The message of a config.pbtxt; the empty text is the empty config.

    Raises:
        SpecError: The text is no config; the message begins with ``source:line:column``.
    """
    result = try_parse(text)
    if isinstance(result, ParseMistake):
        message = f"{source}:{result.line}:{result.column}: {result.message}"
        raise SpecError(message, result.hint)
    return result


def try_parse(text: str) -> ModelConfig | ParseMistake:
    """Like `parse`, with the mistake as a value, for callers that collect mistakes."""
    from google.protobuf import text_format

    config = new_config()
    try:
        text_format.Parse(as_python_reads(text), config)
    except text_format.ParseError as error:
        return _mistake(error, text, config.DESCRIPTOR)
    if strange := foreign(text):
        offset, reason = strange
        column = offset - text.rfind("\n", 0, offset)
        return ParseMistake(text.count("\n", 0, offset) + 1, column, reason, "write it plainly")
    return config


def to_load_json(message: ModelConfig) -> str:
    """The JSON that ``load_model(config=...)`` takes: proto field names, enum names.

    64-bit integers are strings in it, as proto3's JSON mapping says; Triton reads both.
    """
    from google.protobuf import json_format

    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)


def to_text(message: ModelConfig) -> str:
    """The message as text of a config.pbtxt, every field on its line."""
    from google.protobuf import text_format

    return str(text_format.MessageToString(message))


def unknown_fields(message: Any) -> list[str]:
    """What a server says that the installed tritonclient does not know, and JSON would lose."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    where, names = message.DESCRIPTOR.name, {place: name for name, place in _NEWER.items()}
    fields = UnknownFieldSet(message)
    numbers = [fields[index].field_number for index in range(len(fields))]
    unknown = [names.get((where, number), f"{where}'s field {number}") for number in numbers]
    for field, value in message.ListFields():
        if field.message_type is not None and not is_map(field):
            for inner in value if is_list(field) else [value]:
                unknown += unknown_fields(inner)
    return [*dict.fromkeys(unknown)]


def newer_client() -> str:
    """How to get a newer tritonclient without breaking an installation with the extra local."""
    if find_spec("pytriton") is None:
        return "update tritonclient: pip install -U 'tritonclient[grpc]'"
    return (
        "leave this installation as it is, since its extra local needs its tritonclient; make "
        "another virtual environment with pip install -e '.[run]', and take a server that knows "
        "the field (docker, remote, server.binary)"
    )


def _mistake(error: Any, source: str, root: Descriptor) -> ParseMistake:
    text = _SOURCE_LINE.sub("", _POSITION.sub("", str(error))).rstrip(".")
    line, column = error.GetLine() or 1, error.GetColumn() or 1
    hint, newer = hint_at(source, line, column), ""
    hint = hint or next((hint for words, hint in _HINTS.items() if words in text), "")
    hint = hint or _hint_for_value(text)
    if _NOT_UTF8.match(text):
        text = "the escapes in this string are not valid UTF-8"
    elif unknown := _UNKNOWN_FIELD.search(text):
        name = unknown["name"]
        where = unknown["type"].removeprefix("inference.")
        text = f"there is no field {name!r} in {where}"
        newer = name if _NEWER.get(name, ("", 0))[0] == where else ""
        types = (d for _, d in message_types(root) if d.full_name == unknown["type"])
        inside = next(types, root)
        hint = _hint_for_unknown(name, inside, root)
        if name.isdecimal():
            hint = _hint_for_number(source, line, column, inside)
    elif unknown := _UNKNOWN_ENUM.search(text):
        names = _enum_names(root, unknown["type"])
        near = meant_or_listed(unknown["name"], names, "known are")
        hint = hint if hint == _TEMPLATE else _RENAMED.get(unknown["name"], near)
    return ParseMistake(line, column, text, hint, newer)


def _hint_for_value(text: str) -> str:
    """A name in capitals, where a number or a truth value is wanted, is one to be replaced."""
    for words, hint in _VALUES.items():
        if words in text:
            return _TEMPLATE if re.search(r": [A-Z][A-Z0-9_]+$", text) else hint
    return ""


def _hint_for_unknown(name: str, descriptor: Descriptor | None, root: Descriptor) -> str:
    if descriptor is not None and descriptor.GetOptions().map_entry:
        return "an entry of a map is written { key: ... value { ... } }, one block for each key"
    if name in _NEWER:
        return f"{name} is newer than the installed tritonclient: {newer_client()}"
    close = did_you_mean(name, descriptor.fields_by_name if descriptor else ())
    if close:
        return close
    elsewhere = [f"{prefix}{name}" for prefix, d in message_types(root) if name in d.fields_by_name]
    if elsewhere == [name]:
        return f"{name} belongs at the top level, outside any other block"
    if elsewhere:
        return f"{name} belongs at {' or '.join(elsewhere[:3])}"
    return "remove it, or install a tritonclient that is as new as the server"


def _hint_for_number(text: str, line: int, column: int, inside: Descriptor) -> str:
    """Numbers stand where a field is wanted: in no list, or behind a list's one value."""
    at = sum(len(above) + 1 for above in text.split("\n")[: line - 1]) + column - 1
    begin, end = len(text[:at].rstrip(_LISTED)), len(text) - len(text[at:].lstrip(_LISTED))
    written = f"[ {', '.join(re.findall(r'-?[0-9]+', text[begin:end]))} ]"
    lists = [f.name for f in inside.fields if is_list(f) and "whole number" in type_name(f)]
    advice = " or ".join(f"{name}: {written}" for name in lists)
    return f"a field's name is missing before it{f': {advice}' if advice else ''}"


def _enum_names(root: Descriptor, full_name: str) -> list[str]:
    fields = (field for _, d in message_types(root) for field in d.fields)
    types = (field.enum_type for field in fields if field.enum_type is not None)
    return next(([v.name for v in t.values] for t in types if t.full_name == full_name), [])


def hint_at(text: str, line: int, column: int) -> str:
    """Advice for a mistake at ``line`` and ``column`` (from 1), empty when nothing is known."""
    lines = text.split("\n")
    if not 0 < line <= len(lines):
        return ""
    full = lines[line - 1]
    here, before = full[column - 1 :], "\n".join([*lines[: line - 1], full[: column - 1]])
    if _CONFLICT.match(full):
        return "a merge conflict is left in the file: choose one side"
    if _PLACEHOLDER.search(full):
        return _TEMPLATE
    if here.startswith("\ufeff"):
        return "save the file without a byte order mark (BOM)"
    if here.startswith(("//", "/*")):
        return "comments begin with #"
    if here.startswith("="):
        return "write : instead of ="
    return _hint_before(here, before)


def _hint_before(here: str, before: str) -> str:
    bare = re.sub(r"#[^\n]*(?=\n|$)", "", before)
    previous = bare.rstrip(" \t\r\n")
    above = before.rstrip().rpartition("\n")[2].partition("#")[2]
    if "]" in above and previous.endswith(("[", ",")):
        return "# begins a comment, which hides the ] of its line: fill in a template first"
    if here.startswith("]") and previous.endswith(","):
        return "remove the comma before ]"
    if (closed := previous.removesuffix("[").rstrip()).endswith("]") and closed != previous:
        return _hint_after_closed("[" + here, closed)
    if here.startswith("{") and previous.endswith("}"):
        return _hint_after_closed(here, previous)
    field = previous[:-1].rstrip()[-_LONGEST_NAME:] if previous.endswith(":") else ""
    name = re.search(r"\w+$", field)
    if name and "\n" in bare[len(previous) :] and not here.startswith(("{", "[")):
        return f"{name[0]} has no value: its line ends after the colon"
    return ""


def _hint_after_closed(here: str, previous: str) -> str:
    """A second list or message, without a name, behind one that is closed."""
    depth, at = 1, len(previous) - 1
    while depth and at:
        at -= 1
        depth += (previous[at] in "]}") - (previous[at] in "[{")
    named = re.search(r"(\w+)\s*:?$", previous[:at].rstrip()[-_LONGEST_NAME:])
    name, lists = named[1] if named else "", previous[at:] + here.partition("]")[0]
    if not name:
        return ""
    if here.startswith("{"):
        return f"write {name} before this {{, or one list: {name} [ {{ }}, {{ }} ]"
    if "{" in lists:
        return f"{name} is one list: join them"
    batch = ", without the batch" if name == "dims" else ""
    items = ", ".join(re.findall(r"[^\s,\[\]]+", lists))
    return f"{name} is one list: [ {items} ]{batch}"
