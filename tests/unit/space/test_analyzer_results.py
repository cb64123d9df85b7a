"""Configs that Model Analyzer measured, as the first ones of a search."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tuner.checks.first import note_first
from tuner.errors import SpecError
from tuner.prepare.job import Job, Request, prepare
from tuner.search.searcher import Searcher
from tuner.search.strategies.registry import STRATEGIES
from tuner.space.analyzer_results import (
    FirstConfigs,
    ReportedConfig,
    first_configs,
    read_results,
)
from tuner.spec.paths import DYNAMIC_BATCHING, INSTANCES, MAX_BATCH_SIZE

CONFIG = """
name: "m" backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 4 }
instance_group { count: 1 kind: KIND_CPU }
"""
SPEC = """\
model: m
repository: models
slo: [p99_latency <= 40ms]
space:
  instance_group.count: {int: [1, 4]}
  max_batch_size: {choice: [8, 16, 32]}
  dynamic_batching: {choice: [off, on]}
  dynamic_batching.max_queue_delay_microseconds: {int: [50, 1000], log: true}
search: {first: RESULTS, strategy: STRATEGY}
"""
HEADER = (
    *("Model", "Batch", "Concurrency", "Model Config Path", "Instance Group", "Max Batch Size"),
    *("Satisfies Constraints", "Throughput (infer/sec)", "p99 Latency (ms)"),
)
BROKEN = (
    '{"ResultManager.results": {"_results": {"m": {"v": [{"_model_run_configs": [{'
    '"_model_config_variant": {"model_config": {"maxBatchSize": "x"}}}]}, {}]}}}}'
)
#: Variant, instances, size, whether constraints are met, throughput.
VARIANTS = (
    ("m_config_default", 1, 8, "Yes", 100.0),
    ("m_config_0", 2, 16, "Yes", 300.0),
    ("m_config_0", 2, 16, "Yes", 250.0),
    ("m_config_1", 4, 32, "No", 900.0),
    ("m_config_2", 3, 8, "Yes", 280.0),
    ("m_config_3", 9, 16, "Yes", 800.0),
)


def table(path: Path, model: str = "m") -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(HEADER)
        for name, count, size, satisfies, rate in VARIANTS:
            rows.writerow([model, 1, 8, name, f"{count}:CPU", size, satisfies, rate, 7.5])
    return path


def checkpoint(path: Path, model: str = "m") -> Path:
    """Shaped as release 1.58 writes it, without what is not read."""
    variants: dict[str, Any] = {}
    for name, count, size, _, rate in VARIANTS:
        batching = {} if name.endswith("default") else {"dynamicBatching": {}}
        config = {
            "name": name.replace("m_", f"{model}_"),
            "maxBatchSize": size,
            "instanceGroup": [{"count": count, "kind": "KIND_CPU"}],
            **batching,
        }
        run = {"_model_run_configs": [{"_model_config_variant": {"model_config": config}}]}
        figures = [["perf_throughput", {"_value": rate}], ["perf_latency_p99", {"_value": 7.5}]]
        measured = variants.setdefault(name, [run, {}])[1]
        measured[f"{name} {rate}"] = {"_model_config_measurements": [{"_non_gpu_data": figures}]}
    path.write_text(json.dumps({"ResultManager.results": {"_results": {model: variants}}}))
    return path


def job(here: Path, results: Path, strategy: str = "gp") -> Job:
    model = here / "models" / "m"
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "1" / "model.py").write_text("class TritonPythonModel: ...")
    (model / "config.pbtxt").write_text(CONFIG)
    text = SPEC.replace("RESULTS", results.name).replace("STRATEGY", strategy)
    (here / "spec.yaml").write_text(text)
    return prepare(Request(spec=here / "spec.yaml"))


def begun_with(made: Job) -> FirstConfigs:
    assert made.spec.search.first is not None
    return first_configs(made.reported, made.spec.search.first, made.space)


def candidates_text(made: Job, candidate: Any) -> tuple[Any, ...]:
    fields = {knob.path: value for knob, value in candidate.fields.items()}
    return tuple(fields.get(path) for path in (INSTANCES, MAX_BATCH_SIZE, DYNAMIC_BATCHING))


def test_the_best_of_a_table_that_meet_its_constraints_go_first(tmp_path: Path) -> None:
    made = job(tmp_path, table(tmp_path / "metrics-model-inference.csv"))
    first = begun_with(made)
    assert [candidates_text(made, c) for c in first.candidates] == [
        (2, 16, True),
        (3, 8, True),
        (4, 32, True),
    ]
    assert (first.count, first.outside) == (5, 1)
    (note,) = note_first(made)
    assert "of the 5 configs in metrics-model-inference.csv" in note.message
    assert "the space does not have 1" in note.message


def test_checkpoint_has_complete_configs_without_constraints(tmp_path: Path) -> None:
    made = job(tmp_path, checkpoint(tmp_path / "0.ckpt"))
    first = begun_with(made)
    assert [candidates_text(made, c) for c in first.candidates] == [
        (4, 32, True),
        (2, 16, True),
        (3, 8, True),
    ]


def test_tables_of_earlier_releases_and_of_several_models_say_the_configs_of_each(
    tmp_path: Path,
) -> None:
    """As in the pull request of 2021 for CPUs, and as release 1.58 formats lists."""
    path = tmp_path / "results.csv"
    columns = "Model,Model Config Path,Instance Group,Max Batch Size,Throughput (infer/sec)\n"
    path.write_text(
        f"{columns}m,m_i6,2/CPU,,90.0\n"
        '"a,b","a_config_1,b_config_default","2:CPU,1:CPU","8,16","100.0, [60.0,40.0]"\n'
        'whole,"whole_config_4: a_config_2, b_config_3","3:CPU,1:CPU","8,4",50.0\n'
    )
    old, both, summed = read_results(path)
    assert dict(old.configs) == {"m": {INSTANCES: 2, DYNAMIC_BATCHING: True}}
    assert both.throughput_infer_per_s == 100.0
    assert dict(both.configs) == {
        "a": {INSTANCES: 2, MAX_BATCH_SIZE: 8, DYNAMIC_BATCHING: True},
        "b": {INSTANCES: 1, MAX_BATCH_SIZE: 16},
    }
    assert dict(summed.configs) == {
        "a": {INSTANCES: 3, MAX_BATCH_SIZE: 8, DYNAMIC_BATCHING: True},
        "b": {INSTANCES: 1, MAX_BATCH_SIZE: 4, DYNAMIC_BATCHING: True},
    }


@pytest.mark.parametrize("strategy", ["gp", "tpe", "random"])
def test_a_search_begins_with_them_and_takes_none_as_measured(
    tmp_path: Path, strategy: str
) -> None:
    made = job(tmp_path, table(tmp_path / "results.csv"), strategy)
    first = begun_with(made).candidates
    chosen = STRATEGIES[made.spec.search.strategy](made.space, made.spec)
    searcher = Searcher(made.space, chosen, first=first)
    assert searcher.history == []
    assert list(searcher.leads[:3]) == list(first)
    proposal = searcher.next()
    assert proposal is not None
    assert proposal.candidate == first[0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not Model Analyzer's"),
        ("{}", "not Model Analyzer's"),
        ("Model,Batch\nm,1\n", "no column Model Config Path"),
        ("", "no column"),
        ('{"ResultManager.results": {"_results": {}}}', "it holds no results"),
        (
            BROKEN,
            "a config in it is none",
        ),
    ],
)
def test_file_that_is_no_result_of_model_analyzer_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "results"
    path.write_text(text)
    with pytest.raises(SpecError, match=said) as caught:
        read_results(path)
    assert "metrics-model-inference.csv" in caught.value.hint


def test_results_of_other_models_are_refused_at_their_place_in_the_spec(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"spec.yaml:9:10: search.first: .* no results for m"):
        job(tmp_path, table(tmp_path / "results.csv", "other"))


def test_results_are_read_once_for_checks_notes_and_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list[Path]()

    def counted(path: Path) -> list[ReportedConfig]:
        reads.append(path)
        return read_results(path)

    monkeypatch.setattr("tuner.checks.parts.read_results", counted)
    results = table(tmp_path / "results.csv")
    made = job(tmp_path, results)
    assert [*note_first(made)]
    assert len(made.over(made.served).first) == 3
    results.unlink()
    assert made.first == begun_with(made).candidates
    assert reads == [results]


def test_results_that_cannot_be_read_are_refused_at_their_place_in_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("{")
    with pytest.raises(SpecError, match=r"spec.yaml:9:10: search.first: .* not Model Analyzer's"):
        job(tmp_path, path)
