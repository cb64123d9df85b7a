"""What the reports of a run of several models and streams show; its figures are made up."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from builders.pages import NASTY, page_of, text_of
from builders.runs import RUNS

import tuner
from tuner.record.confirmation import Soaked
from tuner.record.result_schema import check
from tuner.report import run_document
from tuner.report.charts.load import load_charts
from tuner.report.charts.request import latency_parts, model_times
from tuner.report.data import ReportData, load
from tuner.report.frames import trials_csv
from tuner.report.quantities import latency_text
from tuner.report.tables import p99_of
from tuner.score.judge import judge_all
from tuner.spec.slo import Slo

RUN = RUNS / "ensemble"
SLOS = {"interactive": "p99_latency <= 40ms", "embedding": "p99_latency <= 100ms"}


@pytest.fixture
def data() -> ReportData:
    return load(RUN)


@pytest.mark.parametrize("name", ["ensemble", "ensemble-alone"])
def test_result_of_a_mix_follows_the_schema(name: str) -> None:
    assert check(json.loads((RUNS / name / "result.json").read_text())) == []


def test_time_of_a_request_is_reported_by_model_at_its_load(data: ReportData) -> None:
    chart = model_times(data)
    assert chart is not None
    queue, compute = chart.figure["data"]
    labels = dict.fromkeys(label.partition("<br>")[0] for label in queue["y"])
    assert [*labels] == [
        "tokenizer for interactive", "tiny-bert for interactive", "tiny-bert for embedding"
    ]  # fmt: skip
    assert all(", at " in label for label in queue["y"])
    (best,) = (
        i for i, y in enumerate(queue["y"]) if y.startswith("tiny-bert for interactive<br>best")
    )
    share = queue["x"][best] / (queue["x"][best] + compute["x"][best])
    assert share == pytest.approx(0.606, abs=0.01)


def test_the_table_of_trials_has_columns_by_knob_stream_and_model(data: ReportData) -> None:
    row = list(csv.DictReader(io.StringIO(trials_csv(data))))[1]
    assert row["field.tiny-bert/instance_group.count"] == "4"
    assert row["field.tokenizer/instance_group.count"] == "1"
    assert float(row["stream.embedding.throughput_infer_per_s"]) == 20.0
    assert float(row["stream.interactive.p99_latency_us"]) == float(row["p99_latency_us"])
    assert float(row["model.tiny-bert.queue_us"]) > float(row["model.tokenizer.queue_us"]) > 0


def test_a_load_has_a_row_for_all_streams_and_one_for_each() -> None:
    points = tuner.read_run(RUN).points
    streams = points.groupby("stream").size()
    assert streams[""] == streams["interactive"] == streams["embedding"]
    beside = points[points["stream"].eq("embedding")]
    assert beside["throughput_infer_per_s"].eq(20).all()
    assert beside["met_slos"].any()


def test_a_stream_is_named_as_it_is_and_no_file_after_it(tmp_path: Path) -> None:
    for name in ("manifest.json", "trials.jsonl", "confirmation.jsonl", "result.json"):
        text = (RUN / name).read_text().replace('"interactive"', json.dumps(NASTY + "/../x"))
        (tmp_path / name).write_text(text)
    data = load(tmp_path)
    assert "<img src=x" not in page_of(data)
    assert "<img src=x" not in text_of(data).replace("`", "")
    names = [chart.name for chart in load_charts(data)]
    assert names == ["load-p99_latency-0", "load-p99_latency-1"]
    ET.fromstring(run_document.junit_of(data))


def test_an_ensemble_alone_reads_like_one_model() -> None:
    data = load(RUNS / "ensemble-alone")
    text = text_of(data)
    assert " a request spends " in text
    assert "of the stream" not in text
    parts, models = latency_parts(data), model_times(data)
    assert parts is not None
    assert models is not None
    (queue,) = [trace for trace in parts.figure["data"] if trace["name"] == "queue"]
    steps = models.figure["data"][0]  # an ensemble has no queue of its own
    best = [ms for ms, label in zip(steps["x"], steps["y"], strict=True) if "best" in label]
    assert len(best) == 2
    assert queue["x"][1] == pytest.approx(sum(best))
    header = trials_csv(data).splitlines()[0]
    assert "stream." not in header
    assert "field.tokenizer/instance_group.count" in header


def test_the_p99_of_a_trial_is_that_of_the_stream_nearest_its_bound(
    data: ReportData,
) -> None:
    """The interactive one has 40 ms, the embedding 100 ms."""
    trial = next(t for t in data.trials if t.score and t.score.best_point is not None)
    assert trial.score is not None
    assert trial.score.best_point is not None
    point = trial.points[trial.score.best_point]
    pooled, by_stream = point.measurement, dict(point.measurement.streams)
    embedding = replace(by_stream["embedding"], p99_latency_us=99e3)
    results = judge_all(
        [Slo.parse(SLOS[name]).about(name) for name in SLOS],
        replace(pooled, streams={**by_stream, "embedding": embedding}),
    )
    for streams, slo, name in [
        (by_stream, point.slo, "interactive"),
        ({**by_stream, "embedding": embedding}, results, "embedding"),
    ]:
        mixed = replace(point, measurement=replace(pooled, streams=streams), slo=slo)
        assert p99_of(mixed) == f"{latency_text(streams[name].p99_latency_us)} ({name})"
        sentence = Soaked(mixed.measurement, mixed.slo).sentence
        assert f"p99 of {name} " in sentence
    assert p99_of(replace(point, measurement=replace(pooled, streams={}))) == latency_text(
        pooled.p99_latency_us
    )
    assert "ms (interactive)" in page_of(data)
