from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import combinations, pairwise

import pytest
from builders.candidates import values_of
from builders.spaces import BATCH as BATCH_SIZE
from builders.spaces import BATCHER, INSTANCES, space_of
from builders.surface import CACHED, SURFACE, searched, strategy, synthetic_trial

from tuner.score.trial import Trial
from tuner.search.searcher import Searcher
from tuner.search.strategies.designs import designs
from tuner.search.strategy import BATCH, InOrder, Proposal
from tuner.space.candidate import Candidate
from tuner.spec.model import StrategyName


class Scripted(InOrder):
    """Proposes given candidates in order."""

    at_once = BATCH

    def __init__(self, proposals: Sequence[Proposal]) -> None:
        self.proposals = list(proposals)
        self.calls: list[tuple[int, int, int]] = []

    def propose(
        self, number: int, history: Sequence[Trial], taken: Set[str], pending: object = ()
    ) -> Proposal | None:
        self.calls.append((number, len(history), len(taken)))
        return self.proposals.pop(0) if self.proposals else None


def test_the_current_config_is_trial_0() -> None:
    space = space_of(SURFACE)
    assert Searcher(space, Scripted([])).next() == Proposal(space.current)


class Leading(Scripted):
    def __init__(self, first_guess: Candidate, proposals: Sequence[Proposal]) -> None:
        super().__init__(proposals)
        self.designs = [first_guess]


@pytest.mark.parametrize("by_looks", [True, False])
def test_a_strategy_chooses_among_designs_that_no_look_has_ranked(by_looks: bool) -> None:
    class Expecting(Scripted):
        def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
            return Proposal(leads[-1], outdone=True)

    space, built = space_of(SURFACE), Expecting([])
    built.designs = designs(space)[:3]
    searcher = Searcher(space, built)
    searcher.rank(searcher.leads, by_looks=by_looks)
    order = [trial.candidate for trial in searched(searcher, 4)]
    one, two, three = built.designs
    assert order == [one, space.current, *((two, three) if by_looks else (three, two))]


def test_after_a_lead_comes_the_current_config_whatever_else_was_measured() -> None:
    space = space_of(SURFACE)
    first_guess, other = (space.candidate(values_of({INSTANCES: n})) for n in (2, 3))
    searcher = Searcher(space, Leading(first_guess, []))
    assert searcher.next() == Proposal(first_guess)
    searcher.tell(synthetic_trial(0, first_guess, []))
    searcher.tell(synthetic_trial(1, other, []))
    assert searcher.next() == Proposal(space.current, informative=True)
    searcher.tell(synthetic_trial(2, space.current, []))
    assert searcher.next() is None


def test_asking_again_answers_the_same() -> None:
    searcher = Searcher(*strategy(StrategyName.TPE, SURFACE))
    searched(searcher, 3)
    assert searcher.next() == searcher.next()


def test_an_exhausted_strategy_ends_the_search() -> None:
    searcher = Searcher(space_of(SURFACE), Scripted([]))
    assert len(searched(searcher, 10)) == 1
    assert searcher.next() is None


def test_duplicates_are_counted() -> None:
    space = space_of(SURFACE)
    three = [space.candidate(values_of({INSTANCES: n})) for n in (1, 2, 3)]
    proposals = [Proposal(c, duplicates=n) for n, c in enumerate(three, 1)]
    searcher = Searcher(space, Scripted(proposals))
    searched(searcher, 4)
    assert searcher.duplicates == 6


def test_without_server_arguments_each_proposal_knows_all_trials() -> None:
    space = space_of(SURFACE)
    script = Scripted([Proposal(space.candidate(values_of({INSTANCES: n}))) for n in (1, 2, 3)])
    searched(Searcher(space, script), 4)
    assert script.calls == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]


def test_with_server_arguments_the_running_server_is_used_first() -> None:
    space = space_of(CACHED)
    sizes = [1 << 20, None, 1 << 26, None]
    proposals = [
        Proposal(space.candidate(values_of({INSTANCES: n, "response_cache.size": size})))
        for n, size in enumerate(sizes, start=1)
    ]
    searcher = Searcher(space, Scripted(proposals))
    args = [t.candidate.cache_bytes for t in searched(searcher, 1 + BATCH)]
    assert args[:3] == [None, None, None]
    assert len({args[3], args[4]}) == 2


def test_batches_need_fewer_restarts_than_single_proposals() -> None:
    def restarts(size: int) -> int:
        searcher = Searcher(*strategy(StrategyName.RANDOM, CACHED))
        searcher._size = size
        args = [t.candidate.cache_bytes for t in searched(searcher, 60)]
        return sum(a != b for a, b in pairwise(args))

    assert restarts(BATCH) < 0.8 * restarts(1)


def test_a_current_config_that_equals_one_of_the_space_is_not_measured_twice() -> None:
    space = space_of(
        SURFACE,
        'name: "m" max_batch_size: 16 dynamic_batching { '
        "preferred_batch_size: 16 max_queue_delay_microseconds: 60 }"
        " instance_group [{count: 1}]",
    )
    script = Scripted([])
    searcher = Searcher(space, script)
    searcher.tell(synthetic_trial(0, space.current, []))
    seen: list[Set[str]] = []

    def propose(number: int, history: Sequence[Trial], taken: Set[str], _: object) -> None:
        seen.append(taken)

    script.propose = propose  # type: ignore[method-assign]
    searcher.next()
    assert seen == [{space.canonical(space.current).key}]
    assert space.canonical(space.current) != space.current


@pytest.mark.parametrize("named", [StrategyName.RANDOM, StrategyName.TPE, StrategyName.GRID])
def test_configs_that_differ_in_a_batch_size_without_effect_are_measured_once(
    named: StrategyName,
) -> None:
    batches = {BATCH_SIZE: {"choice": [8, 16, 32]}, BATCHER: {"choice": [False, True]}}
    space, proposing = strategy(named, {INSTANCES: {"int": [1, 2]}, **batches})
    searcher = Searcher(space, proposing)
    searched(searcher, 20)
    measured = [t.candidate for t in searcher.history]
    assert len(measured) == 2 * (1 + 3)  # off, and on with each size
    assert not [pair for pair in combinations(measured, 2) if space.alike(*pair)]


def test_what_is_being_measured_is_proposed_to_nobody_else_and_numbered_on() -> None:
    space = space_of(SURFACE)
    others = [space.candidate(values_of({INSTANCES: n})) for n in (1, 2, 3)]
    script = Scripted([Proposal(c) for c in others])
    searcher = Searcher(space, script, several=True)
    begun = []
    while isinstance(proposal := searcher.next(), Proposal):
        searcher.start(proposal)
        begun.append(proposal.candidate)
    assert begun == [space.current, *others]
    assert [number for number, *_ in script.calls] == [1, 2, 3, 4]
    searcher.give_up(others[0])
    searcher.tell(synthetic_trial(0, others[2], []))
    assert [p.candidate for p in searcher.pending] == [space.current, others[1]]
    assert searcher.begun == [others[2], space.current, others[1]]
