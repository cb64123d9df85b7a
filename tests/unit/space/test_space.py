from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import pytest
from builders.candidates import candidate_of, fields_of, the_one, values_of
from builders.spaces import (
    BATCH,
    BATCHER,
    BATCHING,
    CACHE,
    DELAY,
    INSTANCES,
    PREFERRED,
    USUAL,
    space_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import tuner.space.space
import tuner.space.walk
from tuner.errors import SpecError
from tuner.modelconfig.schema import enum_name
from tuner.space import conditions
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.conditions import Condition
from tuner.space.parameters import ChoiceParameter, Knob, Parameter, RangeParameter
from tuner.space.space import Size
from tuner.spec.paths import QUEUE_TIMEOUT

SMALL: dict[str, dict[str, Any]] = {
    "usual": {**USUAL, DELAY: {"int": [100, 101], "or": 0}},
    "batcher off or on": {
        BATCHER: {"choice": [False, True]},
        DELAY: {"choice": [0, 100, 1000]},
        PREFERRED: {"subsets": [4, 8], "at_most": 2, "or": "unset"},
    },
    "batch of one": {BATCH: {"choice": [1, 2, 4]}, PREFERRED: {"subsets": [2, 4], "or": "unset"}},
    "no unset": {BATCH: {"choice": [2, 8]}, PREFERRED: {"subsets": [4, 8], "at_most": 1}},
    "batcher and batch": {
        BATCH: {"choice": [1, 8]},
        BATCHER: {"choice": [False, True]},
        DELAY: {"int": [1, 3], "or": 0},
    },
    "cache": {INSTANCES: {"int": [1, 2]}, CACHE: {"choice": [False, "1MiB", "64MiB"]}},
    "batcher off and two batches": {
        INSTANCES: {"int": [1, 2]},
        BATCH: {"choice": [4, 8, 32]},
        BATCHER: {"choice": [False, True]},
    },
    "parameter": {"parameters.threads": {"choice": [1, 2, 4, "unset"]}},
}


@pytest.mark.parametrize("name", SMALL)
def test_size_is_the_number_of_candidates_and_each_has_a_unique_key(name: str) -> None:
    space = space_of(SMALL[name])
    candidates = list(space.enumerate())
    size = space.size()
    assert size.exact
    assert size.count == len(candidates) == len({c.key for c in candidates}) > 1


@pytest.mark.parametrize("name", SMALL)
def test_every_enumerated_candidate_is_contained_canonical_and_loadable(name: str) -> None:
    space = space_of(SMALL[name])
    for candidate in space.enumerate():
        assert space.contains(candidate)
        assert space.canonical(candidate) == candidate
        assert space.candidate(space.values(candidate)) == candidate
        assert space.violations(candidate) == []


@pytest.mark.parametrize("name", SMALL)
def test_count_is_the_number_of_combinations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space = space_of(SMALL[name])
    monkeypatch.setattr(tuner.space.space, "COUNTED_ONE_BY_ONE", 0)
    assert space.size() == Size(sum(1 for _ in filter(None, space.steps())), exact=False)


def test_count_is_an_upper_bound_where_very_many_values_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = space_of({**USUAL, BATCH: {"int": [1, 40]}})
    exact = space.size().count
    monkeypatch.setattr(tuner.space.walk, "COUNTED_CHOICES", 39)
    assert exact < space.size().count < 3 * exact


def test_walk_does_not_visit_values_that_leave_others_none() -> None:
    """No batch is large enough for the preferred sizes: known before counts and delays are."""
    sizes = {BATCH: {"choice": [2, 4, 8, 16]}, PREFERRED: {"subsets": [32]}}
    space = space_of({**USUAL, INSTANCES: {"int": [1, 500]}, **sizes})
    assert [*islice(space.steps(), 5)] == [None] * 4


@pytest.mark.parametrize("name", SMALL)
def test_samples_cover_exactly_the_space(name: str) -> None:
    space = space_of(SMALL[name])
    rng = random.Random(3)
    drawn = {space.sample(rng) for _ in range(40 * space.size().count)}
    assert drawn == set(space.enumerate())


def test_a_large_space_is_counted_without_listing_it() -> None:
    size = space_of(USUAL).size()
    # Beside unset: 8 has {4}, {4,8} ({8} is the default); 16 and 32 more; 9951 delays and 0.
    assert size.count == 4 * 9952 * (3 + 6 + 7)
    assert not size.exact


def test_without_a_batcher_there_is_no_delay_and_no_preferred_size() -> None:
    space = space_of(SMALL["batcher off or on"])
    off = space.candidate(values_of({BATCHER: None, DELAY: 100, PREFERRED: (4,)}))
    assert dict(fields_of(off)) == {BATCHER: None}
    assert off == space.candidate(values_of({BATCHER: None, DELAY: 0}))


def test_a_searched_field_of_the_batcher_turns_it_on() -> None:
    space = space_of({DELAY: {"int": [50, 100], "or": 0}})
    candidate = space.candidate(values_of({DELAY: 0}))
    assert dict(fields_of(candidate)) == {BATCHER: True, DELAY: 0}
    assert the_one(space.configs(candidate)).HasField("dynamic_batching")


def test_a_batch_of_at_most_one_has_no_batcher() -> None:
    space = space_of(SMALL["batch of one"])
    candidate = space.candidate(values_of({BATCH: 1, PREFERRED: (2,)}))
    assert dict(fields_of(candidate)) == {BATCH: 1, BATCHER: None}


def test_preferred_sizes_above_the_batch_size_are_dropped() -> None:
    space = space_of(USUAL)
    candidate = space.candidate(values_of({INSTANCES: 1, BATCH: 8, DELAY: 0, PREFERRED: (4, 16)}))
    assert fields_of(candidate)[PREFERRED] == (4,)
    assert space.contains(candidate)


def test_a_batch_size_that_no_preferred_size_fits_is_outside_the_space() -> None:
    space = space_of(SMALL["no unset"])
    assert not space.contains(space.candidate(values_of({BATCH: 2, PREFERRED: (4,)})))


def test_preferring_the_full_batch_equals_preferring_nothing() -> None:
    space = space_of(USUAL)
    values = {INSTANCES: 1, BATCH: 8, DELAY: 0}
    assert space.candidate(values_of({**values, PREFERRED: (8,)})) == space.candidate(
        values_of({**values, PREFERRED: None})
    )


def test_zero_delay_is_a_separate_value() -> None:
    space = space_of({DELAY: {"int": [50, 100], "or": 0}})
    assert space.contains(space.candidate(values_of({DELAY: 0})))
    assert not space.contains(space.candidate(values_of({DELAY: 20})))


def test_the_cache_is_a_server_argument_and_a_field() -> None:
    space = space_of(SMALL["cache"])
    on = space.candidate(values_of({INSTANCES: 1, CACHE: 1 << 20}))
    off = space.candidate(values_of({INSTANCES: 1, CACHE: None}))
    assert on.cache_bytes == 1 << 20
    assert fields_of(on)["response_cache.enable"] is True
    assert off.cache_bytes is None
    assert fields_of(off)["response_cache.enable"] is None
    assert CACHE not in fields_of(on)
    assert space.restarts


def test_server_arguments_change_last_in_enumeration() -> None:
    sizes = [c.cache_bytes for c in space_of(SMALL["cache"]).enumerate()]
    assert sizes == sorted(sizes, key=sizes.index)
    assert len(set(sizes)) == 3


def test_configs_that_triton_would_refuse_are_never_enumerated_or_drawn() -> None:
    ordered = BATCHING + "dynamic_batching { preserve_ordering: true default_priority_level: 1 }"
    space = space_of({"dynamic_batching.priority_levels": {"int": [1, 3]}}, ordered)
    allowed = [fields_of(c)["dynamic_batching.priority_levels"] for c in space.enumerate()]
    assert allowed == [1]
    assert {space.sample(random.Random(i)) for i in range(20)} == set(space.enumerate())
    refused = space.candidate(values_of({"dynamic_batching.priority_levels": 3}))
    assert "priority" in space.violations(refused)[0].message


def test_the_current_config_may_lie_outside() -> None:
    space = space_of(USUAL)
    assert dict(fields_of(space.current)) == {BATCH: 16, BATCHER: None, INSTANCES: 1}
    assert not space.contains(space.current)
    assert space.canonical(space.current) == space.current
    assert space.configs(space.current) == {"m": the_one(space.served.models).base.completed}


def test_queue_policy_is_searched_for_batches_of_one_and_nothing_else_of_the_batcher() -> None:
    limit = "dynamic_batching.default_queue_policy.max_queue_size"
    fields = {limit: {"choice": [0, 4]}, DELAY: {"choice": [0, 100]}, BATCH: {"choice": [1, 8]}}
    space = space_of(fields)
    alone = [fields_of(c) for c in space.enumerate() if fields_of(c)[BATCH] == 1]
    assert alone == [{BATCH: 1, BATCHER: True, limit: n} for n in (0, 4)]
    switched = space_of({**fields, BATCHER: {"choice": [False, True]}})
    alone = [fields_of(c) for c in switched.enumerate() if fields_of(c)[BATCH] == 1]
    assert alone == [{BATCH: 1, BATCHER: True, limit: n} for n in (0, 4)]  # off: one for all sizes


def test_queue_policy_of_a_model_of_batches_of_one_may_be_searched() -> None:
    one = BATCHING.replace("16", "1")
    space = space_of({QUEUE_TIMEOUT: {"choice": ["unset", 50_000]}}, one)
    assert [fields_of(c)[QUEUE_TIMEOUT] for c in space.enumerate()] == [None, 50_000]
    assert all(fields_of(c)[BATCHER] is True for c in space.enumerate())
    delays = {QUEUE_TIMEOUT: {"choice": [50_000]}, DELAY: {"choice": [0, 100]}}
    with pytest.raises(SpecError, match=f"space.{DELAY}: .* nothing is batched"):
        space_of(delays, one)
    with pytest.raises(SpecError, match="nothing is batched"):
        space_of({QUEUE_TIMEOUT: {"choice": [50_000]}}, one.replace("size: 1", "size: 0"))


def test_queue_policy_of_the_file_stays_with_batches_of_one() -> None:
    policy = " dynamic_batching { default_queue_policy { max_queue_size: 4 } }"
    space = space_of({BATCH: {"choice": [1, 8]}, DELAY: {"choice": [0, 100]}}, BATCHING + policy)
    (alone,) = [c for c in space.enumerate() if fields_of(c)[BATCH] == 1]
    assert space.configs(alone)["m"].dynamic_batching.default_queue_policy.max_queue_size == 4


def test_a_delay_of_nothing_and_none_are_alike_to_triton() -> None:
    space = space_of(USUAL)
    batched = {**fields_of(space.current), BATCHER: True}
    spelled = candidate_of({**batched, DELAY: 0})
    assert space.alike(spelled, candidate_of(batched))
    assert not space.alike(spelled, candidate_of({**batched, DELAY: 1}))
    assert not space.alike(spelled, candidate_of(fields_of(spelled), 1))


@pytest.mark.parametrize("name", SMALL)
def test_no_two_candidates_are_alike_to_triton(name: str) -> None:
    space = space_of(SMALL[name])
    candidates = list(space.enumerate())
    assert not [(a, b) for a, b in combinations(candidates, 2) if space.alike(a, b)]


@pytest.mark.parametrize(("now", "kept"), [(8, 8), (16, 32)])
def test_without_a_batcher_all_batch_sizes_are_one_config_where_requests_have_one_row(
    now: int, kept: int
) -> None:
    config = BATCHING.replace("16", str(now))
    sizes = SMALL["batcher off and two batches"]
    space = space_of(sizes, config)
    off = [c for c in space.enumerate() if fields_of(c)[BATCHER] is None]
    assert [fields_of(c) for c in off] == [
        {INSTANCES: count, BATCH: kept, BATCHER: None} for count in (1, 2)
    ]  # with the size that the file has, else the largest
    assert space.size().count == len(off) + 2 * 3
    assert space.canonical(space.current) == off[0]
    assert space.alike(space.current, off[0])
    assert space.candidate(values_of({INSTANCES: 2, BATCH: 4, BATCHER: None})) == off[1]
    many = space_of(sizes, config, workload={"batch_size": 2})
    assert many.size().count == 2 * 2 * 3
    four, eight = [c for c in many.enumerate() if fields_of(c)[BATCHER] is None][:2]
    assert not many.alike(four, eight)


def test_a_current_config_that_says_what_triton_assumes_equals_one_of_the_space() -> None:
    config = BATCHING + "dynamic_batching { preferred_batch_size: 16 }"
    space = space_of(USUAL, config)
    assert fields_of(space.current)[PREFERRED] == (16,)
    assert space.configs(space.current) == {"m": the_one(space.served.models).base.completed}
    equal = space.canonical(space.current)
    assert space.contains(equal)
    assert fields_of(equal)[PREFERRED] is None


def test_a_delay_that_the_file_leaves_out_is_zero() -> None:
    space = space_of(USUAL, BATCHING + "dynamic_batching { }")
    assert fields_of(space.current)[DELAY] == 0
    assert space.contains(space.current)


def test_the_size_of_the_cache_that_is_served_now_comes_from_the_server_arguments() -> None:
    args = ["--log-info=true", "--cache-config=local,size=1048576"]
    space = space_of(
        SMALL["cache"], BATCHING + "response_cache { enable: true }", server={"args": args}
    )
    assert space.server_args == ("--log-info=true",)
    assert space.current.cache_bytes == 1 << 20
    assert space.contains(space.current)


def test_fields_inside_a_searched_message_mean_something_only_when_it_is_on() -> None:
    space = space_of(
        {
            "optimization.cuda": {"choice": [False, True]},
            "optimization.cuda.graphs": {"choice": [False, True]},
        }
    )
    assert [dict(fields_of(c)) for c in space.enumerate()] == [
        {"optimization.cuda": None},
        {"optimization.cuda": True, "optimization.cuda.graphs": False},
        {"optimization.cuda": True, "optimization.cuda.graphs": True},
    ]


def test_a_coarse_space_lies_within_the_space() -> None:
    space = space_of(USUAL)
    coarse = space.coarse(4)
    assert coarse.size().count == 4 * 5 * (3 + 6 + 7)
    assert all(space.contains(c) for c in coarse.enumerate())
    assert all(isinstance(c, Candidate) for c in coarse.enumerate())


def test_the_current_config_has_one_key_under_all_its_spellings() -> None:
    searched = {
        INSTANCES: {"int": [1, 2]},
        BATCHER: {"choice": [False, True]},
        DELAY: {"int": [0, 50]},
        PREFERRED: {"subsets": [8, 16], "at_most": 1, "or": "unset"},
    }
    plain = 'name: "m" backend: "python" max_batch_size: 16 dynamic_batching { %s } %s'
    spelled = [
        ("", ""),
        ("preferred_batch_size: 16", "instance_group { kind: KIND_CPU }"),
        ("max_queue_delay_microseconds: 0", "instance_group { count: 1 }"),
    ]
    spaces = [space_of(searched, plain % (batcher, group)) for batcher, group in spelled]
    keys = {space.canonical(space.current).key for space in spaces}
    assert len(keys) == 1
    for space in spaces:
        assert all(space.contains(space.canonical(c)) for c in space.enumerate())
        assert sum(c.key in keys for c in space.enumerate()) == 1


LEVELS = "dynamic_batching.priority_levels"
DEFAULT = "dynamic_batching.default_priority_level"


class UpTo(Condition):
    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter:
        assert isinstance(parameter, ChoiceParameter)
        left = tuple(v for v in parameter if isinstance(v, int) and v <= int(str(beside)))
        return replace(parameter, values=left)


def test_a_new_condition_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conditions.KNOWN, DEFAULT, UpTo(LEVELS))
    space = space_of(
        {LEVELS: {"choice": [1, 2, 3]}, DEFAULT: {"choice": [1, 2, 3]}},
        BATCHING + "dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
    )
    pairs = {(fields_of(c)[LEVELS], fields_of(c)[DEFAULT]) for c in space.enumerate()}
    assert pairs == {(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)}
    assert space.size().count == 6
    monkeypatch.setattr(tuner.space.space, "COUNTED_ONE_BY_ONE", 0)
    assert space.size() == Size(6, exact=False)
    assert not space.contains(space.candidate(values_of({LEVELS: 1, DEFAULT: 3})))
    assert all(space.contains(c) for s in range(9) if (c := space.sample(random.Random(s))))
    assert space.contains(space.current)


