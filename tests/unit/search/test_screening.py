"""Looks at saturated configs, over an emulated bench whose capacities are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders.emulated import EmulatedBench
from builders.events import Watching
from builders.searches import CANDIDATES, a_search, served

from tuner.errors import DeployRefusedError, LoadFailedError, ModelFailsError
from tuner.measurement.measurement import Measurement
from tuner.meter.session import Session
from tuner.score.trial import TrialState
from tuner.search.first_load import FIRST_SHARE
from tuner.search.screening import Screening
from tuner.search.searcher import Searcher
from tuner.search.searching import search
from tuner.search.strategy import InOrder
from tuner.space.candidate import Candidate

SLOW = {"alone_s": 0.025}  # forty a second: windows of several seconds


class Timed:
    """A book in which each deployment took two seconds and each look one."""

    def __init__(self, bench: EmulatedBench) -> None:
        self.bench = bench

    @property
    def wall_s(self) -> float:
        return 2.0 * len(self.bench.deployed) + len(self.bench.looks)


def a_session(bench: EmulatedBench) -> tuple[Session, Watching]:
    session, _ = a_search(bench, [])
    watching, book = Watching(), Timed(bench)
    return replace(session, events=watching, book=book), watching  # type: ignore[arg-type]


def slowly(candidate: Candidate) -> float:
    """Ten requests a second for each instance."""
    return served(candidate) / 10.0


def test_leads_are_looked_at_once_and_those_that_answer_most_come_first() -> None:
    bench = EmulatedBench(slowly, **SLOW)
    session, watching = a_session(bench)
    leads = [CANDIDATES[n] for n in (1, 4, 0, 2)]
    ranked = Screening(session).ranked(leads)
    assert list(ranked) == [CANDIDATES[n] for n in (4, 2, 1, 0)]
    assert [candidate for candidate, _ in bench.deployed] == leads
    assert bench.loads == []
    assert len(watching.notes) == len(leads)


def test_configs_that_answer_about_as_much_keep_their_order() -> None:
    capacities = {CANDIDATES[0]: 10.0, CANDIDATES[1]: 38.0, CANDIDATES[2]: 40.0}
    session, _ = a_session(EmulatedBench(capacities, **SLOW))
    leads = [CANDIDATES[n] for n in (0, 1, 2)]
    assert list(Screening(session).ranked(leads)) == [CANDIDATES[n] for n in (1, 2, 0)]


def test_where_measurements_are_short_the_search_begins_at_once() -> None:
    bench = EmulatedBench(lambda candidate: 20.0 * served(candidate), alone_s=0.002)
    session, watching = a_session(bench)
    assert list(Screening(session).ranked(CANDIDATES)) == CANDIDATES
    assert len(bench.deployed) == 1
    assert watching.notes == []


@pytest.mark.parametrize("error", [DeployRefusedError("no"), ModelFailsError("no", "")])
def test_a_lead_without_a_result_comes_last_and_its_trial_says_why(error: Exception) -> None:
    bench = EmulatedBench(slowly, troubles={CANDIDATES[4]: [error]}, **SLOW)
    session, _ = a_session(bench)
    leads = [CANDIDATES[n] for n in (1, 4, 2)]
    assert list(Screening(session).ranked(leads)) == [CANDIDATES[n] for n in (2, 1, 4)]


def test_failed_screening_is_reported_and_bounds_nothing() -> None:
    class Refusing(EmulatedBench):
        def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
            raise LoadFailedError("a full queue")

    session, watching = a_session(Refusing(slowly, **SLOW))
    screening = Screening(session)
    session.bench.deploy(CANDIDATES[0])
    screening.look(CANDIDATES[0])
    assert watching.notes == ["no look at many requests at once: a full queue"]
    assert screening.lost(CANDIDATES[0], 1e9) is None


def test_where_one_request_alone_misses_the_slo_nobody_is_looked_at() -> None:
    bench = EmulatedBench(slowly, alone_s=0.05)  # the bound is 40 ms
    session, _ = a_session(bench)
    assert list(Screening(session).ranked(CANDIDATES)) == CANDIDATES
    assert [concurrency for _, concurrency in bench.looks] == [1]


class Designed(InOrder):
    """A strategy of designs alone."""

    at_once = 1

    def __init__(self, designs: Sequence[Candidate]) -> None:
        self.designs = designs

    def propose(self, *_: Any) -> None:
        return None


def test_a_search_climbs_the_best_lead_and_those_that_cannot_win_cost_nothing_more() -> None:
    bench = EmulatedBench(served, **SLOW)
    session, _ = a_session(bench)
    session = replace(session, book=a_search(bench, [])[0].book)
    space = session.job.space
    space.canonical, space.restarts = (lambda c: c), False  # type: ignore[method-assign,misc]
    searcher = Searcher(space, Designed([CANDIDATES[n] for n in (1, 5, 2)]))
    trials, _ = search(session, searcher)
    assert trials[0].candidate == CANDIDATES[5]
    assert trials[0].state is TrialState.MEASURED
    assert trials[1].candidate == session.current
    assert len(trials[1].points) == 1  # measured in any case, and not again to learn from it
    assert not bench.idle
    assert [many for _, many in bench.looks].count(1) == 1  # nor is anyone looked at again
    answered = trials[0].saturated
    assert answered is not None
    assert bench.loads[0].level == pytest.approx(FIRST_SHARE * answered.answered_per_s, rel=1e-4)
    most = answered.at_most_per_s
    assert most is not None
    assert all(load.level <= most for load in bench.loads if load.candidate == CANDIDATES[5])
    assert [t.state for t in trials[2:]] == [TrialState.PRUNED] * 2
    assert {a.candidate for a in bench.loads} == {CANDIDATES[5], session.current}
    bound = [t.saturated.at_most_per_s for t in trials[2:] if t.saturated]
    best = trials[0].sustained_level
    assert best is not None
    assert all(most is not None and most < best for most in bound)
