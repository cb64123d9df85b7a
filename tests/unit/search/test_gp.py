"""The search by a Gaussian process alone, on a surface whose optimum is known."""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
from dataclasses import replace

import pytest
from builders.candidates import candidate_of, fields_of
from builders.reasons import said
from builders.spaces import DELAY, INSTANCES
from builders.surface import SURFACE, feasible, searched, strategy

from tuner.score.point import Score
from tuner.score.trial import STEEPNESS, Aim, Predicted, Trial, TrialState
from tuner.search.searcher import Searcher
from tuner.search.strategies.designs import designs
from tuner.search.strategies.gaussian import Bound
from tuner.search.strategies.gp import (
    GaussianStrategy,
    came_true,
    observation,
    overshoot,
    prediction_error,
)
from tuner.search.strategy import Enough, Proposal
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import StrategyName

pytestmark = pytest.mark.long

THREADS = "parameters.threads"
ORDERED = {THREADS: {"choice": [1, 2, 4, 8, 16, 32, 64]}}


def chosen_by(space: Space, built: object, history: list[Trial]) -> Candidate:
    assert isinstance(built, GaussianStrategy)
    proposal = built.propose(len(history), history, {t.candidate.key for t in history})
    assert isinstance(proposal, Proposal)
    return proposal.candidate


def measured(number: int, candidate: Candidate, value: float) -> Trial:
    score = Score(value, feasible=True, violation=0.0, best_point=None)
    return Trial(number, candidate, TrialState.MEASURED, score=score)


def lost(violation: float) -> Trial:
    score = Score(100.0, feasible=False, violation=violation, best_point=None)
    return Trial(0, candidate_of({}), TrialState.PRUNED, score=score)


def aim() -> Aim:
    built = strategy(StrategyName.GP, ORDERED)[1]
    assert isinstance(built, GaussianStrategy)
    return built.aim


def test_numbers_have_an_order() -> None:
    """More threads were better each time: more still are worth more than one."""
    space, built = strategy(StrategyName.GP, ORDERED)
    every = sorted(space.enumerate(), key=lambda c: int(str(fields_of(c)[THREADS])))
    scores = {1: 141.0, 2: 200.0, 3: 283.0, 4: 400.0}
    history = [measured(n, every[i], value) for n, (i, value) in enumerate(scores.items())]
    assert int(str(fields_of(chosen_by(space, built, history))[THREADS])) >= 32


def test_noise_on_equal_values_barely_moves_the_model() -> None:
    """A lucky best does not hide that its neighbours are as good."""
    space, built = strategy(StrategyName.GP, ORDERED)
    every = sorted(space.enumerate(), key=lambda c: int(str(fields_of(c)[THREADS])))
    scores = {0: 50.0, 1: 60.0, 5: 100.0, 4: 96.0}
    history = [measured(n, every[i], value) for n, (i, value) in enumerate(scores.items())]
    assert int(str(fields_of(chosen_by(space, built, history))[THREADS])) in (8, 64)


def test_what_a_race_lost_by_says_where_the_capacity_is() -> None:
    near = observation(aim(), lost(0.1))
    assert near == (pytest.approx(math.log(100.0) - math.log(1.1) / STEEPNESS), Bound.VALUE)
    far = observation(aim(), lost(50.0))
    assert far == (pytest.approx(math.log(100.0) - math.log(4.0) / STEEPNESS), Bound.AT_MOST)


def test_only_a_lost_race_leaves_it_open_whether_the_slos_can_be_met() -> None:
    missed = Score(1.0, feasible=False, violation=1.0, best_point=None)
    trials = [
        measured(0, candidate_of({}), 100.0),
        lost(0.5),
        Trial(0, candidate_of({}), TrialState.MEASURED, score=missed),
        Trial(0, candidate_of({}), TrialState.FAILED, reason=said("out of memory")),
    ]
    assert [overshoot(aim(), t) for t in trials] == [
        (0.0, Bound.AT_MOST),
        None,
        (pytest.approx(math.log(2.0)), Bound.VALUE),
        (0.2, Bound.AT_LEAST),
    ]


def test_it_begins_with_the_design_that_is_likeliest_to_be_good() -> None:
    """Then comes the current config, which only has to lose the race, and the other designs."""
    space, built = strategy(StrategyName.GP, SURFACE)
    trials = searched(Searcher(space, built), 5)
    first, *others = designs(space)
    assert [t.candidate for t in trials] == [first, space.current, *others]
    alone = strategy(StrategyName.GP, SURFACE, trials=1)[1]
    assert built.designs
    assert not alone.designs


def test_it_ends_when_another_trial_is_expected_to_gain_too_little() -> None:
    """More threads were worse each time, and it was sure of the next one."""
    space, built = strategy(StrategyName.GP, {THREADS: {"int": [1, 20]}}, min_gain=0.01)
    every = sorted(space.enumerate(), key=lambda c: int(str(fields_of(c)[THREADS])))
    history = [measured(n, every[n], 100.0 * 0.9**n) for n in range(8)]
    assert isinstance(built.propose(8, history, {t.candidate.key for t in history}), Enough)
    eager = strategy(StrategyName.GP, {THREADS: {"int": [1, 20]}})[1]
    assert isinstance(eager.propose(8, history, {t.candidate.key for t in history}), Proposal)


def test_predictions_that_came_true_make_it_surer() -> None:
    space, built = strategy(StrategyName.GP, ORDERED)
    every = sorted(space.enumerate(), key=lambda c: int(str(fields_of(c)[THREADS])))
    history = [measured(n, every[n], 100.0 + n) for n in range(4)]
    proposal = built.propose(4, history, {t.candidate.key for t in history})
    assert isinstance(proposal, Proposal)
    predicted = proposal.predicted
    assert predicted is not None
    assert predicted.low < 100.0 < predicted.value < predicted.high
    assert prediction_error([0.0] * 6) < prediction_error([]) < prediction_error([-0.2])
    assert prediction_error([0.1, -0.1] * 200) == pytest.approx(0.1, rel=0.01)


