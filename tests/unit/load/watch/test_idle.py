"""Whether a server is at rest, as its metrics tell."""

from __future__ import annotations

import pytest

from tuner.load.validity import received_count
from tuner.load.watch import sampler as idle
from tuner.load.watch.machine import MachineReading
from tuner.load.watch.sampler import Sample, becomes_idle
from tuner.server.control import Metrics, MetricSample, StatisticsSnapshot
from tuner.server.server import Endpoints

ENDPOINTS = Endpoints("h:1", "g:1", "m:1")


def waiting(**counts: float) -> Metrics:
    name = "nv_inference_pending_request_count"
    return Metrics(tuple(MetricSample(name, {"model": m}, n) for m, n in counts.items()))


@pytest.fixture(autouse=True)
def _lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle.health, "live", lambda _: True)
    monkeypatch.setattr(idle, "REST_S", 0.02)


def test_an_ensemble_is_at_rest_when_its_steps_are() -> None:
    def scrape() -> Metrics:
        return waiting(nlp=0.0, tokenizer=0.0, bert=7.0)

    assert becomes_idle(scrape, ["nlp", "tokenizer"], ENDPOINTS)
    assert not becomes_idle(scrape, ["nlp", "tokenizer", "bert"], ENDPOINTS)
    assert not becomes_idle(lambda: None, ["nlp"], ENDPOINTS)


def test_requests_that_wait_in_an_ensembles_steps_have_reached_it() -> None:
    machine = MachineReading(0.0, 0.0, 0.0, 0.0, None, 0.0, None)

    def sample(answered: int, **counts: float) -> Sample:
        counted = {"nlp": StatisticsSnapshot(success_count=answered)}
        return Sample(0, counted, waiting(**counts), machine)

    samples = [sample(100, nlp=0.0, bert=0.0), sample(140, nlp=0.0, bert=25.0)]
    assert received_count(samples, "nlp", ["nlp", "bert"]) == 65
    assert received_count(samples, "nlp", ["nlp"]) == 40
