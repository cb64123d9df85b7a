"""A newcomer's mistakes that only a program or a connection shows, on the real command."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.model_files import REPOSITORY

pytestmark = pytest.mark.integration

SPEC = f"""\
model: emulated-accelerator
repository: {REPOSITORY}
slo: [p99_latency <= 40ms]
space: {{instance_group.count: {{int: [1, 4]}}}}
"""


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Tune:
    return Tune(capsys)


# The docker SDK leaves its socket open when nobody answers.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("server", "variable", "message", "cure"),
    [
        (
            "{binary: /usr/bin/env}",
            {},
            "spec.yaml:5:10: /usr/bin/env does not start",
            "correct the spec",
        ),
        (
            "{}",
            {"TUNE_TRITONSERVER": "/bin/ls"},
            "(named by $TUNE_TRITONSERVER)",
            "correct $TUNE_TRITONSERVER",
        ),
        (
            "{mode: remote, http: '127.0.0.1:9', grpc: '127.0.0.1:9'}",
            {},
            "spec.yaml:5:24: no server answers at http://127.0.0.1:9",
            "server.http",
        ),
        (
            "{mode: docker, image: i}",
            {"DOCKER_HOST": "unix:///no.sock"},
            "spec.yaml:5:24: no container engine answers at unix:///no.sock: No such file",
            "set DOCKER_HOST",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_server_that_cannot_be_had(
    command: str,
    server: str,
    variable: dict[str, str],
    message: str,
    cure: str,
    tmp_path: Path,
    tune: Tune,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    Path("spec.yaml").write_text(f"{SPEC}server: {server}\n")
    assert tune(command, "spec.yaml") == 4, tune.err
    gc.collect()
    error, _, cures = tune.err.partition("\nnext:  ")
    assert message in error
    assert cure in cures
    assert "Traceback" not in tune.err
