"""The place of each field of a config.pbtxt in its text.

Tokens come from protobuf's own tokenizer, so that comments, strings and separators are what
protobuf takes them for. The tree has no schema: it is built from text that parses.
Positions are offsets into the text; ``end`` is the first one after.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tuner.modelconfig.encoding import as_python_reads, moved_starts

_CLOSING = {"{": "}", "<": ">"}
_QUOTES = ("'", '"')
_PATH_STEP = re.compile(r"(\w+)(?:\[([^\]]*)\])?")


@dataclass(frozen=True)
class Token:
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Scalar:
    """A number, name or string; a string may be several quoted pieces."""

    start: int
    end: int


@dataclass(frozen=True)
class Message:
    """``{ ... }``; the file is one without brackets."""

    start: int
    body_start: int
    body_end: int
    end: int
    fields: tuple[Field, ...]

    def named(self, name: str) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.name == name)


@dataclass(frozen=True)
class Items:
    """``[ ..., ... ]``; ``commas`` are the positions between the items."""

    start: int
    end: int
    items: tuple[Scalar | Message, ...]
    commas: tuple[int, ...]


@dataclass(frozen=True)
class Field:
    """One occurrence of a field; ``end`` is after its separator (``,`` or ``;``) if it has one."""

    name: str
    start: int
    value: Scalar | Message | Items
    end: int

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages in it, of either syntax."""
        items = self.value.items if isinstance(self.value, Items) else (self.value,)
        return tuple(item for item in items if isinstance(item, Message))


@dataclass(frozen=True)
class Element:
    """A message in a field that may hold several: that field, and its place in it."""

    field: Field
    message: Message
    item: int


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of ``text`` without its comments."""
    from google.protobuf.text_format import Tokenizer

    lines = as_python_reads(text).split("\n")  # as text_format.Parse splits them
    starts, moved = [0], moved_starts(text)
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    tokenizer: Any = Tokenizer(iter(lines))
    while not tokenizer.AtEnd():
        here = tokenizer.ParseError("")  # the public way to ask for the position
        start = starts[here.GetLine() - 1] + here.GetColumn() - 1
        end = start + len(tokenizer.token)
        start = moved.get(start, start)
        yield Token(text[start:end], start)
        tokenizer.NextToken()


def build(text: str) -> Message:
    """The tree of a text that `tuner.modelconfig.message.parse` accepts."""
    return _Builder(list(tokenize(text))).file(len(text))


def elements(parent: Message, name: str) -> list[Element]:
    """All messages in fields ``name``, in order, however they are written."""
    return [
        Element(field, message, item)
        for field in parent.named(name)
        for item, message in enumerate(field.messages)
    ]


class _Builder:
    """Recursive descent over the tokens; raises IndexError on text that does not parse."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def file(self, length: int) -> Message:
        fields = []
        while self._next < len(self._tokens):
            fields.append(self._field())
        return Message(0, 0, length, length, tuple(fields))

    def _field(self) -> Field:
        name = self._take()
        if self._peek() == ":":
            self._take()
        value = self._items() if self._peek() == "[" else self._value()
        end = self._take().end if self._peek() in (",", ";") else value.end
        return Field(name.text, name.start, value, end)

    def _items(self) -> Items:
        start = self._take().start
        items: list[Scalar | Message] = []
        commas = []
        while self._peek() != "]":
            if self._peek() == ",":
                commas.append(self._take().start)
            items.append(self._value())
        return Items(start, self._take().end, tuple(items), tuple(commas))

    def _value(self) -> Scalar | Message:
        first = self._take()
        if first.text in _CLOSING:
            return self._message(first)
        end = first.end
        if first.text.startswith(_QUOTES):
            while self._peek().startswith(_QUOTES):
                end = self._take().end
        return Scalar(first.start, end)

    def _message(self, opening: Token) -> Message:
        fields = []
        while self._peek() != _CLOSING[opening.text]:
            fields.append(self._field())
        closing = self._take()
        return Message(opening.start, opening.end, closing.start, closing.end, tuple(fields))

    def _peek(self) -> str:
        return self._tokens[self._next].text if self._next < len(self._tokens) else ""

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token


def locate(text: str, path: str) -> tuple[int, int]:
    """Line and column, from 1, of the field that a path names, or of the nearest around it.

    ``[n]`` in the path counts elements, or is a map's key. (1, 1) when nothing of the path is in
    the text.
    """
    parent, position = build(text), 0
    for name, index in _PATH_STEP.findall(path):
        fields = parent.named(name)
        if not fields:
            break
        inner = elements(parent, name)
        keys = [_key(text, element.message) for element in inner]
        if index in keys:
            chosen = keys.index(index)
        else:
            chosen = int(index) if index.isdecimal() and int(index) < len(inner) else 0
        if not inner:
            position = fields[0].start
            break
        position = inner[chosen].message.start if index else fields[0].start
        parent = inner[chosen].message
    line = text.count("\n", 0, position) + 1
    return line, position - text.rfind("\n", 0, position)


def _key(text: str, entry: Message) -> str | None:
    """The key of an entry of a map, as text."""
    keys = entry.named("key")
    return text[keys[0].value.start : keys[0].value.end].strip("\"'") if keys else None


def field_place(source: str, text: str, path: str) -> str:
    """``source:line:column: path``, for messages about a field."""
    line, column = locate(text, path)
    return f"{source}:{line}:{column}: {path}"
