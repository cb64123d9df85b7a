"""Searches on an emulated model that batches only texts of one length.

What a batch takes is a formula: many launches side by side pay where batches are small, as those of
a mix are, and cost where they are large.
"""

from __future__ import annotations

import functools

import pytest
from builders.candidates import fields_of
from builders.emulated import a_session
from builders.emulated_lengths import TextsBench, texts
from builders.spaces import BATCH, BATCHER, DELAY, INSTANCES, spec_of
from builders.surface import strategy

from tuner.measurement.measurement import Arrivals
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.search.searcher import Searcher
from tuner.search.searching import search
from tuner.space.candidate import Candidate
from tuner.spec.model import StrategyName

SPACE = {
    INSTANCES: {"int": [1, 4]},
    BATCH: {"choice": [8, 64]},
    BATCHER: {"choice": [False, True]},
    DELAY: {"choice": [0, 5000]},
}
ONE_LENGTH, MIX = ((64, 1.0),), ((64, 0.7), (256, 0.3))
Lengths = tuple[tuple[int, float], ...]


@functools.cache
def winner(lengths: Lengths) -> Trial:
    """The best trial of a search under texts of these lengths with their shares."""
    space, built = strategy(StrategyName.GP, SPACE, trials=12, stop_below=0.01)
    spec = spec_of(SPACE, budget={"trials": 12})
    plan = LoadPlan(Arrivals.POISSON, None, LevelRange(50.0, 1e4))
    session = a_session(TextsBench(texts(dict(lengths))), spec, space.current, plan)
    trials, _ = search(session, Searcher(space, built))
    return max(trials, key=lambda t: t.score.value if t.score and t.score.feasible else 0.0)


def batching(instances: int) -> Candidate:
    every = strategy(StrategyName.GP, SPACE)[0].enumerate()
    own = (c for c in every if fields_of(c)[INSTANCES] == instances)
    return next(c for c in own if fields_of(c).get(BATCHER))


def at(level: float, candidate: Candidate, lengths: Lengths) -> Point:
    """Under arrivals that no search has seen."""
    bench = TextsBench(texts(dict(lengths)))
    bench.deploy(candidate)
    return bench.measure(level, seed=99)


def sustained(trial: Trial) -> float:
    assert trial.score is not None
    return trial.score.value


@pytest.mark.long
def test_the_winner_for_a_mix_of_lengths_is_another_than_that_for_one_length() -> None:
    one, mixed = winner(ONE_LENGTH).candidate, winner(MIX).candidate
    assert fields_of(one)[INSTANCES] == 1
    assert fields_of(one)[BATCH] == 64
    assert fields_of(mixed)[INSTANCES] in (3, 4)


@pytest.mark.long
def test_the_winner_for_a_mix_of_lengths_is_15_percent_better_on_it() -> None:
    level = sustained(winner(MIX)) * 0.97
    assert at(level, winner(MIX).candidate, MIX).passed
    assert not at(level / 1.15, winner(ONE_LENGTH).candidate, MIX).passed
    one_length = sustained(winner(ONE_LENGTH)) * 0.97
    assert at(one_length, winner(ONE_LENGTH).candidate, ONE_LENGTH).passed
    assert not at(one_length / 1.15, winner(MIX).candidate, ONE_LENGTH).passed


def test_each_length_has_its_share_and_its_latency() -> None:
    (short, long) = at(400.0, batching(3), MIX).measurement.shapes.values()
    assert long.due_per_s == pytest.approx(0.3 * 400.0)
    assert short.p50_latency_us < long.p50_latency_us
    assert short.p99_latency_us < long.p99_latency_us
