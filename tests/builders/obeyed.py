"""Text that a terminal or a CI system would obey, and what of it is left in an output."""

from __future__ import annotations

import re

#: A workflow command, a window's title, the clipboard, another title, a hidden stretch.
HOSTILE = (
    "x\n::set-output name=a::b\n  ::add-mask::c\x1b]0;t\x07\x1b]52;c;eA==\x07\x9d0;t\x9c\x1b[8m"
)


def obeyed(text: str) -> list[str]:
    """What GitHub or a terminal would take for a command."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in re.split(r"[\r\n]", text)]
    commands = [line for line in lines if line.startswith("::") or "##[" in line]
    ours = {f"\x1b[{n}m" for n in (0, 1, 31, 32, 33, 36)}
    escapes = re.findall(r"\x1b\[\d*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    return commands + [e for e in escapes if e not in ours]
