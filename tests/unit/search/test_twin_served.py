"""The search of several models with the twin, on a server that is a simulation itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders.ensemble_cases import step
from builders.simulated import Simulation
from builders.spaces import BATCH, BATCHER, DELAY, INSTANCES

from tuner.modelconfig.base import Base
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.message import parse
from tuner.modelconfig.served import Served, ServedModel
from tuner.space.build import build_space
from tuner.space.candidate import CACHE, Candidate
from tuner.space.parameters import Knob
from tuner.spec.model import Spec
from tuner.spec.paths import CACHE_ENABLE
from tuner.twin.costs import Costs
from tuner.twin.model import Plan, Unmodelled
from tuner.twin.observation import setting_of
from tuner.twin.system import Lock, Service, Step, Way

_TENSORS = (
    'input [{name: "x" data_type: TYPE_FP32 dims: [4]}]'
    ' output [{name: "y" data_type: TYPE_FP32 dims: [4]}]'
)

WAY = Way(4e-4, 3e-4, front_s=2e-5, cores=64.0, handoff_s=6e-5)

BATCHED: dict[str, Any] = {BATCHER: {"choice": [False, True]}, DELAY: {"choice": [0, 5000]}}

#: 96 configs. The slow step waits for itself alone, the device batches, the cheap one does nothing.
CHAIN_SPACE: dict[str, Any] = {
    "slow": {"space": {INSTANCES: {"choice": [1, 2, 4, 8]}}},
    "device": {"space": {INSTANCES: {"int": [1, 2]}, BATCH: {"choice": [4, 16]}, **BATCHED}},
    "cheap": {"space": {INSTANCES: {"int": [1, 2]}}},
}

CHAIN = Costs(
    (
        Service(1e-4, 1e-6, 1e-6, 20e-3, 2e-5, spread=0.03, lock=Lock.NONE),
        Service(1e-3, 5e-5, 8e-3, 4e-4, 2e-5, spread=0.03, lock=Lock.MODEL),
        Service(5e-4, 1e-6, 1e-6, 1e-7, 2e-5, spread=0.03),
    ),
    WAY,
)

#: 72 configs. Large batches of the one make the other wait.
PAIR_SPACE: dict[str, Any] = {
    "light": {"space": {INSTANCES: {"int": [1, 2]}, **BATCHED}},
    "heavy": {"space": {INSTANCES: {"int": [1, 2]}, BATCH: {"choice": [4, 16]}, **BATCHED}},
}

PAIR = Costs(
    (
        Service(1e-3, 5e-5, 2e-3, 2e-4, 2e-5, spread=0.03),
        Service(1e-3, 5e-5, 12e-3, 1e-3, 2e-5, spread=0.03),
    ),
    WAY,
)


def model(name: str, text: str, parts: tuple[str, ...] = ()) -> ServedModel:
    config = f'name: "{name}" {_TENSORS} {text}'
    path = Path(f"{name}/config.pbtxt")
    files = ModelFiles(name, path.parent, path, config, "", (1,), "utf-8")
    return ServedModel(name, files, Base.of_file(parse(config)), parts)


def _computes(name: str, batch: int = 16) -> ServedModel:
    group = "instance_group [{count: 1 kind: KIND_CPU}]"
    return model(name, f'backend: "python" max_batch_size: {batch} {group}')


def chain() -> Simulation:
    """Three steps, one after the other."""
    steps = step("slow", "x", "a") + step("device", "a", "b") + step("cheap", "b", "y")
    scheduling = f"ensemble_scheduling {{ {steps} }}"
    parts = ("slow", "device", "cheap")
    whole = model("chain", f'platform: "ensemble" max_batch_size: 4 {scheduling}', parts)
    served = Served({m.name: m for m in (_computes("slow", 4), *map(_computes, parts[1:]), whole)})
    slos = {"slo": ["p95_latency <= 100ms", "error_rate <= 0%"]}
    return _simulation(served, {"model": "chain", "models": CHAIN_SPACE, **slos}, CHAIN)


def pair() -> Simulation:
    """Two models on one device, asked 3 : 1."""
    served = Served({name: _computes(name) for name in ("light", "heavy")})
    streams = {
        "light": {"model": "light", "share": "75%", "slo": ["p95_latency <= 60ms"]},
        "heavy": {"model": "heavy", "share": "25%", "slo": ["p95_latency <= 150ms"]},
    }
    return _simulation(served, {"models": PAIR_SPACE, "streams": streams}, PAIR)


def _simulation(served: Served, given: Mapping[str, Any], costs: Costs) -> Simulation:
    search = {"strategy": "twin", "seed": 0}
    spec = Spec.model_validate({"repository": "models", **given, "search": search})
    return Simulation(spec, build_space(spec, served), costs=costs)


def test_an_ensemble_is_a_route_over_its_steps() -> None:
    simulation = chain()
    plan = setting_of(simulation.space, simulation.spec).plan
    route = (Step(0), Step(1, (0,)), Step(2, (1,)))
    assert plan == Plan(("slow", "device", "cheap"), (route,), ("chain",))


def test_streams_ask_their_models_and_have_their_own_load() -> None:
    simulation = pair()
    setting = setting_of(simulation.space, simulation.spec)
    assert setting.plan == Plan(("light", "heavy"), ((Step(0),), (Step(1),)), ())
    point = simulation.point(simulation.space.current, 40.0, 1, 0)
    assert point.measurement.of("light").throughput_infer_per_s == pytest.approx(30.0, rel=0.3)
    assert [r.stream for r in point.slo] == ["light", "heavy"]


@pytest.mark.fitting
@pytest.mark.parametrize(("made", "trials"), [(chain, 25), (pair, 20)])
def test_several_models_are_searched_together(made: Callable[[], Simulation], trials: int) -> None:
    """At least 95 % of the best of the grid, of 96 and 72 configs."""
    simulation = made()
    simulation.search(trials)
    assert simulation.notes[1].startswith("twin fitted: ")
    truth = simulation.capacities()
    canonical = simulation.space.canonical
    found = max(truth[canonical(t.candidate).key] for t in simulation.history)
    assert found >= 0.95 * max(truth.values())


def test_a_cache_beside_several_models_is_not_simulated() -> None:
    simulation = pair()
    current = simulation.space.current
    cached = Candidate({**current.values, Knob("light", CACHE_ENABLE): True, CACHE: 1 << 20})
    found = setting_of(simulation.space, simulation.spec).network(cached)
    assert found == Unmodelled("a response cache beside several models is not simulated")
