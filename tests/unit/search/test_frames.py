"""How far it is from the search to the processes it starts: each layer says something new."""

from __future__ import annotations

import subprocess
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.again_bench import bench_rules
from builders.candidates import candidate_of
from builders.emulated import a_session
from builders.measurements import synthetic_measurement, synthetic_server
from builders.searches import ListedSearcher
from builders.serving import served_one

import tuner
from tuner.load.client.generator import OpenClient
from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT, GeneratorKind
from tuner.load.perf_analyzer.generator import PerfAnalyzer
from tuner.load.setup import LoadTarget, Setup, ShapedInputs, Site, Stream, StreamRequests
from tuner.load.streams_load import StreamsLoad
from tuner.load.traffic.inputs import RunInputs
from tuner.load.traffic.wire import RequestForm
from tuner.load.watch.machine import NOT_WATCHED
from tuner.machine.process import Priority
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import Window, window_of
from tuner.meter.bench import TritonBench
from tuner.modelconfig.message import parse
from tuner.prepare.timebook import TimeBook
from tuner.score.next_load import load_plan
from tuner.search.searching import search
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.triton import local
from tuner.triton.changes import DeploymentKind
from tuner.triton.deploy import Deployer
from tuner.triton.local import LocalLauncher

MOST = 12
CURRENT, OTHER = candidate_of({"max_batch_size": 8}), candidate_of({"max_batch_size": 4})
ENDPOINTS = Endpoints("h:1", "g:1", None)
HOUSE = str(Path(tuner.__file__).parent)
PROGRAM: Any = SimpleNamespace(
    cpus=(),
    priority=Priority.NORMAL,
    binary=Path(sys.executable),
    environment={},
    backend_directory=None,
    cache_directory=None,
)


class Reached(BaseException):
    """A process would have been started; nothing of ours handles this."""


class ServerThatIsNotThere:
    """A deployer that goes as far as to the process of the server."""

    def __init__(self, directory: Path) -> None:
        launcher = LocalLauncher(PROGRAM, directory)
        config = parse("max_batch_size: 8 dynamic_batching { }")
        self._deployer = Deployer(launcher, served_one(config), directory / "log")

    def fresh(self) -> None: ...

    def deploy(self, candidate: Candidate) -> Any:
        with pytest.raises(Reached):
            self._deployer.deploy(candidate)
        return SimpleNamespace(kind=DeploymentKind.RESTART, endpoints=ENDPOINTS)


def answers(generator: type[PerfAnalyzer | OpenClient], monkeypatch: pytest.MonkeyPatch) -> None:
    """A load generator that goes as far as to its process, and then tells of an emulated server."""
    real = generator.measure

    def measure(self: Any, load: LoadPoint, window: Window, seed: int) -> Measurement:
        with pytest.raises(Reached):
            real(self, load, window, seed)
        if load.arrivals.open_loop:
            return synthetic_server(load.level, 300.0)
        return synthetic_measurement(
            load.level, 4000.0 * load.level, served=10 * load.level, arrivals=load.arrivals
        )

    monkeypatch.setattr(generator, "measure", measure)


def a_load(kind: GeneratorKind, starts: int, directory: Path) -> StreamsLoad:
    inputs: Any = SimpleNamespace(of_run=lambda *_: RunInputs([{}], None))
    form = RequestForm("m", {}, batched=False, batch_size=1)
    stream = Stream("m", LoadTarget(ENDPOINTS), form, (ShapedInputs(inputs),), StreamRequests("m"))
    counters = SimpleNamespace(success_count=0, fail_count=0)
    control: Any = SimpleNamespace(statistics=lambda _: counters, metrics=lambda: None)
    site = Site(control, ENDPOINTS, PROGRAM, directory)
    setup = Setup(site, (stream,), ("m",))
    return StreamsLoad(kind.make(setup), starts, setup)


def stacks_of_a_search(
    workload: dict[str, Any],
    kind: GeneratorKind,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> list[list[str]]:
    """Functions of ours from the search to each process of two trials, measured to their ends."""
    stacks: list[list[str]] = []

    def popen(*_: Any, **__: Any) -> None:
        names = [f.name for f in traceback.extract_stack() if f.filename.startswith(HOUSE)]
        stacks.append(names[names.index("search") :])
        raise Reached

    monkeypatch.setattr(subprocess.Popen, "__init__", popen)
    monkeypatch.setattr("tuner.load.setup.watch_stalls", lambda _: nullcontext(NOT_WATCHED))
    monkeypatch.setattr(local, "free_ports", lambda _: nullcontext((1, 2, 3)))
    monkeypatch.setattr(StreamsLoad, "await_first_answers", lambda *_: ())
    monkeypatch.setattr(StreamsLoad, "seconds_alone", lambda *_: None)
    monkeypatch.setattr(OpenClient, "_cores_for", lambda *_: 0.1)
    answers(PerfAnalyzer if kind is PERF_ANALYZER else OpenClient, monkeypatch)
    spec = Spec.model_validate(
        {
            "model": "m",
            "repository": "r",
            "slo": ["p99_latency <= 40ms"],
            "workload": workload,
            "space": {"max_batch_size": {"int": [1, 8]}},
        }
    )
    plan = load_plan(spec.workload, spec.objective, spec.slos)
    rules = bench_rules(
        slos=spec.slos,
        arrivals=plan.arrivals,
        window=lambda load, rate: window_of(spec, load, rate),
    )
    deployer: Any = ServerThatIsNotThere(directory)
    load = a_load(kind, 1 if plan.arrivals.open_loop else 3, directory)
    bench = TritonBench(deployer, lambda _: load, rules, TimeBook())
    searcher: Any = ListedSearcher([CURRENT, OTHER])
    history, _ = search(a_session(bench, spec, CURRENT, plan), searcher)
    assert [trial.reason for trial in history] == [None, None]
    return stacks


@pytest.mark.parametrize("kind", [PERF_ANALYZER, TUNE_CLIENT], ids=lambda kind: kind.name)
@pytest.mark.parametrize("arrivals", ["poisson", "closed"])
def test_the_way_from_the_search_to_a_process_is_short(
    arrivals: str, kind: GeneratorKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = {"arrivals": {"kind": arrivals}}
    stacks = stacks_of_a_search(workload, kind, tmp_path, monkeypatch)
    servers = [stack for stack in stacks if "launch" in stack or "ready_server" in stack]
    assert len(servers) == 2  # one for each trial
    assert len(stacks) - len(servers) > 6  # races, looks and searches of a capacity
    assert {stack[-1] for stack in stacks} == {"child"}
    longest = max(stacks, key=len)
    assert len(longest) <= MOST, " ".join(longest)
