"""The emulated accelerator's costs, without a server."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from builders.model_files import model_module


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return model_module("emulated-accelerator", monkeypatch)


def test_costs_are_those_of_the_config(model: ModuleType) -> None:
    costs = model.Costs.from_parameters(
        {
            "overlap_base_ms": {"string_value": "2"},
            "exclusive_per_request_ms": {"string_value": "0.5"},
        }
    )
    assert costs.overlap_s(4) == pytest.approx((2 + 0.05 * 4) / 1e3)
    assert costs.exclusive_s(4) == pytest.approx((4 + 0.5 * 4) / 1e3)


def test_a_batch_costs_as_much_as_the_next_padded_size(model: ModuleType) -> None:
    costs = model.Costs.from_parameters({"pad_to": {"string_value": "4"}})
    assert [costs.padded(n) for n in (1, 4, 5, 8)] == [4, 4, 8, 8]
    assert costs.exclusive_s(1) == costs.exclusive_s(4) < costs.exclusive_s(5)


def test_a_mistyped_parameter_is_an_error(model: ModuleType) -> None:
    with pytest.raises(TypeError, match="exclusive_base_us"):
        model.Costs.from_parameters({"exclusive_base_us": {"string_value": "4000"}})


def test_the_lock_is_of_one_server_and_never_follows_a_link(
    model: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(model.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(model.os, "getppid", lambda: 1234)
    model.os.close(model.open_device_lock("m"))
    (path,) = tmp_path.iterdir()
    assert "1234" in path.name
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link"):
        model.open_device_lock("m")
    assert not (tmp_path / "victim").exists()


def test_lock_files_of_dead_servers_are_removed(
    model: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(model.tempfile, "gettempdir", lambda: str(tmp_path))
    uid, living, dead = os.getuid(), os.getpid(), 1 << 23
    stay = {f"m-{uid}-{living}.lock", f"n-{uid}-{dead}.lock", f"m-{uid}-x{dead}.lock"}
    for name in (*stay, f"m-{uid}-{dead}.lock"):
        (tmp_path / name).touch()
    model.os.close(model.open_device_lock("m"))
    assert {path.name for path in tmp_path.iterdir()} == {*stay, f"m-{uid}-{os.getppid()}.lock"}


def test_models_that_name_the_same_device_exclude_one_another(
    model: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(model.tempfile, "gettempdir", lambda: str(tmp_path))
    one, two, alone = (
        started(model, name, device) for name, device in [("a", "gpu"), ("b", "gpu"), ("c", "")]
    )
    fcntl.flock(one.lock, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError):
        fcntl.flock(two.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(alone.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for served in (one, two, alone):
        served.finalize()


def started(model: ModuleType, name: str, device: str) -> Any:
    parameters = {"exclusive_base_ms": {"string_value": "1"}}
    if device:
        parameters["device"] = {"string_value": device}
    served = model.TritonPythonModel()
    served.initialize({"model_config": json.dumps({"name": name, "parameters": parameters})})
    return served
