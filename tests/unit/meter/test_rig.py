"""What the bench of a run is made with: its windows, patience, caches, programs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from builders.candidates import candidate_of, the_one
from builders.jobs import a_job
from builders.measurements import latency_slo
from builders.messages_jobs import MOST, RARE, a_mix

from tuner.fleet import BenchPlace
from tuner.load.setup import PATIENCE_S
from tuner.machine.cpus import Cores
from tuner.machine.process import Priority, private_directory
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import (
    EarlyEnd,
    informing_window,
    soak_of,
    window_of,
)
from tuner.meter import session as rig
from tuner.meter.cache import ResponseCache
from tuner.meter.session import set_up_bench
from tuner.prepare import tools as installing
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.serving import Serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import Programs, find_programs
from tuner.progress.events import Silent
from tuner.run import bench_side
from tuner.server.binaries import Installation, Origin
from tuner.server.server import Place
from tuner.spec.model import Spec

REPOSITORY = Path(__file__).parents[3] / "model_repository"
TEXT = """\
model: emulated-accelerator
repository: {repository}
workload: {{window: 4s, max_window: 20s, warmup: 750ms}}
slo: [p99_latency <= 400ms, p50_latency <= 5ms, avg_latency <= 10ms, error_rate <= 0%]
space: {{instance_group.count: {{int: [1, 4]}}{space}}}
"""


def job_of(directory: Path, more: str = "", space: str = "") -> Job:
    spec = directory / "spec.yaml"
    spec.write_text(TEXT.format(repository=REPOSITORY, space=space) + more)
    return prepare(Request(spec=spec))


def spec_with(*slo: str) -> Spec:
    return Spec.model_validate(
        {
            "model": "m",
            "repository": "r",
            "slo": list(slo),
            "workload": {"window": "4s", "max_window": "20s", "warmup": "750ms"},
            "space": {"instance_group.count": {"int": [1, 4]}},
        }
    )


SLOS = ("p99_latency <= 400ms", "p50_latency <= 5ms", "avg_latency <= 10ms", "error_rate <= 0%")


@pytest.mark.parametrize(
    ("load", "window_s", "warmup_s"),
    [
        (LoadPoint(Arrivals.POISSON, 1000.0), 4.0, 0.8),  # warm-up: twice the largest bound
        (LoadPoint(Arrivals.POISSON, 50.0), 1.05 * 459 / 50, 0.8),
        (LoadPoint(Arrivals.POISSON, 1.0), 20.0, 0.8),
        (LoadPoint(Arrivals.CLOSED, 1.0), 4.0, 0.75),
    ],
)
def test_a_window_is_as_long_as_its_percentile_needs_at_that_rate(
    load: LoadPoint, window_s: float, warmup_s: float
) -> None:
    window = window_of(spec_with(*SLOS), load)
    assert window.duration_s == pytest.approx(window_s)
    assert window.warmup_s == pytest.approx(warmup_s)
    assert window.tail_s == pytest.approx(0.6)  # half as long again as the largest bound
    assert window.bounds == (latency_slo(0.99, 0.4), latency_slo(0.5, 0.005))


def test_a_window_sees_thirty_busy_times_of_bursts() -> None:
    arrivals = {"kind": "bursts", "burst_share": 0.1, "burst_length": "100ms"}
    spec = spec_with(*SLOS)
    bursts = spec.workload.model_validate(
        {**spec.workload.model_dump(), "arrivals": arrivals, "max_window": "1m"}
    )
    load = LoadPoint(Arrivals.BURSTS, 1000.0)
    spec = spec.model_copy(update={"workload": bursts})
    assert window_of(spec, load).duration_s == pytest.approx(30.0)


def test_a_closed_loops_window_follows_the_rate_that_was_seen() -> None:
    load = LoadPoint(Arrivals.CLOSED, 8.0)
    assert window_of(spec_with(*SLOS), load, 50.0).duration_s == pytest.approx(1.05 * 459 / 50)


def test_a_spec_that_bounds_no_latency_has_the_shortest_window() -> None:
    window = window_of(spec_with("error_rate <= 0%"), LoadPoint(Arrivals.POISSON, 10.0))
    assert (window.duration_s, window.tail_s, window.bounds) == (4.0, 0.25, ())


@pytest.mark.parametrize(
    ("rate", "window_s", "informing_s"),
    [
        (1000.0, 2.0, 2.0),
        (50.0, 1.05 * 299 / 50, 2.0),
        (1.0, 20.0, 20.0),
        (5.0, 20.0, 8.0),
    ],
)
def test_a_search_has_shorter_windows_and_what_only_informs_it_the_shortest(
    rate: float, window_s: float, informing_s: float
) -> None:
    spec, load = spec_with(*SLOS), LoadPoint(Arrivals.POISSON, rate)
    window, informing = window_of(spec, load, brief=True), informing_window(spec, load)
    assert window.duration_s == pytest.approx(window_s)
    assert informing == replace(window, duration_s=informing.duration_s, ends_early=EarlyEnd.NEVER)
    assert informing.duration_s == pytest.approx(informing_s)


class Launcher:
    """Stands in for what starts servers."""

    def __init__(self, *, restartable: bool) -> None:
        self.restartable = restartable
        self.place = Place.HERE if restartable else Place.ELSEWHERE


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the bench and its load generator were made with."""
    seen: dict[str, Any] = {}

    def generator(*arguments: Any, **options: Any) -> None:
        seen.update(options, arguments=arguments)

    def bench(_: object, generator_at: Any, rules: Any, book: TimeBook, __: Cores) -> object:
        generator_at("endpoints")
        seen.update(rules=rules, book=book)
        return SimpleNamespace()

    monkeypatch.setattr(rig, "streams_load", generator)
    monkeypatch.setattr(rig, "TritonBench", bench)
    monkeypatch.setattr(rig, "last_words", lambda server: f"words of {server}")
    return seen