def test_value_of_the_model_counts_where_the_parent_is_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(conditions.KNOWN, DEFAULT, UpTo(LEVELS))
    priorities = "dynamic_batching { priority_levels: 2 default_priority_level: 1 }"
    space = space_of({DEFAULT: {"choice": [1, 2, 3]}}, BATCHING + priorities)
    assert [fields_of(c)[DEFAULT] for c in space.enumerate()] == [1, 2]


LOG_RANGE = RangeParameter(Knob("m", "delay"), 50, 10_000, log=True, special=(0,))


def test_a_parameter_tells_booleans_from_numbers() -> None:
    assert True not in ChoiceParameter(Knob("m", "p"), (1, 8))
    assert 1 in ChoiceParameter(Knob("m", "p"), (1, 8))
    assert True not in RangeParameter(Knob("m", "p"), 0, 4)


def test_a_range_holds_its_bounds_its_steps_and_its_special_value() -> None:
    stepped = RangeParameter(Knob("m", "p"), 2, 10, step=4, special=(None,))
    assert [v for v in range(12) if v in stepped] == [2, 6, 10]
    assert None in stepped
    assert stepped.count == len(list(stepped)) == 4


def test_draws_from_a_log_range_are_even_by_ratio_and_reach_the_special_value() -> None:
    rng = random.Random(1)
    drawn = [LOG_RANGE.draw(rng) for _ in range(4000)]
    assert all(v in LOG_RANGE for v in drawn)
    assert drawn.count(0) / len(drawn) == pytest.approx(0.5, abs=0.05)
    positive = [v for v in drawn if isinstance(v, int) and v > 0]
    middle = (50 * 10_000) ** 0.5
    assert sum(v < middle for v in positive) / len(positive) == pytest.approx(0.5, abs=0.05)


