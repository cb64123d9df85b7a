"""The command line of a local server."""

from __future__ import annotations

import os
import py_compile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.serving import served_several

from tuner.errors import EnvironmentNotReadyError
from tuner.server.binaries import Installation, Origin
from tuner.triton import local
from tuner.triton.local import LocalLauncher, find_backends, mirror_of

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


def test_local_server_listens_on_this_machine_only_and_loads_no_model_by_itself() -> None:
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


def test_server_is_not_started_where_its_log_is_no_regular_file(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    os.mkfifo(log)
    with pytest.raises(EnvironmentNotReadyError, match=r"server\.log.* is a pipe"):
        with LocalLauncher(INSTALLATION, tmp_path).launch([], log):
            pass


def test_control_of_a_local_server_needs_the_key() -> None:
    launcher = LocalLauncher(INSTALLATION, Path("/models"))
    line = launcher.command(
        (), repository=launcher.repository, ports=(1, 2, 3), shm_prefix="tune-1-", key="abc"
    )
    closed = "model-repository,shared-memory,trace,logging:tune-key=abc"
    assert line[-2:] == [f"--grpc-restricted-protocol={closed}", f"--http-restricted-api={closed}"]


def test_a_candidates_variables_replace_those_that_the_server_inherits() -> None:
    inherited = {"PATH": "/bin", "OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}
    launcher = LocalLauncher(replace(INSTALLATION, environment=inherited), Path("/models"))
    given = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": None}
    assert launcher.environment(given) == {"PATH": "/bin", "OMP_NUM_THREADS": "1"}
    none = replace(launcher, gpus="none")
    assert none.environment({}) == {**inherited, "CUDA_VISIBLE_DEVICES": ""}


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
def test_missing_backend_is_reported_with_the_next_step(
    there: str, config: str, tmp_path: Path
) -> None:
    models = [m.files for m in served_several(tmp_path / "models", m=config).models.values()]
    (tmp_path / "models" / "m" / "1" / "model.onnx").touch()
    installed, flag = tmp_path / "none", "--backend-directory"
    (installed / "python").mkdir(parents=True)
    (installed / "python" / "libtriton_python.so").touch()
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


OLD, OURS, LATE = "before", "oursAA", "theirs"


@pytest.mark.parametrize(
    ("others", "user", "sees_all", "left"),
    [
        ({}, 0, True, set()),
        ({}, 0, False, {OLD}),  # a container's server may use it
        ({"later": 120.0}, 0, True, {LATE}),
        ({"settled": -3600.0}, 0, True, {OLD}),
        ({"settled": -3600.0, "later": 120.0}, 0, True, {OLD, LATE}),
        ({"settled": -200.0}, 0, True, set()),
        ({"without a model": -3600.0}, 0, True, {OLD, OURS, LATE}),
        ({}, 1, True, {OLD, OURS, LATE}),  # another user's
    ],
)
def test_cleanup_of_tmp_leaves_files_of_living_servers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    others: dict[str, float],
    user: int,
    sees_all: bool,
    left: set[str],
) -> None:
    began = time.time()
    for name, made_s in ((OLD, -300), (OURS, 60), (LATE, 180)):
        path = tmp_path / f"python_env_{name}"
        path.mkdir()
        os.utime(path, (began + made_s, began + made_s))
    servers = {name: began + began_s for name, began_s in others.items()}
    monkeypatch.setattr(local, "_TMP", tmp_path)
    monkeypatch.setattr(local, "_sees_all_of_tmp", lambda: sees_all)
    monkeypatch.setattr(local, "_python_servers", lambda: servers)
    monkeypatch.setattr(local.os, "geteuid", lambda: os.getuid() + user)
    settled: Any = {"settled"}
    local._remove_environments(settled, {tmp_path / f"python_env_{OLD}"})
    assert {path.name.removeprefix("python_env_") for path in tmp_path.iterdir()} == left


def test_cleanup_of_tmp_leaves_directories_that_only_look_like_tritons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_triton, of_user = tmp_path / "python_env_a1B2c3", tmp_path / "python_env_numpy1"
    (of_triton / "0").mkdir(parents=True)
    (of_user / "bin").mkdir(parents=True)
    (tmp_path / "python_env_of_a_team").mkdir()
    monkeypatch.setattr(local, "_TMP", tmp_path)
    monkeypatch.setattr(local, "_python_servers", dict)
    local._remove_environments(set(), set())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "python_env_numpy1",
        "python_env_of_a_team",
    ]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    version = tmp_path / "repository" / "model" / "1"
    (version / "helpers").mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text("backend: 'python'")
    (version / "model.py").write_text("x = 1")
    (version / "helpers" / "part.py").write_text("y = 2")
    (version / "__pycache__").mkdir()
    (version / "__pycache__" / "model.cpython-39.pyc").touch()
    (tmp_path / "elsewhere" / "1").mkdir(parents=True)
    (tmp_path / "repository" / "linked").symlink_to(tmp_path / "elsewhere")
    (version / "loop").symlink_to(version.parent)
    return tmp_path / "repository"


