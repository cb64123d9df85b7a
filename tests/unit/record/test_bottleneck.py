"""Which model of several a request waits for, by formulas and by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from builders.measurements import synthetic_figures, synthetic_measurement
from builders.runs import MANIFEST

from tuner.measurement.measurement import ServerStatistics
from tuner.record.bottleneck import bottleneck_of, times_of
from tuner.record.manifest import KeptConfig, Manifest
from tuner.report.sentence import bottleneck_text
from tuner.score.point import Point, judge_point
from tuner.spec.slo import Slo

#: What the sentence of `golden/messages/bottlenecks.txt` says of a run.
VALUES = re.compile(r"[\d.]+(?:%|/s)|tiny-bert|image-prep|images")
P99 = Slo.parse("p99_latency <= 40ms")


def spent(count: int, queue_us: float, compute_us: float) -> ServerStatistics:
    return ServerStatistics(count, 0, count, count, queue_us, 0.0, compute_us, 0.0)


def serving(
    parts: Mapping[str, Sequence[str]], streams: Mapping[str, str] | None = None
) -> Manifest:
    """A run of models by name; requests are sent to nlp."""
    models = {
        label: KeptConfig(label, f"/models/{label}", "", None, parts=tuple(of))
        for label, of in parts.items()
    }
    return replace(MANIFEST, models=models, streams=streams or {"nlp": "nlp"})


def point_of(models: Mapping[str, ServerStatistics], **p99_us: float) -> Point:
    """At 100/s, with a stream for each p99 that is given; each is to stay within 40 ms."""
    streams = {name: synthetic_figures(50.0, us) for name, us in p99_us.items()}
    measured = replace(synthetic_measurement(100.0), models=models, streams=streams)
    slos = [replace(P99, stream=name) for name in p99_us]
    return judge_point(slos or [P99], measured)


ENSEMBLE = {"tokenizer": (), "tiny-bert": (), "nlp": ("tokenizer", "tiny-bert")}


@pytest.mark.parametrize("queue_us", [0.0, 6100.0])  # Triton may count the steps' in the whole
def test_the_step_with_most_of_a_requests_time_is_named_with_its_queue(queue_us: float) -> None:
    steps = {"tokenizer": spent(300, 100, 1900), "tiny-bert": spent(300, 4880, 3120)}
    point = point_of({"nlp": spent(300, queue_us, 9900 - queue_us), **steps})
    bottleneck = bottleneck_of(point, serving(ENSEMBLE))
    assert bottleneck is not None
    assert VALUES.findall(bottleneck_text(bottleneck)) == ["100/s", "80%", "tiny-bert", "61%"]
    assert [time.model for time in bottleneck.models] == ["tokenizer", "tiny-bert", "nlp"]
    assert bottleneck.models[-1].total_us == 0.0  # an ensemble itself does nothing


def test_time_of_called_models_counts_as_often_as_they_are_called() -> None:
    manifest = serving({"embedder": (), "nlp": ("embedder",)})
    point = point_of({"nlp": spent(100, 500, 10_000), "embedder": spent(300, 1000, 2000)})
    embedder, caller = times_of(point, manifest, "nlp")
    assert (embedder.queue_us, embedder.compute_us) == (3000, 6000)
    assert (caller.queue_us, caller.compute_us) == (500, 1000)


def test_of_several_streams_it_is_of_the_one_whose_slo_is_nearest() -> None:
    manifest = serving(
        {"tiny-bert": (), "image-prep": ()}, {"texts": "tiny-bert", "images": "image-prep"}
    )
    models = {"tiny-bert": spent(100, 1000, 9000), "image-prep": spent(100, 4000, 1000)}
    bottleneck = bottleneck_of(point_of(models, texts=20e3, images=38e3), manifest)
    assert bottleneck is not None
    assert VALUES.findall(bottleneck_text(bottleneck)) == ["100/s", "images", "80%", "image-prep"]


def test_a_model_that_others_ask_too_has_one_request_of_each_streams() -> None:
    """Its count says nothing of who asked."""
    manifest = serving(
        {"tokenizer": (), "nlp": ("tokenizer",)}, {"texts": "nlp", "words": "tokenizer"}
    )
    models = {"tokenizer": spent(500, 0, 1000), "nlp": spent(100, 0, 3000)}
    point = point_of(models, texts=38e3, words=10e3)
    assert [time.total_us for time in times_of(point, manifest, "texts")] == [1000, 2000]


def test_one_model_has_none_and_neither_has_a_load_without_statistics() -> None:
    assert bottleneck_of(point_of({"nlp": spent(1, 1, 1)}), serving({"nlp": ()})) is None
    assert bottleneck_of(point_of({}), serving(ENSEMBLE)) is None
