"""The fit finds again what it was given, knows how sure it is, and says when it does not fit.

Under open loops: of closed ones, which are bistable, it may find another mixture of parts that run
alone and parts that share cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from builders.candidates import candidate_of, fields_of
from builders.serving import served_one
from builders.simulated import measurement

from tuner.measurement.measurement import Arrivals, HostUse, LoadPoint, Measurement
from tuner.score.capacity import LevelRange
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.slo import Slo
from tuner.twin.costs import Costs, Figure, figures_of
from tuner.twin.fitting import Twin, fit
from tuner.twin.model import Unmodelled
from tuner.twin.observation import Asked, Setting
from tuner.twin.predicting import Requirement, capacity_of
from tuner.twin.system import Network, Service, Way

pytestmark = pytest.mark.long

SETTING = Setting(
    served_one('name: "m" max_batch_size: 8 instance_group [ { count: 1 kind: KIND_CPU } ]'),
    (Asked(model="m"),),
)
TRUTH = Costs(
    (Service(2e-3, 1e-4, 4e-3, 3e-4, 2e-5, spread=0.05),),
    Way(4e-4, 3e-4, front_s=2e-5, handoff_s=6e-5),
)
#: A model that computes on the two cores it shares with server and clients.
HOST_CORES = 2
ON_THE_HOST = Costs(
    (Service(5e-4, 4e-4, 1e-5, 1e-5, 2e-5, 2e-5, spread=0.3),),
    Way(2e-4, 1e-4, front_s=1e-4, front_more=0.5, slept_s=1e-4, cores=HOST_CORES, handoff_s=6e-5),
)


def config(instances: int, batch: int, delay_us: int | None) -> Candidate:
    fields: dict[str, FieldValue] = {"instance_group.count": instances, "max_batch_size": batch}
    if delay_us is not None:
        fields["dynamic_batching"] = True
        fields["dynamic_batching.max_queue_delay_microseconds"] = delay_us
    return candidate_of(fields)


FITTED = (config(1, 8, None), config(1, 16, 0), config(3, 16, 0), config(2, 8, 2000))
#: Requests per second for each of them: at ease, and near its capacity.
RATES = ((90.0, 135.0), (300.0, 950.0), (300.0, 900.0), (300.0, 1050.0))


def measured(
    candidate: Candidate, load: LoadPoint, costs: Costs = TRUTH, factor: float = 1.0
) -> Measurement:
    """What a server of these costs would have shown."""
    network = SETTING.network(candidate)
    assert isinstance(network, Network)
    outcome = costs.simulate(network, SETTING.traffics(load, 2.0, 7), 7)
    shown = measurement(load, 7, 2.0, outcome, factor - 1.0)
    return replace(shown, host=HostUse(cpu_percent=100.0 * outcome.busy_cores / HOST_CORES))


def trial(number: int, candidate: Candidate, points: list[Measurement]) -> Trial:
    return Trial(number, candidate, TrialState.MEASURED, tuple(Point(m, (), None) for m in points))


def fitted_trials(factors: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> list[Trial]:
    """Of the four configs; ``factors``: of their latencies."""
    return [
        trial(i, c, [measured(c, poisson(rate), factor=factor) for rate in rates])
        for i, (c, rates, factor) in enumerate(zip(FITTED, RATES, factors, strict=True))
    ]


def poisson(rate: float) -> LoadPoint:
    return LoadPoint(Arrivals.POISSON, rate)


def predicted(twin: Twin, candidate: Candidate, load: LoadPoint) -> dict[Figure, float]:
    network = twin.setting.network(candidate)
    assert isinstance(network, Network)
    return figures_of(twin.costs.simulate(network, twin.setting.traffics(load, 2.0, 7), 7))


@pytest.fixture(scope="module")
def twin() -> Twin:
    found = fit(fitted_trials(), SETTING)
    assert isinstance(found, Twin)
    return found


@pytest.mark.parametrize(
    ("unseen", "rate"),
    [(config(2, 16, 0), 900.0), (config(4, 8, None), 190.0), (config(1, 32, 4000), 1200.0)],
)
def test_predicts_configs_it_was_not_fitted_to(twin: Twin, unseen: Candidate, rate: float) -> None:
    for load in (poisson(150.0), poisson(rate)):
        truth = measured(unseen, load)
        found = predicted(twin, unseen, load)
        throughput, p99 = found[Figure.THROUGHPUT], found[Figure.P99]
        assert throughput == pytest.approx(truth.throughput_infer_per_s, rel=0.05)
        assert p99 == pytest.approx(truth.p99_latency_us, rel=0.15)


def test_predicts_a_model_that_shares_few_cores_with_its_clients() -> None:
    setting = replace(SETTING, cores=HOST_CORES)
    rates = ((500.0, 750.0), (700.0, 1200.0), (700.0, 1300.0), (700.0, 1300.0))
    trials = [
        trial(i, c, [measured(c, poisson(rate), ON_THE_HOST) for rate in own])
        for i, (c, own) in enumerate(zip(FITTED, rates, strict=True))
    ]
    found = fit(trials, setting)
    assert isinstance(found, Twin)
    assert found.fitness.reason is None
    unseen, load = config(4, 16, 0), poisson(1300.0)
    truth = measured(unseen, load, ON_THE_HOST)
    p99 = predicted(found, unseen, load)[Figure.P99]
    assert p99 == pytest.approx(truth.p99_latency_us, rel=0.2)


def test_finds_which_part_runs_alone(twin: Twin) -> None:
    service = twin.costs.services[0]
    found = service.exclusive_base_s + 8 * service.exclusive_item_s
    assert found == pytest.approx(4e-3 + 8 * 3e-4, rel=0.15)
    assert twin.fitness.reason is None


def test_says_when_nothing_fits() -> None:
    """Latencies that no queue explains: they jump from one config to the next."""
    found = fit(fitted_trials((0.2, 1.0, 5.0, 25.0)), SETTING)
    assert isinstance(found, Twin)
    assert found.fitness.reason is not None
    assert "off in the median" in str(found.fitness.reason)


def test_too_few_trials_are_no_fit() -> None:
    assert isinstance(fit(fitted_trials()[:1], SETTING), Unmodelled)


def test_trials_with_other_service_times_are_left_out(twin: Twin) -> None:
    path = "parameters.threads"
    slow = Costs((replace(TRUTH.services[0], exclusive_base_s=0.05),), TRUTH.way)
    other = candidate_of({**fields_of(FITTED[0]), path: "9"})
    strange = trial(9, other, [measured(FITTED[0], poisson(rate), slow) for rate in RATES[0]])
    found = fit([*fitted_trials(), strange], SETTING, start=twin)
    assert isinstance(found, Twin)
    assert found.costs.services[0].exclusive_base_s < 0.01


def capacity(twin: Twin, candidate: Candidate, slo: str) -> float:
    asked = Requirement((Slo.parse(slo),), Arrivals.POISSON, LevelRange(1.0, 1e5))
    network = SETTING.network(candidate)
    assert not isinstance(network, Unmodelled)
    return capacity_of(SETTING, twin.costs, network, asked, near=100.0)


def test_capacity_is_where_the_slo_breaks(twin: Twin) -> None:
    candidate = config(2, 16, 0)
    found = capacity(twin, candidate, "p99_latency <= 40ms")
    below = measured(candidate, LoadPoint(Arrivals.POISSON, found * 0.9))
    above = measured(candidate, LoadPoint(Arrivals.POISSON, found * 1.2))
    assert below.p99_latency_us <= 40_000 < above.p99_latency_us


def test_an_impossible_slo_has_no_capacity(twin: Twin) -> None:
    assert capacity(twin, config(2, 16, 0), "p99_latency <= 1ms") == 0.0
