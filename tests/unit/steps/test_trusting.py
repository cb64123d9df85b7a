"""Whose code a worker runs: what of a stranger's spec is shown to its user first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from unit.steps.test_opening import REPOSITORY

from tuner.errors import SpecError
from tuner.spec.environment import ServerVariable, resolve
from tuner.spec.model import Server, Spec
from tuner.steps.trusting import refuse_strange_programs, with_own_values


def spec_with(repository: Path = REPOSITORY, **more: Any) -> Spec:
    return Spec.model_validate(
        {
            "model": "emulated-accelerator",
            "repository": str(repository),
            "slo": ["p99_latency <= 40ms"],
            "space": {"instance_group.count": {"int": [1, 4]}},
            **more,
        }
    )


def shown(spec: Spec, *, own_repository: bool = True) -> list[str]:
    """What a worker is told of; nothing where it may join."""
    try:
        refuse_strange_programs(spec, trusted=False, own_repository=own_repository)
    except SpecError as refused:
        return [line.strip() for line in refused.message.splitlines()[1:]]
    return []


@pytest.mark.parametrize(
    "path",
    [
        "backend",
        "cc_model_filenames",
        "default_model_filename",
        "model_operations",
        "parameters.EXECUTION_ENV_PATH",
        "platform",
        "runtime",
    ],
)
def test_a_space_over_what_says_which_code_runs_is_shown(path: str) -> None:
    harmless = spec_with()
    given = harmless.plain()
    given["space"][path] = given["space"]["instance_group.count"]
    assert shown(Spec.model_validate(given)) == [
        f"space: {path}, which says what code a model runs"
    ]


def test_all_that_is_strange_is_shown_at_once(tmp_path: Path) -> None:
    model = tmp_path / "emulated-accelerator"
    model.mkdir()
    model.chmod(0o777)
    spec = spec_with(
        tmp_path,
        server={
            "binary": "/tmp/evil",
            "args": ["--log-verbose=1", "--backend-directory=/x"],
            "environment": {"LD_PRELOAD": {"from": "LD_PRELOAD"}, "KEY": {"from": "MINE"}},
        },
        workload={"perf_analyzer": "/tmp/load"},
    )
    assert shown(spec, own_repository=False) == [
        "server.binary: /tmp/evil",
        "server.args: --log-verbose=1 --backend-directory=/x",
        "server.environment: LD_PRELOAD: $LD_PRELOAD, KEY: $MINE",
        "workload.perf_analyzer: /tmp/load",
        f"repository: {tmp_path}, which is not this user's; or name it: --repository",
    ]
    refuse_strange_programs(spec, trusted=True, own_repository=False)


@pytest.mark.parametrize(
    ("owner", "mode", "own"),
    [
        ("mine", 0o755, True),
        ("mine", 0o775, True),
        ("mine", 0o757, False),
        ("root", 0o755, True),
        ("root", 0o777, False),
        ("somebody", 0o755, False),
        ("somebody", 0o700, False),
    ],
)
def test_a_model_directory_is_own_where_nobody_else_may_write(
    owner: str, mode: int, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "emulated-accelerator").mkdir()
    spec = spec_with(tmp_path)
    uid = {"mine": 1000, "root": 0, "somebody": 1001}[owner]
    status = os.stat_result((0o40000 | mode, 0, 0, 0, uid, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: status)
    assert bool(shown(spec, own_repository=False)) is not own
    assert shown(spec, own_repository=True) == []


def test_a_model_that_is_not_there_is_told_by_who_looks_for_it(tmp_path: Path) -> None:
    assert shown(spec_with(tmp_path / "none"), own_repository=False) == []


def test_a_stranger_names_variables_and_never_their_values() -> None:
    named = {"SENT": ServerVariable(given="theirs"), "KEY": ServerVariable(taken_from="MINE")}
    server = with_own_values(Server(environment=named))
    mine = {"SENT": "a", "KEY": "b", "MINE": "c"}
    assert resolve(server.environment, mine) == {"SENT": "a", "KEY": "c"}
