"""Which load is measured next, whatever the truth is: few, each telling, none twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from builders.measurements import Probe
from builders.truths import Truth, truth
from hypothesis import given
from hypothesis import strategies as st

from tuner.score.capacity import Bracket, LevelRange, saturated
from tuner.score.next_load import MOST_FREE, TOLERANCE, CapacitySearch, StepRule, next_load

OPEN = LevelRange(0.1, 1e6)
CLIENTS = LevelRange(1, 256, integer=True)
TRUTH = truth(noise=st.just(0.0), busy=st.just(0.0))
STEEP = truth(slope=st.floats(4.0, 40.0), noise=st.just(0.0), busy=st.just(0.0))
RULES = st.sampled_from(
    [
        StepRule(),
        StepRule(tolerance=0.1),
        StepRule(first=0.08, least=0.04, close=0.85, wide=0.12),
        StepRule(first=0.3, least=0.04),
    ]
)


def searched(
    probe: Callable[[float], Probe], start: float, levels: LevelRange = OPEN, at_most: int = 5
) -> list[Probe]:
    """All that a search for the capacity has measured."""
    search = CapacitySearch(start, levels, at_most=at_most)
    while (level := search.ask()) is not None:
        assert levels.lowest <= level <= levels.highest
        bracket = Bracket.of(search.probes)
        assert bracket.floor is None or level > bracket.floor.level
        assert bracket.ceiling is None or level < bracket.ceiling.level
        search.tell(probe(level))
    return [*search.probes]


def probes_of(made: Truth, shares: list[float]) -> list[Probe]:
    return [made.probe(OPEN.nearest(share * made.capacities[0])) for share in shares]


@given(TRUTH, st.lists(st.floats(0.05, 20.0), min_size=1, max_size=5), RULES)
def test_next_load_lies_inside_the_bracket_and_was_not_measured(
    made: Truth, shares: list[float], steps: StepRule
) -> None:
    probes = probes_of(made, shares)
    level, bracket = next_load(probes, OPEN, steps), Bracket.of(probes)
    if level is None:
        return
    assert level not in {p.level for p in probes}
    assert bracket.floor is None or level > bracket.floor.level
    assert level < (math.inf if bracket.ceiling is None else bracket.ceiling.level)
    assert level <= bracket.top * (1.0 + 1e-4)
    if bracket.floor is not None and bracket.ceiling is not None and not saturated(bracket.ceiling):
        off = 1.0 + 0.9 * min(steps.tolerance / 2, bracket.gap / 3)
        assert bracket.floor.level * off <= level <= bracket.ceiling.level / off


def kinked(saturation: float, level: float) -> Probe:
    """Far within its bound almost up to saturation, as with a bound of many service times."""
    load = level / saturation
    used = min(0.05 / (1.0 - load) if load < 0.999 else 50.0, 60.0)
    return Probe(level, used <= 1.0, min(level, saturation), used)


@given(st.floats(5.0, 1e4), st.floats(0.1, 10.0))
def test_no_load_is_tried_above_a_saturation_that_was_seen(saturation: float, start: float) -> None:
    probes = searched(lambda level: kinked(saturation, level), start * saturation)
    seen = next((n for n, p in enumerate(probes) if saturated(p)), len(probes))
    assert all(p.level <= saturation * (1.0 + 1e-4) for p in probes[seen + 1 :])
    capacity = Bracket.of(probes).capacity()
    assert capacity is not None
    assert capacity <= saturation * (1.0 + 1e-4)


@pytest.mark.parametrize(
    ("capacity", "levels", "floor", "ceiling"),
    [
        (7.0, CLIENTS, 7.0, 8.0),  # whole numbers, to their neighbours
        (1e9, LevelRange(1, 1000), 1000.0, None),  # the highest level ends the search
        (0.0, LevelRange(10, 1000), None, 10.0),  # and so does the lowest
    ],
)
def test_a_search_ends_at_its_levels(
    capacity: float, levels: LevelRange, floor: float | None, ceiling: float | None
) -> None:
    probes = searched(lambda level: Probe(level, level <= capacity), 100.0, levels, at_most=30)
    passed, failed = floor and Probe(floor, True), ceiling and Probe(ceiling, False)
    assert Bracket.of(probes) == Bracket(passed or None, failed or None)


@given(TRUTH, st.floats(0.05, 0.98), st.floats(1.01, 3.0), RULES)
def test_the_nearer_to_its_bound_the_smaller_the_step(
    made: Truth, share: float, times: float, steps: StepRule
) -> None:
    capacity = made.capacities[0]
    near, far = (Probe(capacity, True, capacity, u) for u in (share, share / times))
    above = [next_load([p], OPEN, steps) or capacity for p in (near, far)]
    assert above[0] <= above[1] * (1.0 + 1e-4)
    barely, much = (Probe(capacity, False, capacity, 1.0 / u) for u in (share, share / times))
    below = [next_load([p], OPEN, steps) or capacity for p in (barely, much)]
    assert below[0] >= below[1] * (1.0 - 1e-4)


@given(TRUTH, st.floats(1.1, 50.0))
def test_below_a_saturated_server_is_what_it_answered(made: Truth, times: float) -> None:
    failed = made.probe(OPEN.nearest(times * made.capacities[0]))
    level = next_load([failed], OPEN)
    assert level is not None
    assert not saturated(failed) or level <= 1.05 * made.capacities[0]


@given(STEEP, st.floats(0.6, 3.0))
def test_five_loads_find_the_capacity_within_the_tolerance(made: Truth, start: float) -> None:
    capacity = made.capacities[0]
    probes = searched(made.probe, start * capacity)
    assert len(probes) <= 5
    assert Bracket.of(probes).capacity() == pytest.approx(capacity, rel=TOLERANCE)


@given(STEEP, st.floats(0.02, 0.6))
def test_from_far_below_two_more_do(made: Truth, start: float) -> None:
    capacity = made.capacities[0]
    probes = searched(made.probe, start * capacity)
    assert Bracket.of(probes).capacity() == pytest.approx(capacity, rel=2 * TOLERANCE)


@given(TRUTH, st.floats(1e-4, 1e4))
def test_from_nowhere_near_there_are_no_more_than_seven(made: Truth, start: float) -> None:
    assert len(searched(made.probe, start * made.capacities[0])) <= 5 + MOST_FREE


@given(TRUTH, st.floats(0.001, 1000.0))
def test_from_any_start_the_capacity_is_bracketed_in_the_end(made: Truth, start: float) -> None:
    """Though nothing but pass or fail is read."""
    capacity = made.capacities[0]

    def blind(level: float) -> Probe:
        return Probe(level, level <= capacity)

    bracket = Bracket.of(searched(blind, start * capacity, at_most=60))
    assert bracket.closed(TOLERANCE)
    assert bracket.floor is not None
    assert bracket.ceiling is not None
    assert bracket.floor.level <= capacity < bracket.ceiling.level


@given(st.integers(0, 300), st.floats(1.0, 300.0), st.floats(0.5, 4.0))
def test_capacity_in_clients_is_an_exact_integer(capacity: int, start: float, slope: float) -> None:
    def probe(level: float) -> Probe:
        assert level == int(level)
        used = (level / capacity) ** slope if capacity else 9.0
        return Probe(level, level <= capacity, slo_utilisation=used)

    bracket = Bracket.of(searched(probe, start, CLIENTS, at_most=60))
    assert (bracket.floor is None) == (capacity == 0)
    if bracket.floor is not None:
        expected = min(float(capacity), CLIENTS.highest)
        assert bracket.floor.level == pytest.approx(expected, rel=TOLERANCE)


@given(TRUTH, st.floats(0.05, 1.0), st.floats(0.01, 1.0))
def test_too_few_answers_for_a_verdict_are_sought_further_up_or_not_at_all(
    made: Truth, start: float, least: float
) -> None:
    capacity = made.capacities[0]

    def probe(level: float) -> Probe:
        answered = made.probe(level)
        few = level < least * capacity
        return replace(answered, passed=False, few=True) if few else answered

    probes = searched(probe, start * capacity)
    undecided = [p.level for p in probes if p.few]
    assert undecided == sorted(undecided)
    assert Bracket.of(probes) == Bracket.of([p for p in probes if not p.few])


@given(TRUTH, st.floats(0.1, 0.9))
def test_known_load_is_not_measured_again(made: Truth, share: float) -> None:
    known = made.probe(OPEN.nearest(share * made.capacities[0]))
    search = CapacitySearch(1.0, OPEN, known=[known])
    level = search.ask()
    assert level is None or level > known.level
    assert CapacitySearch(1.0, OPEN, at_most=0).ask() is None
