"""The text of a config.pbtxt: from bytes and back, and as Triton's parser reads it.

Triton does not look at the bytes of comments (tritonserver 2.51 loads a Latin-1 one). Anything
else is UTF-8: a config is sent to Triton as JSON, and shown by it as JSON.

Python's parser of protobuf's text format differs from C++'s, which Triton uses (tried with
tritonserver 2.51 (24.10) and protoc). Python accepts any Unicode white space between tokens, and
plus signs and underscores in numbers; C++ does not. C++ accepts space between a minus sign and its
number, and booleans and enums in octal (01); Python does not.
"""

from __future__ import annotations

import re

from tuner.errors import SpecError

_PART = re.compile(
    r"""(?<=[:\[,])(?P<gap>(?:[ \t\r\n\f\v]|\#[^\n]*\n)*)(?P<zeros>0+)(?=[0-7](?![0-9A-Za-z_.+-]))
    |(?P<skipped>\#[^\n]*|"[^"\\\n]*(?:\\.[^"\\\n]*)*"
        |'[^'\\\n]*(?:\\.[^'\\\n]*)*'|[A-Za-z_][0-9A-Za-z_+-]*)
    |(?P<apart>-[ \t\r\n\f\v]+(?=[0-9.]))
    |(?P<number>[0-9.+-][0-9A-Za-z_.+-]*)
    |(?P<space>[^\S \t\r\n\f\v]+)""",
    re.VERBOSE,
)
#: What must be somewhere in a text for the search to be worth its while.
_STRANGE = re.compile(r"\+|[0-9]_|[^\S \t\r\n\f\v]")
_MOVING = re.compile(r"-[ \t\r\n\f\v]|\b0[0-7]")

_BEYOND_ASCII = re.compile("[^\\x00-\\x7f]")
UTF_8, LATIN_1 = ENCODINGS = ("utf-8", "latin-1")


def decode(content: bytes) -> tuple[str, str]:
    """The text, and its encoding: UTF-8, or Latin-1 where comments alone are not ASCII.

    Raises:
        UnicodeDecodeError: It is neither; ``start`` is at the first non-ASCII outside comments.
    """
    try:
        return content.decode(UTF_8), UTF_8
    except UnicodeDecodeError as error:
        text = content.decode(LATIN_1)
        if beyond := _BEYOND_ASCII.search(without_comments(text)):
            start, end = beyond.span()
            raise UnicodeDecodeError(UTF_8, content, start, end, "no comment") from error
        return text, LATIN_1


def encode(text: str, encoding: str) -> bytes:
    """The bytes of a text; `decode` turns them back.

    Raises:
        SpecError: Something else than its comments is not ASCII, and it is not UTF-8.
    """
    if encoding != UTF_8 and not without_comments(text).isascii():
        raise SpecError(
            "the config has comments in Latin-1, and would have other text in UTF-8",
            "save config.pbtxt as UTF-8, then run tune again",
        )
    return text.encode(encoding)


def foreign(text: str) -> tuple[int, str] | None:
    """Offset and reason of the first thing that Python accepts and Triton refuses."""
    for part in _PART.finditer(text) if _STRANGE.search(text) else ():
        number = part["number"]
        if number is not None and (number.startswith("+") or "_" in number):
            return part.start(), f"Triton's parser does not accept numbers such as {number}"
        if part["space"] is not None:
            code = f"U+{ord(part['space'][0]):04X}"
            return part.start(), f"Triton's parser does not accept white space such as {code}"
    return None


def as_python_reads(text: str) -> str:
    """Minus signs moved to their numbers, leading zeros of one digit blank; all else in place."""
    return _PART.sub(_in_python, text) if _MOVING.search(text) else text


def moved_starts(text: str) -> dict[int, int]:
    """Starts of the tokens that `as_python_reads` changes, with their starts in ``text``."""
    starts = {}
    for part in _PART.finditer(text) if _MOVING.search(text) else ():
        if part["apart"] is not None:
            starts[part.end() - 1] = part.start()
        elif part["zeros"] is not None:
            starts[part.end()] = part.start("zeros")
    return starts


def without_comments(text: str) -> str:
    """The text with space in place of comments, so that all else keeps its position."""
    return _PART.sub(_uncomment, text) if "#" in text else text


def _uncomment(part: re.Match[str]) -> str:
    if part["zeros"] is not None:
        return " " * len(part["gap"]) + part["zeros"]
    return " " * len(part[0]) if part[0].startswith("#") else part[0]


def _in_python(part: re.Match[str]) -> str:
    if part["apart"] is not None:
        return part[0][1:] + "-"
    if part["zeros"] is not None:
        return str(part["gap"]) + " " * len(part["zeros"])
    return part[0]
