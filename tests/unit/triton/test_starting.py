"""A server is started until it is ready: ports that get taken, servers that are too old."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tuner.errors import ServerGoneError
from tuner.server import health
from tuner.server.health import ready_server
from tuner.server.server import Endpoints

TAKEN = "error: creating server: Unavailable - Address already in use"
OLD = "tritonserver: unrecognized option '--grpc-restricted-protocol=model-repository:tune-key=k'"


@dataclass(frozen=True)
class FakeServer:
    """Ended, if its log says why."""

    endpoints: Endpoints
    last_words: str = ""

    def alive(self) -> bool:
        return not self.last_words

    def log_tail(self, lines: int = 40) -> str:
        return self.last_words


@pytest.fixture(autouse=True)
def _somebody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_answers", lambda endpoints, service, path: True)


def started(*last_words: str) -> tuple[FakeServer, list[str | None]]:
    """The server that was ready, of those that leave these words, and the keys all were given."""
    keys: list[str | None] = []

    @contextmanager
    def start(key: str | None) -> Iterator[FakeServer]:
        words = last_words[len(keys)]
        keys.append(key)
        yield FakeServer(Endpoints("h:1", "g:1", None, key), words)

    with ready_server(start, 1.0) as server:
        return server, keys


def test_every_server_has_a_unique_key() -> None:
    (first, _), (second, _) = started(""), started("")
    assert first.endpoints.key
    assert second.endpoints.key
    assert first.endpoints.key != second.endpoints.key
    assert first.endpoints.key not in repr(first.endpoints)


def test_one_that_is_too_old_for_keys_is_started_without(caplog: pytest.LogCaptureFixture) -> None:
    server, keys = started(OLD, "")
    assert server.endpoints.key is None
    assert len(keys) == 2
    assert "too old" in caplog.text


def test_somebody_elses_server_on_our_port_is_not_taken_for_ours() -> None:
    """It answers that it is ready, while ours ended for want of the port."""
    server, keys = started(TAKEN, TAKEN, "")
    assert server.alive()
    assert len(keys) == 3


def test_start_failure_without_a_remedy_is_raised() -> None:
    with pytest.raises(ServerGoneError, match="in use"):
        started(*[TAKEN] * 9)
    with pytest.raises(ServerGoneError, match="no such backend"):
        started("error: no such backend", "")