PROGRAM = Installation(Path("pa"), "2.51.0", Origin.PATH, {})
REMOTE = "server: {mode: remote, http: 'h:1', grpc: 'h:2'}\n"


@pytest.mark.parametrize(
    ("more", "restartable", "patience_s", "priority"),
    [
        ("server: {load_timeout: 77s, gpus: [1]}\n", True, PATIENCE_S, Priority.NICE),
        (REMOTE, False, 120.0, Priority.NORMAL),
    ],
)
def test_a_bench_is_made_with_the_specs_words_and_is_patient_with_foreign_servers(
    more: str,
    restartable: bool,
    patience_s: float,
    priority: Priority,
    tmp_path: Path,
    built: dict[str, Any],
) -> None:
    job, calls = job_of(tmp_path, more), list[object]()
    launcher = cast("Any", Launcher(restartable=restartable))
    programs = Programs(launcher, PROGRAM, cast("Any", None), "2.51.0")
    deployer = SimpleNamespace(control="control", server="server")
    book, served = TimeBook(), Serving(job, programs, cast("Any", deployer))
    checkpoint, cores = lambda: calls.append("asked"), Cores((0,), (1,))
    with set_up_bench(served, Silent(), book, checkpoint, calls.append, cores):
        _, streams, served, site, _ = built["arguments"]
        assert {name: requests.model for name, requests in streams.items()} == {
            "emulated-accelerator": "emulated-accelerator"
        }
        assert [*served] == ["emulated-accelerator"]
        assert (site.control, site.endpoints) == ("control", "endpoints")
        assert site.program == replace(PROGRAM, cpus=(1,), priority=priority)
        assert site.patience_s == patience_s
        assert site.directory.is_dir()
        assert site.server_words() == "words of server"
        assert (site.place, site.gpus) == (launcher.place, job.spec.server.gpus)
        rules = built["rules"]
        assert rules.first_answer_s == float(job.spec.server.load_timeout)
        assert rules.slos == job.spec.slos
        assert rules.arrivals is Arrivals.POISSON
        load = LoadPoint(Arrivals.POISSON, 50.0)
        assert rules.window(load, None) == window_of(job.spec, load, brief=True)
        rules.checkpoint()
        rules.rejected("rejected")
        assert calls == ["asked", "rejected"]
        assert built["book"] is book
    assert not site.directory.exists()


