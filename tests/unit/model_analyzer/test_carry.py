"""Model Analyzer's YAML as a spec: tests/cases/model_analyzer holds files and what they become."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.commands import Tune
from builders.model_files import shipped_config
from builders.sequence_model import sequence_config
from builders.serving import served_one

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.errors import SpecError, TunerError
from tuner.model_analyzer.carry import carried, repository_of
from tuner.model_analyzer.yaml_file import read_profile
from tuner.modelconfig.message import parse
from tuner.prepare.job import Request, prepare
from tuner.space.build import build_space
from tuner.space.draft import draft_spec
from tuner.space.draft_instances import Machine
from tuner.space.draft_space import DraftedModel
from tuner.spec.load import load_spec
from tuner.spec.workload import SequenceArrivals

ROOT = Path(__file__).parents[3]
CASES = Path("tests/cases/model_analyzer")
#: Of those whose files hold several models.
MODELS = {"brute_manual": "tiny-bert", "optuna": "emulated-accelerator"}

GOOD = sorted(path.stem for path in (ROOT / CASES / "good").glob("*.yaml"))
BAD = sorted(path.stem for path in (ROOT / CASES / "bad").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of a YAML count from the directory one is in."""
    monkeypatch.chdir(ROOT)


def model_config(repository: Path, model: str) -> Any:
    return parse(shipped_config(repository / model))


def drafted(path: Path, model: str | None, slo: str = "p99_latency <= 100ms") -> str:
    profile = read_profile(path, model)
    repository = repository_of(profile) or Path("model_repository")
    config = model_config(repository, profile.model)
    given = carried(profile, config, Path.cwd(), slo)
    parts = {profile.model: DraftedModel(config)}
    return draft_spec(parts, Machine(cores=2), str(repository), (slo,), given)


def written(tmp_path: Path, **options: Any) -> Path:
    path = tmp_path / "analyzer.yaml"
    whole = {"model_repository": "model_repository", "profile_models": "tiny-bert", **options}
    path.write_text(yaml.safe_dump(whole))
    return path


def spec_of(tmp_path: Path, **options: Any) -> Any:
    """The spec that options become, checked as `tune plan` does it."""
    text = drafted(written(tmp_path, **options), None)
    (tmp_path / "spec.yaml").write_text(text)
    loaded = load_spec(tmp_path / "spec.yaml")
    spec = loaded.spec
    build_space(spec, served_one(model_config(Path("model_repository"), spec.name), spec.name))
    return loaded.spec


@pytest.mark.parametrize("name", GOOD)
def test_a_yaml_becomes_the_expected_spec(name: str, tmp_path: Path) -> None:
    text = drafted(CASES / "good" / f"{name}.yaml", MODELS.get(name))
    assert text == (CASES / "good" / f"{name}.expected").read_text()


@pytest.mark.parametrize("name", GOOD)
def test_the_expected_spec_can_be_planned(name: str, tmp_path: Path) -> None:
    target = tmp_path / "spec.yaml"
    target.write_text((CASES / "good" / f"{name}.expected").read_text())
    (tmp_path / "inputs").mkdir()
    for file in re.findall(r"file: (inputs/[^,} ]+)", target.read_text()):
        (tmp_path / file).touch()
    spec = load_spec(target).spec
    config = model_config(Path("model_repository"), spec.name)
    space = build_space(spec, served_one(config, spec.name))
    assert space.size().count > 1


@pytest.mark.parametrize("name", BAD)
def test_yaml_error_is_reported_with_line_and_column(name: str) -> None:
    with pytest.raises(TunerError) as caught:
        drafted(CASES / "bad" / f"{name}.yaml", None)
    assert isinstance(caught.value, SpecError)
    assert caught.value.hint
    expected = (CASES / "bad" / f"{name}.expected").read_text()
    assert caught.value.message.replace(str(CASES / "bad") + "/", "") + "\n" == expected


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        read_profile(tmp_path / "none.yaml", None)


def test_model_that_is_not_profiled_is_reported_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"did you mean tiny-bert"):
        read_profile(written(tmp_path), "tiny-brt")


@pytest.mark.parametrize(
    ("options", "slos"),
    [
        ({"latency_budget": 50}, ["p99_latency <= 50ms"]),
        (
            {"latency_budget": 50, "constraints": {"perf_latency_p99": {"max": 90}}},
            ["p99_latency <= 50ms"],
        ),
        ({"constraints": {"perf_latency_avg": {"max": 1500}}}, ["avg_latency <= 1.5s"]),
        ({}, ["p99_latency <= 100ms"]),
    ],
)
def test_latencies_become_slos(tmp_path: Path, options: dict[str, Any], slos: list[str]) -> None:
    assert [str(slo) for slo in spec_of(tmp_path, **options).slo] == [*slos, "error_rate <= 0%"]


