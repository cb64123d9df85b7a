"""Where Python's reader of protobuf's text format and C++'s, which Triton uses, differ.

Tried with tritonserver 2.51 (24.10) and protoc: Python takes any white space of Unicode between
tokens, a plus sign and underscores in numbers; C++ takes none of these. C++ takes space between a
minus sign and its number; Python does not.
"""

from __future__ import annotations

import re

_PART = re.compile(
    r"""(?P<skipped>\#[^\n]*|"[^"\\\n]*(?:\\.[^"\\\n]*)*"
        |'[^'\\\n]*(?:\\.[^'\\\n]*)*'|[A-Za-z_][0-9A-Za-z_+-]*)
    |(?P<apart>-[ \t\r\n\f\v]+(?=[0-9.]))
    |(?P<number>[0-9.+-][0-9A-Za-z_.+-]*)
    |(?P<space>[^\S \t\r\n\f\v]+)""",
    re.VERBOSE,
)
#: What must be somewhere in a text for the search to be worth its while.
_STRANGE = re.compile(r"\+|[0-9]_|[^\S \t\r\n\f\v]")
_APART = re.compile(r"-[ \t\r\n\f\v]")


def foreign(text: str) -> tuple[int, str] | None:
    """Offset and reason of the first thing that Python takes and Triton refuses."""
    for part in _PART.finditer(text) if _STRANGE.search(text) else ():
        number = part["number"]
        if number is not None and (number.startswith("+") or "_" in number):
            return part.start(), f"Triton's parser takes no number such as {number}"
        if part["space"] is not None:
            code = f"U+{ord(part['space'][0]):04X}"
            return part.start(), f"Triton's parser takes no white space such as {code}"
    return None


def with_signs_joined(text: str) -> str:
    """Minus signs moved to their numbers; everything else stays where it is."""
    if not signs_apart(text):
        return text
    return _PART.sub(lambda m: m[0][1:] + "-" if m["apart"] is not None else m[0], text)


def signs_apart(text: str) -> dict[int, int]:
    """Where `with_signs_joined` puts a minus sign, to where it stands."""
    found = _PART.finditer(text) if _APART.search(text) else ()
    parts = (part for part in found if part["apart"] is not None)
    return {part.end() - 1: part.start() for part in parts}
