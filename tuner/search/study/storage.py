"""The storage that a run shares with its workers, and how long they wait for one out of reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tuner.errors import EnvironmentNotReadyError
from tuner.extras import Extra
from tuner.record.storage_url import hidden_reason, parsed_url, shown_url
from tuner.search.optuna_trial import optuna

#: How long a process goes on trying to reach a database, and how often.
RECONNECT_S, RETRY_S = 600.0, 1.0
#: Writers of a SQLite file wait for each other so long.
_SQLITE_PATIENCE_S = 60.0
#: A network that drops packets without a word would block a query for a quarter of an hour.
_LIBPQ_DRIVERS = ("postgresql", "postgresql+psycopg", "postgresql+psycopg2")
_LIBPQ = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "tcp_user_timeout": 25_000,
}


def open_storage(url: str) -> optuna.storages.RDBStorage:
    """To be closed by `close_storage`.

    Raises:
        EnvironmentNotReadyError: It cannot be opened.
    """
    from sqlalchemy.exc import OperationalError, SQLAlchemyError

    try:
        return optuna.storages.RDBStorage(url, _engine_options(url))
    except (SQLAlchemyError, ImportError, RuntimeError, ValueError) as error:
        reason = hidden_reason(url, error)
        cure = (
            "check the URL, e.g. sqlite:///study.db or postgresql+psycopg://user@host/database "
            f"(with {Extra.POSTGRES.command})"
        )
        if url.startswith("sqlite") and isinstance(error, OperationalError):
            cure = "free some space, make its directory writable, or name another with --output"
        raise EnvironmentNotReadyError(
            f"cannot open the study's storage {shown_url(url)}: {reason}", cure
        ) from None  # the cause may quote the password


def close_storage(storage: optuna.storages.RDBStorage) -> None:
    storage.remove_session()
    storage.engine.dispose()


def _engine_options(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": _SQLITE_PATIENCE_S}}
    parsed, arguments = parsed_url(url), {}
    if parsed is not None and parsed.drivername in _LIBPQ_DRIVERS:
        arguments = {name: value for name, value in _LIBPQ.items() if name not in parsed.query}
    return {"pool_pre_ping": True, "connect_args": arguments}


class Reconnection:
    """The retry budget of a process for one outage of a database, not for each attempt.

    A SQLite file is there or not, so nobody waits for it.

    Args:
        note: Receives a sentence when an outage begins.
    """

    def __init__(self, url: str, note: Callable[[str], None]) -> None:
        self._url, self._note = url, note
        self._out_of_reach_since_s: float | None = None
        self._ended = url.startswith("sqlite")

    def end(self) -> None:
        """From now on there is no waiting: the process is about to end."""
        self._ended = True

    def reached(self) -> None:
        """The outage, if there was one, is over."""
        self._out_of_reach_since_s = None

    def wait(self, error: optuna.exceptions.StorageInternalError) -> bool:
        """Sleeps before another attempt; False where there should be none."""
        from sqlalchemy.exc import InterfaceError, OperationalError, PendingRollbackError

        cause = error.__cause__
        # Where Optuna goes on after a lost connection, the transaction is what fails next.
        lost = InterfaceError | OperationalError | PendingRollbackError
        if self._ended or not isinstance(cause, lost):
            return False
        now_s = time.monotonic()
        if self._out_of_reach_since_s is None:
            self._out_of_reach_since_s = now_s
            reason, minutes = hidden_reason(self._url, cause), RECONNECT_S / 60
            self._note(f"the study's storage is out of reach, waiting {minutes:.0f} min: {reason}")
        if now_s - self._out_of_reach_since_s > RECONNECT_S:
            return False
        time.sleep(RETRY_S)
        return True
