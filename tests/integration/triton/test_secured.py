"""Servers that are reached over TLS and refuse who does not send a header, and what tune tells."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.newer_triton import CERTIFICATES, HOST, VERSION, NewerTriton
from builders.triton_repository import MODEL, make_repository

from tuner.errors import EnvironmentNotReadyError, TunerError
from tuner.load.generators import TUNE_CLIENT
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import StreamsLoad, streams_load
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import Installation, Origin
from tuner.server.control import Control
from tuner.server.server import Endpoints
from tuner.spec.server import ServerSpec
from tuner.spec.workload import Protocol, Workload
from tuner.triton.doctor import run_checks
from tuner.triton.remote import RemoteLauncher, endpoints_of

pytestmark = pytest.mark.integration

TOKEN = "correct-horse-battery"
WRONG = "wrong-staple-of-the-tests"
ENVIRONMENT = {"TRITON_AUTHORIZATION": f"Bearer {TOKEN}"}


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[NewerTriton]:
    header = ("authorization", f"Bearer {TOKEN}")
    with NewerTriton(make_repository(tmp_path), demanded=header) as server:
        yield server


@pytest.fixture
def spec(theirs: NewerTriton) -> ServerSpec:
    addresses = {service: f"{HOST}:{port}" for service, port in theirs.ports.items()}
    names = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}
    tls = {field: CERTIFICATES / name for field, name in names.items()}
    headers = {"Authorization": "TRITON_AUTHORIZATION"}
    return ServerSpec.model_validate(
        {"mode": "remote", **addresses, "tls": tls, "headers_from_env": headers}
    )


@pytest.fixture
def endpoints(spec: ServerSpec) -> Endpoints:
    return endpoints_of(spec, ENVIRONMENT)


def test_server_is_controlled_watched_and_identified_by_version_and_hardware(
    endpoints: Endpoints, spec: ServerSpec
) -> None:
    launcher = RemoteLauncher(endpoints, (MODEL,))
    assert launcher.version() == f"{VERSION}, remote; GiB of memory: gpu [79], cpu [64]"
    with launcher.launch([], Path("unused")) as server, Control(server.endpoints) as control:
        assert server.alive()
        control.load(MODEL, None, 30)
        assert control.ready(MODEL)
        assert control.running_config(MODEL).max_batch_size == 8
        assert control.statistics(MODEL).success_count == 0
        assert control.metrics() is not None
    (check,) = (c for c in run_checks(ENVIRONMENT, server=spec) if c.id == "remote")
    assert check.ok
    assert TOKEN not in repr(endpoints) + repr(launcher)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"headers": {}}, "HTTP status 401"),
        ({"tls": None}, "no server answers at http://"),
        ({"tls": {}}, "certificate verify failed"),
        ({"tls": {"ca_file": CERTIFICATES / "ca.pem"}}, "no server answers at https://"),
        ({"tls": {"ca_file": CERTIFICATES / "server.key"}}, "no server answers at https://"),
    ],
)
def test_mistakes_are_reported(endpoints: Endpoints, changed: dict[str, object], said: str) -> None:
    if isinstance(tls := changed.get("tls"), dict):
        changed = {"tls": type(endpoints.tls)(**tls)}
    with pytest.raises(EnvironmentNotReadyError, match=said) as refused:
        RemoteLauncher(dataclasses.replace(endpoints, **changed), (MODEL,)).version()
    assert "headers_from_env" in refused.value.hint


def load_on(endpoints: Endpoints, control: Control, directory: Path, protocol: str) -> StreamsLoad:
    program = Installation(Path("none"), "none", Origin.PATH, dict(os.environ))
    site = Site(control, endpoints, program, directory)
    return streams_load(
        Workload(protocol=protocol), {MODEL: StreamRequests(MODEL)}, [MODEL], site, TUNE_CLIENT
    )


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_requests_with_the_header_reach_the_server_and_the_token_is_stored_nowhere(
    endpoints: Endpoints, theirs: NewerTriton, tmp_path: Path, protocol: str
) -> None:
    with Control(endpoints) as control:
        control.load(MODEL, None, 30)
        load = load_on(endpoints, control, tmp_path, protocol)
        load.await_first_answers(10.0, lambda _: None)
        assert (load.seconds_for(2, 10.0) or 99.0) < 10.0
        assert load.answers()[MODEL].none_because == ""
        window = Window(1.0, 0.2, 30.0)
        measured = load.measure(LoadPoint(Arrivals.POISSON, 50.0), window, seed=1)
    assert measured.error_rate == 0
    assert measured.completed_count > 0
    assert TOKEN not in repr(measured)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()]


@pytest.mark.parametrize("protocol", Protocol)
def test_a_value_that_the_server_repeats_is_hidden(
    endpoints: Endpoints, spec: ServerSpec, tmp_path: Path, protocol: Protocol
) -> None:
    wrong = endpoints_of(spec, {"TRITON_AUTHORIZATION": f"Bearer {WRONG}"})
    with Control(wrong) as control, pytest.raises(TunerError) as refused:
        control.load(MODEL, None, 30)
    assert refused.value.message.endswith("(not allowed: Bearer ***)")
    with Control(endpoints) as control:
        control.load(MODEL, None, 30)
        load = load_on(wrong, control, tmp_path, protocol.value)
        for act in (
            lambda: load.await_first_answers(10.0, lambda _: None),
            lambda: load.measure(LoadPoint(Arrivals.CLOSED, 1.0), Window(0.3, 0.1, 30.0), seed=1),
        ):
            with pytest.raises(TunerError) as refused:
                act()
            assert WRONG not in refused.value.message
            assert "not allowed: Bearer ***" in refused.value.message


@pytest.mark.parametrize("value", ["", "two\nlines", "umläut"])
def test_invalid_header_value_is_refused_without_printing_it(spec: ServerSpec, value: str) -> None:
    with pytest.raises(
        EnvironmentNotReadyError, match=r"\$TRITON_AUTHORIZATION is not set, or"
    ) as no:
        endpoints_of(spec, {"TRITON_AUTHORIZATION": value})
    assert not value or value not in str(no.value)
