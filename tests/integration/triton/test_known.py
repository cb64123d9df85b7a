"""What a server lacks is told before a run, by `tune doctor` and `tune run`, whoever runs it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.their_server import WITHOUT_METRICS, their_server
from builders.triton_repository import MODEL

from tuner.errors import DeployRefusedError
from tuner.machine.process import ADDRESS
from tuner.server.control import Control
from tuner.server.server import Endpoints
from tuner.spec.server import ServerMode
from tuner.triton import engine, remote
from tuner.triton.local import LocalLauncher

pytestmark = pytest.mark.integration

TUNED = """\
model: {model}
repository: {repository}
slo: [p99_latency <= 1s]
space: {{instance_group.count: {{int: [1, 2]}}}}
server: {server}
"""


def spec_of(tmp_path: Path, launcher: LocalLauncher, server: str, model: str = MODEL) -> Path:
    spec = tmp_path / "spec.yaml"
    spec.write_text(TUNED.format(model=model, repository=launcher.repository, server=server))
    return spec


def at(endpoints: Endpoints) -> str:
    there = {s: getattr(endpoints, s) for s in ("http", "grpc", "metrics")}
    return f"{{mode: remote, {', '.join(f'{s}: {where!r}' for s, where in there.items())}}}"


def refused(tune: Tune, spec: Path, *words: str) -> None:
    """By both commands, with exit code 4 and in the same words."""
    assert tune("doctor", spec, "--output", spec.parent) == 4
    (fix,) = (part for part in tune.out.split("FIX ")[1:])
    assert [word for word in words if word not in fix] == [], fix
    assert tune("run", spec, "--output", spec.parent / "results") == 4
    assert [word for word in words if word not in tune.err] == [], tune.err
    assert not [*(spec.parent / "results").glob("*/trials.jsonl")]


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Tune:
    return Tune(capsys)


def test_a_server_that_loads_nothing_on_request(
    launcher: LocalLauncher, tmp_path: Path, tune: Tune
) -> None:
    with their_server(launcher, "--model-control-mode=none") as endpoints:
        spec = spec_of(tmp_path, launcher, at(endpoints))
        refused(tune, spec, "none or poll", "--model-control-mode=explicit")


def test_a_server_without_metrics_and_one_without_the_model(
    launcher: LocalLauncher, tmp_path: Path, tune: Tune
) -> None:
    with their_server(launcher, WITHOUT_METRICS) as endpoints:
        refused(
            tune,
            spec_of(tmp_path, launcher, at(endpoints)),
            f"http://{endpoints.metrics}/metrics",
            WITHOUT_METRICS,
            "may be left out",
        )
        without = at(endpoints).replace(f", metrics: {endpoints.metrics!r}", "")
        assert tune("doctor", spec_of(tmp_path, launcher, without), "--output", tmp_path) == 0
        assert f"model backends: known once {MODEL} is loaded there" in tune.out
        (launcher.repository / MODEL).rename(tmp_path / "hidden")
        (tmp_path / "own").mkdir()
        (tmp_path / "hidden").rename(tmp_path / "own" / "another")
        spec = spec_of(tmp_path, launcher, without, "another")
        spec.write_text(spec.read_text().replace(str(launcher.repository), str(tmp_path / "own")))
        refused(tune, spec, "has no model 'another' in its repository", "copy the model's")


def test_a_server_that_lacks_the_backend(
    launcher: LocalLauncher, tmp_path: Path, tune: Tune
) -> None:
    (tmp_path / "none").mkdir()
    with their_server(launcher, f"--backend-directory={tmp_path / 'none'}") as endpoints:
        with Control(endpoints) as control, pytest.raises(DeployRefusedError):
            control.load(MODEL, None, 30)
        cure = "--backend-directory=DIR"
        refused(tune, spec_of(tmp_path, launcher, at(endpoints)), "backend 'python'", cure)


def test_run_reports_a_server_without_the_backend_at_the_first_try(
    launcher: LocalLauncher, tmp_path: Path, tune: Tune
) -> None:
    (tmp_path / "none").mkdir()
    with their_server(launcher, f"--backend-directory={tmp_path / 'none'}") as endpoints:
        spec = spec_of(tmp_path, launcher, at(endpoints))
        assert tune("run", spec, "--output", tmp_path / "results") == 4
        assert "unable to find backend library for backend 'python'" in tune.err
        assert "start that server with a directory that has it" in tune.err


@pytest.mark.parametrize("mode", [ServerMode.REMOTE, ServerMode.DOCKER])
# The docker SDK leaves its socket open when nobody answers.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_endpoint_that_accepts_and_never_answers_is_refused_in_time(
    launcher: LocalLauncher,
    tmp_path: Path,
    tune: Tune,
    monkeypatch: pytest.MonkeyPatch,
    mode: ServerMode,
) -> None:
    assert max(remote._TIMEOUT_S, engine._ANSWER_S) <= 5
    monkeypatch.setattr(remote, "_TIMEOUT_S", 0.2)
    monkeypatch.setattr(engine, "_ANSWER_S", 0.2)
    with socket.create_server((ADDRESS, 0)) as silent:
        where = f"{ADDRESS}:{silent.getsockname()[1]}"
        monkeypatch.setenv("DOCKER_HOST", f"tcp://{where}")
        server = "{mode: docker, image: any}"
        if mode is ServerMode.REMOTE:
            server = at(Endpoints(where, where, None)).replace(", metrics: None", "")
        refused(tune, spec_of(tmp_path, launcher, server), where)