def test_a_coarse_log_range_is_evenly_spread_by_ratio_and_keeps_the_special_value() -> None:
    coarse = LOG_RANGE.coarse(4)
    assert coarse.values == (0, 50, 292, 1710, 10_000)
    assert all(v in LOG_RANGE for v in coarse.values)


def test_a_coarse_range_stays_on_its_steps_and_a_short_one_is_not_made_coarser() -> None:
    stepped = RangeParameter(Knob("m", "p"), 1, 100, step=3)
    assert all(v in stepped for v in stepped.coarse(5).values)
    short = RangeParameter(Knob("m", "p"), 1, 4, special=(None,))
    assert short.coarse(8).values == (None, 1, 2, 3, 4)


US = st.integers(1, 30_000)


@settings(max_examples=200, deadline=None)
@given(delays=st.tuples(US, US), timeouts=st.tuples(US, US), known=US, kind=st.integers(0, 2))
def test_no_candidate_rejects_requests_that_come_alone(
    delays: tuple[int, int], timeouts: tuple[int, int], known: int, kind: int
) -> None:
    """50 candidates of each of 200 spaces: of both fields, or of one beside the other in a file."""
    delay, timeout = ({"int": [min(ends), max(ends) + 1], "or": 0} for ends in (delays, timeouts))
    space, in_file = [
        ({DELAY: delay, QUEUE_TIMEOUT: timeout}, ""),
        ({DELAY: delay}, f"default_queue_policy {{ default_timeout_microseconds: {known} }}"),
        ({QUEUE_TIMEOUT: timeout}, f"max_queue_delay_microseconds: {known}"),
    ][kind]
    made = space_of(space, f"{BATCHING} dynamic_batching {{ {in_file} }}")
    rng = random.Random(known)
    for _ in range(50):
        candidate = made.sample(rng)
        assert candidate is not None
        batching = made.configs(candidate)["m"].dynamic_batching
        waits = batching.default_queue_policy.default_timeout_microseconds
        assert not 0 < waits <= batching.max_queue_delay_microseconds


def test_a_queue_timeout_that_the_file_has_is_kept_where_nothing_changes_it() -> None:
    policy = "default_queue_policy { default_timeout_microseconds: 500 }"
    config = f"{BATCHING} dynamic_batching {{ max_queue_delay_microseconds: 900 {policy} }}"
    made = space_of({INSTANCES: {"int": [1, 2]}}, config)
    assert made.size().count == 2


def test_a_second_group_of_instances_is_searched_by_its_kind() -> None:
    config = 'name: "m" instance_group [{ count: 3 kind: KIND_GPU gpus: [ 0 ] }]'
    second = "instance_group[kind=KIND_CPU].count"
    made = space_of({"instance_group[0].count": {"int": [2, 3]}, second: {"choice": ["unset", 2]}},
                    config)  # fmt: skip
    groups = {
        tuple((group.count, enum_name(group, "kind")) for group in served.instance_group)
        for candidate in made.enumerate()
        for served in made.configs(candidate).values()
    }
    gpu = [((count, "KIND_GPU"),) for count in (2, 3)]
    assert groups == {*gpu, *((*first, (2, "KIND_CPU")) for first in gpu)}
