"""How a run decides which CPUs server and load generator have, and what it says of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from builders.emulated import FreshBench
from builders.jobs import SPEC as QUICK
from builders.jobs import a_job
from builders.measurements import synthetic_server

from tuner.errors import LoadFailedError
from tuner.machine.cpus import ANY, LITTLE, Cores
from tuner.measurement.measurement import Measurement
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.serving import Serving
from tuner.prepare.timebook import TimeBook
from tuner.progress.events import Silent
from tuner.reason import Reason
from tuner.search import cores as module
from tuner.search.cores import cores_note, leaves_its_cpus, settle_cores
from tuner.sentences import sentence

SPEC = """\
model: m
repository: {repository}
slo: [p99_latency <= 40ms]
space: {{instance_group.count: {{int: [1, 4]}}{space}}}
"""
CONFIG = """\
name: "m"
backend: "{backend}"
max_batch_size: 4
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 8 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
THREADS = 'parameters {{ key: "intra_op_thread_count" value {{ string_value: "{}" }} }}\n'
SPLIT = Cores((0, 1, 2), (3,), of=4)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four CPUs, where a load generator may have priority."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("tuner.machine.cpus.read_quota", lambda: None)
    monkeypatch.setattr("tuner.machine.cpus._SIBLINGS", "/nowhere/{}")
    monkeypatch.setattr(module, "may_be_first", lambda: True)


class Looks(FreshBench):
    """Answers ``rate`` requests per second when saturated, beside so busy a load generator."""

    def __init__(self, load_cores: float | None, rate: float = 250.0, **more: Any) -> None:
        super().__init__({}, **more)
        self.load_cores, self.rate = load_cores, rate

    def deploy(self, candidate: Any, **_: Any) -> Any:
        self.deployed.append((candidate, False))

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        return {"": self.alone_s}

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        self.looks.append((concurrency, seed))
        return replace(synthetic_server(self.rate, 1e9), client_cores=self.load_cores)


class Refuses(Looks):
    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        raise LoadFailedError("it refuses them all")


Settle = Callable[..., tuple[Cores, list[str]]]


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Settle:
    def settled(
        job: Job, bench: Looks, known: Cores | None = None, likely: Sequence[Any] = ()
    ) -> tuple[Cores, list[str]]:
        @contextmanager
        def set_up_bench(*_: object) -> Iterator[Looks]:
            yield bench

        notes: list[str] = []
        events = Silent()
        monkeypatch.setattr(events, "note", notes.append)
        monkeypatch.setattr(module, "set_up_bench", set_up_bench)
        served = Serving(job, cast("Any", None), cast("Any", None))
        cores = settle_cores(served, events, TimeBook(), lambda: None, known, likely)
        return cores, notes

    return settled


def with_spec(directory: Path, more: str) -> Job:
    return a_job(directory, QUICK + more.replace("{", "{{").replace("}", "}}"))


@pytest.mark.parametrize(
    ("load_cores", "expected", "said"),
    [
        (0.08, ANY, "share all CPUs, the latter with priority: the load generator takes 8%"),
        (LITTLE, SPLIT, "the server has CPUs 0-2 and the load generator CPU 3: "),
        (2.0, SPLIT, "takes 200% of one"),
        (None, SPLIT, "the server has"),
    ],
)
def test_what_the_load_generator_took_at_saturation_decides(
    load_cores: float | None, expected: Cores, said: str, tmp_path: Path, settle: Settle
) -> None:
    bench = Looks(load_cores)
    cores, notes = settle(a_job(tmp_path), bench)
    assert cores == expected
    assert len(bench.looks) == len(notes) == 1
    assert said in notes[0]


class Served(Looks):
    """What the load generator takes for a likely and the current config; None: not served."""

    def __init__(self, likely: float | None, current: float | None) -> None:
        super().__init__(None)
        self.likely, self.current = likely, current

    def deploy(self, candidate: Any, **_: Any) -> Any:
        self.load_cores = self.likely if candidate == "likely" else self.current
        if self.load_cores is None:
            raise LoadFailedError("out of memory")

    def lost(self, reason: Reason) -> None:
        assert sentence(reason) == "out of memory"