@pytest.mark.parametrize(("remote", "cache"), [(True, ResponseCache(None)), (False, None)])
def test_a_foreign_server_may_have_a_cache_that_its_arguments_do_not_tell(
    remote: bool, cache: ResponseCache | None, tmp_path: Path, built: dict[str, Any]
) -> None:
    space = ", response_cache.enable: {choice: [on, off]}"
    job = job_of(tmp_path, REMOTE if remote else "", space if remote else "")
    programs = Programs(
        cast("Any", Launcher(restartable=not remote)), PROGRAM, cast("Any", None), "2"
    )
    deployer = SimpleNamespace(control=None, server=None)
    candidate = candidate_of({"response_cache.enable": True}, model=job.spec.name)
    served = Serving(job, programs, cast("Any", deployer))
    with set_up_bench(served, Silent(), TimeBook(), lambda: None):
        assert built["rules"].cache.of(candidate) == cache


@pytest.mark.parametrize(
    ("backend", "python", "looked"),
    [
        ("python", Path("/usr/bin/python3"), True),
        ("", Path("/usr/bin/python3"), True),
        ("onnxruntime", Path("/usr/bin/python3"), False),
        ("python", None, False),
    ],
)
def test_numpy_is_looked_for_only_where_a_python_model_imports_it_from_elsewhere(
    backend: str,
    python: Path | None,
    looked: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    @contextmanager
    def launcher(spec: Spec, _: object, environment: Mapping[str, str]) -> Iterator[Any]:
        seen.append((spec.server.args, environment))
        known = {"version": lambda: "2.51.0", "check_backends": lambda _: ""}
        yield SimpleNamespace(python=python, **known)

    @contextmanager
    def perf_analyzer(named: str | None, environment: Mapping[str, str]) -> Iterator[Any]:
        seen.append((named, environment))
        yield Installation(Path("perf_analyzer"), "2.50.0", Origin.PATH, environment)

    monkeypatch.setattr(installing, "server_launcher", launcher)
    monkeypatch.setattr(installing.binaries, "perf_analyzer", perf_analyzer)
    monkeypatch.setattr(installing, "numpy_of_models", lambda python, _: seen.append(python))
    monkeypatch.setattr(installing, "host_of", lambda _, environment: ("host", environment))
    job = job_of(tmp_path, "server: {args: [--log-verbose=1]}\n")
    the_one(job.served.models).base.file.backend = backend
    monkeypatch.setattr(
        installing.binaries, "fetch_tritonserver", lambda *given: fetched.append(given)
    )
    fetched: list[Any] = []
    with find_programs(job, {"A": "b"}) as programs:
        assert (programs.server_version, programs.perf_analyzer.version) == ("2.51.0", "2.50.0")
        assert programs.host == ("host", {"A": "b"})
        assert programs.versions()["perf_analyzer"] == "2.50.0"
    assert seen[:2] == [(("--log-verbose=1",), {"A": "b"}), (None, {"A": "b"})]
    assert seen[2:] == ([python] if looked else [])
    assert fetched == []  # by a plan
    with find_programs(job, {"A": "b"}, print):
        assert fetched == [(None, {"A": "b"}, print)]


@pytest.mark.parametrize(
    ("load", "least_s", "soak_s"),
    [
        (LoadPoint(Arrivals.POISSON, 1000.0), 0.0, 30.0),
        (LoadPoint(Arrivals.POISSON, 10.0), 0.0, 130.7),  # five late ones of 1307
        (LoadPoint(Arrivals.POISSON, 0.5), 0.0, 600.0),  # not for ever
        (LoadPoint(Arrivals.POISSON, 1000.0), 45.0, 45.0),
        (LoadPoint(Arrivals.POISSON, 1000.0), 4500.0, 600.0),
        (LoadPoint(Arrivals.CLOSED, 8.0), 0.0, 30.0),
    ],
)
def test_a_soak_lasts_as_long_as_its_percentile_needs(
    load: LoadPoint, least_s: float, soak_s: float
) -> None:
    spec = spec_with("p99_latency <= 400ms")
    soak, window = soak_of(spec, load, None, least_s), window_of(spec, load)
    assert soak.duration_s == pytest.approx(soak_s)
    assert (soak.bounds, soak.warmup_s, soak.tail_s) == (
        window.bounds,
        window.warmup_s,
        window.tail_s,
    )
    assert soak.deadline_s > soak.total_s


def test_a_soak_lasts_many_times_what_a_slow_slo_allows() -> None:
    load = LoadPoint(Arrivals.POISSON, 1000.0)
    assert soak_of(spec_with("p99_latency <= 4s"), load).duration_s == pytest.approx(80.0)


def test_window_is_as_long_as_the_percentile_of_the_rarest_stream_needs() -> None:
    beside = {"model": "b", "rate": "20/s", "slo": ["p90_latency <= 100ms"]}
    spec = a_mix(most=MOST, rare=RARE, beside=beside)
    window = window_of(spec, LoadPoint(Arrivals.POISSON, 200.0))
    assert window.duration_s == pytest.approx(1.05 * 459 / 10.0)
    assert window.bounds == (
        latency_slo(0.99, 0.04, "most"),
        latency_slo(0.99, 0.2, "rare"),
        latency_slo(0.9, 0.1, "beside"),
    )
    assert window.of("rare").bounds == (latency_slo(0.99, 0.2, "rare"),)
    fast = window_of(spec, LoadPoint(Arrivals.POISSON, 1e6))
    assert fast.duration_s == pytest.approx(1.05 * 44 / 20.0)  # a background comes no faster
    soak = soak_of(spec, LoadPoint(Arrivals.POISSON, 200.0))
    assert soak.duration_s == pytest.approx(1307 / 10.0)


#: More than the age from which on an abandoned directory is removed.
AGE_S = 61.0


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def an_hour_later(temporary: Path, hours: int = 1) -> list[Path]:
    """Ages what is there, then does what every start of a server does; returns what is left."""
    for path in temporary.iterdir():
        then = path.stat().st_mtime - hours * 60 * AGE_S
        os.utime(path, (then, then))
    before = set(temporary.iterdir())
    with private_directory() as sweeping:
        return sorted(before & (set(temporary.iterdir()) - {sweeping}))


@contextmanager
def a_rig(job: Job, tmp_path: Path) -> Iterator[None]:
    programs = Programs(cast("Any", None), PROGRAM, cast("Any", None), "2.51.0")
    served = Serving(job, programs, cast("Any", None))
    with set_up_bench(served, Silent(), TimeBook(), lambda: None):
        yield


def a_benchs_log(_: Job, tmp_path: Path) -> AbstractContextManager[Path]:
    return bench_side._logs(tmp_path / "not here", BenchPlace("box"))


@pytest.mark.parametrize("owner", [a_rig, a_benchs_log])
def test_an_open_directory_is_never_swept(
    owner: Any,
    job: Job,
    tmp_path: Path,
    temporary: Path,
) -> None:
    with owner(job, tmp_path):
        (mine,) = temporary.iterdir()
        (mine / "inputs-1.json").write_text("{}")
        assert an_hour_later(temporary) == [mine]
        assert (mine / "inputs-1.json").exists()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("hours", [1, -1])
def test_an_abandoned_one_is_removed_and_a_foreign_one_is_not(hours: int, temporary: Path) -> None:
    abandoned = temporary / ".tune-private-abandoned"
    foreign = [temporary / name for name in ("triton-tune-old", "tune-gpu-bundle", "other")]
    for path in (abandoned, *foreign):
        path.mkdir()
        (path / "file").touch()
    assert an_hour_later(temporary, hours) == sorted(foreign)
