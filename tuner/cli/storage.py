"""What the environment says of places: the study's storage, and the user's state directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from tuner.errors import EnvironmentNotReadyError

#: The URL, and a file that holds it.
VARIABLE, FILE_VARIABLE = "TUNE_STORAGE", "TUNE_STORAGE_FILE"

storage_option = click.option(
    "--storage",
    metavar="URL",
    help="Optuna storage to use instead of the run's own. If the URL has a password, put it into "
    f"${VARIABLE}, or into a file that ${FILE_VARIABLE} names: anybody on this machine can read "
    "a command line.",
)


def storage_of(given: str | None, environment: Mapping[str, str]) -> str | None:
    """The URL of the command line, or the one of the environment.

    Raises:
        EnvironmentNotReadyError: The file that should hold it is unreadable, empty or public.
    """
    if given is not None or VARIABLE in environment:
        return given or environment.get(VARIABLE) or None
    name = environment.get(FILE_VARIABLE)
    if not name:
        return None
    try:
        url = Path(name).read_text(encoding="utf-8").strip()
        public = Path(name).stat().st_mode & 0o007
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise EnvironmentNotReadyError(
            f"${FILE_VARIABLE} names {name}, which cannot be read: {str(reason).lower()}",
            "correct the path; the file holds the URL alone",
        ) from error
    if public:
        raise EnvironmentNotReadyError(
            f"${FILE_VARIABLE} names {name}, which is everybody's to read or write",
            f"chmod 600 {name}",
        )
    if len(url.splitlines()) != 1:
        raise EnvironmentNotReadyError(
            f"${FILE_VARIABLE} names {name}, which does not hold one line",
            "the file holds the URL alone",
        )
    return url


def children_environment() -> dict[str, str]:
    """Environment of the server and the load generator, without the storage's variables."""
    return {k: v for k, v in os.environ.items() if k not in (VARIABLE, FILE_VARIABLE)}


def warn_of_password(given: str | None, note: Callable[[str], None]) -> None:
    """Warns that a password on the command line is no secret."""
    if given is None:
        return
    from tuner.record.storage_url import has_password

    if has_password(given):
        note(
            "the password in --storage can be read by anybody on this machine (`ps`): put the URL "
            f"into ${VARIABLE}, or into a file that ${FILE_VARIABLE} names"
        )
