"""A confirmation that was interrupted: what it had measured is not measured again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from builders.candidates import candidate_of
from builders.emulated import FreshBench
from builders.measurements import P99_40MS, synthetic_server

from tuner.confirm.confirm import Confirmation, Rules, confirm
from tuner.confirm.rounds import Entrant, Row
from tuner.confirm.stored import ResumedBench, finished_rows, noise_of, spread
from tuner.errors import InterruptedRunError
from tuner.measurement.window import Window
from tuner.run.confirmation import Repeat, Role
from tuner.score.capacity import LevelRange
from tuner.score.point import judge_point
from tuner.spec.slo import Objective

CURRENT, OTHER = (candidate_of({"instance_group.count": n}) for n in (1, 2))
RULES = Rules(Objective.goodput(), LevelRange(1, 1e5), 3, 0.02, 100, lambda _: None)


def bench() -> FreshBench:
    return FreshBench({CURRENT: 900, OTHER: 1000}, weather=0.01)


def decide(
    server: FreshBench | ResumedBench, rows: list[Repeat], stop_after: int = 99, level: float = 980
) -> Confirmation:
    def record(row: Row) -> None:
        rows.append(row.kept)
        if len(rows) == stop_after:
            raise InterruptedRunError("stopped")

    keep = record if isinstance(server, FreshBench) else server.record
    finalists = [Entrant(OTHER, level)]
    return confirm(server, Entrant(CURRENT, 880), finalists, replace(RULES, record=keep))[0]


@pytest.mark.parametrize("stop_after", range(1, 13))
def test_it_ends_as_if_it_had_never_stopped_and_measures_only_the_round_it_was_in(
    stop_after: int,
) -> None:
    whole: list[Repeat] = []
    expected = decide(bench(), whole)
    stopped: list[Repeat] = []
    with pytest.raises(InterruptedRunError):
        decide(bench(), stopped, stop_after)
    kept = stopped[: finished_rows(stopped)]
    assert [r.round for r in stopped[len(kept) :]] == [stopped[-1].round] * (stop_after - len(kept))
    again, new, forgotten = bench(), list[Row](), list[int]()
    found = decide(ResumedBench(again, kept, new.append, forgotten.append), [])
    assert (found.outcome, found.gain) == (expected.outcome, expected.gain)
    assert [*kept, *(row.kept for row in new)] == whole
    assert len(again.asked) == len(whole) - len(kept)
    assert not forgotten


def test_what_it_would_not_ask_for_any_more_is_measured_anew() -> None:
    stored: list[Repeat] = []
    decide(bench(), stored)
    again, new, forgotten = bench(), list[Row](), list[int]()
    decide(ResumedBench(again, stored, new.append, forgotten.append), [], level=1500)
    used = sum(row.role is Role.CURRENT and row.round == 0 for row in stored)
    assert forgotten == [used]
    assert len(new) == len(again.asked) > len(stored) / 2
    assert all(fresh for _, fresh in again.deployed)


def test_what_is_asked_at_low_loads_again_costs_nothing_that_is_stored() -> None:
    stored: list[Repeat] = []
    expected = decide(bench(), stored)
    again, forgotten = bench(), list[int]()
    resumed = ResumedBench(again, stored, lambda _: None, forgotten.append)
    resumed.deploy(CURRENT)
    resumed.one_at_a_time(7)
    resumed.once(90.0, 7, Window(5.0, 1.0, 60.0))
    assert decide(resumed, []).gain == expected.gain
    assert (again.deployed, again.asked, forgotten) == ([(CURRENT, False)], [], [])


def test_a_soak_is_whole_and_so_is_a_simpler_config_before_the_next_one() -> None:
    stored: list[Repeat] = []
    decide(bench(), stored)
    soak = replace(stored[-1], role=Role.SOAK, round=0)
    simpler = [replace(soak, role=Role.SIMPLER, candidate_key=key) for key in ("a", "b", "b")]
    assert finished_rows([*stored, soak]) == len(stored) + 1
    assert finished_rows([*stored, *simpler]) == len(stored) + 1
    assert finished_rows([]) == 0


def test_spread_finds_the_noise_it_was_made_with() -> None:
    random = np.random.default_rng(1)
    groups = [list(mean * (1 + 0.05 * random.standard_normal(4))) for mean in np.arange(50, 450)]
    count, cv = spread(groups)
    assert (count, cv) == (1600, pytest.approx(0.05, rel=0.03))


def test_spread_of_two_values_by_hand() -> None:
    # deviations of 1 % and -1 % from the mean, one degree of freedom
    assert spread([[99.0, 101.0]])[1] == pytest.approx(math.sqrt(2) * 0.01)


def test_spread_pools_what_was_repeated_and_passes_over_the_rest() -> None:
    # squares of 1 % twice and of 2 % twice, over one degree of freedom each
    count, cv = spread([[99.0, 101.0], [7.0], [], [0.0, 0.0], [98.0, 102.0]])
    assert (count, cv) == (4, pytest.approx(math.sqrt((2 * 0.01**2 + 2 * 0.02**2) / 2)))


@pytest.mark.parametrize("groups", [[], [[]], [[5.0]], [[1.0], [2.0]], [[0.0, 0.0]]])
def test_nothing_repeated_has_no_spread(groups: list[list[float]]) -> None:
    assert spread(groups)[1] is None


def row(round_: int, candidate: str, level: float, capacity: float = 100.0) -> Repeat:
    point = judge_point([P99_40MS], synthetic_server(level, capacity))
    return Repeat(round_, 0, Role.CANDIDATE, candidate, point)


def test_the_noise_of_a_run_comes_from_what_it_repeated() -> None:
    rows = [
        *(row(n, "a", 95.0, capacity) for n, capacity in enumerate((100.0, 102.0, 98.0))),
        *(row(n, "a", 105.0, capacity) for n, capacity in enumerate((100.0, 102.0, 98.0))),
        row(0, "b", 95.0),
    ]
    found = noise_of(rows)
    assert (found.repeats, found.rounds) == (6, 3)
    assert found.throughput_cv == pytest.approx(0.0, abs=0.01)
    assert found.p99_cv is not None
    assert found.p99_cv > 0.05
    assert found.capacity_cv == pytest.approx(0.02, rel=0.2)


def test_a_run_that_repeated_nothing_knows_no_noise() -> None:
    assert noise_of([]) is None
    assert noise_of([row(0, "a", 95.0), row(0, "b", 95.0)]) is None
