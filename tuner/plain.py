r"""Text from outside as plain text: a model's name, a file's content, what a server said.

Such text may hold what a terminal, a CI system or a reader's eye takes for a command: escape
sequences, line breaks, characters that turn the direction of writing. They are shown as ``\xNN``.
"""

from __future__ import annotations

import re

#: Control characters (C0, DEL, C1), line and paragraph separators, characters that turn the
#: direction of writing or cannot be seen, and halves of surrogate pairs, which no file can hold.
_COMMANDS = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_ANY = re.compile(f"[{_COMMANDS}]")
_BUT_LINES = re.compile(f"(?![\n\t])[{_COMMANDS}]")


def plain(text: str) -> str:
    r"""One line without a character that is obeyed rather than shown; line breaks as ``\n``."""
    return _ANY.sub(_escaped, text)


def plain_lines(text: str) -> str:
    """Like `plain`, but lines and tabs stay."""
    return _BUT_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()
