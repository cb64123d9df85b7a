"""What every generator of load must do; subclassed once for each implementation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tuner.errors import LoadFailedError, ServerGoneError
from tuner.load.generators import LoadGenerator
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window

RATE = 40.0
OPEN = LoadPoint(Arrivals.POISSON, RATE)
CLOSED = LoadPoint(Arrivals.CLOSED, 2)
WINDOW = Window(duration_s=2.0, warmup_s=0.3, deadline_s=60.0, tail_s=0.2)


@dataclass(frozen=True)
class LoadCase:
    """A generator for a model that answers `RATE` with ease.

    Attributes:
        remove_server: Makes the server go away; the generator stays.
    """

    generator: LoadGenerator
    remove_server: Callable[[], LoadGenerator]


class LoadGeneratorContract:
    """Subclasses give a fixture ``case``, one for the class."""

    @pytest.fixture(scope="class")
    @classmethod
    def found(cls, case: LoadCase) -> Measurement:
        """What `OPEN` showed."""
        return case.generator.measure(OPEN, WINDOW, seed=1)

    def test_below_saturation_it_answers_what_is_asked(self, found: Measurement) -> None:
        assert found.throughput_infer_per_s == pytest.approx(RATE, rel=0.05)
        assert found.load == OPEN
        assert found.seed == 1
        assert found.failed_count == 0
        assert found.error_rate == 0.0
        assert found.unanswered_count == 0

    @pytest.mark.parametrize("load", [OPEN, CLOSED], ids=str)
    def test_percentiles_are_ordered(
        self, case: LoadCase, found: Measurement, load: LoadPoint
    ) -> None:
        if load != OPEN:
            found = case.generator.measure(load, WINDOW, seed=1)
        percentiles = [
            found.p50_latency_us,
            found.p90_latency_us,
            found.p95_latency_us,
            found.p99_latency_us,
        ]
        assert percentiles == sorted(percentiles)
        assert percentiles[0] > 0.0
        assert found.completed_count > 0

    def test_the_same_seed_offers_the_same_load(self, case: LoadCase, found: Measurement) -> None:
        again = case.generator.measure(OPEN, WINDOW, seed=1)
        assert again.throughput_infer_per_s == pytest.approx(found.throughput_infer_per_s, rel=0.05)
        assert (again.sent_per_s, again.seed) == (found.sent_per_s, found.seed)

    def test_a_measurement_survives_json(self, found: Measurement) -> None:
        assert Measurement.from_json(json.loads(json.dumps(found.to_json()))) == found

    def test_a_deadline_that_passes_is_no_result(self, case: LoadCase) -> None:
        hasty = Window(duration_s=2.0, warmup_s=0.3, deadline_s=0.5, tail_s=0.2)
        with pytest.raises(LoadFailedError):
            case.generator.measure(OPEN, hasty, seed=1)

    def test_a_server_that_is_gone_is_told_from_a_failed_load(self, case: LoadCase) -> None:
        generator = case.remove_server()
        with pytest.raises(ServerGoneError):
            generator.measure(OPEN, WINDOW, seed=1)
