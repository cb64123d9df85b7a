"""One search on several benches: each trial once, and nothing lost with a bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from builders.emulated import EmulatedBench
from builders.events import Watching
from builders.many_benches import SteppedFleet, benches_on
from builders.searches import CANDIDATES, ListedSearcher, a_search, served

from tuner.errors import InterruptedRunError, TunerError
from tuner.fleet import BenchLostError
from tuner.meter.session import Session
from tuner.score.trial import Trial, TrialBench, TrialState
from tuner.search.beside import search_beside
from tuner.search.budget import StopReason

LOST = BenchLostError("the bench is lost: it died twice")


class SearchOnBenches:
    """A search over benches whose work ends as ``errors`` say."""

    def __init__(
        self,
        count: int = 2,
        errors: dict[str, list[TunerError | None]] | None = None,
        *,
        room: int = 0,
        **budget: object,
    ) -> None:
        self.benches: dict[str, EmulatedBench] = {}
        self.events, self.notes = Watching(), list[str]()
        session, self.searcher = a_search(EmulatedBench(served), list(CANDIDATES), **budget)

        def session_of(name: str) -> Session:
            bench = self.benches.setdefault(name, EmulatedBench(served))
            return replace(session, bench=bench)

        self.fleet = SteppedFleet(session_of, errors, room)
        several = benches_on(self.fleet, count, self.notes)
        session = replace(session, benches=several, events=self.events)
        self.trials, self.reason = search_beside(session, several, self.searcher)  # type: ignore[arg-type]


def measured_on(trials: Sequence[Trial]) -> list[str | None]:
    return [t.bench and t.bench.host.removeprefix("host of ") for t in trials]


def test_each_config_is_measured_once_on_benches_that_take_turns() -> None:
    search = SearchOnBenches(2)
    assert search.reason is StopReason.EXHAUSTED
    assert [t.number for t in search.trials] == [*range(len(CANDIDATES))]
    assert [t.candidate for t in search.trials] == CANDIDATES
    assert measured_on(search.trials) == ["bench-1", "bench-2"] * 3
    assert search.trials[1].bench == TrialBench("host of bench-2", "1")
    assert search.fleet.most_at_once == 2
    deployed = [c for bench in search.benches.values() for c, _ in bench.deployed]
    assert sorted(c.key for c in deployed) == sorted(c.key for c in CANDIDATES)


def test_several_benches_find_what_one_finds() -> None:
    one, three = SearchOnBenches(1), SearchOnBenches(3)
    best = [max(f.trials, key=lambda t: t.score.value if t.score else 0.0) for f in (one, three)]
    assert best[0].candidate == best[1].candidate == CANDIDATES[-1]


def test_budget_counts_what_is_being_measured() -> None:
    search = SearchOnBenches(4, trials=5)
    assert (len(search.trials), search.reason) == (5, StopReason.TRIALS)


def test_the_trial_of_a_lost_bench_goes_to_another_one() -> None:
    search = SearchOnBenches(2, {"bench-2": [None, LOST]})
    assert len(search.trials) == len(CANDIDATES)
    assert {t.state for t in search.trials} <= {TrialState.MEASURED, TrialState.PRUNED}
    assert {*measured_on(search.trials)} == {"bench-1"}
    assert search.notes == [LOST.message]


def test_a_config_that_two_benches_are_lost_with_is_a_failed_trial() -> None:
    search = SearchOnBenches(3, {"bench-2": [None, LOST], "bench-3": [None, None, LOST]})
    assert len(search.trials) == len(CANDIDATES)
    (failed,) = (t for t in search.trials if t.state is TrialState.FAILED)
    assert failed.reason is not None
    assert "died twice" in str(failed.reason.facts)
    assert {*measured_on(search.trials)} - {"bench-3"} == {"bench-1"}


def test_a_lost_bench_is_replaced_where_there_is_room() -> None:
    search = SearchOnBenches(2, {"bench-2": [None, LOST]}, room=2)
    assert "bench-3" in measured_on(search.trials)


def test_a_search_without_a_bench_ends() -> None:
    with pytest.raises(BenchLostError, match="no bench is left"):
        SearchOnBenches(1, {"bench-1": [None, LOST]})


def test_what_a_bench_was_stopped_in_is_no_trial() -> None:
    with pytest.raises(InterruptedRunError):
        SearchOnBenches(2, {"bench-1": [None, InterruptedRunError("interrupted")]})


def test_a_first_load_is_looked_for_by_each_bench_until_there_is_one_to_beat() -> None:
    """Two trials without an incumbent: both are measured to their capacity."""
    search = SearchOnBenches(2)
    assert [t.state for t in search.trials[:2]] == [TrialState.MEASURED] * 2
    searcher: ListedSearcher = search.searcher
    assert searcher.pending == []