def test_directories_are_new_and_files_are_links(repository: Path) -> None:
    with mirror_of(repository) as mirror:
        version = mirror / "model" / "1"
        assert (version / "model.py").resolve() == repository / "model" / "1" / "model.py"
        assert (version / "helpers" / "part.py").is_symlink()
        assert not version.is_symlink()
        assert (mirror / "linked" / "1").is_dir()
        assert not (version / "loop").exists()
    assert not mirror.exists()
    assert (repository / "model" / "1" / "model.py").read_text() == "x = 1"


def test_models_that_are_not_served_stay_one_link(repository: Path, tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    (huge / "1").mkdir(parents=True)
    (repository / "link").symlink_to(huge)
    (repository / "other" / "1").mkdir(parents=True)
    (repository / "shared").mkdir()
    (repository / "shared" / "code.py").touch()
    with mirror_of(repository, ["model", "linked"]) as mirror:
        assert [(mirror / name).is_symlink() for name in ("link", "other")] == [True, True]
        assert not any((mirror / name).is_symlink() for name in ("model", "linked", "shared"))
        assert (mirror / "link" / "1").is_dir()


def test_model_with_too_many_files_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MOST_FILES", 20)
    with mirror_of(repository):
        pass
    for number in range(20):
        (repository / "model" / "1" / f"{number}.bin").touch()
    with pytest.raises(EnvironmentNotReadyError, match=r"model: with it, .* more than 20"):
        with mirror_of(repository):
            pass


def test_a_directory_that_may_not_be_read_becomes_a_link(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = repository / "model" / "1" / "helpers"
    monkeypatch.setattr("os.access", lambda path, _mode: path != private)
    with mirror_of(repository) as mirror:
        assert (mirror / "model" / "1" / "helpers").readlink() == private


def test_a_link_to_a_data_set_stays_one_link(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "train").mkdir(parents=True)
    for name in ("a.jpg", "train/b.jpg"):
        (tmp_path / "data" / name).touch()
    version = repository / "model" / "1"
    for place in (version.parent / "data", version / "data"):
        place.symlink_to(tmp_path / "data")
    with mirror_of(repository) as mirror:
        for copy in (mirror / "model" / "data", mirror / "model" / "1" / "data"):
            assert copy.readlink() == tmp_path / "data"
            assert (copy / "train" / "b.jpg").exists()
    assert (tmp_path / "data" / "train" / "b.jpg").exists()


def test_linked_code_and_linked_versions_get_no_bytecode_either(
    repository: Path, tmp_path: Path
) -> None:
    for code in ("package/__init__.py", "sources/package/__init__.py", "version/model.py"):
        (tmp_path / code).parent.mkdir(parents=True)
        (tmp_path / code).write_text("x = 1")
    model = repository / "model"
    (model / "1" / "package").symlink_to(tmp_path / "package")
    (model / "sources").symlink_to(tmp_path / "sources")
    (model / "2").symlink_to(tmp_path / "version")
    with mirror_of(repository) as mirror:
        copies = mirror / "model"
        for code in ("1/package/__init__.py", "sources/package/__init__.py", "2/model.py"):
            with pytest.raises(OSError, match="__pycache__"):
                py_compile.compile(str(copies / code), doraise=True)
    assert not list(tmp_path.glob("*/__pycache__"))


def test_python_leaves_no_bytecode_anywhere(repository: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    with mirror_of(repository) as mirror:
        version = mirror / "model" / "1"
        for code in (version / "model.py", version / "helpers" / "part.py"):
            with pytest.raises(OSError, match="__pycache__"):
                py_compile.compile(str(code), doraise=True)
    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before
