"""The designs, the pool and the features of a search with a model, each on its own."""

from __future__ import annotations

import random
from typing import Any

import pytest
from builders.candidates import fields_of, values_of
from builders.spaces import BATCH, BATCHER, CACHE, DELAY, INSTANCES, PREFERRED, space_of
from builders.surface import CACHED, SURFACE

from tuner.search.strategies.designs import designs
from tuner.search.strategies.features import Features
from tuner.search.strategies.pool import NEAR, RANDOM, Pool, neighbours
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.space import Space

OTHER: dict[str, Any] = {INSTANCES: {"int": [1, 6]}, "parameters.threads": {"choice": [1, 2, 4]}}


class TestDesigns:
    def test_corners_of_a_usual_space(self) -> None:
        space = space_of(SURFACE)
        corners = designs(space)
        sizes = [(fields_of(c)[INSTANCES], fields_of(c)[BATCH]) for c in corners]
        assert sizes == [(2, 32), (1, 32), (6, 8), (6, 32)]
        assert {(fields_of(c)[DELAY], fields_of(c)[PREFERRED]) for c in corners} == {(0, None)}
        assert all(space.contains(c) for c in corners)

    def test_where_instances_cannot_tell_the_middle_is_one(self) -> None:
        space = space_of({k: v for k, v in SURFACE.items() if k != INSTANCES})
        corner, middle, smaller = designs(space)
        assert fields_of(corner)[DELAY] == 0
        assert fields_of(middle)[DELAY] not in (0, 50, 20_000)
        assert (fields_of(smaller)[BATCH], fields_of(smaller)[DELAY]) == (8, 0)

    def test_a_cache_is_tried_once_at_its_largest(self) -> None:
        corners = designs(space_of(CACHED))
        sizes = [c.cache_bytes for c in corners]
        assert sizes.count(None) == len(corners) - 1
        assert sizes[-1] == 64 << 20

    def test_what_no_design_is_about_stays_as_it_is(self) -> None:
        space = space_of(OTHER, OTHER_CONFIG)
        assert {str(fields_of(c)["parameters.threads"]) for c in designs(space)} == {"2"}

    def test_the_current_config_is_none_of_them(self) -> None:
        space = space_of({INSTANCES: {"int": [1, 2]}})
        assert space.current not in designs(space)

    def test_instances_of_every_gpu_are_varied(self) -> None:
        groups = ", ".join(f"{{ count: 2 kind: KIND_GPU gpus: [{n}] }}" for n in (0, 1))
        config = f'name: "m" backend: "python" max_batch_size: 8 instance_group [ {groups} ]'
        paths = [f"instance_group[gpus={n}].count" for n in (0, 1)]
        space = space_of({p: {"int": [1, 4]} for p in paths}, config)
        assert [[fields_of(c)[p] for p in paths] for c in designs(space)] == [
            [4, 4],
            [3, 3],
            [1, 1],
        ]


OTHER_CONFIG = (
    'name: "m" backend: "python" max_batch_size: 16 instance_group [{count: 1 kind: KIND_CPU}]'
    ' parameters { key: "threads" value { string_value: "2" } }'
)


class TestPool:
    def test_small_space_is_enumerated_completely(self) -> None:
        space = space_of(CACHED)
        every = {c.key for c in space.enumerate()}
        gone = next(iter(every))
        drawn = Pool(space).draw(random.Random(1), [], {gone})
        assert {c.key for c in drawn} == every - {gone}

    def test_a_large_one_is_sampled_near_what_is_good(self) -> None:
        space = space_of(SURFACE)
        good = space.sample(random.Random(3))
        assert good is not None
        drawn = Pool(space).draw(random.Random(1), [good], set())
        assert RANDOM < len(drawn) <= RANDOM + NEAR
        near = [c for c in drawn if differing(c, good) == 1]
        assert len(near) > 10
        assert all(space.contains(c) and not space.violations(c) for c in drawn)

    def test_neighbours_differ_in_one_parameter(self) -> None:
        space = space_of(SURFACE)
        centre = space.candidate(values_of({INSTANCES: 3, BATCH: 16, PREFERRED: None, DELAY: 1000}))
        around = neighbours(space, centre, random.Random(1), 100)
        assert {differing(c, centre) for c in around} == {1}
        assert {fields_of(c)[INSTANCES] for c in around} >= {2, 4}
        assert {999, 1001, 0} <= {fields_of(c)[DELAY] for c in around}


def differing(one: Candidate, other: Candidate) -> int:
    paths = {*fields_of(one), *fields_of(other)} - {BATCHER}
    return sum(fields_of(one).get(p) != fields_of(other).get(p) for p in paths)


def apart(space: Space, path: str, one: FieldValue, other: FieldValue) -> float:
    """Squared distance of two candidates in one parameter."""
    first, second = (
        space.candidate(values_of({INSTANCES: 1, BATCH: 32, path: value})) for value in (one, other)
    )
    where = [p.path for p in space.parameters].index(path)
    return float(Features(space).squares([first], [second])[where, 0, 0])


class TestFeatures:
    def test_numbers_are_apart_by_their_ratio(self) -> None:
        space = space_of({"parameters.threads": {"choice": [1, 2, 4, 8]}})
        near, far = (apart(space, "parameters.threads", "1", n) for n in ("2", "8"))
        assert (near, far) == (pytest.approx(1 / 9), pytest.approx(1.0))

    def test_words_are_alike_or_not(self) -> None:
        space = space_of({"parameters.mode": {"choice": ["fast", "exact", "4"]}})
        assert apart(space, "parameters.mode", "fast", "exact") == pytest.approx(1.0)
        assert apart(space, "parameters.mode", "fast", "4") == pytest.approx(1.0)
        assert apart(space, "parameters.mode", "fast", "fast") == 0.0

    def test_cache_size_and_no_cache_are_separate_coordinates(self) -> None:
        space = space_of(CACHED)
        distances = [apart(space, CACHE, 1 << 20, size) for size in (1 << 20, 1 << 26, None)]
        assert distances == pytest.approx([0.0, 1.0, 0.25])

    def test_lists_of_sizes_differ_by_their_smallest_too(self) -> None:
        space = space_of(SURFACE)
        assert apart(space, PREFERRED, (4, 8), (8,)) == apart(space, PREFERRED, (4,), (4, 8)) > 0.0

    def test_what_means_nothing_is_alike(self) -> None:
        space = space_of({BATCHER: {"choice": [False, True]}, DELAY: {"choice": [1000, 4000]}})
        off = [space.candidate(values_of({BATCHER: None, DELAY: d})) for d in (1000, 4000)]
        assert Features(space).squares(off[:1], off[1:]).sum() == 0.0
