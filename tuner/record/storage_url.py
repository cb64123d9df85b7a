"""The URL of a study's storage as it may be shown: it often holds a password."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from tuner.hiding import HIDDEN, without_passwords


def shown_url(url: str) -> str:
    """``url`` without its password; if it is not a URL, only its scheme."""
    parsed = parsed_url(url)
    if parsed is not None:
        return without_passwords(parsed.render_as_string(hide_password=True))
    return url if re.fullmatch(r"[\w./-]+", url) else f"{url.partition(':')[0][:20]}:..."


def hidden_reason(url: str, error: Exception) -> str:
    """The first line of what a driver says of the storage, without its password."""
    if parsed_url(url) is None:
        return "it is no URL"
    text = (str(error).splitlines() or [""])[0]
    for password in _passwords(url):
        text = text.replace(password, HIDDEN)
    return without_passwords(text)


def has_password(url: str) -> bool:
    return bool(_passwords(url))


def _passwords(url: str) -> list[str]:
    """In every form in which a driver may quote it, the longest first."""
    parsed = parsed_url(url)
    queries = {} if parsed is None else parsed.normalized_query
    known = {"" if parsed is None else parsed.password or ""}
    secret = (k for k in queries if without_passwords(f"?{k}=x") != f"?{k}=x")
    known |= {value for key in secret for value in queries[key]}
    known.add(url.partition("://")[2].rpartition("@")[0].partition(":")[2])
    forms = {form for password in known for form in (password, unquote(password))}
    return sorted(forms - {""}, key=len, reverse=True)


def parsed_url(url: str) -> Any:
    """The URL as SQLAlchemy reads it; None when it is none."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        return None
