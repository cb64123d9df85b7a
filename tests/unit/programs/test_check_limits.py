"""A check that begins at a load from which no result comes tonight."""

from __future__ import annotations

import pytest
from builders.check_place import Place, ToyBench

from tuner.errors import ClientLimitError, LoadFailedError, TrialError
from tuner.measurement.measurement import Measurement


class UpTo(ToyBench):
    """Above its highest load no result comes; ``error``: why not, for a load."""

    highest = 30.0

    @staticmethod
    def error(level: float) -> TrialError:
        return LoadFailedError(f"no result at {level}")

    def reading(self, level: float, seed: int) -> Measurement:
        if level > self.highest:
            raise self.error(level)
        return super().reading(level, seed)


class SlowClient(UpTo):
    """Sends 50 requests a second, not one more."""

    highest = 50.0

    @staticmethod
    def error(level: float) -> TrialError:
        return ClientLimitError("the load generator could not keep up", sent_per_s=50.0)


def test_a_config_that_drowns_in_the_load_it_once_stood_is_measured_below_it(place: Place) -> None:
    """It became ten times as slow: that is the regression to be told, not a failed measurement."""
    place.check(accept=True)
    seed = place.bench.asked[0].seed
    place.bench_of = UpTo
    done = place.check(capacity=10.0)
    assert (done.facts["status"], done.exit_code) == ("regression", 12)
    assert done.facts["ratio"]["estimate"] == pytest.approx(0.1, rel=0.02)
    first = [a.level for a in place.bench.asked if a.seed == seed]
    assert first[:3] == pytest.approx([96.0, 48.0, 24.0], rel=0.02)
    again = [a.level for a in place.bench.asked if a.seed == seed + 1]
    assert max(again) < 30.0  # the next round begins where the first found it


def test_a_load_generator_that_is_the_limit_tonight_shows_no_regression(place: Place) -> None:
    place.check(accept=True)
    place.bench_of = SlowClient
    done = place.check()
    assert place.bench.levels[:2] == pytest.approx([96.0, 45.0], rel=0.02)
    assert (done.facts["status"], done.exit_code) == ("inconclusive", 11)
    assert done.facts["reasons"][0].startswith("The load generator was the limit, not the model: ")
    assert any("the load generator is the limit" in note for note in place.notes)


def test_a_load_generator_that_was_the_limit_before_too_is_told_and_passes(place: Place) -> None:
    place.bench_of = SlowClient
    first = place.check(accept=True)
    done = place.check()
    assert (first.facts["status"], done.facts["status"]) == ("accepted", "fine")
    for facts in (first.facts, done.facts):
        assert "The load generator was the limit, not the model" in facts["reasons"][1]
