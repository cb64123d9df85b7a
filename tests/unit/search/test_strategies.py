from __future__ import annotations

import random

import pytest
from builders.candidates import fields_of
from builders.reasons import said
from builders.spaces import DELAY, space_of
from builders.surface import CACHED, SURFACE, TINY, feasible, searched, strategy

from tuner.search.searcher import Searcher
from tuner.search.strategies.unguided import draw_new
from tuner.search.strategy import Proposal
from tuner.spec.model import StrategyName


def test_a_draw_passes_over_what_is_taken_and_counts_it() -> None:
    space = space_of(TINY)
    everything = list(space.enumerate())
    taken = {c.key for c in everything[1:]}
    proposal = draw_new(space, random.Random(0), taken)
    assert proposal is not None
    assert proposal.candidate == everything[0]
    assert proposal.duplicates > 0
    assert draw_new(space, random.Random(0), taken | {everything[0].key}) is None


def test_a_grid_that_fits_the_budget_keeps_each_server_as_long_as_it_can() -> None:
    space, grid = strategy(StrategyName.GRID, CACHED, trials=200)
    proposed = []
    taken: set[str] = set()
    while (proposal := grid.propose(len(proposed) + 1, [], taken)) is not None:
        proposed.append(proposal.candidate)
        taken.add(proposal.candidate.key)
    assert proposed == list(space.coarse(8).enumerate())


def test_a_grid_has_at_most_eight_points_of_a_range() -> None:
    _, grid = strategy(StrategyName.GRID, {DELAY: {"int": [1, 5000], "or": 0}}, trials=200)
    taken: set[str] = set()
    while (proposal := grid.propose(len(taken) + 1, [], taken)) is not None:
        taken.add(proposal.candidate.key)
    assert len(taken) == 9


def test_a_grid_larger_than_the_budget_is_spread_over_the_space() -> None:
    trials = searched(Searcher(*strategy(StrategyName.GRID, SURFACE, trials=24)), 24)
    delays = {fields_of(t.candidate).get(DELAY) for t in trials}
    assert len(delays) > 4


def test_tpe_avoids_the_neighbourhood_of_failures() -> None:
    """Everything with many instances fails: later proposals have few."""
    from tuner.score.point import Score
    from tuner.score.trial import Trial, TrialState

    def share_of_failing(kind: StrategyName) -> float:
        searcher = Searcher(*strategy(kind, SURFACE, seed=2))
        for number in range(40):
            proposal = searcher.next()
            assert isinstance(proposal, Proposal)
            candidate = proposal.candidate
            instances = fields_of(candidate)["instance_group.count"]
            assert isinstance(instances, int)
            score = Score(100.0 - number, feasible=True, violation=0.0, best_point=0)
            trial = Trial(number, candidate, TrialState.MEASURED, score=score)
            if instances > 3:
                trial = Trial(number, candidate, TrialState.FAILED, reason=said("out of memory"))
            searcher.tell(trial)
        late = searcher.history[12:]
        return sum(t.state is TrialState.FAILED for t in late) / len(late)

    assert share_of_failing(StrategyName.TPE) < 0.6 * share_of_failing(StrategyName.RANDOM)


@pytest.mark.parametrize("seed", range(4))
def test_tpe_keeps_away_from_what_misses_an_slo_however_much_it_answers(seed: int) -> None:
    trials = searched(Searcher(*strategy(StrategyName.TPE, SURFACE, seed=seed)), 40)
    missing = [not feasible(t.candidate) for t in trials[12:]]
    assert sum(missing) / len(missing) < 0.25  # about a half when the SLOs are no constraints