def test_gains_that_were_expected_and_never_came_are_believed_less() -> None:
    """A search that goes on for the largest of many expectations would never end."""
    first = measured(0, candidate_of({}), 100.0)
    hoped = [replace(lost(0.1), number=n, predicted=Predicted(110.0, 95.0, 127.0)) for n in (1, 2)]
    better = replace(measured(1, candidate_of({}), 112.0), predicted=hoped[0].predicted)
    assert came_true(aim(), []) == came_true(aim(), [first]) == 1.0
    none_came = [came_true(aim(), [first, *hoped[:n]]) for n in (1, 2)]
    assert 0.4 < none_came[1] < none_came[0] < 0.61
    assert came_true(aim(), [first, better]) == pytest.approx(1.0, abs=0.1)


def test_wide_predictions_that_failed_leave_the_next_one_some_belief() -> None:
    """A slow model's search ended at 91% of the best, after three losers that nobody knew."""
    first = measured(0, candidate_of({}), 100.0)
    wide = replace(lost(0.1), number=1, predicted=Predicted(137.0, 47.0, 400.0))
    assert came_true(aim(), [first, *[wide] * 3]) == pytest.approx(1.5 / 4.5, abs=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_what_no_measurement_could_tell_from_another_is_not_tried(seed: int) -> None:
    """Emulated: any delay is as good as any other, but for noise, so they are far from each other.

    The best was tried again with delays of 9910, 9911 and 9912 us.
    """
    space, built = strategy(
        StrategyName.GP, {INSTANCES: {"int": [1, 4]}, DELAY: {"int": [10, 10_000], "log": True}}
    )
    searcher, noise = Searcher(space, built), random.Random(seed)
    delays: dict[object, list[float]] = {}
    for number in range(12):
        proposal = searcher.next()
        assert isinstance(proposal, Proposal)
        fields = fields_of(proposal.candidate)
        instances, delay = int(str(fields.get(INSTANCES) or 1)), fields.get(DELAY)
        value = (1.0, 1.8, 2.0, 1.9)[instances - 1] * math.exp(noise.gauss(4.6, 0.02))
        trial = measured(number, proposal.candidate, value if delay else 0.8 * value)
        searcher.tell(replace(trial, predicted=proposal.predicted))
        if delay:
            delays.setdefault(instances, []).append(math.log2(int(str(delay))))
    for tried_delays in map(sorted, delays.values()):
        assert all(b - a > 0.5 for a, b in itertools.pairwise(tried_delays))


@functools.cache
def tried(name: StrategyName, seed: int) -> tuple[Trial, ...]:
    """Of a whole search without designs, of which this surface has the worst delay.

    Each proposal of the Gaussian process takes a second.
    """
    space, built = strategy(name, SURFACE, seed)
    if isinstance(built, GaussianStrategy):
        built._designs = ()
    return tuple(searched(Searcher(space, built), 24))


def test_it_finds_more_than_random_search() -> None:
    def best(name: StrategyName, seed: int) -> float:
        return max(t.score.value for t in tried(name, seed)[:20] if t.score and t.score.feasible)

    model_based, chance = (
        statistics.fmean(best(name, seed) for seed in range(2))
        for name in (StrategyName.GP, StrategyName.RANDOM)
    )
    assert model_based > 1.05 * chance


def test_it_keeps_away_from_what_misses_an_slo_however_much_it_answers() -> None:
    later = [t.candidate for t in tried(StrategyName.GP, 1)[12:]]
    assert sum(not feasible(c) for c in later) < 0.35 * len(later)


def test_what_is_being_measured_counts_as_observed_at_what_is_expected_of_it() -> None:
    """So the next bench looks elsewhere, and the one after that too."""
    space, built = strategy(StrategyName.GP, ORDERED)
    assert isinstance(built, GaussianStrategy)
    known = [c for c in space.enumerate() if fields_of(c)[THREADS] in (1, 64)]
    history = [measured(n, c, 100.0 + 20.0 * n) for n, c in enumerate([space.current, *known])]
    taken = {t.candidate.key for t in history}
    pending, proposals = list[Candidate](), list[Candidate]()
    for _ in range(3):
        proposal = built.propose(9, history, {*taken, *(c.key for c in pending)}, pending)
        assert isinstance(proposal, Proposal)
        pending.append(proposal.candidate)
        proposals.append(proposal.candidate)
    assert len({c.key for c in proposals}) == 3
    left = [c for c in space.enumerate() if c.key not in taken]
    best, used = built._leaders(history), history
    alone = built._outlook(left, used, best, ())
    beside = built._outlook(left, used, best, pending[:1])
    assert alone is not None
    assert beside is not None
    assert (beside.deviation <= alone.deviation + 1e-9).all()
    at = [c.key for c in left].index(pending[0].key)
    assert beside.worth == pytest.approx(alone.worth, abs=0.02)  # it is believed, not more
    assert beside.log_gain[at] == -math.inf


def test_the_same_history_and_pending_configs_give_the_same_proposal() -> None:
    space, built = strategy(StrategyName.GP, SURFACE)
    history = [measured(n, c, 100.0 + n) for n, c in enumerate([space.current, *designs(space)])]
    taken = {t.candidate.key for t in history}
    pending = [*itertools.islice((c for c in space.enumerate() if c.key not in taken), 2)]
    taken |= {c.key for c in pending}
    first, again = (built.propose(12, history, taken, pending) for _ in range(2))
    assert first == again
