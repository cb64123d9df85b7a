"""What every kind of traffic must do, the five of `tuner` and one that it does not know."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from builders.load_bench import Bench, serving_all
from builders.load_repository import make_repository
from builders.toy_traffic import COPIES, WARNING, Twins
from contract.server_contract import eventually

import tuner
from tuner.load.generators import TUNE_CLIENT
from tuner.load.setup import LoadTarget, ShapedInputs, Stream, StreamRequests, schedule
from tuner.load.traffic.decoupled.kind import Decoupled
from tuner.load.traffic.kind import Traffic
from tuner.load.traffic.kinds import TRAFFIC, traffic_of
from tuner.load.traffic.mixed_shapes.kind import MixedShapes
from tuner.load.traffic.sequences.kind import Sequences
from tuner.load.traffic.sequences.pace import SequenceIds, SequencePace
from tuner.load.traffic.wire import RequestForm
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import Installation, Origin
from tuner.server.server import Endpoints
from tuner.spec.workload import Workload

ROOT = Path(tuner.__file__).parent
TESTS = Path(__file__).parent.parent
WINDOW = Window(duration_s=2.0, warmup_s=0.3, deadline_s=60.0, tail_s=0.2)
LOAD = LoadPoint(Arrivals.POISSON, 40.0)
NOTHING: Any = None
#: Where kinds are still called by name beside their packages and the table of kinds.
NAMED_ELSEWHERE = {
    "decoupled": {"load/client/calls.py"},  # a request apart from a load
    "recordings": {
        "load/streams_load.py",  # what lines carry
        "search/window_notes.py",
        *("checks/case.py", "checks/machine.py", "checks/recordings.py"),
        "cli/record_command.py",
    },
    "sequences": {"load/streams_load.py", "load/traffic/wire.py"},  # a request apart from a load
    "shared_memory": {"prepare/sharing.py"},  # the memory that its places need
}


def stream(**target: Any) -> Stream:
    form = RequestForm("m", {}, batched=True, batch_size=1)
    to = LoadTarget(Endpoints("h:1", "g:1", None), **target)
    return Stream("m", to, form, (ShapedInputs(NOTHING),), StreamRequests("m"))


def mixed() -> Stream:
    return replace(stream(), shapes=tuple(ShapedInputs(NOTHING, n, 0.5) for n in "ab"))


def taking_sequences() -> Stream:
    plain = stream()
    return replace(plain, form=replace(plain.form, sequence_ids=SequenceIds.TEXTS))


CASES: list[tuple[Traffic, Stream, Arrivals]] = [
    (MixedShapes(), mixed(), Arrivals.POISSON),
    (Decoupled(), stream(streamed=True), Arrivals.POISSON),
    (Sequences(SequencePace((5, 9), 0.1)), taking_sequences(), Arrivals.SEQUENCES),
    (Twins(), stream(), Arrivals.POISSON),
]


@pytest.mark.parametrize(("kind", "load_stream", "arrivals"), CASES, ids=lambda v: type(v).__name__)
def test_a_schedule_is_the_same_for_a_seed_and_within_the_load(
    kind: Traffic, load_stream: Stream, arrivals: Arrivals
) -> None:
    load = replace(LOAD, arrivals=arrivals)
    plan, again = (schedule([load_stream], load, WINDOW, 1, None, (kind,)) for _ in range(2))
    assert plan.due_s is not None
    assert again.due_s is not None
    assert plan.due_s.tolist() == again.due_s.tolist()
    assert (np.diff(plan.due_s) >= 0).all()
    assert plan.due_s[-1] < WINDOW.total_s
    assert plan.due_s.size == pytest.approx(LOAD.level * WINDOW.total_s, rel=0.1)
    assert plan.order.size == plan.shape_of_each().size == plan.due_s.size


@pytest.mark.parametrize(("kind", "load_stream", "arrivals"), CASES, ids=lambda v: type(v).__name__)
def test_caller_is_passed_to_a_process_as_json_with_a_function_name(
    kind: Traffic, load_stream: Stream, arrivals: Arrivals
) -> None:
    job = kind.caller([load_stream], WINDOW)
    if job is not None:
        assert json.loads(json.dumps(job.facts)) == job.facts
        assert callable(resolve_name(job.maker))


@pytest.mark.parametrize("name", TRAFFIC)
def test_a_kind_has_a_package_of_its_name_and_says_why_perf_analyzer_cannot_measure_it(
    name: str,
) -> None:
    assert TRAFFIC[name].__module__ == f"tuner.load.traffic.{name}.kind"
    assert TRAFFIC[name].unlike_perf_analyzer.startswith("perf_analyzer ")


def test_a_load_of_independent_requests_has_no_kind() -> None:
    assert traffic_of(Workload(), [stream()]) == ()
    kinds = traffic_of(Workload(), [mixed(), stream(streamed=True), taking_sequences()])
    assert [type(kind) for kind in kinds] == [MixedShapes, Decoupled, Sequences]


@cache
def imported(file: Path) -> frozenset[str]:
    """Modules that a file imports, also where it does so late."""
    modules = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return frozenset(modules)


@pytest.mark.parametrize("name", TRAFFIC)
def test_a_kind_is_called_by_name_in_its_package_and_in_the_table_alone(name: str) -> None:
    package = f"tuner.load.traffic.{name}"
    files = {
        str(file.relative_to(ROOT))
        for file in ROOT.rglob("*.py")
        if any(f"{module}.".startswith(f"{package}.") for module in imported(file))
    }
    outside = {file for file in files if not file.startswith(f"load/traffic/{name}/")}
    assert outside - {"load/traffic/kinds.py"} == NAMED_ELSEWHERE.get(name, set())


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("load")
    make_repository(directory)
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    program = Installation(Path(sys.executable), "none", Origin.PATH, environment)
    with serving_all(program, directory, ["plain"]) as started:
        yield started


@pytest.mark.integration
def test_a_kind_that_tune_does_not_know_is_measured_on_a_real_server(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRAFFIC, "twins", Twins)
    load = bench.streams({"plain": StreamRequests("plain")}, TUNE_CLIENT)
    before_count = bench.control.statistics("plain").success_count
    measurement = load.measure(LOAD, WINDOW, 1)
    count = before_count + COPIES * LOAD.level * WINDOW.total_s
    eventually(lambda: bench.control.statistics("plain").success_count == count)
    assert measurement.latencies_us is not None
    assert measurement.latencies_us.size == LOAD.level * WINDOW.duration_s  # answered late or not
    answered_per_s = measurement.completed_count / WINDOW.duration_s
    assert measurement.throughput_infer_per_s == pytest.approx(COPIES * answered_per_s)
    assert WARNING in measurement.warnings
    assert measurement.failed_count == 0
