"""Which configs and loads a table is made of; nothing is measured."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import record_table
import recorded_table as tables
from candidates import candidate_of
from probes import Probe
from recorded_bench import RecordedWorld
from recorded_neighbours import guess
from recorded_space import covered
from recorded_stairs import Step, schedule
from recorded_table import Recording, Table
from synthetic import synthetic_server

from tuner.load.traffic.arrivals import arrivals_of
from tuner.score.capacity import Bracket
from tuner.space.candidate import Candidate
from tuner.steps.job import Request, prepare


@pytest.mark.parametrize(("name", "count"), [("emulated-accelerator", 736), ("tiny-bert", 92)])
def test_every_config_of_the_space_comes_once_and_mostly_with_more_instances(
    name: str, count: int
) -> None:
    space = prepare(Request(spec=tables.spec_path(name))).space
    order = record_table.in_order(space)
    assert len({c.key for c in order}) == len(order) == count
    assert space.canonical(space.current) in order

    def rest(candidate: Candidate) -> dict[str, object]:
        return {k: v for k, v in candidate.of("").items() if k != record_table.COUNT}

    in_place = sum(rest(a) == rest(b) for a, b in itertools.pairwise(order))
    assert in_place == count * 3 // 4


def test_the_ends_of_a_range_come_first() -> None:
    assert record_table.spread([0, 1, 2, 3, 4]) == [0, 4, 2, 1, 3]


@pytest.mark.parametrize("capacity", [30.0, 200.0, 480.0, 2500.0])
def test_any_capacity_is_bracketed_closely_from_any_guess(capacity: float) -> None:
    probes: list[Probe] = []
    rates = [record_table.FIRST_GUESS * s for s in record_table.SHARES]
    for _ in range(8):
        probes += [Probe(r, r <= capacity, slo_utilisation=(r / capacity) ** 4) for r in rates]
        rates = record_table.next_rates(probes)
        if not rates:
            break
    bracket = Bracket.of(probes)
    assert bracket.gap <= record_table.CLOSE
    assert bracket.capacity() == pytest.approx(capacity, rel=0.02)


def test_a_guess_lies_between_its_neighbours() -> None:
    def config(count: int, delay_us: int) -> Candidate:
        return candidate_of(
            {
                "instance_group.count": count,
                "max_batch_size": 16,
                "dynamic_batching": True,
                "dynamic_batching.max_queue_delay_microseconds": delay_us,
            }
        )

    known = {config(2, 0): 900.0, config(2, 1000): 1600.0, config(4, 500): 100.0}
    between = guess(config(2, 500), known)
    assert between is not None
    assert 900.0 < between < 1600.0
    assert guess(config(4, 500), known) == pytest.approx(100.0, rel=0.1)
    assert guess(config(2, 500), {}) is None


def test_each_step_of_the_stairs_has_the_arrivals_of_a_run_of_its_own() -> None:
    steps = [Step(200.0, 1.0, 11), Step(300.0, 0.5, 12)]
    due_s, windows = schedule(steps, settle_s=0.1)
    start_s = 0.0
    for step, window in zip(steps, windows, strict=True):
        assert window.warmup_s == pytest.approx(start_s + 0.1)
        own = arrivals_of(step.load, (0.1, step.duration_s, 9.0), step.seed)
        own = own[own < 0.1 + step.duration_s]
        inside = due_s[(due_s >= start_s) & (due_s < start_s + 0.1 + step.duration_s)]
        assert np.allclose(inside - start_s, own)
        start_s += 0.1 + step.duration_s


def test_a_table_in_the_making_covers_the_delays_that_are_complete() -> None:
    space = prepare(Request(spec=tables.spec_path("tiny-bert"))).space
    done = [
        Recording(c, 0, (synthetic_server(100.0, 200.0),))
        for c in space.enumerate()
        if c.of("").get(record_table.DELAY) != 1000
    ]
    job = covered("tiny-bert", Table({}, tuple(done)))
    assert {c.key for c in job.space.enumerate()} == {r.candidate.key for r in done}
    world = RecordedWorld.of(Table({}, tuple(done)), job.spec.slos)
    assert len(world.curves) == len(done)
    with pytest.raises(ValueError, match="current config is not recorded"):
        covered("tiny-bert", Table({}, tuple(done[:3])))


def test_the_noise_of_a_run_is_recorded_from_a_part_of_the_sample() -> None:
    job = prepare(Request(spec=tables.spec_path("tiny-bert")))
    points = (synthetic_server(100.0, 200.0),)
    done = [Recording(c, 0, points) for c in job.space.enumerate()]
    first, *left = record_table.Recorder(job, done).left("noise")
    assert len(left) + 1 == record_table.NOISY * record_table.LONG_REPEATS
    assert {repeat for _, repeat in (first, *left)} == {100, 101, 102}
    again = record_table.Recorder(job, [*done, Recording(first[0], first[1], points)])
    assert list(again.left("noise")) == left


def test_first_guesses_may_come_from_an_older_table() -> None:
    job = prepare(Request(spec=tables.spec_path("tiny-bert")))
    known = record_table.capacities_in(job, tables.growing_path("tiny-bert"))
    recorder = record_table.Recorder(job, [], dict(known))
    assert len(list(recorder.left("firsts"))) == len(list(job.space.enumerate()))
    candidate = max(known, key=lambda c: known[c])
    expected = guess(candidate, recorder.capacities)
    assert expected == pytest.approx(known[candidate], rel=0.2)
    recorder.recordings.append(Recording(candidate, 0, (synthetic_server(100.0, 200.0),)))
    assert candidate not in [c for c, _ in recorder.left("firsts")]
    nothing = record_table.Recorder(
        job, [Recording(candidate, 0, (synthetic_server(9000.0, 100.0),))], dict(known)
    )
    assert candidate not in nothing.capacities
