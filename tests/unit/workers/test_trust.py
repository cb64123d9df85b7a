"""Whose code a worker runs: what of a stranger's spec is shown to its user first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from builders.model_files import REPOSITORY

from tuner.errors import SpecError
from tuner.spec.model import Spec
from tuner.spec.server import ServerSpec, ServerVariable, resolve
from tuner.workers.trust import refuse_strange_programs, with_own_values


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
        'cc_model_filenames["9.0"]',
        "default_model_filename",
        "model_operations.op_library_filename",
        "model_warmup[0].count",
        "parameters.EXECUTION_ENV_PATH",
        'parameters["EXECUTION_ENV_PATH"]',
        "parameters.TRITON_BATCH_STRATEGY_PATH",
        "platform",
        "runtime",
        "version_policy.latest.num_versions",
        "instance_group.host_policy",
        "instance_group[name=a].count",
        "optimization.execution_accelerators.gpu_execution_accelerator[name=tensorrt]",
        "sequence_batching.state.initial_state.data_file",
    ],
)
def test_a_space_over_what_may_say_which_code_runs_is_shown(path: str) -> None:
    strange = spec_with(space={path: {"choice": ["x"]}})
    assert shown(strange) == [f"space: {path}, which may say what code a model runs"]


@pytest.mark.parametrize(
    "path",
    [
        "max_batch_size",
        "instance_group[kind=KIND_GPU].count",
        "dynamic_batching",
        "dynamic_batching.priority_queue_policy[1].max_queue_size",
        "optimization.cuda.graphs",
        "response_cache.enable",
    ],
)
def test_a_space_over_instances_batching_and_priorities_is_measured_for_anybody(path: str) -> None:
    assert shown(spec_with(space={path: {"int": [1, 2]}})) == []


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
        f"repository: others may change {model}; or name it: --repository",
    ]
    refuse_strange_programs(spec, trusted=True, own_repository=False)


@pytest.mark.parametrize(
    ("place", "mode", "uid", "own"),
    [
        ("models/m", 0o755, None, True),
        ("models/m", 0o700, 0, True),
        ("models/m", 0o755, 4321, False),
        ("models/m", 0o775, None, False),
        ("models/m", 0o757, None, False),
        ("models/m/1", 0o755, 4321, False),
        ("models/m/1", 0o1777, None, False),
        ("models/m/1/model.py", 0o666, None, False),
        ("models/m/1/model.py", 0o644, 4321, False),
        ("models/called/1", 0o777, None, False),
        ("", 0o1777, 0, True),
        ("", 0o777, None, False),
        ("", 0o755, 4321, False),
        ("elsewhere/weights", 0o666, None, False),
        ("elsewhere", 0o777, None, False),
        ("elsewhere/unused", 0o666, None, True),
    ],
)
def test_a_repository_is_own_where_nobody_else_may_change_it_or_what_leads_to_it(
    place: str, mode: int, uid: int | None, own: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    top = tmp_path / "top"
    for file in ("models/m/1/model.py", "models/called/1/model.py", "elsewhere/weights"):
        (top / file).parent.mkdir(parents=True, exist_ok=True)
        (top / file).touch(0o644)
    (top / "elsewhere" / "unused").touch()
    (top / "models/m/1/weights").symlink_to("../../../elsewhere/weights")
    (top / "models/m/loop").symlink_to("..")
    (top / "models/m/1/.#model.py").symlink_to("me@host.1")
    (top / place).chmod(mode)
    lstat = Path.lstat

    def owned(path: Path) -> os.stat_result:
        status = list(lstat(path))
        status[4] = uid if uid is not None and path == top / place else status[4]
        return os.stat_result(status)

    monkeypatch.setattr(Path, "lstat", owned)
    spec = spec_with(top / "models")
    assert shown(spec, own_repository=True) == []
    told = [] if own else [f"repository: others may change {top / place}; or name it: --repository"]
    assert [
        line.replace("models/m/1/../../../", "") for line in shown(spec, own_repository=False)
    ] == told


def test_a_stranger_names_variables_and_never_their_values() -> None:
    named = {"SENT": ServerVariable(given="theirs"), "KEY": ServerVariable(taken_from="MINE")}
    server = with_own_values(ServerSpec(environment=named))
    mine = {"SENT": "a", "KEY": "b", "MINE": "c"}
    assert resolve(server.environment, mine) == {"SENT": "a", "KEY": "c"}
