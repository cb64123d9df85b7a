"""A real tritonserver of somebody else, with TLS over gRPC, that serves only who sends its key."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import pytest
from builders.e2e_workplace import MODEL, Workplace
from builders.newer_triton import CERTIFICATES

from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT, GeneratorKind
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import perf_analyzer, tritonserver
from tuner.server.control import Control
from tuner.server.server import Endpoints, Server
from tuner.spec.server import Tls
from tuner.spec.workload import Workload
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long]

ARGS = (
    "--grpc-use-ssl=true",
    "--grpc-use-ssl-mutual=true",
    f"--grpc-server-cert={CERTIFICATES / 'server.pem'}",
    f"--grpc-server-key={CERTIFICATES / 'server.key'}",
    f"--grpc-root-cert={CERTIFICATES / 'ca.pem'}",
)
FILES = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}
TLS = Tls(services=("grpc",), **{field: CERTIFICATES / name for field, name in FILES.items()})  # type: ignore[arg-type]
SERVER = """\
server:
  mode: remote
  http: {0.http}
  grpc: {0.grpc}
  metrics: {0.metrics}
  tls:
    ca_file: {1}/ca.pem
    cert_file: {1}/client.pem
    key_file: {1}/client.key
    services: [grpc]
  headers_from_env: {{tune-key: TRITON_KEY, triton-grpc-protocol-tune-key: TRITON_KEY}}
"""
SERVED = ("model-repository", "inference", "statistics", "model-config", "metadata")


@pytest.fixture
def theirs(workplace: Workplace) -> Iterator[Server]:
    with tritonserver(None, os.environ) as installation:
        repository = workplace.directory / "repository"
        launcher = LocalLauncher(installation, repository, ARGS, restricted=SERVED)
        with launcher.launch([], workplace.directory / "server.log") as server:
            yield server


def test_protected_server_is_tuned_and_its_key_appears_nowhere(
    theirs: Server, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = str(theirs.endpoints.key)
    spec = workplace.spec(trials=2)
    spec.write_text(spec.read_text() + SERVER.format(theirs.endpoints, CERTIFICATES))
    monkeypatch.setenv("TRITON_KEY", "not-the-key-of-the-server")
    refused = workplace.tune("run", str(spec))
    assert refused.returncode == 4
    assert "requires a key that tune does not send" in refused.stderr
    monkeypatch.setenv("TRITON_KEY", key)
    commands = [("doctor", str(spec)), ("plan", "-v", str(spec)), ("run", "-v", str(spec))]
    done = [workplace.tune(*command) for command in commands]
    assert [d.returncode for d in done[1:]] == [0, 0], done[-1].stderr
    assert "your TRITON_KEY, TRITON_KEY as headers" in done[1].stdout + done[1].stderr
    assert "perf_analyzer would show the headers" in done[1].stdout + done[1].stderr
    assert "GiB of memory: gpu [], cpu [" in (workplace.run / "manifest.json").read_text()
    done += [workplace.tune("report", str(workplace.run)), refused]
    assert not [d.args for d in done if key in d.stdout + d.stderr]
    (workplace.directory / "server.log").unlink()  # the server's own
    written = [path for path in workplace.directory.rglob("*") if path.is_file()]
    assert not [path for path in written if key.encode() in path.read_bytes()]
    assert len(written) > 10


@pytest.mark.parametrize("kind", [PERF_ANALYZER, TUNE_CLIENT], ids=lambda kind: kind.name)
def test_load_is_put_on_it_over_tls(workplace: Workplace, kind: GeneratorKind) -> None:
    with (
        tritonserver(None, os.environ) as installation,
        perf_analyzer(None, os.environ) as program,
        LocalLauncher(installation, workplace.directory / "repository", ARGS, restricted=()).launch(
            [], workplace.directory / "server.log"
        ) as server,
    ):
        endpoints: Endpoints = dataclasses.replace(server.endpoints, tls=TLS)
        with Control(endpoints) as control:
            control.load(MODEL, None, 60.0)
            site = Site(control, endpoints, program, workplace.directory)
            load = streams_load(Workload(), {MODEL: StreamRequests(MODEL)}, [MODEL], site, kind)
            measured = load.measure(LoadPoint(Arrivals.CLOSED, 2.0), Window(1.0, 0.2, 60.0), seed=1)
    assert measured.failed_count == 0
    assert measured.completed_count > 0
    assert ("--ssl-grpc-use-ssl" in measured.command) == (kind is PERF_ANALYZER)
