"""What the deployer does to a server, seen from a server that only takes notes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from candidates import candidate_of
from google.protobuf import json_format

from tuner.errors import DeployRefusedError, ServerGoneError
from tuner.modelconfig.base import Base
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import new_config
from tuner.space.candidate import Candidate, FieldValue
from tuner.triton import deploy
from tuner.triton.deploy import Deployer, DeploymentKind
from tuner.triton.server import Endpoints, Server

FILE = parse("max_batch_size: 8 dynamic_batching { } instance_group { count: 1 kind: KIND_CPU }")
BASE = Base.of_file(FILE)
HERE = Endpoints("h:1", "g:1", None)
OUT_OF_MEMORY = "load failed for model 'm': version 1 is at UNAVAILABLE state: out of memory"


@dataclass
class Notes:
    """What happened, and what the next loads are answered with (None is a success)."""

    events: list[str] = field(default_factory=list)
    answers: list[Exception | None] = field(default_factory=list)
    running: Any = None
    ignores_loads: bool = False
    alive: bool = True
    too_old: bool = False


@dataclass
class FakeServer:
    notes: Notes
    endpoints: Endpoints = HERE

    def alive(self) -> bool:
        return self.notes.alive

    def log_tail(self, lines: int = 40) -> str:
        return "error: the last words"


@dataclass
class FakeLauncher:
    notes: Notes
    restartable: bool = True

    @contextmanager
    def launch(self, server_args: Sequence[str], log: Path) -> Iterator[Server]:
        self.notes.alive, self.notes.running = True, None
        self.notes.events.append(" ".join(["start", *server_args]))
        if self.notes.too_old and deploy.WITHOUT_COMPLETION in server_args:
            raise ServerGoneError(f"unrecognized option '{deploy.WITHOUT_COMPLETION}'")
        yield FakeServer(self.notes)
        self.notes.events.append("stop")


@dataclass
class FakeControl:
    notes: Notes

    def __enter__(self) -> FakeControl:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self, model: str, config_json: str, deadline_s: float) -> None:
        count = json.loads(config_json)["instance_group"][0]["count"]
        self.notes.events.append(f"load {count}")
        if self.notes.answers and (error := self.notes.answers.pop(0)):
            raise error
        if not self.notes.ignores_loads:
            self.notes.running = json_format.Parse(config_json, new_config())

    def unload(self, model: str, deadline_s: float) -> None:
        self.notes.events.append("unload")

    def ready(self, model: str) -> bool:
        return True

    def running_config(self, model: str) -> Any:
        return self.notes.running


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    notes = Notes()
    monkeypatch.setattr(deploy, "Control", lambda endpoints: FakeControl(notes))
    monkeypatch.setattr(deploy.health, "live", lambda endpoints: True)
    return notes


def deployer(notes: Notes, *, unload_first: bool = False, restartable: bool = True) -> Deployer:
    return Deployer(
        FakeLauncher(notes, restartable), "m", BASE, Path("log"), unload_first=unload_first
    )


def count(value: int, cache_bytes: int | None = None, **more: FieldValue) -> Candidate:
    return candidate_of({"instance_group.count": value, **more}, cache_bytes)


def test_nothing_starts_before_it_is_needed(notes: Notes) -> None:
    with deployer(notes) as idle:
        assert not idle.alive()
        with pytest.raises(ServerGoneError, match="no server"):
            _ = idle.server
    assert notes.events == []


def test_work_is_as_little_as_the_change_allows(notes: Notes) -> None:
    with deployer(notes) as used:
        kinds = [
            used.deploy(candidate).kind.value
            for candidate in (
                count(1),
                count(1),
                count(2),
                count(2, max_batch_size=4),
                count(2, 1, max_batch_size=4),
            )
        ]
    assert kinds == ["restart", "unchanged", "in place", "reload", "restart"]
    assert notes.events == [
        "start", "load 1", "load 2", "load 2", "stop", f"start {CACHE}", "load 2", "stop",
    ]  # fmt: skip


def test_every_candidate_starts_from_the_file_not_from_the_one_before(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(3, max_batch_size=4))
        assert used.deploy(candidate_of({})).running == FILE


def test_a_refusal_leaves_what_ran_before(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.answers = [DeployRefusedError("load failed for model 'm': no")]
        with pytest.raises(DeployRefusedError):
            used.deploy(count(2))
        assert used.deploy(count(1)).kind is DeploymentKind.UNCHANGED


def test_a_server_that_still_serves_the_old_config_is_caught(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.ignores_loads = True
        with pytest.raises(DeployRefusedError, match=r"runs another config: .*count"):
            used.deploy(count(2))
        notes.ignores_loads = False
        assert used.deploy(count(1)).kind is DeploymentKind.RELOAD


def test_a_dead_server_is_named_with_its_last_words_and_replaced(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.answers = [ServerGoneError("loading m: the server is gone")]
        with pytest.raises(ServerGoneError, match="log ends with: the last words"):
            used.deploy(count(2))
        assert notes.events[-1] == "stop"
        assert used.deploy(count(2)).kind is DeploymentKind.RESTART
        notes.alive = False
        assert used.deploy(count(2)).kind is DeploymentKind.RESTART


def test_out_of_memory_beside_the_old_copy_is_tried_once_more_without(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.events.clear()
        notes.answers = [DeployRefusedError(OUT_OF_MEMORY)]
        assert used.deploy(count(2, max_batch_size=4)).kind is DeploymentKind.RELOAD
        assert notes.events == ["load 2", "unload", "load 2"]

        notes.events.clear()
        used.deploy(count(2, max_batch_size=2))
        assert notes.events == ["unload", "load 2"], "learned for the rest of the run"

        notes.events.clear()
        notes.answers = [DeployRefusedError(OUT_OF_MEMORY)]
        with pytest.raises(DeployRefusedError, match="out of memory"):
            used.deploy(count(2, max_batch_size=1))
        assert notes.events == ["unload", "load 2"], "nothing was beside it, so it cannot fit"


def test_unloading_first_is_for_reloads_only(notes: Notes) -> None:
    with deployer(notes, unload_first=True) as used:
        used.deploy(count(1))
        used.deploy(count(2))
        used.deploy(count(2, max_batch_size=4))
    assert notes.events == ["start", "load 1", "load 2", "unload", "load 2", "stop"]


def test_fresh_means_another_server_or_an_empty_one(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        used.fresh()
        assert used.deploy(count(1)).kind is DeploymentKind.RESTART
    with deployer(notes, restartable=False) as remote:
        remote.deploy(count(1))
        notes.events.clear()
        remote.fresh()
        assert remote.deploy(count(1)).kind is DeploymentKind.RELOAD
        assert notes.events == ["unload", "load 1"]


WITHOUT = f"start {deploy.WITHOUT_COMPLETION}"
CACHE = "--cache-config=local,size=1"


def test_servers_of_a_model_that_completes_nothing_are_started_without_completion(
    notes: Notes,
) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        used.completes = False
        used.deploy(count(2))  # the server that is there goes on
        used.fresh()
        used.deploy(count(2, 1))
    assert notes.events == [
        *("start", "load 1", "load 2", "stop"),
        *(f"{WITHOUT} {CACHE}", "load 2", "stop"),
    ]


@pytest.mark.parametrize("restartable", [True, False])
def test_a_server_that_completes_is_left_behind_with_the_first_reload(
    restartable: bool, notes: Notes
) -> None:
    with deployer(notes, restartable=restartable) as used:
        used.deploy(count(1))
        used.completes = False
        kind = used.deploy(count(2, max_batch_size=4)).kind
    left = ["stop", WITHOUT] if restartable else []
    assert notes.events == ["start", "load 1", *left, "load 2", "stop"]
    assert kind is (DeploymentKind.RESTART if restartable else DeploymentKind.RELOAD)


def test_what_is_refused_without_completion_is_tried_with_it(notes: Notes) -> None:
    with deployer(notes) as used:
        used.completes = False
        notes.answers = [DeployRefusedError("must specify 'platform'"), None]
        assert used.deploy(count(1)).kind is DeploymentKind.RESTART
        assert used.completes
    assert notes.events == [WITHOUT, "load 1", "stop", "start", "load 1", "stop"]


def test_what_is_refused_either_way_ends_with_the_words_of_a_server_as_it_is_in_production(
    notes: Notes,
) -> None:
    with deployer(notes) as used:
        used.completes = False
        notes.answers = [DeployRefusedError("strict"), DeployRefusedError("out of memory")]
        with pytest.raises(DeployRefusedError, match="out of memory"):
            used.deploy(count(1))
        assert not used.completes
        used.fresh()
        used.deploy(count(1))
    assert notes.events[-3:] == [WITHOUT, "load 1", "stop"]


def test_what_runs_as_another_config_without_completion_is_tried_with_it(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployer(notes) as used:
        used.completes = False
        used.deploy(count(1))
        notes.ignores_loads = True
        stop = used._stop
        monkeypatch.setattr(used, "_stop", lambda: (stop(), setattr(notes, "ignores_loads", False)))
        used.deploy(count(2))
    assert notes.events == [WITHOUT, "load 1", "load 2", "stop", "start", "load 2", "stop"]


def test_a_tritonserver_that_does_not_know_the_argument_is_started_without_it(
    notes: Notes,
) -> None:
    notes.too_old = True
    with deployer(notes) as used:
        used.completes = False
        used.deploy(count(1))
        assert used.completes
    assert notes.events == [WITHOUT, "start", "load 1", "stop"]
