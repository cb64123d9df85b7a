"""Several models on one host, against cases worked out by hand and laws any network obeys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.twin.simulator import Outcome, simulate_network, trace_network
from tuner.twin.state import PENDING, REJECTED, SERVED
from tuner.twin.system import Network, QueuePolicy, Scheduler, Service, Step, Traffic, Way

MS = 1e-3
ALONE = Scheduler(batching=False)
NO_WAY = Way()


def at(*due_ms: float, stream: str = "", background: bool = False) -> Traffic:
    due_s = np.array(due_ms) * MS
    return Traffic((0.0, 10.0), 10.0, due_s, stream=stream, background=background)


def poisson(rate: float, seconds: float, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).uniform(0.0, seconds, int(rate * seconds)))


def device(ms: float) -> Service:
    return Service(exclusive_base_s=ms * MS)


def answered_ms(network: Network, services: list[Service], *traffics: Traffic) -> list[float]:
    requests, _ = trace_network(network, services, NO_WAY, traffics)
    return [round(float(t) * 1e3, 6) for t in requests.answered_s]


def test_steps_of_an_ensemble_follow_one_another() -> None:
    """On devices of their own: 2 ms, then 3 ms; the second request waits for each step alone."""
    apart = tuple(Scheduler(batching=False, placed=(k,)) for k in range(2))
    network = Network(apart, ((Step(0), Step(1, (0,))),))
    assert answered_ms(network, [device(2), device(3)], at(0, 0)) == [5, 8]


def test_a_step_begins_when_all_its_inputs_are_ready() -> None:
    """Two branches of 2 and 7 ms, then 1 ms for both."""
    apart = tuple(Scheduler(batching=False, placed=(k,)) for k in range(3))
    network = Network(apart, ((Step(0), Step(1), Step(2, (0, 1))),))
    assert answered_ms(network, [device(2), device(7), device(1)], at(0)) == [8]


def test_steps_of_one_model_share_its_queue() -> None:
    """Both branches ask the one model of 2 ms, which takes them one after the other."""
    network = Network((ALONE,), ((Step(0), Step(0)),))
    assert answered_ms(network, [device(2)], at(0)) == [4]


def test_models_on_one_device_wait_for_each_other() -> None:
    """Streams of their own: 4 ms and 1 ms, on one device and on two."""
    routes = ((Step(0),), (Step(1),))
    loads = (at(0), at(0.5))
    together = Network((ALONE, ALONE), routes)
    assert answered_ms(together, [device(4), device(1)], *loads) == [4, 5]
    apart = Network((ALONE, Scheduler(batching=False, placed=(1,))), routes)
    assert answered_ms(apart, [device(4), device(1)], *loads) == [4, 1.5]


def test_models_share_the_cores_of_the_host() -> None:
    """4 ms of work each, one core: the first computes for a slice of 3 ms, then the second."""
    network = Network((ALONE, ALONE), ((Step(0),), (Step(1),)))
    service = Service(overlap_base_s=4 * MS)
    requests, _ = trace_network(network, [service] * 2, Way(cores=1.0), [at(0), at(0)])
    assert requests.answered_s.tolist() == pytest.approx([7 * MS, 8 * MS])


def test_a_refused_step_fails_the_whole_once() -> None:
    full = Scheduler(max_batch_size=1, policies=(QueuePolicy(max_queue_size=1),), prefetches=False)
    network = Network((ALONE, full), ((Step(0), Step(1, (0,))),))
    requests, _ = trace_network(network, [Service(), device(10)], NO_WAY, [at(0, 1, 2, 3)])
    assert requests.fate.tolist() == [SERVED, SERVED, REJECTED, REJECTED]


def test_what_is_in_the_background_counts_in_no_figure_of_the_mix() -> None:
    network = Network((ALONE, ALONE), ((Step(0),), (Step(1),)))
    outcome = simulate_network(
        network,
        [device(1)] * 2,
        NO_WAY,
        [at(0, 10, 20, stream="a"), at(1, 2, stream="b", background=True)],
    )
    assert outcome.throughput_infer_per_s == pytest.approx(0.3)
    assert outcome.latencies_us.size == 3
    assert outcome.of("b").latencies_us.size == 2
    assert [n.executions[1] for n in outcome.nodes] == [3, 2]


def test_a_closed_loop_over_an_ensemble_is_as_fast_as_its_slowest_step() -> None:
    """Eight clients, steps of 1 and 4 ms on devices of their own: 250 a second."""
    apart = tuple(Scheduler(batching=False, placed=(k,)) for k in range(2))
    network = Network(apart, ((Step(0), Step(1, (0,))),))
    load = Traffic((1.0, 11.0), 11.0, concurrency=8)
    outcome = simulate_network(network, [device(1), device(4)], NO_WAY, [load])
    assert outcome.throughput_infer_per_s == pytest.approx(250.0, rel=0.01)
    assert outcome.percentile_us(0.5) == pytest.approx(32_000.0, rel=0.01)


NODES = st.builds(
    Scheduler,
    instances=st.integers(1, 3),
    max_batch_size=st.sampled_from([1, 4, 16]),
    batching=st.booleans(),
    max_queue_delay_s=st.sampled_from([0.0, 2e-3]),
)
SERVICES = st.builds(
    Service,
    overlap_base_s=st.sampled_from([0.0, 5e-4]),
    exclusive_item_s=st.sampled_from([0.0, 2e-4]),
    response_s=st.sampled_from([0.0, 5e-5]),
    spread=st.sampled_from([0.0, 0.2]),
)
DIAMOND = (Step(0), Step(1, (0,)), Step(2, (0,)), Step(1, (1, 2)))


def diamond(nodes: list[Scheduler], services: list[Service], cores: float, seed: int) -> Outcome:
    network = Network(tuple(nodes), (DIAMOND, (Step(1),)))
    loads = [
        Traffic((0.0, 0.5), 60.0, poisson(rate, 0.5, seed), stream=f"{rate:g}/s")
        for rate in (200.0, 100.0)
    ]
    way = Way(2e-4, 1e-4, front_s=2e-5, cores=cores)
    requests, memory = trace_network(network, services, way, loads, seed)
    assert not (requests.fate == PENDING).any()
    steps = memory.requests[requests.due_s.size :]
    ended_s = requests.answered_s[steps["link"]]
    assert (steps["answered_s"] <= ended_s).all()
    assert (steps["started_s"] >= steps["arrived_s"]).all()
    return simulate_network(network, services, way, loads, seed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(NODES, min_size=3, max_size=3),
    st.lists(SERVICES, min_size=3, max_size=3),
    st.sampled_from([1.0, 2.0, 64.0]),
    st.integers(0, 99),
)
def test_every_request_of_a_network_is_answered_after_all_its_steps(
    nodes: list[Scheduler], services: list[Service], cores: float, seed: int
) -> None:
    outcome = diamond(nodes, services, cores, seed)
    assert {name: s.latencies_us.size for name, s in outcome.streams.items()} == {
        "200/s": 100,
        "100/s": 50,
    }
