"""What the control of a server waits for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.errors import ServerGoneError
from tuner.server import control
from tuner.server.control import Control, ModelState
from tuner.server.server import Endpoints


class FakeClient:
    """Tells one state of the model after the other, the last one for ever; Triton's spelling."""

    def __init__(self, *states: str | None) -> None:
        self.states: Iterator[str | None] = iter(states)
        self.last: str | None = None
        self.asked = 0
        self.unloaded: list[str] = []

    def unload_model(self, model: str, **_: Any) -> None:
        self.unloaded.append(model)

    def get_model_repository_index(self, **_: Any) -> Any:
        self.asked += 1
        self.last = next(self.states, self.last)
        models = [SimpleNamespace(name="other", state="READY")]
        if self.last is not None:
            models.append(SimpleNamespace(name="m", state=self.last))
        return SimpleNamespace(models=models)

    def close(self) -> None:
        pass


def controlled(monkeypatch: pytest.MonkeyPatch, client: FakeClient) -> Control:
    monkeypatch.setattr(control, "_POLL_S", 0.001)
    made = Control(Endpoints("127.0.0.1:1", "127.0.0.1:2", None))
    made._client.close()
    made._client = client
    return made


@pytest.mark.parametrize("gone", ["UNAVAILABLE", "", None])
def test_unloading_returns_when_the_model_is_really_gone(
    monkeypatch: pytest.MonkeyPatch, gone: str | None
) -> None:
    client = FakeClient("READY", "UNLOADING", "UNLOADING", gone)
    controlled(monkeypatch, client).unload("m", 30.0)
    assert client.unloaded == ["m"]
    assert client.asked == 4


def test_a_state_of_another_release_is_neither_ready_nor_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeClient("DRAINING", "UNAVAILABLE")
    controlled(monkeypatch, client).unload("m", 30.0)
    assert client.asked == 2
    assert controlled(monkeypatch, FakeClient("DRAINING")).state("m") is ModelState.LOADING


def test_a_model_that_does_not_go_away_is_a_server_that_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeClient("READY", "UNLOADING")
    with pytest.raises(ServerGoneError, match="m was not unloaded within"):
        controlled(monkeypatch, client).unload("m", 0.01)
