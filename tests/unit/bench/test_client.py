"""Who measures follows from the spec and the model, before anything is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner.bench import job as job_steps
from tuner.bench.job import Job, Request, prepare
from tuner.bench.sending import sending_notes
from tuner.bench.tools import choose_generator, client_notes, find_programs
from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.load.generators import OWN_CLIENT, PERF_ANALYZER

CONFIG = """name: "m"
backend: "python"
max_batch_size: 8
input [{{ name: "x" data_type: TYPE_FP32 dims: [ {dims} ] }}]
output [{{ name: "y" data_type: TYPE_FP32 dims: [ 2 ] }}]
dynamic_batching {{ {batching} }}
"""
SPEC = """model: m
repository: {repository}
server: {{cpus: all}}
workload: {{cpus: all{workload}}}
slo: [p99_latency <= 80ms]
space: {{instance_group.count: {{int: [1, 4]}}{space}}}
"""


def job(tmp_path: Path, dims: str, space: str = "", batching: str = "", workload: str = "") -> Job:
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(CONFIG.format(dims=dims, batching=batching))
    spec = tmp_path / "spec.yaml"
    repository = tmp_path / "repository"
    spec.write_text(SPEC.format(repository=repository, space=space, workload=workload))
    return prepare(Request(spec=spec))


def test_small_tensors_are_measured_with_perf_analyzer(tmp_path: Path) -> None:
    small = job(tmp_path, "8")
    assert choose_generator(small).kind is PERF_ANALYZER
    assert client_notes(small) == []


def test_a_run_says_which_cpus_server_and_load_generator_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = job(tmp_path, "8")
    spec = found.spec
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    spec = spec.model_copy(update={"server": spec.server.model_copy(update={"cpus": (0, 1, 2)})})
    spec = spec.model_copy(update={"workload": spec.workload.model_copy(update={"cpus": None})})
    assert client_notes(replace(found, spec=spec)) == [
        "the server has CPUs 0-2 and the load generator CPU 3"
    ]


def test_without_perf_analyzer_tunes_own_client_measures_and_the_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_steps, "has_perf_analyzer", lambda *_: False)
    found = job(tmp_path, "8")
    assert choose_generator(found).kind is OWN_CLIENT
    assert client_notes(found) == [
        "measured with tune's own client: there is no perf_analyzer here"
    ]


EIGHT = ", inputs: {kind: random, unique: 8}"
SHARED = ", shared_memory: system"


def test_inputs_in_shared_memory_are_sent_by_tunes_own_client_which_says_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    monkeypatch.setattr(
        "tuner.bench.sending.request_cost_s", lambda size, *_: 0.0007 if size else 0.0001
    )
    images = job(tmp_path, "3, 224, 224", workload=SHARED)
    who, room = client_notes(images)
    assert who.startswith("measured with tune's own client: perf_analyzer leaves its shared memory")
    assert room == "inputs lie in shared memory: up to 47.66 MiB of /dev/shm, which has 1 GiB free"
    (note,) = sending_notes(images, {})
    assert note.startswith("a request takes tune's own client about 0.1 ms of CPU: ")
    assert note.endswith("; without shared memory it would take 0.7 ms")


@pytest.mark.parametrize(("unique", "free"), [("", 40 << 20), (EIGHT, 4 << 20)])
def test_too_little_shared_memory_is_refused_before_anything_is_started(
    unique: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    images = job(tmp_path, "3, 224, 224", workload=SHARED + unique)
    with pytest.raises(EnvironmentNotReadyError, match=r"inputs may take .* of /dev/shm") as told:
        with find_programs(images, {}):
            pass
    assert "--shm-size" in told.value.hint
    assert "unique" in told.value.hint


def test_shared_memory_of_a_server_elsewhere_is_refused_with_its_place(tmp_path: Path) -> None:
    job(tmp_path, "8")
    spec = tmp_path / "spec.yaml"
    remote = "server: {mode: remote, http: 'h:1', grpc: 'h:2'}"
    text = spec.read_text().replace("server: {cpus: all}", remote)
    spec.write_text(text.replace("cpus: all", "cpus: all, shared_memory: system"))
    with pytest.raises(SpecError, match=r"spec.yaml:4:\d+: .*server.mode local or docker"):
        prepare(Request(spec=spec))


@pytest.mark.parametrize(
    ("cost_s", "share", "per_s"),
    [(0.0007, "", "4000"), (0.02, ", 25% of p99_latency <= 80ms", "140")],
)
def test_what_an_image_takes_the_client_and_so_how_many_it_can_send_is_told(
    cost_s: float, share: str, per_s: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def cost(size_bytes: int, *_: object) -> float:
        asked.append(size_bytes)
        return cost_s

    monkeypatch.setattr("tuner.bench.sending.request_cost_s", cost)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    images = job(tmp_path, "3, 224, 224")
    (note,) = sending_notes(images, {})
    assert note == (
        f"a request takes tune's own client about {1e3 * cost_s:g} ms of CPU{share}: "
        f"with 70% of its 4 cores it can send about {per_s}/s"
    )
    assert asked == [3 * 224 * 224 * 4]
    assert [*sending_notes(images, {}, costly_only=True)] == ([note] if share else [])


def test_where_perf_analyzer_measures_nothing_is_said_of_tunes_own_client(tmp_path: Path) -> None:
    assert [*sending_notes(job(tmp_path, "8"), {})] == []


def test_images_are_measured_with_tunes_own_client_and_the_run_says_so(tmp_path: Path) -> None:
    images = job(tmp_path, "3, 224, 224")
    assert choose_generator(images).kind is OWN_CLIENT
    (note,) = client_notes(images)
    assert note == (
        "measured with tune's own client: perf_analyzer writes each request and answer as text, "
        "here about 3.0 MB"
    )


@pytest.mark.parametrize(
    ("space", "batching"),
    [
        (", dynamic_batching.default_queue_policy.max_queue_size: {choice: [0, 64]}", ""),
        ("", "default_queue_policy { max_queue_size: 64 }"),
    ],
)
def test_a_space_that_may_refuse_requests_is_measured_with_one_client(
    tmp_path: Path, space: str, batching: str
) -> None:
    """Its configs that refuse none as well, or two kinds of latency would be compared."""
    assert choose_generator(job(tmp_path, "8", space, batching)).kind is OWN_CLIENT
