"""The search of several models with the twin, on a server that is a simulation itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders.simulated import Simulation
from builders.simulated_ensembles import chain, pair

from tuner.space.candidate import CACHE, Candidate
from tuner.space.parameters import Knob
from tuner.spec.paths import CACHE_ENABLE
from tuner.twin.model import Plan, Unmodelled
from tuner.twin.observation import setting_of
from tuner.twin.system import Step


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
    assert simulation.notes[0].startswith("twin fitted: ")
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
