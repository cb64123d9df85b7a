"""The simulator against cases worked out by hand, and against laws any queue obeys."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tuner.twin.observation import Repeats, draw_keys
from tuner.twin.simulator import Trace, simulate, trace_network
from tuner.twin.state import HIT, PENDING, REJECTED, SERVED, Memory
from tuner.twin.system import Network, QueuePolicy, Scheduler, Service, Traffic, Way

NO_WAY = Way()
MS = 1e-3


def at(*due_ms: float, end_ms: float = 10_000.0) -> Traffic:
    return Traffic((0.0, end_ms * MS), end_ms * MS, np.array(due_ms) * MS)


def poisson(rate: float, seconds: float, seed: int = 1) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).uniform(0.0, seconds, int(rate * seconds)))


def trace_requests(
    scheduler: Scheduler, service: Service, way: Way, traffic: Traffic, seed: int = 0
) -> tuple[Trace, Memory]:
    return trace_network(Network((scheduler,)), (service,), way, (traffic,), seed)


def answered_ms(scheduler: Scheduler, service: Service, traffic: Traffic) -> list[float]:
    requests, _ = trace_requests(scheduler, service, NO_WAY, traffic)
    return [round(float(t) * 1e3, 6) for t in requests.answered_s]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_time_is_that_of_m_d_1(load: float) -> None:
    """Pollaczek-Khinchine for constant service: rho / (2 (1 - rho)) service times."""
    scheduler, service = Scheduler(batching=False), Service(exclusive_base_s=MS)
    traffic = Traffic((10.0, 990.0), 1000.0, poisson(load * 1000.0, 1000.0))
    outcome = simulate(scheduler, service, NO_WAY, traffic)
    assert outcome.nodes[0].queue_us == pytest.approx(load / (2 * (1 - load)) * 1000.0, rel=0.05)


def test_without_batching_each_request_is_an_execution() -> None:
    outcome = simulate(
        Scheduler(max_batch_size=8, batching=False),
        Service(exclusive_base_s=MS),
        NO_WAY,
        at(0, 0, 0),
    )
    assert outcome.nodes[0].executions.tolist()[:3] == [0, 3, 0]


def test_a_batch_grows_until_an_instance_takes_it() -> None:
    """The first runs alone for 10 ms; what comes meanwhile goes as one batch."""
    scheduler, service = Scheduler(max_batch_size=8), Service(exclusive_base_s=10 * MS)
    assert answered_ms(scheduler, service, at(0, 1, 2, 3, 9)) == [10, 20, 20, 20, 20]


def test_a_batch_is_never_larger_than_max_batch_size() -> None:
    scheduler, service = Scheduler(max_batch_size=3), Service(exclusive_base_s=10 * MS)
    assert answered_ms(scheduler, service, at(0, 1, 2, 3, 4)) == [10, 20, 20, 20, 30]


def test_a_delay_holds_back_the_first_request_for_others() -> None:
    """Sent when the oldest has waited 5 ms, or at once when the preferred size is reached."""
    service = Service(exclusive_base_s=MS)
    delayed = Scheduler(max_batch_size=4, max_queue_delay_s=5 * MS)
    assert answered_ms(delayed, service, at(0, 2)) == [6, 6]
    assert answered_ms(delayed, service, at(0, 1, 2, 3)) == [4, 4, 4, 4]


def test_a_preferred_size_is_sent_at_once_and_without_delay_is_closed() -> None:
    """Seven are waiting, preferred [4, 8]: with delay 0 four go, then three."""
    scheduler = Scheduler(max_batch_size=8, preferred_batch_sizes=(4, 8))
    service = Service(exclusive_base_s=10 * MS)
    traffic = at(0, *[1 + 0.1 * i for i in range(7)])
    assert answered_ms(scheduler, service, traffic) == [10, *[20] * 4, *[30] * 3]


def test_a_preferred_size_below_the_queue_gives_one_more_with_a_delay() -> None:
    """What users see as max(preferred) + 1 (triton-inference-server/server#8141)."""
    scheduler = Scheduler(max_batch_size=32, preferred_batch_sizes=(4,), max_queue_delay_s=50 * MS)
    service = Service(exclusive_base_s=10 * MS)
    due_ms = [0, 0, 0, 0, *[1 + 0.01 * i for i in range(30)]]
    outcome = simulate(scheduler, service, NO_WAY, at(*due_ms))
    assert outcome.nodes[0].executions[5] > 0


def test_waiting_batches_are_merged_at_pick_up_only_with_a_delay() -> None:
    """Preferred [2]: batches of two wait; those older than the delay are merged at 10 ms."""
    service = Service(exclusive_base_s=10 * MS)
    sizes = {}
    for delay_s in (0.0, 1 * MS):
        scheduler = Scheduler(
            max_batch_size=8, preferred_batch_sizes=(2,), max_queue_delay_s=delay_s
        )
        outcome = simulate(scheduler, service, NO_WAY, at(0, 0, 1, 1.1, 2, 2.1))
        sizes[delay_s] = outcome.nodes[0].executions.nonzero()[0].tolist()
    assert sizes[0.0] == [2]
    assert max(sizes[1 * MS]) > 2


def test_prefetch_prepares_two_batches_for_each_instance() -> None:
    """Of ten one-request batches one runs and two wait; without prefetch none waits.

    What has to wait for a slot goes in fours, the larger preferred size, as far as there are four.
    """
    service = Service(exclusive_base_s=10 * MS)
    for prefetches, together in ((True, [1, 1, 1, 4, 1, 1, 1]), (False, [1, 4, 4, 1])):
        scheduler = Scheduler(
            max_batch_size=16, preferred_batch_sizes=(1, 4), prefetches=prefetches
        )
        requests, _ = trace_requests(scheduler, service, NO_WAY, at(*[0.1 * i for i in range(10)]))
        _, sizes = np.unique(requests.started_s, return_counts=True)
        assert sizes.tolist() == together


def test_the_device_runs_one_batch_at_a_time_and_hosts_overlap() -> None:
    service = Service(overlap_base_s=4 * MS, exclusive_base_s=2 * MS)
    two = Scheduler(instances=2, batching=False)
    assert answered_ms(two, service, at(0, 0)) == [6, 8]
    apart = Scheduler(instances=2, devices=2, batching=False)
    assert answered_ms(apart, service, at(0, 0)) == [6, 6]


def test_instances_without_a_core_wait_for_a_slice() -> None:
    service, two = Service(overlap_base_s=4 * MS), Scheduler(instances=2, batching=False)
    requests, _ = trace_requests(two, service, Way(cores=1.0), at(0, 2))
    # The first has the core for 3 ms, then the second for as long, then each its last one.
    assert requests.answered_s.tolist() == pytest.approx([7 * MS, 8 * MS])


def test_an_instance_keeps_its_core_while_nobody_waits() -> None:
    service = Service(overlap_base_s=5 * MS, response_s=MS)
    requests, _ = trace_requests(Scheduler(batching=False), service, Way(cores=1.0), at(0, 10))
    assert requests.answered_s.tolist() == pytest.approx([6 * MS, 16 * MS])


def test_a_request_comes_in_once_the_slice_of_an_instance_is_over() -> None:
    service, two = Service(overlap_base_s=4 * MS), Scheduler(instances=2, batching=False)
    way = Way(cores=1.0, front_s=0.5 * MS)
    requests, _ = trace_requests(two, service, way, at(0, 1))
    # The first runs from 0.5 to 3.5; the second comes in until 4; the first's last one, its
    # answer; then the second from 5.5 on, and its answer.
    assert requests.arrived_s.tolist() == pytest.approx([0.5 * MS, 4 * MS])
    assert requests.answered_s.tolist() == pytest.approx([5.5 * MS, 10 * MS])


def test_an_instance_that_slept_does_more_for_its_batch() -> None:
    service, way = Service(overlap_base_s=4 * MS), Way(cores=1.0, slept_s=MS)
    requests, _ = trace_requests(Scheduler(batching=False), service, way, at(0, 1, 20))
    assert requests.answered_s.tolist() == pytest.approx([5 * MS, 9 * MS, 25 * MS])


def test_requests_are_given_back_after_their_answers() -> None:
    service = Service(exclusive_base_s=MS, release_s=0.5 * MS)
    requests, _ = trace_requests(Scheduler(batching=False), service, NO_WAY, at(0, 0))
    assert requests.answered_s.tolist() == pytest.approx([MS, 2.5 * MS])


def test_busy_cores_are_those_at_work_inside_the_window() -> None:
    service, way = Service(overlap_base_s=4 * MS), Way(cores=2.0, front_s=0.5 * MS)
    outcome = simulate(Scheduler(batching=False), service, way, at(0, end_ms=10))
    assert outcome.busy_cores == pytest.approx(0.5)


def test_responses_leave_one_after_the_other() -> None:
    service = Service(exclusive_base_s=MS, response_s=0.5 * MS)
    assert answered_ms(
        Scheduler(max_batch_size=4, max_queue_delay_s=MS), service, at(0, 0, 0, 0)
    ) == [
        1.5,
        2.0,
        2.5,
        3.0,
    ]


def test_sizes_are_padded() -> None:
    service = Service(exclusive_item_s=MS, pad_to=4)
    scheduler = Scheduler(max_batch_size=8, max_queue_delay_s=MS)
    assert answered_ms(scheduler, service, at(*[0] * 5)) == [9.0] * 5


def test_a_full_queue_refuses() -> None:
    scheduler = Scheduler(
        max_batch_size=1, policies=(QueuePolicy(max_queue_size=2),), prefetches=False
    )
    requests, _ = trace_requests(
        scheduler, Service(exclusive_base_s=10 * MS), NO_WAY, at(0, 1, 2, 3, 4)
    )
    assert requests.fate.tolist() == [SERVED, SERVED, SERVED, REJECTED, REJECTED]
    assert requests.answered_s[3:].tolist() == pytest.approx([3 * MS, 4 * MS])


def test_what_waits_too_long_is_refused_when_an_instance_is_free() -> None:
    scheduler = Scheduler(
        max_batch_size=1, policies=(QueuePolicy(timeout_s=5 * MS),), prefetches=False
    )
    requests, _ = trace_requests(scheduler, Service(exclusive_base_s=10 * MS), NO_WAY, at(0, 1, 8))
    assert requests.fate.tolist() == [SERVED, REJECTED, SERVED]
    assert requests.answered_s.tolist() == pytest.approx([10 * MS, 10 * MS, 20 * MS])


def test_a_timeout_is_noticed_late_when_all_instances_are_busy() -> None:
    """The batcher's two waits, empty queue and no slot, take 500 ms each (server#7512)."""
    scheduler = Scheduler(
        max_batch_size=1, policies=(QueuePolicy(timeout_s=5 * MS),), prefetches=False
    )
    requests, _ = trace_requests(scheduler, Service(exclusive_base_s=2.0), NO_WAY, at(0, 100))
    assert requests.answered_s[1] == pytest.approx(1.0)


def test_what_expired_goes_behind_the_others() -> None:
    policy = QueuePolicy(timeout_s=5 * MS, delays_expired=True)
    scheduler = Scheduler(max_batch_size=1, policies=(policy,), prefetches=False)
    requests, _ = trace_requests(scheduler, Service(exclusive_base_s=10 * MS), NO_WAY, at(0, 1, 8))
    assert requests.answered_s.tolist() == pytest.approx([10 * MS, 30 * MS, 20 * MS])


def test_higher_priority_goes_first() -> None:
    scheduler = Scheduler(
        max_batch_size=1, policies=(QueuePolicy(), QueuePolicy()), prefetches=False
    )
    traffic = Traffic((0.0, 1.0), 1.0, np.array([0.0, 1.0, 2.0]) * MS, levels=np.array([1, 1, 0]))
    requests, _ = trace_requests(scheduler, Service(exclusive_base_s=10 * MS), NO_WAY, traffic)
    assert requests.answered_s.tolist() == pytest.approx([10 * MS, 30 * MS, 20 * MS])


def test_a_closed_loop_keeps_its_requests_outstanding() -> None:
    """Four clients, one server of 10 ms: 100 a second, each after 40 ms."""
    traffic = Traffic((1.0, 11.0), 11.0, concurrency=4)
    outcome = simulate(
        Scheduler(batching=False), Service(exclusive_base_s=10 * MS), NO_WAY, traffic
    )
    assert outcome.throughput_infer_per_s == pytest.approx(100.0, rel=0.01)
    assert outcome.percentile_us(0.5) == pytest.approx(40_000.0, rel=0.01)


@pytest.mark.parametrize(("exponent", "held", "expected"), [(0.8, 500, 0.42), (0.99, 1250, 0.78)])
def test_hit_rate_is_ches_approximation(exponent: float, held: int, expected: float) -> None:
    """Che et al. 2002: of 5000 equal items, an LRU of 10 % (25 %) gives 42 % (78 %) hits."""
    keys = draw_keys(Repeats(5000, exponent), 120_000, 3)
    traffic = Traffic(
        (0.0, 1000.0),
        1000.0,
        np.linspace(0, 900, 70_000),
        keys=keys[50_000:],
        warm_keys=keys[:50_000],
    )
    outcome = simulate(
        Scheduler(batching=False, cache_entries=held),
        Service(exclusive_base_s=1e-4),
        NO_WAY,
        traffic,
    )
    assert outcome.nodes[0].hit_rate == pytest.approx(expected, abs=0.015)


def test_a_hit_waits_for_nothing() -> None:
    traffic = Traffic((0.0, 1.0), 1.0, np.array([0.0, 20.0, 21.0]) * MS, keys=np.array([7, 7, 8]))
    requests, _ = trace_requests(
        Scheduler(batching=False, cache_entries=4),
        Service(exclusive_base_s=10 * MS),
        Way(hit_s=MS),
        traffic,
    )
    assert requests.fate.tolist() == [SERVED, HIT, SERVED]
    assert requests.answered_s.tolist() == pytest.approx([10 * MS, 21 * MS, 31 * MS])


SCHEDULERS = st.builds(
    Scheduler,
    instances=st.integers(1, 5),
    max_batch_size=st.sampled_from([1, 2, 7, 16]),
    devices=st.integers(1, 2),
    batching=st.booleans(),
    preferred_batch_sizes=st.sampled_from([(), (1,), (2,), (4, 8)]),
    max_queue_delay_s=st.sampled_from([0.0, 5e-4, 5e-3]),
    policies=st.sampled_from(
        [
            (QueuePolicy(),),
            (QueuePolicy(max_queue_size=3),),
            (QueuePolicy(timeout_s=4e-3),),
            (QueuePolicy(timeout_s=4e-3, delays_expired=True),),
        ]
    ),
    prefetches=st.booleans(),
)
SERVICES = st.builds(
    Service,
    overlap_base_s=st.sampled_from([0.0, 1e-3]),
    exclusive_base_s=st.sampled_from([0.0, 2e-3]),
    exclusive_item_s=st.sampled_from([1e-5, 3e-4]),
    response_s=st.sampled_from([0.0, 5e-5]),
    pad_to=st.sampled_from([1, 4]),
    spread=st.sampled_from([0.0, 0.2]),
)
WAYS = st.builds(
    Way,
    base_s=st.sampled_from([0.0, 4e-4]),
    spread_s=st.sampled_from([0.0, 3e-4]),
    front_s=st.sampled_from([0.0, 1e-4]),
    cores=st.sampled_from([2.0, 64.0]),
    handoff_s=st.sampled_from([0.0, 6e-5]),
)
#: Long after the last request, so that all is answered.
QUIET_S = 60.0


@settings(max_examples=120, deadline=None)
@given(SCHEDULERS, SERVICES, WAYS, st.sampled_from([50.0, 400.0, 2000.0]), st.integers(0, 99))
def test_every_request_is_answered_or_refused_after_it_came(
    scheduler: Scheduler, service: Service, way: Way, rate: float, seed: int
) -> None:
    due_s = poisson(rate, 0.5, seed)
    requests, _ = trace_requests(scheduler, service, way, Traffic((0.0, 0.5), QUIET_S, due_s), seed)
    assert not (requests.fate == PENDING).any()
    served = requests.fate == SERVED
    assert (requests.answered_s >= requests.due_s).all()
    assert (requests.started_s[served] >= requests.arrived_s[served]).all()
    if scheduler.policies == (QueuePolicy(),):
        assert served.all()
        # First come, first served.
        order = np.lexsort((requests.started_s, requests.arrived_s))
        assert (np.diff(requests.started_s[order]) >= 0.0).all()


@settings(max_examples=40, deadline=None)
@given(SCHEDULERS, SERVICES, WAYS, st.integers(1, 40), st.integers(0, 99))
def test_a_closed_loop_obeys_littles_law(
    scheduler: Scheduler, service: Service, way: Way, clients: int, seed: int
) -> None:
    """Requests in flight = rate times time in the system, whatever the system does."""
    # A client that is refused at once asks again at once, for ever.
    scheduler = dataclasses.replace(scheduler, policies=(QueuePolicy(),))
    way = dataclasses.replace(way, base_s=4e-4)
    traffic = Traffic((0.0, 2.0), 2.0, concurrency=clients)
    requests, _ = trace_requests(scheduler, service, way, traffic, seed)
    assume(20 * clients <= requests.due_s.size <= 200_000)
    ended_s = np.minimum(requests.answered_s, 2.0)
    time_in_system_s = float((ended_s - np.minimum(requests.due_s, 2.0)).sum())
    assert time_in_system_s == pytest.approx(2.0 * clients, rel=0.05, abs=0.2)


def test_equal_seeds_give_equal_outcomes() -> None:
    scheduler, service = Scheduler(2, 8), Service(1e-3, 1e-4, 2e-3, 1e-4, spread=0.1)
    traffic = Traffic((0.0, 2.0), 2.0, poisson(500.0, 2.0))
    one, same, other = (
        simulate(scheduler, service, Way(4e-4, 3e-4), traffic, seed) for seed in (1, 1, 2)
    )
    assert one.latencies_us.tolist() == same.latencies_us.tolist()
    assert one.latencies_us.tolist() != other.latencies_us.tolist()


def test_a_million_requests_take_seconds_at_the_most() -> None:
    """A million a second on an idle core; a busy one has some leave."""
    traffic = Traffic((0.0, 700.0), 700.0, poisson(1400.0, 700.0))
    scheduler, service = Scheduler(2, 16), Service(1e-3, 5e-5, 4e-3, 2e-4, spread=0.05)
    way = Way(3e-4, 2e-4, handoff_s=6e-5)
    simulate(scheduler, service, way, at(0))  # compiles
    begin = time.process_time()
    simulate(scheduler, service, way, traffic)
    assert time.process_time() - begin < 5.0
