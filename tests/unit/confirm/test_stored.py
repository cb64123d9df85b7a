"""A confirmation that was interrupted: what it had measured is not measured again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.candidates import candidate_of
from builders.emulated import FreshBench

from tuner.confirm.confirm import Confirmation, Rules, confirm
from tuner.confirm.rounds import Entrant, Row
from tuner.confirm.stored import ResumedBench, finished_rows
from tuner.errors import InterruptedRunError
from tuner.measurement.window import Window
from tuner.run.confirmation import Repeat, Role
from tuner.score.capacity import LevelRange
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
