"""Who measures on a machine: seen by the others as long as it lives, whatever else lies there."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tuner.steps.machine_lock import Measuring, others, registered, registry


@pytest.fixture(autouse=True)
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.steps.machine_lock.registry", lambda: tmp_path / "measuring")
    monkeypatch.setattr(f"{__name__}.registry", lambda: tmp_path / "measuring")


def measuring(gpus: str | tuple[int, ...] = "all", run: str = "r") -> Measuring:
    return Measuring(os.getpid(), "run", run, ("/models/m",), gpus, "2025-03-01T10:00:00+00:00")


def test_others_are_seen_while_they_measure() -> None:
    with registered(measuring(run="a")) as a, registered(measuring((0, 1), run="b")):
        assert others(a) == [measuring((0, 1), run="b")]
        assert {o.run for o in others(None)} == {"a", "b"}
    assert others(None) == []
    assert list(registry().iterdir()) == []


def test_what_a_killed_one_left_counts_for_nothing_and_is_removed() -> None:
    with registered(measuring()):
        pass
    left = registry() / "7-dead.json"
    left.write_text(json.dumps(asdict(measuring())))
    assert others(None) == []
    assert not left.exists()


@pytest.mark.parametrize("process", ["of another user", "that is not there"])
def test_a_claim_for_somebody_elses_process_is_passed_over(
    process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = 1 if process == "of another user" else 1 << 30
    with registered(replace(measuring(), pid=pid)) as file:
        assert file is not None
        status = list(file.stat())
        status[4] = 4321  # of its owner
        monkeypatch.setattr("os.fstat", lambda _: os.stat_result(status))
        assert others(None) == []


def test_what_is_none_of_ours_is_passed_over(tmp_path: Path) -> None:
    with registered(measuring()) as own:
        os.mkfifo(registry() / "pipe.json")
        (registry() / "link.json").symlink_to("/dev/zero")
        (registry() / "directory.json").mkdir()
        (registry() / "large.json").write_text("x" * 20_000)
        assert others(own) == []


def test_a_machine_without_a_place_for_it_keeps_nobody_from_measuring(tmp_path: Path) -> None:
    registry().symlink_to(tmp_path)
    with registered(measuring()) as own:
        assert own is None
        assert others(own) == []


@pytest.mark.parametrize(
    ("mine", "yours", "disturbed"),
    [
        ("all", "all", True),
        ("none", "none", True),
        ((0,), "all", True),
        ((0,), "none", True),
        ((0, 1), (1, 2), True),
        ((0,), (1,), False),
    ],
)
def test_gpus_of_ones_own_keep_two_apart(
    mine: str | tuple[int, ...], yours: str | tuple[int, ...], disturbed: bool
) -> None:
    assert measuring(mine).disturbs(measuring(yours)) is disturbed


def test_it_is_named_with_process_run_and_beginning() -> None:
    assert replace(measuring(), pid=7).text == "tune run r (pid 7, since 2025-03-01 10:00 UTC)"
