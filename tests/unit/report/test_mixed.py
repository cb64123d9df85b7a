"""What the reports of a run of several models and streams show; its figures are made up."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from unit.report.conftest import NASTY
from unit.report.mixed import SLOS, STREAMS, mixed_run

import tuner
from tuner.cli.verdict import lines_of
from tuner.report import html, junit, markdown, trials_csv
from tuner.report.charts.picture import write_pngs
from tuner.report.charts.sections import by_section
from tuner.report.compare import compared, text_table
from tuner.report.data import ReportData, load, read_result
from tuner.report.pull_request import pull_request_of
from tuner.report.quantities import latency_text
from tuner.report.tables import p99_of
from tuner.run.confirmation import Soaked
from tuner.run.result_schema import check
from tuner.run.store import RunStore
from tuner.score.judge import judge_all
from tuner.spec.slo import Slo

#: At the load that its winner is judged at.
SENTENCE = "spends 87 % of its time in tiny-bert, 72 % of that queueing"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixed_run(tmp_path_factory.mktemp("runs"), trials=30)


@pytest.fixture
def data(run: Path) -> ReportData:
    return load(run)


def test_its_result_follows_the_schema(run: Path) -> None:
    assert check(json.loads((run / "result.json").read_text())) == []


def test_every_report_names_the_bottleneck(run: Path, data: ReportData) -> None:
    found = read_result(RunStore(run))
    assert found is not None
    console = "\n".join(lines_of(run, found))
    texts = [f(data) for f in (html.render, markdown.render, junit.render, pull_request_of)]
    assert all(SENTENCE in text for text in (*texts, console))


def test_the_console_tells_every_file_that_was_written(run: Path) -> None:
    found = read_result(RunStore(run))
    assert found is not None
    told = "\n".join(lines_of(run, found))
    assert "  written   /models/tiny-bert/config.pbtxt\n" in told
    assert "  written   /models/tokenizer/config.pbtxt\n" in told
    assert {*found.changed} == {"tiny-bert", "tokenizer"}


def test_what_comes_next_is_about_all_that_was_written(data: ReportData) -> None:
    text = markdown.render(data)
    assert "reload tiny-bert and tokenizer so that the server reads their new configs" in text
    assert "`tune rollback tiny-bert --repository /models`" in text


def test_a_stream_has_a_chart_and_figures_of_its_own(data: ReportData) -> None:
    titles = [chart.title for chart in by_section(data)["load"]]
    assert titles[:2] == [f"Throughput and p99 latency of {name}" for name in STREAMS]
    rows = markdown.render(data).splitlines()
    assert "| interactive: SLO utilisation | 32.2 % | 75.1 % |" in rows
    assert "| embedding: throughput | 20/s | 20/s |" in rows


def test_the_time_of_a_request_is_drawn_model_by_model(data: ReportData) -> None:
    (chart,) = [c for c in by_section(data)["request-time"] if c.name == "models"]
    queue, compute = chart.figure["data"]
    labels = dict.fromkeys(label.partition("<br>")[0] for label in queue["y"])
    assert [*labels] == [
        "tokenizer for interactive", "tiny-bert for interactive", "tiny-bert for embedding"
    ]  # fmt: skip
    best = queue["y"].index("tiny-bert for interactive<br>best config")
    share = queue["x"][best] / (queue["x"][best] + compute["x"][best])
    assert share == pytest.approx(0.72, abs=0.01)


def test_batches_are_shown_of_each_model_that_batches(data: ReportData) -> None:
    titles = [c.title for c in by_section(data)["request-time"] if "batches" in c.name]
    assert titles == ["Batches Triton formed: tokenizer", "Batches Triton formed: tiny-bert"]
    text = markdown.render(data)
    assert "| tiny-bert: mean batch | 1 | 8 |" in text
    assert "nlp: mean batch" not in text


def test_the_table_of_trials_has_columns_by_knob_stream_and_model(data: ReportData) -> None:
    row = list(csv.DictReader(io.StringIO(trials_csv.render(data))))[15]
    assert row["field.tiny-bert/instance_group.count"] == "2"
    assert row["field.tokenizer/instance_group.count"] == "3"
    assert float(row["stream.embedding.throughput_infer_per_s"]) == 20.0
    assert float(row["stream.interactive.p99_latency_us"]) == float(row["p99_latency_us"])
    assert float(row["model.tiny-bert.queue_us"]) > float(row["model.tokenizer.queue_us"]) > 0


def test_a_load_has_a_row_for_all_streams_and_one_for_each(run: Path) -> None:
    points = tuner.read_run(run).points
    streams = points.groupby("stream").size()
    assert streams[""] == streams["interactive"] == streams["embedding"]
    beside = points[points["stream"].eq("embedding")]
    assert beside["throughput_infer_per_s"].eq(20).all()
    assert beside["met_slos"].any()


def test_a_stream_is_named_as_it_is_and_no_file_after_it(run: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "trials.jsonl", "confirmation.jsonl", "result.json"):
        text = (run / name).read_text().replace('"interactive"', json.dumps(NASTY + "/../x"))
        (tmp_path / name).write_text(text)
    data = load(tmp_path)
    text = html.render(data)
    assert "<img src=x" not in text
    assert "<img src=x" not in markdown.render(data).replace("`", "")
    assert {path.name for path in write_pngs(data, tmp_path / "charts")} >= {
        "curve-p99_latency-0.png", "models.png"
    }  # fmt: skip
    ET.fromstring(junit.render(data))


def test_an_ensemble_alone_reads_like_one_model(tmp_path: Path) -> None:
    data = load(mixed_run(tmp_path, streams=False))
    text = markdown.render(data)
    assert text.startswith("## nlp: Improved\n\nWrites tiny-bert: ")
    assert " a request spends " in text
    assert "of the stream" not in text
    assert by_section(data)["load"][0].title == "Throughput and p99 latency"
    charts = {c.name: c.figure["data"] for c in by_section(data)["request-time"]}
    (queue,) = [trace for trace in charts["parts"] if trace["name"] == "queue"]
    steps = charts["models"][0]  # an ensemble has no queue of its own
    best = [ms for ms, label in zip(steps["x"], steps["y"], strict=True) if "best" in label]
    assert len(best) == 2
    assert queue["x"][1] == pytest.approx(sum(best))
    header = trials_csv.render(data).splitlines()[0]
    assert "stream." not in header
    assert "field.tokenizer/instance_group.count" in header


def test_a_comparison_tells_the_streams_and_the_bottleneck_of_both_runs(run: Path) -> None:
    rows = {name: cells for name, *cells in text_table(compared(run, run)).rows}
    assert rows["embedding: p99 latency, worst"] == ["24 ms", "24 ms"]
    assert all(SENTENCE in cell for cell in rows["bottleneck"])
    assert rows["tokenizer/instance_group.count"] == ["tokenizer: instances 3"] * 2


def test_what_was_not_written_is_not_said_to_be(run: Path) -> None:
    text = html.render(replace(load(run), written=None))
    assert "Written to" not in text


def test_the_p99_of_a_trial_is_that_of_the_stream_nearest_its_bound(
    run: Path, data: ReportData
) -> None:
    """The interactive one has 40 ms, the embedding 100 ms."""
    trial = next(t for t in data.trials if t.score and t.score.best_point is not None)
    assert trial.score is not None
    assert trial.score.best_point is not None
    point = trial.points[trial.score.best_point]
    pooled, own = point.measurement, dict(point.measurement.streams)
    embedding = replace(own["embedding"], p99_latency_us=99e3)
    results = judge_all(
        [Slo.parse(SLOS[name]).about(name) for name in STREAMS],
        replace(pooled, streams={**own, "embedding": embedding}),
    )
    for streams, slo, name in [
        (own, point.slo, "interactive"),
        ({**own, "embedding": embedding}, results, "embedding"),
    ]:
        mixed = replace(point, measurement=replace(pooled, streams=streams), slo=slo)
        assert p99_of(mixed) == f"{latency_text(streams[name].p99_latency_us)} ({name})"
        told = Soaked(mixed.measurement, mixed.slo).sentence
        assert f"p99 of {name} " in told
    assert p99_of(replace(point, measurement=replace(pooled, streams={}))) == latency_text(
        pooled.p99_latency_us
    )
    assert re.search(r"\| \d+ \|.* ms \(interactive\) \|.*\| yes \|", markdown.render(data))
    assert "ms (interactive)" in html.render(data)
