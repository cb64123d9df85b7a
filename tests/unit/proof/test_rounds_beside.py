"""Rounds on several benches: each whole on one, and the same again where a proof goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.candidates import candidate_of
from builders.emulated import EmulatedBench, FreshBench, a_session
from builders.many_benches import SteppedFleet, benches_on
from builders.searches import a_spec

from tuner.errors import DeployRefusedError, TrialError
from tuner.meter.session import Session
from tuner.proof.beside import rounds_beside
from tuner.proof.decide import look_after
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import RoundsResult, run_rounds
from tuner.record.confirmation import Repeat
from tuner.score.next_load import load_plan

CURRENT, OTHER, THIRD = (candidate_of({"instance_group.count": n}) for n in (1, 2, 3))
SPEC = a_spec()
PLAN = load_plan(SPEC.workload, SPEC.objective)
RULES = ProofRules(SPEC.objective, SPEC.slos, PLAN, SPEC.confirm, 7)
ALIKE = {CURRENT: 100.0, OTHER: 104.0}


class Race:
    """The rounds of two configs on so many benches."""

    def __init__(
        self, count: int, capacities: dict[object, float], stored: list[Repeat] | None = None
    ) -> None:
        self.benches: dict[str, EmulatedBench] = {}
        self.rows, self.over = list[Repeat](), list[str]()
        session = a_session(FreshBench({}), SPEC, CURRENT, PLAN, record=self.rows.append)

        def session_of(name: str) -> Session:
            bench = FreshBench(capacities, noise=0.01, seed=len(self.benches))  # type: ignore[arg-type]
            return replace(session, bench=self.benches.setdefault(name, bench))

        several = benches_on(SteppedFleet(session_of), count)
        self.session = replace(session, benches=several)
        kept = stored or []
        beside = rounds_beside(
            self.session, RULES, 1, kept, lambda what, side: self.over.append(what)
        )
        measured = MeasuredOnce(session.bench, self.rows.append, kept)
        entrants = Entrant(CURRENT, 100.0), [Entrant(OTHER, 100.0)]
        self.result: RoundsResult = run_rounds(
            measured, *entrants, RULES, lambda: False, lambda *_: None, beside
        )


def test_both_configs_of_a_round_are_measured_on_one_bench() -> None:
    race = Race(2, ALIKE)
    by_bench = [{a.seed for a in bench.loads} for bench in race.benches.values()]
    assert all(by_bench)
    assert not by_bench[0] & by_bench[1]
    for bench in race.benches.values():
        configs = {
            seed: {a.candidate for a in bench.loads if a.seed == seed} for seed in by_bench[0]
        }
        assert all(measured in (set(), {CURRENT, OTHER}) for measured in configs.values())
    rounds = len(race.result.current.rounds)
    assert race.over == [f"round {n + 1}" for n in range(rounds) for _ in range(2)]
    assert [row.round for row in race.rows] == sorted(row.round for row in race.rows)


def test_rounds_end_with_a_look_and_none_is_made_beyond_it() -> None:
    race = Race(4, {CURRENT: 100.0, OTHER: 300.0})
    rounds = len(race.result.current.rounds)
    assert look_after(rounds, int(SPEC.confirm.rounds), 1) is not None
    assert {a.seed - RULES.seed for b in race.benches.values() for a in b.loads} == {*range(rounds)}
    assert [f.candidate for f in race.result.better] == [OTHER]


def test_a_proof_that_goes_on_measures_no_stored_round_again() -> None:
    first = Race(2, ALIKE)
    again = Race(3, ALIKE, first.rows)
    assert again.rows == []
    assert not any(bench.loads for bench in again.benches.values())
    assert again.result.current.levels() == first.result.current.levels()
    assert again.result.ratios == first.result.ratios


def test_a_finalist_that_cannot_be_served_leaves_and_the_current_config_ends_it() -> None:
    race = Race(2, {CURRENT: 100.0})
    assert race.result.finalists[0].left is not None
    with pytest.raises(TrialError) as refused:
        Race(2, {OTHER: 100.0})
    assert isinstance(refused.value, DeployRefusedError)


def test_one_bench_makes_its_rounds_one_after_the_other() -> None:
    session = a_session(FreshBench({}), SPEC, CURRENT, PLAN)
    one = benches_on(SteppedFleet(lambda _: session), 1)
    for alone in (session, replace(session, benches=one)):
        assert rounds_beside(alone, RULES, 1, (), lambda *_: None) is None
