"""The one place that hides passwords: in everything that is stored, printed or logged.

A password enters in a storage URL, on the command line or in `$TUNE_STORAGE`, and comes back in
errors of database drivers; that of a header may come back in what a server says. Values of the
spec's ``server.environment`` never become text at all, see `tuner.spec.server`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: CheckFigures in place of something hidden.
HIDDEN = "***"

#: ``scheme://user:PASSWORD@host``: a password may hold anything, so up to the last @ of the line;
#: up to that of the word where a port may be meant.
_USER_INFO = re.compile(r"(://[^\s:/@]*:)(?:(?!\d{1,5}(?:[^\w@]|$))[^\n]*@|\S*@)")
#: ``?password=PASSWORD`` and its like; an ODBC string holds one under a name of its own.
_QUERY = re.compile(
    r"([?&][\w.-]*(?:odbc_connect|pass|pwd|secret|token|credential|auth|key)[\w.-]*=)[^&\s]+", re.I
)


_SECRETS = set[str]()


def keep_secret(*values: str) -> None:
    """From now on hides each word of them, unless it is too short to be a secret."""
    _SECRETS.update(word for value in values for word in value.split() if len(word) >= 8)


def without_passwords(text: str) -> str:
    """``text`` with `HIDDEN` for the password of every URL in it, and for what is kept secret."""
    for secret in _SECRETS:
        text = text.replace(secret, HIDDEN)
    return _QUERY.sub(rf"\1{HIDDEN}", _USER_INFO.sub(rf"\1{HIDDEN}@", text))


def hidden_command(arguments: Iterable[str]) -> tuple[str, ...]:
    """A command line that may be stored and shown."""
    return tuple(without_passwords(argument) for argument in arguments)
