"""What Triton makes of a candidate's fields, and what a fit reads from finished trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.measurements import synthetic_measurement
from builders.serving import served_one

from tuner.measurement.measurement import HostUse
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import FieldValue, service_key
from tuner.space.parameters import Knob
from tuner.twin.model import Unmodelled
from tuner.twin.observation import Asked, Setting, observation, with_measured
from tuner.twin.system import Network, QueuePolicy, Scheduler

BASE = 'name: "m" max_batch_size: 8 instance_group [ { count: 1 kind: KIND_CPU } ]'

BATCHER = "dynamic_batching"


def scheduler(
    fields: dict[str, FieldValue],
    cache_bytes: int | None = None,
    base: str = BASE,
    **facts: Any,
) -> Scheduler | Unmodelled:
    found = Setting(served_one(base), (Asked(model="m"),), **facts).network(
        candidate_of(fields, cache_bytes)
    )
    return found if isinstance(found, Unmodelled) else found.nodes[0]


def test_the_config_as_it_is() -> None:
    assert scheduler({}) == Scheduler(instances=1, max_batch_size=8, batching=False)


def test_dynamic_batching() -> None:
    assert scheduler(
        {
            "instance_group.count": 3,
            "max_batch_size": 16,
            BATCHER: True,
            f"{BATCHER}.preferred_batch_size": (8, 4),
            f"{BATCHER}.max_queue_delay_microseconds": 1500,
        }
    ) == Scheduler(
        instances=3, max_batch_size=16, preferred_batch_sizes=(4, 8), max_queue_delay_s=1.5e-3
    )


def test_batches_of_one_have_no_batcher() -> None:
    """Triton starts none for max_batch_size 1 (model.cc / CreateScheduler)."""
    found = scheduler({"max_batch_size": 1, BATCHER: True})
    assert isinstance(found, Scheduler)
    assert not found.batching


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("default_queue_policy.max_queue_size", 5),
        ("default_queue_policy.default_timeout_microseconds", 9000),
        ("default_queue_policy.allow_timeout_override", True),
    ],
)
def test_any_queue_policy_switches_prefetch_off(field: str, value: FieldValue) -> None:
    found = scheduler({BATCHER: True, f"{BATCHER}.{field}": value})
    assert isinstance(found, Scheduler)
    assert not found.prefetches


def test_policies_by_priority_level() -> None:
    base = BASE + (
        " dynamic_batching { priority_levels: 2 default_priority_level: 2"
        " default_queue_policy { max_queue_size: 7 }"
        " priority_queue_policy { key: 1 value { timeout_action: DELAY"
        " default_timeout_microseconds: 2000 } } }"
    )
    found = scheduler({}, base=base)
    assert isinstance(found, Scheduler)
    assert found.policies == (QueuePolicy(0, 2e-3, delays_expired=True), QueuePolicy(7))


def test_instances_are_counted_on_each_gpu() -> None:
    base = 'name: "m" instance_group [ { count: 2 kind: KIND_GPU gpus: [0, 1] } ]'
    found = scheduler({}, base=base, devices=4)
    assert isinstance(found, Scheduler)
    assert (found.instances, found.devices) == (4, 2)


GPU = "max_batch_size: 8 instance_group [ { count: 1 kind: KIND_GPU } ]"

TWO_GPUS = (
    'name: "m" instance_group [ { count: 1 kind: KIND_GPU gpus: [0] },'
    " { count: 1 kind: KIND_GPU gpus: [1] } ]"
)


@pytest.mark.parametrize(
    ("base", "fields", "instances", "devices"),
    [
        (GPU, {"instance_group.count": 2}, 8, 4),
        (TWO_GPUS, {}, 2, 2),
        ('name: "m"', {"instance_group[kind=KIND_CPU].count": 2}, 2, 1),
        ('name: "m"', {"instance_group[kind=KIND_GPU].count": 2}, 8, 4),
        ('name: "m" instance_group { count: 3 kind: KIND_MODEL }', {}, 3, 1),
        ('name: "m"', {}, 4, 4),
    ],
)
def test_where_instances_run_on_four_gpus(
    base: str, fields: dict[str, FieldValue], instances: int, devices: int
) -> None:
    found = scheduler(fields, base=base, devices=4)
    assert isinstance(found, Scheduler)
    assert (found.instances, found.devices) == (instances, devices)
    assert found.device_of == tuple(i % devices for i in range(instances))


@pytest.mark.parametrize(
    "paths",
    [
        ("instance_group[gpus=0].count", "instance_group[gpus=1].count"),
        ("instance_group[0].count", "instance_group[1].count"),
    ],
)
def test_each_gpu_may_have_its_own_number_of_instances(paths: tuple[str, str]) -> None:
    fields: dict[str, FieldValue] = dict(zip(paths, (3, 1), strict=True))
    found = scheduler(fields, base=TWO_GPUS, devices=4)
    assert isinstance(found, Scheduler)
    assert found.device_of == (0, 1, 0, 0)
    assert service_key(candidate_of(fields)) == ()


def test_a_group_on_cpus_beside_one_on_gpus_is_not_simulated() -> None:
    found = scheduler({"instance_group[kind=KIND_CPU].count": 1}, base=TWO_GPUS, devices=2)
    assert found == Unmodelled("instances on CPUs and on GPUs at once are not simulated")


def test_more_instances_than_there_is_room_for_are_said() -> None:
    assert isinstance(scheduler({"instance_group.count": 20}, base=GPU, devices=3), Scheduler)
    assert isinstance(scheduler({"instance_group.count": 20}, base=GPU, devices=4), Unmodelled)


def test_a_cache_needs_the_size_of_a_response() -> None:
    fields: dict[str, FieldValue] = {"response_cache.enable": True}
    assert isinstance(scheduler(fields, 1 << 20), Unmodelled)
    found = scheduler(fields, 1 << 20, response_bytes=1024)
    assert isinstance(found, Scheduler)
    assert found.cache_entries == 1024


@pytest.mark.parametrize(
    "base",
    [
        'name: "m" sequence_batching { }',
        'name: "m" model_transaction_policy { decoupled: true }',
        'name: "m" max_batch_size: 4 dynamic_batching { preserve_ordering: true }',
    ],
)
def test_what_is_not_simulated_is_said(base: str) -> None:
    found = scheduler({}, base=base)
    assert isinstance(found, Unmodelled)
    assert "not simulated" in found.reason


def test_other_fields_are_named_because_they_may_change_what_a_batch_costs() -> None:
    path = "parameters.intra_op_num_threads"
    one, two = (candidate_of({path: n, "max_batch_size": 8}) for n in ("1", "2"))
    assert service_key(one) == ((Knob("m", path), "1"),)
    assert service_key(one) != service_key(two)


def test_the_instances_of_an_open_count_are_those_the_server_has() -> None:
    file = 'backend: "onnxruntime" max_batch_size: 8 instance_group { kind: KIND_CPU }'
    found = scheduler({}, base=file)
    assert isinstance(found, Scheduler)
    assert found.instances == 2


SETTING = Setting(served_one('name: "m" max_batch_size: 8'), (Asked(model="m"),))

NETWORK = Network((Scheduler(),))

CACHED = 1 << 20


def trial(host: HostUse, cache_bytes: int | None = None) -> Trial:
    measurement = replace(synthetic_measurement(32), host=host)
    return Trial(
        0, candidate_of({}, cache_bytes), TrialState.MEASURED, (Point(measurement, (), None),)
    )


def test_cores_and_cache_entries_are_what_the_trials_show() -> None:
    cached = trial(HostUse(cores=2, cache_entries=100, cache_utilization=0.5), CACHED)
    found = with_measured(SETTING, [trial(HostUse()), cached])
    assert (found.cores, found.response_bytes) == (2, 5243)


def test_the_gpus_are_those_the_server_sees() -> None:
    assert with_measured(SETTING, [trial(HostUse()), trial(HostUse(gpus=4))]).devices == 4


def test_without_trials_that_show_it_the_setting_stays() -> None:
    known = replace(SETTING, cores=4, response_bytes=100)
    assert with_measured(known, [trial(HostUse())]) == known


def test_busy_cores_are_those_of_server_and_client() -> None:
    host = HostUse(cpu_percent=80.0, other_cpu_percent=5.0)
    measurement = replace(synthetic_measurement(32), host=host)
    shared = observation(0, NETWORK, measurement, replace(SETTING, cores=2))
    assert shared.busy_cores == pytest.approx(1.5)
    assert observation(0, NETWORK, measurement, SETTING).busy_cores is None
