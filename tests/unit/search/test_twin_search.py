"""The search with the scheduler's twin, on a server that is a simulation itself."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

import pytest
from builders.candidates import candidate_of, fields_of, values_of
from builders.measurements import synthetic_measurement
from builders.simulated import SPACE, Simulation
from builders.spaces import BATCH, INSTANCES, space_of

from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.score.judge import SloResult, Verdict
from tuner.score.point import Point, Score
from tuner.score.trial import Predicted, Trial, TrialState
from tuner.search.strategies import twin
from tuner.search.strategies.features import Features
from tuner.search.strategies.gp import own_error, surprises
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.strategies.twin import (
    Correction,
    Fitting,
    Residual,
    TwinStrategy,
    checkpoint,
    expected_gain,
)
from tuner.search.strategy import Proposal
from tuner.space.candidate import Candidate
from tuner.spec.model import Strategy
from tuner.twin.fitting import Twin
from tuner.twin.model import Unmodelled

pytestmark = pytest.mark.long


def off(candidate: Candidate) -> float:
    """Service times differ by up to 5 % for reasons that no twin knows."""
    return 0.95 + 0.1 * int(candidate.key[:6], 16) / 0xFFFFFF


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """A search to its end."""
    simulation = Simulation.of(hinders=off)
    simulation.search(14)
    return simulation


@pytest.fixture(scope="module")
def truth(simulation: Simulation) -> dict[str, float]:
    """Capacities of all candidates."""
    return simulation.capacities()


def test_a_few_trials_find_the_best(simulation: Simulation, truth: dict[str, float]) -> None:
    assert len(truth) > 10 * len(simulation.history)
    found = max(truth.get(t.candidate.key, 0.0) for t in simulation.history)
    assert found >= 0.98 * max(truth.values())


def test_it_ends_when_little_is_to_be_expected(simulation: Simulation) -> None:
    assert simulation.stopped is not None
    assert simulation.stopped.expected_gain < float(simulation.spec.search.stop_below)
    assert len(simulation.history) < 14


def test_it_says_how_well_the_twin_fits(simulation: Simulation) -> None:
    assert len(simulation.notes) == 2
    assert simulation.notes[1].startswith("twin fitted: throughput ")


def test_it_says_beforehand_that_the_first_fit_takes_a_while(simulation: Simulation) -> None:
    assert simulation.notes[0].startswith("after this trial the twin")


def test_it_leads_with_a_few_instances_unless_it_has_one_trial_only() -> None:
    simulation = Simulation.of()
    first, second = simulation.search(2)
    assert fields_of(first.candidate)[INSTANCES] == 2
    assert second.candidate == simulation.space.current
    alone = Simulation.of(spec={"budget": {"trials": 1}})
    assert alone.search(1)[0].candidate == alone.space.current


def test_what_it_expected_is_kept_with_the_trial(simulation: Simulation) -> None:
    chosen = [t for t in simulation.history if t.predicted is not None]
    assert chosen
    assert [t.number for t in chosen] == list(range(5, len(simulation.history)))
    for trial in chosen:
        assert trial.predicted is not None
        assert trial.predicted.low < trial.predicted.value < trial.predicted.high
        assert Trial.from_json(trial.to_json()).predicted == trial.predicted


def test_what_it_expected_was_about_right(simulation: Simulation, truth: dict[str, float]) -> None:
    errors = [
        abs(math.log(t.predicted.value / truth[t.candidate.key]))
        for t in simulation.history
        if t.predicted is not None
    ]
    assert median(errors) < 0.15


def test_a_resumed_search_proposes_the_same(simulation: Simulation) -> None:
    stored = [Trial.from_json(t.to_json()) for t in simulation.history]
    number = len(stored) - 1
    strategy = STRATEGIES[Strategy.TWIN](simulation.space, simulation.spec)
    taken = {t.candidate.key for t in stored[:number]}
    proposal = strategy.propose(number, stored[:number], taken)
    assert isinstance(proposal, Proposal)
    assert proposal.candidate == stored[number].candidate


def test_a_long_history_is_not_fitted_whole(simulation: Simulation) -> None:
    strategy = STRATEGIES[Strategy.TWIN](simulation.space, simulation.spec)
    assert isinstance(strategy, TwinStrategy)
    best = next(t for t in simulation.history if t.predicted is not None)
    long = [*simulation.history, *(replace(best, number=n) for n in range(100, 600))]
    informative = strategy.fitting.informative(long)
    assert len(informative) == 12
    assert max(len(t.points) for t in informative) == 2
    assert checkpoint(500, 4) == checkpoint(499, 4)


def test_without_a_fit_a_gaussian_process_goes_on_and_the_user_is_told() -> None:
    """Service times that jump from config to config fit no twin."""
    simulation = Simulation.of(hinders=lambda c: 1.0 + 6.0 * (int(c.key[2:4], 16) % 2))
    simulation.search(6)
    assert len(simulation.history) == 6
    assert any("does not fit" in n and "a Gaussian process goes on" in n for n in simulation.notes)


def test_a_twin_that_does_not_fit_is_where_the_next_fit_begins(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From nothing each attempt would take as long as the first."""
    history = [replace(t, number=n) for n, t in enumerate(simulation.history * 2)]
    found = Fitting(simulation.space, simulation.spec).fitted(history[:4], 4)
    assert isinstance(found, Twin)
    unfit = replace(found, fitness=replace(found.fitness, reason="p99 is far off"))
    begun: list[Twin | None] = []

    def fit(*_: object, start: Twin | None) -> Twin:
        begun.append(start)
        return unfit if len(begun) < 3 else found

    monkeypatch.setattr(twin, "fit", fit)
    retried = Fitting(simulation.space, simulation.spec)
    answers = [retried.fitted(history[:count], 4) for count in range(4, 9)]
    assert answers == [Unmodelled("p99 is far off")] * 4 + [found]
    assert begun == [None, unfit, unfit]