@pytest.mark.parametrize(
    ("likely", "current", "expected"),
    [(0.34, 0.04, SPLIT), (0.08, 0.9, ANY), (None, 0.04, ANY), (None, None, SPLIT)],
)
def test_likely_config_says_what_the_load_generator_needs_where_it_can_be_served(
    likely: float | None,
    current: float | None,
    expected: Cores,
    tmp_path: Path,
    settle: Settle,
) -> None:
    bench = Served(likely, current)
    assert settle(a_job(tmp_path), bench, likely=["likely"])[0] == expected


def test_slow_model_is_not_saturated_for_it(tmp_path: Path, settle: Settle) -> None:
    bench = Looks(2.0, alone_s=0.5)
    assert settle(a_job(tmp_path), bench)[0] == ANY
    assert bench.looks == []


def test_unmeasurable_load_gets_separate_cpus(tmp_path: Path, settle: Settle) -> None:
    assert settle(a_job(tmp_path), Refuses(0.01))[0] == SPLIT


def test_listed_loads_need_no_more_than_the_highest_of_them(tmp_path: Path, settle: Settle) -> None:
    listed = "workload: {arrivals: {kind: poisson, rate: [10, 50]}}\n"
    assert settle(with_spec(tmp_path, listed), Looks(0.5, rate=250.0))[0] == ANY
    assert settle(with_spec(tmp_path, listed), Looks(0.5, rate=100.0))[0] == SPLIT


@pytest.mark.parametrize("known", [ANY, SPLIT])
def test_run_that_goes_on_keeps_what_it_decided(
    known: Cores, tmp_path: Path, settle: Settle
) -> None:
    bench = Looks(0.08 if known is SPLIT else 2.0)
    assert settle(a_job(tmp_path), bench, known)[0] == known
    assert bench.deployed == []


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("server: {cpus: 0-1}\n", Cores((0, 1), (2, 3))),
        ("server: {cpus: all}\n", ANY),
        ("workload: {cpus: all}\n", ANY),
        ("server: {mode: remote, http: 'h:1', grpc: 'h:2'}\n", ANY),
        (
            "server: {mode: remote, http: 'h:1', grpc: 'h:2'}\nworkload: {cpus: 3}\n",
            Cores((), (3,)),
        ),
    ],
)
def test_what_the_spec_says_is_not_measured(
    named: str, expected: Cores, tmp_path: Path, settle: Settle
) -> None:
    bench = Looks(2.0)
    assert settle(with_spec(tmp_path, named), bench)[0] == expected
    assert bench.deployed == []


def test_without_permission_for_priority_each_gets_separate_cpus(
    tmp_path: Path, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "may_be_first", lambda: False)
    bench = Looks(0.01)
    cores, (note,) = settle(a_job(tmp_path), bench)
    assert (cores, bench.looks) == (SPLIT, [])
    assert "CAP_SYS_NICE" in note


def onnx(
    directory: Path, threads: str | None, space: str = "", backend: str = "onnxruntime"
) -> Job:
    model = directory / "models" / "m"
    (model / "1").mkdir(parents=True, exist_ok=True)
    count = "" if threads is None else THREADS.format(threads)
    (model / "config.pbtxt").write_text(CONFIG.format(backend=backend) + count)
    spec = directory / "spec.yaml"
    spec.write_text(SPEC.format(repository=directory / "models", space=space))
    return prepare(Request(spec=spec))


SEARCHED = ", parameters.intra_op_thread_count: {choice: ['1', '2']}"


