"""What the models of a spec need of the server beside their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.model_files import write_model

from tuner.checks.machine import note_libraries
from tuner.checks.models import note_flags
from tuner.prepare.job import Request, prepare

CONFIG = """backend: "python" max_batch_size: 8 %s
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
"""
LIMITED = "instance_group { rate_limiter { priority: 2 } }"
CACHED = "response_cache { enable: true }"
PLACED = 'instance_group { host_policy: "numa" }'
DOCKER = {"mode": "docker", "image": "own"}


def job_of(directory: Path, config: str, server: dict[str, Any]) -> Any:
    write_model(directory / "models" / "m", CONFIG % config)
    spec = {
        "model": "m",
        "repository": "models",
        "server": server,
        "slo": ["p99_latency <= 40ms"],
        "space": {"instance_group.count": {"int": [1, 2]}},
    }
    (directory / "spec.yaml").write_text(yaml.safe_dump(spec))
    return prepare(Request(spec=directory / "spec.yaml"))


@pytest.mark.parametrize(
    ("config", "server", "noted"),
    [
        (LIMITED, {}, "rate_limiter does nothing on a server without --rate-limit"),
        (LIMITED, {"args": ["--rate-limit=execution_count"]}, ""),
        (PLACED, {}, "host policy 'numa' does nothing on a server that does not define it"),
        (PLACED, {"args": ["--host-policy=numa,numa-node=0"]}, ""),
        (CACHED, {}, "response_cache does nothing on a server started without --cache-config"),
        (CACHED, {"args": ["--cache-config=local,size=1048576"]}, ""),
        (CACHED, {"space": {"response_cache.size": {"choice": [False, "1MiB"]}}}, ""),
        ("", {}, ""),
    ],
)
def test_setting_without_its_argument_is_noted(
    tmp_path: Path, config: str, server: dict[str, Any], noted: str
) -> None:
    notes = [note.message for note in note_flags(job_of(tmp_path, config, server))]
    assert notes == ([f"{noted}: server.args has none"] if noted else [])


@pytest.mark.parametrize(
    ("library", "server", "noted"),
    [
        ("/opt/ops/lib.so", DOCKER, ": the image must have it, or server.mounts"),
        ("/opt/ops/lib.so", {**DOCKER, "mounts": {"/home/ops": "/opt/ops"}}, ""),
        ("/opt/ops/lib.so", {}, ", and is not there"),
        (__file__, {}, ""),
        ("ops/lib.so", {}, ""),  # from the directory in which a server is started
    ],
)
def test_library_outside_the_repository_is_noted(
    tmp_path: Path, library: str, server: dict[str, Any], noted: str
) -> None:
    config = f'model_operations {{ op_library_filename: "{library}" }}'
    notes = [note.message for note in note_libraries(job_of(tmp_path, config, server))]
    assert notes == ([f"{library} is loaded with the model{noted}"] if noted else [])