def test_it_learns_what_fails() -> None:
    """More than two instances do not load: asking for less and less of them is soon given up."""

    def broken(candidate: Candidate) -> str | None:
        count = fields_of(candidate)[INSTANCES]
        assert isinstance(count, int)
        return "out of memory" if count > 2 else None

    simulation = Simulation.of(broken=broken)
    simulation.search(10)
    later = simulation.history[4:]
    assert [t.state for t in later].count(TrialState.FAILED) <= 2
    assert any(fields_of(t.candidate)[INSTANCES] == 2 for t in later)


def test_memory_is_no_matter_for_a_twin() -> None:
    simulation = Simulation.of(spec={"objective": "minimize gpu_memory at 60/s"})
    strategy = STRATEGIES[Strategy.TWIN](simulation.space, simulation.spec)
    current = Trial(0, simulation.space.current, TrialState.FAILED, reason="not measured")
    taken = {current.candidate.key}
    history = [current]
    notes = []
    for number in range(1, 7):
        proposal = strategy.propose(number, history, taken)
        assert isinstance(proposal, Proposal)
        taken.add(proposal.candidate.key)
        history.append(replace(current, number=number, candidate=proposal.candidate))
        notes.append(proposal.note)
    assert [n for n, note in enumerate(notes) if note] == [4]
    assert "does not fit: GPU memory is not simulated; a Gaussian process goes on" in str(notes[4])


@pytest.mark.parametrize(
    ("ahead", "deviation", "gain"),
    [(0.1, 0.0, 0.1), (-0.1, 0.0, 0.0), (0.0, 0.1, 0.1 / math.sqrt(2 * math.pi)), (-1.0, 0.1, 0.0)],
)
def test_expected_gain(ahead: float, deviation: float, gain: float) -> None:
    assert expected_gain(ahead, deviation) == pytest.approx(gain, abs=1e-9)


def told_of(predicted: float, state: TrialState, answered: float) -> Trial:
    """A trial that was expected to serve ``predicted`` and failed, or passed, at ``answered``."""
    passed = state is TrialState.MEASURED
    verdict = Verdict.PASS if passed else Verdict.FAIL
    result = SloResult("p99_latency <= 40ms", "p99_latency", 4e4, 5e4, verdict, None)
    measured = replace(
        synthetic_measurement(),
        load=LoadPoint(Arrivals.POISSON, answered),
        throughput_infer_per_s=answered,
    )
    return Trial(
        0,
        candidate_of({}),
        state,
        (Point(measured, (result,), None),),
        Score(answered, passed, 0.0 if passed else 0.5, 0 if passed else None),
        predicted=Predicted(predicted, 0.9 * predicted, 1.1 * predicted),
    )


@pytest.mark.parametrize(
    ("predicted", "state", "expected"),
    [
        (2113.0, TrialState.MEASURED, [math.log(2567.0 / 2113.0)]),
        (2113.0, TrialState.PRUNED, []),
        (2900.0, TrialState.PRUNED, [math.log(2567.0 / 2900.0)]),
    ],
)
def test_a_race_that_was_to_be_lost_makes_no_prediction_right(
    simulation: Simulation, predicted: float, state: TrialState, expected: list[float]
) -> None:
    """2113/s were expected, and it was measured at 2567/s only: that tested nothing."""
    strategy = TwinStrategy(simulation.space, simulation.spec)
    found = surprises(strategy.aim, [told_of(predicted, state, 2567.0)])
    assert found == pytest.approx(expected)


def test_part_of_what_the_best_one_showed_was_luck() -> None:
    space = space_of(SPACE)
    few, more, most = (space.candidate(values_of({INSTANCES: n, BATCH: 16})) for n in (1, 2, 3))
    residuals = [Residual(few, 0.0), Residual(most, 0.0), Residual(more, 0.2)]
    correction = Correction(Features(space), residuals, own_error([]))
    believed = correction.of_measured(residuals[2])
    assert 0.0 < believed < 0.2


def test_fits_become_rarer() -> None:
    marks = sorted({checkpoint(n, 4) for n in range(4, 501)})
    assert marks[:7] == [4, 5, 6, 7, 8, 9, 10]
    assert len(marks) < 30
    assert all(checkpoint(n, 4) <= n for n in range(4, 501))