@pytest.mark.parametrize(
    ("threads", "space", "leaves"),
    [
        (None, "", True),
        ("0", "", True),
        ("-1", "", True),
        ("2", "", False),
        (None, SEARCHED, True),
        ("2", SEARCHED, False),
        ("2", SEARCHED.replace("'1'", "unset"), True),
    ],
)
def test_onnx_config_without_a_thread_count_leaves_the_servers_cpus(
    threads: str | None, space: str, leaves: bool, tmp_path: Path
) -> None:
    assert leaves_its_cpus(onnx(tmp_path, threads, space)) is leaves


def test_server_of_such_a_config_has_all_cpus_however_much_its_load_takes(
    tmp_path: Path, settle: Settle
) -> None:
    """It would have the load generator's core too, and each config with a count would not."""
    bench = Looks(2.0)
    cores, (note,) = settle(onnx(tmp_path, None), bench)
    assert (cores, bench.looks) == (ANY, [])
    assert "intra_op_thread_count" in note


def test_named_cpus_with_an_open_thread_count_are_reported_as_a_contradiction(
    tmp_path: Path, settle: Settle
) -> None:
    job = onnx(tmp_path, None)
    named = job.spec.server.model_copy(update={"cpus": (0, 1)})
    job = replace(job, spec=job.spec.model_copy(update={"server": named}))
    cores, (note,) = settle(job, Looks(2.0))
    assert cores == Cores((0, 1), (2, 3))
    assert note == cores_note(job)
    assert note.endswith("set their count")


def test_models_of_other_backends_stay_on_the_servers_cpus(tmp_path: Path) -> None:
    assert not leaves_its_cpus(onnx(tmp_path, None, backend="pytorch"))


CODE = """
import xgboost
import triton_python_backend_utils


class TritonPythonModel:
    def execute(self, requests):
        return []
"""


def of_python(directory: Path, code: str = CODE, space: str = "") -> Job:
    onnx(directory, "1", space, backend="python")
    (directory / "models" / "m" / "1" / "model.py").write_text(code)
    return prepare(Request(spec=directory / "spec.yaml"))


@pytest.mark.parametrize(
    ("code", "space", "shares"),
    [
        (CODE, "", True),
        (CODE, ", environment.OMP_NUM_THREADS: {choice: [unset, 1]}", True),
        (CODE.replace("import xgboost", "import numpy"), "", False),
        (CODE.replace("return []", "self.booster.set_param({'nthread': 1})"), "", False),
    ],
)
def test_server_has_all_cpus_where_a_models_threads_follow_them(
    code: str, space: str, shares: bool, tmp_path: Path, settle: Settle
) -> None:
    cores, (said,) = settle(of_python(tmp_path, code, space), Looks(2.0))
    assert (cores == ANY) is shares
    assert ("as many threads as the server has CPUs" in said) is shares


@pytest.mark.parametrize(
    ("backend", "parameter"),
    [("pytorch", "INTRA_OP_THREAD_COUNT"), ("openvino", "INFERENCE_NUM_THREADS")],
)
def test_threads_of_these_backends_follow_the_cpus_until_a_parameter_sets_them(
    backend: str, parameter: str, tmp_path: Path, settle: Settle
) -> None:
    cores, _ = settle(onnx(tmp_path, None, backend=backend), Looks(2.0))
    assert cores == ANY
    config = tmp_path / "models" / "m" / "config.pbtxt"
    limit = THREADS.replace("intra_op_thread_count", parameter).format(1)
    config.write_text(config.read_text() + limit)
    cores, _ = settle(prepare(Request(spec=tmp_path / "spec.yaml")), Looks(2.0))
    assert cores == SPLIT


def test_plan_says_what_is_known_before_a_server_is_started(tmp_path: Path) -> None:
    assert cores_note(a_job(tmp_path)) == (
        "server and load generator share all CPUs where the latter takes less than 15% of one at "
        "saturation, else the server has CPUs 0-2 and the load generator CPU 3"
    )
    assert cores_note(onnx(tmp_path, None)).startswith("server and load generator share all CPUs: ")
    assert (
        cores_note(with_spec(tmp_path, "server: {mode: remote, http: 'h:1', grpc: 'h:2'}\n")) == ""
    )
