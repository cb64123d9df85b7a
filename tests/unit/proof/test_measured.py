"""A proof that was interrupted: what it had measured is not measured again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest
from builders.candidates import candidate_of
from builders.emulated import FreshBench
from builders.measurements import NO_ERRORS, P99_40MS

from tuner.errors import InterruptedRunError, LoadFailedError, ServerGoneError
from tuner.measurement.measurement import Arrivals
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import RoundsResult, run_rounds
from tuner.record.confirmation import Repeat, Role
from tuner.record.noise import count_of_full_rounds
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point
from tuner.spec.model import Confirm
from tuner.spec.slo import Objective

CURRENT, OTHER = (candidate_of({"instance_group.count": n}) for n in (1, 2))
PLAN = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))
RULES = ProofRules(Objective.goodput(), (P99_40MS, NO_ERRORS), PLAN, Confirm(), 100)


class Stopped(FreshBench):
    """The user stops it while its measurement of this number is made."""

    stop_in = 10**6

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        point = super().measure(level, seed, least_s)
        if len(self.loads) == self.stop_in:
            raise InterruptedRunError("stopped")
        return point


def bench(stop_in: int = 10**6) -> Stopped:
    server = Stopped({CURRENT: 960.0, OTHER: 1000.0}, weather=0.02)
    server.stop_in = stop_in
    return server


def race(
    server: FreshBench, rows: list[Repeat], stored: Sequence[Repeat] = (), level: float = 980.0
) -> RoundsResult:
    measured = MeasuredOnce(server, rows.append, stored)
    entrants = Entrant(CURRENT, 900.0), [Entrant(OTHER, level)]
    return run_rounds(measured, *entrants, RULES, lambda: False, lambda *_: None)


COMPLETE: list[Repeat] = []
EXPECTED = race(bench(), COMPLETE)


def ended_alike(one: RoundsResult, other: RoundsResult) -> bool:
    return (one.ratios, one.no_gain, [f.rounds for f in one.finalists]) == (
        other.ratios,
        other.no_gain,
        [f.rounds for f in other.finalists],
    )


def test_a_resumed_proof_measures_nothing_that_is_stored_in_any_order() -> None:
    for seed in range(5):
        again, new = bench(), list[Repeat]()
        rounds = race(again, new, Random(seed).sample(COMPLETE, len(COMPLETE)))
        assert ended_alike(rounds, EXPECTED)
        assert (again.loads, again.deployed, new) == ([], [], [])


@pytest.mark.parametrize("stop_in", range(1, len(COMPLETE) + 1))
def test_it_ends_as_if_it_had_never_stopped_and_measures_only_the_round_it_was_in(
    stop_in: int,
) -> None:
    stopped: list[Repeat] = []
    with pytest.raises(InterruptedRunError):
        race(bench(stop_in), stopped)
    kept = stopped[: count_of_full_rounds(stopped)]
    over = COMPLETE[stop_in - 1].round
    assert {r.round for r in kept} <= {*range(over)}
    assert {r.round for r in kept} >= {*range(over - 1)}
    again, new = bench(), list[Repeat]()
    rounds = race(again, new, kept)
    assert ended_alike(rounds, EXPECTED)
    assert [*kept, *new] == COMPLETE
    assert len(again.loads) == len(COMPLETE) - len(kept)


def test_what_it_would_not_ask_for_any_more_is_measured_anew_on_fresh_servers() -> None:
    again, new = bench(), list[Repeat]()
    race(again, new, COMPLETE, level=1500.0)
    stored = {(r.candidate_key, r.point.measurement.seed, r.point.level) for r in COMPLETE}
    assert new
    assert not stored & {(a.candidate.key, a.seed, a.level) for a in again.loads}
    assert all(fresh for _, fresh in again.deployed)


def on_a_server(
    measured: MeasuredOnce,
    use: Callable[[Callable[[float], Point]], None],
    role: Role = Role.CANDIDATE,
) -> None:
    soak_s = 30.0 if role is Role.SOAK else None
    measured.on_fresh_server(OTHER, role, 3, 7, use, soak_s=soak_s)


def test_a_soak_is_not_a_round_of_the_same_load() -> None:
    rows, points, again = list[Repeat](), list[Point](), bench()

    def use(measure: Callable[[float], Point]) -> None:
        points.append(measure(900.0))

    first = MeasuredOnce(bench(), rows.append)
    for role in (Role.CANDIDATE, Role.SOAK):
        on_a_server(first, use, role)
    assert [(r.round, r.order, r.role) for r in rows] == [
        (3, 0, Role.CANDIDATE),
        (3, 0, Role.SOAK),
    ]
    resumed = MeasuredOnce(again, rows.append, rows[:1])
    on_a_server(resumed, use)
    assert (points[-1], again.deployed) == (rows[0].point, [])
    on_a_server(resumed, use, Role.SOAK)
    assert [a.level for a in again.soaks] == [900.0]


def test_what_was_measured_before_a_load_without_a_result_is_kept() -> None:
    def use(measure: Callable[[float], Point]) -> None:
        measure(900.0)
        raise LoadFailedError("no results by the deadline")

    rows: list[Repeat] = []
    with pytest.raises(LoadFailedError):
        on_a_server(MeasuredOnce(bench(), rows.append), use)
    assert [r.point.level for r in rows] == [900.0]


@pytest.mark.parametrize("dies", [1, 2])
def test_what_a_server_that_died_had_measured_is_kept_nowhere(dies: int) -> None:
    used: list[int] = []

    def use(measure: Callable[[float], Point]) -> None:
        used.append(len(used))
        measure(900.0 + len(used))
        if len(used) <= dies:
            raise ServerGoneError("it died")

    rows, notes, server = list[Repeat](), list[str](), bench()
    measured = MeasuredOnce(server, rows.append, note=notes.append)
    if dies == 2:
        with pytest.raises(ServerGoneError):
            on_a_server(measured, use)
    else:
        on_a_server(measured, use)
    assert [r.point.level for r in rows] == ([902.0] if dies == 1 else [])
    assert len(server.deployed) == 2
    assert notes == ["it died"]


def test_soaks_and_simpler_configs_are_complete_and_a_round_once_the_next_began() -> None:
    rounds = [r for r in COMPLETE if r.round < COMPLETE[-1].round]
    alone = [replace(COMPLETE[-1], role=role, round=0) for role in (Role.SIMPLER, Role.SOAK)]
    assert count_of_full_rounds([]) == 0
    assert count_of_full_rounds(COMPLETE) == len(rounds)
    assert count_of_full_rounds([*COMPLETE, alone[0]]) == len(COMPLETE) + 1
    assert count_of_full_rounds([*COMPLETE, *alone]) == len(COMPLETE) + 2
