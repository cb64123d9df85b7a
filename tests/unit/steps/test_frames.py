"""How far it is from the search to the process that puts load on: each layer says something new."""

from __future__ import annotations

import subprocess
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from candidates import candidate_of
from emulated import a_session
from synthetic import NO_ERRORS, P99_40MS, synthetic_measurement

from tuner.bench.bench import BenchRules, TritonBench
from tuner.bench.timebook import TimeBook
from tuner.load.generator import Target
from tuner.load.generators import PERF_ANALYZER
from tuner.load.setup import Setup
from tuner.load.stream import Stream
from tuner.load.streams_load import StreamsLoad
from tuner.score.load_plan import load_plan
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.search.strategy import Proposal
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.steps.rig import window_of
from tuner.steps.searching import search
from tuner.triton.deploy import DeploymentKind

SPEC = Spec.model_validate(
    {
        "model": "m",
        "repository": "r",
        "slo": ["p99_latency <= 40ms"],
        "space": {"a": {"int": [1, 2]}},
    }
)
CURRENT, OTHER = candidate_of({"a": 1}), candidate_of({"a": 2})
ENDPOINTS = Endpoints("h:1", "g:1", None)


class Reached(BaseException):
    """A process would have been started; nothing handles this."""


class Searcher:
    """Has measured the current config, and proposes another one."""

    def __init__(self) -> None:
        point = judge_point([P99_40MS, NO_ERRORS], synthetic_measurement(100.0))
        score = score_points(SPEC.objective, [point])
        self.history = [Trial(0, CURRENT, TrialState.MEASURED, (point,), score)]

    def outlook(self) -> None:
        return None

    def next(self) -> Proposal:
        return Proposal(OTHER)

    def start(self, _: Candidate) -> bool:
        return True


def frames(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Functions of ours from the search to the start of perf_analyzer, of a candidate's race."""
    seen: list[str] = []

    def popen(*_: Any, **__: Any) -> None:
        seen.extend(f.name for f in traceback.extract_stack() if "/tuner/" in f.filename)
        raise Reached

    monkeypatch.setattr(subprocess.Popen, "__init__", popen)

    def statistics(_: str) -> Any:
        return SimpleNamespace(success_count=0, fail_count=0)

    file = SimpleNamespace(path=tmp_path / "in.json", sampled_steps=None, warnings=())
    inputs: Any = SimpleNamespace(file=lambda *_: file)
    program: Any = SimpleNamespace(binary=Path("/bin/true"), environment={})
    form: Any = None
    stream = Stream("", Target("m", ENDPOINTS), form, inputs)
    setup = Setup(program, (stream,), {"": "m"}, tmp_path, statistics, lambda: None)
    load = StreamsLoad(PERF_ANALYZER.make(setup), 1, setup, lambda _: None)
    monkeypatch.setattr(StreamsLoad, "await_first_answers", lambda *_: None)
    plan = load_plan(SPEC.workload, SPEC.objective, SPEC.slos)
    rules = BenchRules(
        slos=SPEC.slos,
        arrivals=plan.arrivals,
        window=lambda load, rate: window_of(SPEC, load, rate),
        checkpoint=lambda: None,
        measured=lambda _: None,
    )
    deployment = SimpleNamespace(kind=DeploymentKind.RELOAD, endpoints=ENDPOINTS)
    deployer: Any = SimpleNamespace(deploy=lambda _: deployment, fresh=lambda: None)
    bench = TritonBench(deployer, lambda _: load, rules, TimeBook())
    searcher: Any = Searcher()
    with pytest.raises(Reached):
        search(a_session(bench, SPEC, CURRENT, plan), searcher)
    return seen[seen.index("search") :]


def test_the_way_from_the_search_to_a_process_is_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = frames(monkeypatch, tmp_path)
    assert len(found) <= 20, found
    assert found[-1] == "child"