def test_options_of_a_model_replace_those_of_the_file(tmp_path: Path) -> None:
    models = {"tiny-bert": {"constraints": {"perf_latency_p90": {"max": 7}}}}
    spec = spec_of(tmp_path, profile_models=models, constraints={"perf_latency_p99": {"max": 99}})
    assert str(spec.slos[0]) == "p90_latency <= 7ms"


def test_a_latency_is_minimised_at_the_one_concurrency(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, objectives=["perf_latency_p95"], concurrency=[8])
    assert str(spec.objective) == "minimize p95_latency at 8"
    assert spec.workload.arrivals.concurrency is None


OPEN = """backend: "python" max_batch_size: %d
input [ { name: "audio" data_type: TYPE_FP32 dims: [ -1 ] },
        { name: "other" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
WHOLE = """platform: "ensemble"
max_batch_size: 36
input [ { name: "audio" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
ensemble_scheduling { step [ {
  model_name: "m" model_version: -1
  input_map { key: "audio" value: "audio" } input_map { key: "other" value: "audio" }
  output_map { key: "y" value: "y" } } ] }
"""


@pytest.mark.parametrize(
    ("model", "yaml_text", "told", "drafted_lines"),
    [
        ("m", "concurrency: 4", [], ["model: m", "arrivals: {kind: closed, concurrency: [4]}"]),
        ("m", "client_protocol: http", ["client_protocol (line 1)"], ["{kind: poisson}"]),
        (
            *("m", 'profile_models: [ {model_name: "*"} ]'),
            ["profile_models[0].model_name (line 1): names are wanted", "`model_name: *` is none"],
            ["model: m"],
        ),
        (
            *("whole", "model_config_parameters: {max_batch_size: [4, 8]}"),
            ["parameters.max_batch_size (line 1): an ensemble's are those of its steps"],
            ["  m:\n    space:"],
        ),
        (
            *("m", 'perf_analyzer_flags: {input-data: a.json, shape: "audio:1600"}'),
            [
                "input-data (line 1): a.json, which the draft names, is not there",
                "shape (line 1): ",
            ],
            ["inputs: {kind: file, file: ../a.json}"],
        ),
        (
            *("m", f"perf_analyzer_flags: {{input-data: {'x' * 300}}}"),
            ["input-data (line 1): x"],
            ["inputs: {kind: file, file: ../x"],
        ),
        (
            *("m", 'perf_analyzer_flags: {shape: "audoi:1600"}'),
            ["shape (line 1): audoi is no input with an open dimension (did you mean audio?)"],
            ["# open in config.pbtxt, so guessed", "audio: [128]"],
        ),
        (
            *("m", 'perf_analyzer_flags: {shape: ["audio:16", "other:32"]}'),
            [],
            ["shapes:\n      audio: [16]\n      other: [32]"],
        ),
        (
            *("m", 'perf_analyzer_flags: {shape: "audio:16"}'),
            [],
            ["# other: open in config.pbtxt, so guessed", "audio: [16]\n      other: [128]"],
        ),
        (
            *("m", "bls_composing_models: inner"),
            [],
            ["  m:\n    calls: [inner]", "  inner:\n    space:"],
        ),
        (
            *("m", "bls_composing_models: [ {inner: {weighting: 2}}, iner ]"),
            ["[0].inner (line 1): its options are left out", "did you mean inner?"],
            ["calls: [inner]"],
        ),
        (
            *("m", "model_config_parameters: {max_batch_size: [9, 18, 36]}"),
            [],
            ["#   dynamic_batching.preferred_batch_size: {subsets: [9, 18, 36], "],
        ),
        (
            *(
                "m",
                "model_config_parameters: {max_batch_size: 36, instance_group: {count: [1, 2]}}",
            ),
            [],
            ["#   dynamic_batching.preferred_batch_size: {subsets: [9, 18, 36], "],
        ),
    ],
)
def test_unsupported_settings_are_reported_and_the_draft_can_be_planned(
    model: str,
    yaml_text: str,
    told: list[str],
    drafted_lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("m", OPEN % 36), ("inner", OPEN % 8), ("whole", WHOLE)):
        Path("models", name, "1").mkdir(parents=True)
        Path("models", name, "config.pbtxt").write_text(text)
    Path("analyzer.yaml").write_text(f"{yaml_text}\nlatency_budget: 40\n")
    arguments = ["init", model, "--from-model-analyzer", "analyzer.yaml", "--repository", "models"]
    assert guarded(cli, [*arguments, "--output", "new/spec.yaml"]) == 0
    err, text = capsys.readouterr().err, Path("new/spec.yaml").read_text()
    comments = " ".join(text.replace("#", "").split())  # long ones are folded
    assert all(line in err and " ".join(line.split()) in comments for line in told)
    assert ("not carried over" in err) is bool(told)
    assert all(line in text for line in drafted_lines)
    if "kind: file" not in text:
        assert prepare(Request(Path("new/spec.yaml"))).space.parameters


def test_an_entry_that_is_no_name_is_no_matter_where_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "analyzer.yaml"
    path.write_text('profile_models:\n  - tiny-bert\n  - {model_name: "*"}\n')
    assert read_profile(path, "other").model == "other"


def test_repository_beside_the_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    profile = read_profile(written(tmp_path, model_repository="models"), None)
    assert repository_of(profile) == tmp_path / "models"


def test_init_tells_what_is_left_and_writes_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "spec.yaml"
    models = [{"tiny-bert": {"weighting": 3}}, "tokenizer"]
    path = written(tmp_path, profile_models=models, latency_budget=30)
    arguments = ["init", "tiny-bert", "--from-model-analyzer", str(path)]
    assert guarded(cli, [*arguments, "--output", str(target)]) == 0
    told = capsys.readouterr().err
    assert "weighting (line " in told
    assert "other models of the file, each needs a spec of its own: tokenizer" in told
    assert "weighting (line " in target.read_text()
    assert load_spec(target).spec.repository == ROOT / "model_repository"


def test_init_takes_the_only_model_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, latency_budget=30)
    assert guarded(cli, ["init", "--from-model-analyzer", str(path), "--output", "-"]) == 0
    assert "model: tiny-bert\n" in capsys.readouterr().out


def test_no_other_latency_is_drafted_beside_the_requested_first_response(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["init", "--from-model-analyzer", str(written(tmp_path)), "--output", "-"]
    assert guarded(cli, [*arguments, "--slo", "p99_first_response <= 150ms"]) == 0
    told = capsys.readouterr().out
    assert "  - p99_first_response <= 150ms\n" in told
    assert "p99_latency" not in told


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Tune:
    return Tune(capsys)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What AITune published somewhere else: paths of that place, and its files beside the model."""
    monkeypatch.chdir(tmp_path)
    beside = Path("model_repository", "m", "model_analyzer")
    (beside.parent / "1").mkdir(parents=True)
    (beside.parent / "config.pbtxt").write_text(OPEN % 36)
    beside.mkdir()
    text = (ROOT / CASES / "good" / "aitune_quick.yaml").read_text()
    text = text.replace("tiny-bert", "m").replace(": model_repository", ": /deploy/models")
    moved = text.replace("inputs/", "/deploy/models/m/model_analyzer/")
    (beside / "config.yaml").write_text(moved)
    (beside / "input-data.json").write_text('{"data": [{"text": {"content": [1], "shape": [1]}}]}')
    return beside


def test_init_finds_what_aitune_published_with_a_model_and_says_so(
    published: Path, tune: Tune
) -> None:
    assert tune("init", "m") == 0
    assert f"the draft takes settings from {published}/config.yaml" in tune.err
    assert "export_path (line 8)" in tune.err
    text = Path("m.yaml").read_text()
    assert f"tune init m --from-model-analyzer {published}/config.yaml" in text
    spec = load_spec(Path("m.yaml")).spec
    assert spec.repository == Path.cwd() / "model_repository"
    assert [str(slo) for slo in spec.slos] == ["p95_latency <= 40ms", "error_rate <= 0%"]
    assert spec.streams["m"].inputs.file == Path.cwd() / published / "input-data.json"  # type: ignore[union-attr]


def test_slo_of_the_command_line_is_kept_beside_the_drafted_ones(
    published: Path, tune: Tune
) -> None:
    assert tune("init", "m", "--slo", "p95_latency <= 9ms", "--image", "i") == 0
    spec = load_spec(Path("m.yaml")).spec
    assert [str(slo) for slo in spec.slos] == ["p95_latency <= 9ms", "error_rate <= 0%"]
    assert spec.server.image == "i"
    assert tune("init", "--all", "model_repository") == 0
    assert f"{published}/config.yaml is not taken over: tune init model_repository/m" in tune.out


def test_init_without_any_model_asks_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(cli, ["init"]) == 2
    assert "tune init needs a MODEL" in capsys.readouterr().err


def test_a_file_of_sequences_says_how_long_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model_repository/speech/1").mkdir(parents=True)
    Path("model_repository/speech/1/model.py").write_text("class TritonPythonModel: ...")
    Path("model_repository/speech/config.pbtxt").write_text(sequence_config("speech"))
    talk = {"x": [0.0, 1.0, 2.0, 3.0]}
    Path("talks.json").write_text(json.dumps({"data": [[talk] * 4, [talk] * 2]}))
    file = written(
        tmp_path,
        profile_models="speech",
        perf_analyzer_flags={"input-data": "talks.json"},
        concurrency=[1, 2],
    )
    assert tune("init", "--from-model-analyzer", str(file)) == 0
    assert "concurrency (line 1): requests of sequences come at an interval" in tune.err
    assert "refuses" not in tune.err
    arrivals = load_spec(Path("speech.yaml")).spec.workload.arrivals
    assert isinstance(arrivals, SequenceArrivals)
    assert arrivals.length is None
    assert prepare(Request(spec=Path("speech.yaml"))).case.recorded["speech"].lengths == (4, 2)


TOGETHER = {
    "run_config_profile_models_concurrently_enable": True,
    "profile_models": {
        "tiny-bert": {"constraints": {"perf_latency_p99": {"max": 60}}, "weighting": 3},
        "tokenizer": {"constraints": {"perf_latency_p99": {"max": 20}}},
    },
}


def drafted_together(tmp_path: Path, tune: Tune, **options: Any) -> Any:
    """The spec of two models that are profiled at the same time, planned."""
    file = written(tmp_path, **TOGETHER, **options)
    target = tmp_path / "spec.yaml"
    assert tune("init", "--from-model-analyzer", str(file), "--output", str(target)) == 0
    assert "refuses" not in tune.err
    return prepare(Request(spec=target)).spec


def test_models_that_are_profiled_together_become_streams_of_one_spec(
    tmp_path: Path, tune: Tune
) -> None:
    spec = drafted_together(tmp_path, tune, concurrency=[1, 2])
    assert {name: stream.model for name, stream in spec.streams.items()} == {
        "tiny-bert": "tiny-bert",
        "tokenizer": "tokenizer",
    }
    slos = {name: [str(slo) for slo in own.slo] for name, own in spec.streams.items()}
    assert slos == {"tiny-bert": ["p99_latency <= 60ms"], "tokenizer": ["p99_latency <= 20ms"]}
    assert set(spec.models) == {"tiny-bert", "tokenizer"}
    assert "concurrency (line 1): requests of several models come on a clock" in tune.err
    assert "weighting (line" in tune.err
    assert "concurrently" not in tune.err
    assert "needs a spec of its own" not in tune.err


def test_rates_of_models_that_are_profiled_together_are_their_shares(
    tmp_path: Path, tune: Tune
) -> None:
    models: dict[str, Any] = TOGETHER["profile_models"]  # type: ignore[assignment]
    rated = {
        name: {**own, "parameters": {"request_rate": [rate]}}
        for (name, own), rate in zip(models.items(), (150, 50), strict=True)
    }
    file = written(tmp_path, **{**TOGETHER, "profile_models": rated})
    target = tmp_path / "spec.yaml"
    assert tune("init", "--from-model-analyzer", str(file), "--output", str(target)) == 0
    spec = prepare(Request(spec=target)).spec
    shares = {name: float(stream.share or 0) for name, stream in spec.streams.items()}
    assert shares == {"tiny-bert": 0.75, "tokenizer": 0.25}
    assert [float(rate) for rate in spec.workload.arrivals.rate] == [200.0]  # type: ignore[union-attr]


def test_one_of_several_models_gets_a_spec_that_says_how_to_get_one_of_all(
    tmp_path: Path, tune: Tune
) -> None:
    file = written(tmp_path, **TOGETHER)
    target = str(tmp_path / "spec.yaml")
    assert tune("init", "tokenizer", "--from-model-analyzer", str(file), "--output", target) == 0
    assert "leave MODEL out for one spec of all models" in tune.err
    assert list(load_spec(Path(target)).spec.streams) == ["tokenizer"]
