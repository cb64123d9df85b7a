"""The command line of a local server."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from builders.serving import served_several

from tuner.errors import EnvironmentNotReadyError
from tuner.server.binaries import Installation, Origin
from tuner.triton import local
from tuner.triton.local import LocalLauncher, find_backends

INSTALLATION = Installation(
    binary=Path("/opt/tritonserver/bin/tritonserver"),
    version="2.51.0",
    origin=Origin.CONTAINER,
    environment={},
    backend_directory=Path("/private/backends"),
)


def command(args: tuple[str, ...] = (), server_args: tuple[str, ...] = ()) -> list[str]:
    launcher = LocalLauncher(INSTALLATION, Path("/models"), args)
    return launcher.command(
        server_args, repository=launcher.repository, ports=(1, 2, 3), shm_prefix="tune-1-"
    )


def test_it_listens_on_this_machine_only_and_loads_nothing_by_itself() -> None:
    assert command() == [
        "/opt/tritonserver/bin/tritonserver",
        "--model-repository=/models",
        "--model-control-mode=explicit",
        "--backend-directory=/private/backends",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
        "--http-port=1",
        "--grpc-port=2",
        "--metrics-port=3",
        "--backend-config=python,shm-region-prefix-name=tune-1-",
    ]


def test_its_control_is_closed_to_whoever_lacks_the_key() -> None:
    launcher = LocalLauncher(INSTALLATION, Path("/models"))
    line = launcher.command(
        (), repository=launcher.repository, ports=(1, 2, 3), shm_prefix="tune-1-", key="abc"
    )
    closed = "model-repository,shared-memory,trace,logging:tune-key=abc"
    assert line[-2:] == [f"--grpc-restricted-protocol={closed}", f"--http-restricted-api={closed}"]


def test_a_candidates_arguments_come_last() -> None:
    line = command(("--log-verbose=1",), ("--cache-config=local,size=1048576",))
    assert line[-2:] == ["--log-verbose=1", "--cache-config=local,size=1048576"]


@pytest.mark.parametrize(
    "there",
    [
        *("backends/onnxruntime/libtriton_onnxruntime.so", "backends/onnxruntime/model.py"),
        *("models/m/libtriton_onnxruntime.so", "models/m/1/libtriton_onnxruntime.so"),
    ],
)
@pytest.mark.parametrize("config", ['backend: "onnxruntime"', 'platform: "onnxruntime_onnx"', ""])
def test_a_backend_that_the_server_lacks_is_told_with_what_to_do(
    there: str, config: str, tmp_path: Path
) -> None:
    models = [m.files for m in served_several(tmp_path / "models", m=config).models.values()]
    (tmp_path / "models" / "m" / "1" / "model.onnx").touch()
    installed, flag = tmp_path / "none", "--backend-directory"
    (installed / "python").mkdir(parents=True)
    with pytest.raises(EnvironmentNotReadyError) as missing:
        find_backends(models, [], installed)
    text = "m needs the onnxruntime backend, and this tritonserver has only python"
    assert missing.value.message == text
    assert "--backend-directory" in missing.value.hint
    assert find_backends(models, [], None)
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).touch()
    (tmp_path / "backends").mkdir(exist_ok=True)
    for named in ([f"{flag}={tmp_path / 'backends'}"], [flag, str(tmp_path / "backends")]):
        assert find_backends(models, [*named, "--log-verbose=1"], installed) == "onnxruntime"


def test_what_a_living_server_may_have_made_in_tmp_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time()
    for name, age_s in (("before", 60), ("ours", -60), ("perhaps_theirs", -180)):
        path = tmp_path / f"python_env_{name}"
        path.mkdir()
        os.utime(path, (began - age_s, began - age_s))
    monkeypatch.setattr(local, "_TMP", tmp_path)
    monkeypatch.setattr(local, "_python_servers", lambda: [began + 120])
    local._remove_environments(began)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"python_env_before", "python_env_perhaps_theirs"}
