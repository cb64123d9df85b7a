"""Model Analyzer's YAML as a spec: tests/cases/model_analyzer holds files and what they become."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.commands import Tune
from builders.decoupled_models import DECOUPLED, TENSORS
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
from tuner.spec.arrivals import SequenceArrivals
from tuner.spec.load import load_spec

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


def drafted(path: Path, model: str | None) -> str:
    profile = read_profile(path, model)
    repository = repository_of(profile) or Path("model_repository")
    config = model_config(repository, profile.model)
    parts = {profile.model: DraftedModel(config)}
    given = carried(profile, parts, Path.cwd(), (), sequences=False)
    return draft_spec(parts, Machine(cores=2), str(repository), (), given)


def written(tmp_path: Path, **options: Any) -> Path:
    path = tmp_path / "analyzer.yaml"
    profile = {"model_repository": "model_repository", "profile_models": "tiny-bert", **options}
    path.write_text(yaml.safe_dump(profile))
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


def test_table_of_results_is_sent_to_the_search_that_takes_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("Model,Batch,Concurrency\nm,1,4\n")
    with pytest.raises(SpecError, match=r"choose the first configs: search: {first: FILE}"):
        read_profile(tmp_path / "metrics.csv", None)


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


SEARCH = "run_config_search"


def drafted_values(tmp_path: Path, **options: Any) -> dict[str, Any]:
    """The drafted space, checked as `tune plan` does it."""
    spec_of(tmp_path, **options)
    space: dict[str, Any] = yaml.safe_load((tmp_path / "spec.yaml").read_text())["space"]
    return space


def test_bounds_of_the_search_are_those_of_the_drafted_fields(tmp_path: Path) -> None:
    values = drafted_values(
        tmp_path,
        **{f"{SEARCH}_min_instance_count": 2, f"{SEARCH}_max_instance_count": 3},
        **{f"{SEARCH}_min_model_batch_size": 4, f"{SEARCH}_max_model_batch_size": 20},
    )
    assert values["instance_group.count"] == {"int": [2, 3]}
    assert values["max_batch_size"] == {"choice": [4, 8, 16]}
    assert values["dynamic_batching.preferred_batch_size"]["subsets"] == [4, 8, 16]


@pytest.mark.parametrize(
    ("given", "path", "values"),
    [
        ({"max_instance_count": 2}, "instance_group.count", {"int": [1, 2]}),
        ({"min_instance_count": 7}, "instance_group.count", {"choice": [7]}),
        ({"max_model_batch_size": 8}, "max_batch_size", {"choice": [2, 4, 8]}),
        ({"min_model_batch_size": 32}, "max_batch_size", {"choice": [32, 64, 128]}),
    ],
)
def test_the_end_that_is_not_given_is_model_analyzers(
    given: dict[str, int], path: str, values: dict[str, list[int]], tmp_path: Path
) -> None:
    bounds = {f"{SEARCH}_{name}": bound for name, bound in given.items()}
    assert drafted_values(tmp_path, **bounds)[path] == values


@pytest.mark.parametrize(
    ("given", "arrivals"),
    [
        (
            {f"{SEARCH}_max_concurrency": 32},
            {"kind": "closed", "max_concurrency": 32},
        ),
        (
            {f"{SEARCH}_max_request_rate": 500, f"{SEARCH}_max_concurrency": 32},
            {"kind": "poisson", "max_rate": 500},
        ),
        ({"request_rate_search_enable": True}, {"kind": "poisson", "max_rate": 1e5}),
        (
            {f"{SEARCH}_max_concurrency": 32, "concurrency": [4]},
            {"kind": "closed", "concurrency": (4,)},
        ),
        (
            {f"{SEARCH}_max_concurrency": 32, f"{SEARCH}_disable": True},
            {"kind": "poisson", "max_rate": 1e5},
        ),
    ],
)
def test_bounds_of_the_load_are_those_of_its_search(
    given: dict[str, Any], arrivals: dict[str, Any], tmp_path: Path
) -> None:
    carried_over = spec_of(tmp_path, **given).workload.arrivals.model_dump()
    assert {name: carried_over[name] for name in arrivals} == arrivals


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {f"{SEARCH}_max_instance_count": 9, "model_config_parameters": {"max_batch_size": [8]}},
            "max_instance_count: Model Analyzer ignores it beside model_config_parameters",
        ),
        (
            {f"{SEARCH}_max_instance_count": 9, f"{SEARCH}_disable": True},
            "max_instance_count: Model Analyzer ignores it beside run_config_search_disa",
        ),
        (
            {f"{SEARCH}_max_concurrency": 9, "concurrency": [1, 2]},
            "max_concurrency: Model Analyzer ignores it beside a list of loads",
        ),
        (
            {f"{SEARCH}_min_concurrency": 4},
            "min_concurrency: a spec bounds the search of a load from above only",
        ),
    ],
)
def test_bounds_without_effect_are_listed(given: dict[str, Any], line: str, tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, **given), None)
    models = {"tiny-bert": DraftedModel(model_config(Path("model_repository"), "tiny-bert"))}
    left = carried(profile, models, tmp_path, (), sequences=False).left
    assert any(line in re.sub(r" \(line \d+\)", "", text) for text in left), left


def test_bounds_in_quick_mode_stand_beside_the_fields_that_are_listed(tmp_path: Path) -> None:
    parameters = {"dynamic_batching": {"max_queue_delay_microseconds": [200]}}
    given = {f"{SEARCH}_mode": "quick", f"{SEARCH}_max_instance_count": 3}
    spec = spec_of(tmp_path, model_config_parameters=parameters, **given)
    (model,) = spec.models.values()
    assert model.space.keys() == {
        "dynamic_batching.max_queue_delay_microseconds",
        "instance_group.count",
    }


def test_batch_sizes_above_that_of_an_engine_are_left_out(tmp_path: Path) -> None:
    config = parse(TENSORS.replace("size: 8", "size: 16") + 'backend: "tensorrt"')
    profile = read_profile(written(tmp_path, **{f"{SEARCH}_max_model_batch_size": 64}), None)
    models = {"tiny-bert": DraftedModel(config)}
    given = carried(profile, models, tmp_path, (), sequences=False)
    assert given.bounds["tiny-bert"]["max_batch_size"] == {"choice": [1, 2, 4, 8, 16]}
    assert any("32, 64 above the model's max_batch_size, 16" in line for line in given.left)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({f"{SEARCH}_max_concurrency": 0}, "1 or more is expected"),
        ({f"{SEARCH}_max_concurrency": "many"}, "a whole number is expected"),
        (
            {f"{SEARCH}_min_instance_count": 4, f"{SEARCH}_max_instance_count": 2},
            "4 is above the other end, 2",
        ),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        spec_of(tmp_path, **given)


OPEN = """backend: "python" max_batch_size: %d
input [ { name: "audio" data_type: TYPE_FP32 dims: [ -1 ] },
        { name: "other" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
ENSEMBLE = """platform: "ensemble"
max_batch_size: 36
input [ { name: "audio" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
ensemble_scheduling { step [ {
  model_name: "m" model_version: -1
  input_map { key: "audio" value: "audio" } input_map { key: "other" value: "audio" }
  output_map { key: "y" value: "y" } } ] }
"""


@pytest.mark.parametrize(
    ("model", "yaml_text", "remarks", "drafted_lines"),
    [
        ("m", "concurrency: 4", [], ["model: m", "arrivals: {kind: closed, concurrency: [4]}"]),
        (
            *("m", "client_protocol: http"),
            ["client_protocol (line 1): write workload.protocol"],
            ["{kind: poisson}"],
        ),
        (
            *("m", "model_type: LLM\ngenai_perf_flags: {streaming: true}"),
            [
                "genai_perf_flags (line 2): tune measures no tokens",
                "model_type (line 1): tune measures no tokens",
            ],
            ["model: m"],
        ),
        (
            *("m", "triton_launch_mode: remote"),
            ["triton_launch_mode (line 1): tune init --server HOST takes the running server"],
            ["model: m"],
        ),
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
            ["[0].inner.weighting (line 1)", "did you mean inner?"],
            ["calls: [inner]"],
        ),
        (
            *(
                "m",
                "bls_composing_models: {inner: {model_config_parameters: {max_batch_size: [4]}}}",
            ),
            [],
            ["  inner:\n    space:\n      max_batch_size: {choice: [4]}\n"],
        ),
        (
            *(
                "m",
                "bls_composing_models: {inner: {model_config_parameters: {version_policy: {}}}}",
            ),
            ["inner.model_config_parameters.version_policy (line 1): stays as in config.pbtxt"],
            ["calls: [inner]"],
        ),
        (
            *("m", "model_config_parameters: {default_model_filename: [a.onnx, b.onnx]}"),
            ["default_model_filename (line 1): stays as in config.pbtxt"],
            [],
        ),
        (
            *("m", "model_config_parameters: {instance_group: [[{count: 1}], [{count: 2}]]}"),
            [],
            ["instance_group.count: {choice: [1, 2]}"],
        ),
        (
            "m",
            "model_config_parameters: {instance_group: [[{count: 1, kind: A}], [{kind: B}]]}",
            ["instance_group (line 1): a spec searches single fields"],
            ["\n  instance_group.count: {int: [1, "],
        ),
        ("m", "cpu_only: true", ["cpu_only (line 1): a spec keeps the placement of"], []),
        ("on_cpu", "cpu_only: true", [], ["model: on_cpu"]),
        (
            "m",
            "bls_composing_models: inner, on_cpu\ncpu_only_composing_models: inner, on_cpu",
            ["cpu_only_composing_models[0] (line 2): a spec keeps the placement of"],
            ["calls: [inner, on_cpu]"],
        ),
        (
            *("m", "analysis_models: {m: {constraints: {perf_latency_p95: {max: 7}}}}"),
            [],
            ["- p95_latency <= 7ms"],
        ),
        (
            "m",
            """profile_models: {m: {concurrency: 4, constraints: {perf_latency_p90: {max: 9}}}}
analysis_models: {m: {constraints: {perf_latency_p95: {max: 7}}, concurrency: 2}}""",
            [],
            ["- p90_latency <= 9ms", "concurrency: [4]"],
        ),
        (
            "m",
            """profile_models: m
analysis_models: {m: {constraints: {perf_latency_p95: {max: 7}}}, other: {}}""",
            [],
            ["- p95_latency <= 7ms"],
        ),
        (
            "m",
            "model_config_parameters: {parameters: [{key: a, value: {string_value: [1, 2]}}]}",
            [],
            ["  parameters.a: {choice: [1, 2]}"],
        ),
        (
            *("m", "model_config_parameters: {input: [[{name: audio, dims: [4, 8]}]]}"),
            ["input.dims (line 1): stays as in config.pbtxt"],
            [],
        ),
        (
            *("m", "model_config_parameters: {max_batch_size: [4, null]}"),
            ["max_batch_size (line 1): a value is missing"],
            [],
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
    remarks: list[str],
    drafted_lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    on_cpu = f"{OPEN % 8} instance_group {{ kind: KIND_CPU }}"
    for name, text in (
        ("m", OPEN % 36),
        ("inner", OPEN % 8),
        ("whole", ENSEMBLE),
        ("on_cpu", on_cpu),
    ):
        Path("models", name, "1").mkdir(parents=True)
        Path("models", name, "config.pbtxt").write_text(text)
    Path("analyzer.yaml").write_text(f"{yaml_text}\nlatency_budget: 40\n")
    arguments = ["init", model, "--from-model-analyzer", "analyzer.yaml", "--repository", "models"]
    assert guarded(cli, [*arguments, "--output", "new/spec.yaml"]) == 0
    err, text = capsys.readouterr().err, Path("new/spec.yaml").read_text()
    comments = " ".join(text.replace("#", "").split())  # long ones are folded
    assert all(line in err and " ".join(line.split()) in comments for line in remarks)
    assert ("not carried over" in err) is bool(remarks)
    assert all(line in text for line in drafted_lines)
    if "kind: file" not in text:
        assert prepare(Request(Path("new/spec.yaml"))).space.parameters


def test_a_draft_on_stdout_that_plan_refuses_is_explained_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The place is in the file that the draft would be written to."""
    monkeypatch.chdir(tmp_path)
    Path("models", "m", "1").mkdir(parents=True)
    Path("models", "m", "config.pbtxt").write_text(OPEN % 36)
    Path("a.yaml").write_text("perf_analyzer_flags: {input-data: gone.json}\n")
    arguments = ["init", "m", "--from-model-analyzer", "a.yaml", "--repository", "models"]
    assert guarded(cli, [*arguments, "--output", "-"]) == 0
    *_, refused, place = capsys.readouterr().err.splitlines()
    assert refused == "tune plan refuses this draft; change it first:"
    assert place.startswith(f"{tmp_path}/m.yaml:")


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
    printed = capsys.readouterr().err
    assert "weighting (line " in printed
    assert "other models of the file, which need separate specs: tokenizer" in printed
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
    printed = capsys.readouterr().out
    assert "  - p99_first_response <= 150ms\n" in printed
    assert "p99_latency" not in printed


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
    assert f"the draft takes over the settings of {published}/config.yaml" in tune.err
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
    assert f"not taken over: the settings of {published}/config.yaml" in tune.out


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
    assert prepare(Request(spec=Path("speech.yaml"))).recorded["speech"].lengths == (4, 2)


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
    slos = {name: [str(slo) for slo in stream.slo] for name, stream in spec.streams.items()}
    assert slos == {"tiny-bert": ["p99_latency <= 60ms"], "tokenizer": ["p99_latency <= 20ms"]}
    assert set(spec.models) == {"tiny-bert", "tokenizer"}
    assert "concurrency (line 1): requests of several models come on a clock" in tune.err
    assert "weighting (line" in tune.err
    assert "concurrently" not in tune.err
    assert "need separate specs" not in tune.err


def test_rates_of_models_that_are_profiled_together_are_their_shares(
    tmp_path: Path, tune: Tune
) -> None:
    models: dict[str, Any] = TOGETHER["profile_models"]  # type: ignore[assignment]
    rated = {
        name: {**model, "parameters": {"request_rate": [rate]}}
        for (name, model), rate in zip(models.items(), (150, 50), strict=True)
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


def write_models(directory: Path, **configs: str) -> None:
    for name, text in configs.items():
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "1" / "model.py").write_text("class TritonPythonModel: ...")
        (directory / name / "config.pbtxt").write_text(text)


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options for a model of each kind in ./models, and where they are."""
    monkeypatch.chdir(tmp_path)
    once = 'backend: "python" ' + TENSORS
    write_models(Path("models"), once=once, many=once + DECOUPLED, speech=sequence_config("speech"))
    return {"model_repository": "models", "run_config_profile_models_concurrently_enable": True}


def drafted_of(tune: Tune, *slos: str, code: int = 0, **options: Any) -> Any:
    """The planned spec of an analyzer's YAML in this directory."""
    file = written(Path.cwd(), **options)
    given = [word for slo in slos for word in ("--slo", slo)]
    arguments = ("--from-model-analyzer", file.name, "--output", "spec.yaml", *given)
    assert tune("init", *arguments) == code, tune.err
    if code:
        return None
    assert "refuses" not in tune.err
    return prepare(Request(spec=Path("spec.yaml"))).spec


def slos_of(spec: Any) -> dict[str, list[str]]:
    return {name: [str(slo) for slo in stream.slo] for name, stream in spec.streams.items()}


def test_models_with_sequences_and_others_get_a_draft_that_can_be_planned(
    mixed: dict[str, Any], tune: Tune
) -> None:
    spec = drafted_of(tune, **mixed, profile_models=["speech", "once"], batch_sizes=[4])
    assert isinstance(spec.workload.arrivals, SequenceArrivals)
    assert {stream.batch_size for stream in spec.streams.values()} == {1}
    assert "batch_sizes (line 1): a request of a sequence holds one inference" in tune.err
    assert "single requests, by chance" in Path("spec.yaml").read_text()


def test_decoupled_models_and_others_get_a_draft_that_can_be_planned(
    mixed: dict[str, Any], tune: Tune
) -> None:
    budget = {"many": {"latency_budget": 90}, "once": {"latency_budget": 40}}
    spec = drafted_of(tune, **mixed, profile_models=budget)
    assert slos_of(spec) == {"many": ["p99_last_response <= 90ms"], "once": ["p99_latency <= 40ms"]}


def test_a_latency_of_the_command_line_is_of_the_streams_that_have_it(
    mixed: dict[str, Any], tune: Tune
) -> None:
    names = ["many", "once"]
    spec = drafted_of(tune, "p95_latency <= 40ms", **mixed, profile_models=names)
    assert slos_of(spec) == {
        "many": ["p99_first_response <= 200ms"],
        "once": ["p95_latency <= 40ms"],
    }
    Path("spec.yaml").unlink()
    slos = ("p99_first_response <= 1s", "p95_latency <= 40ms")
    spec = drafted_of(tune, *slos, **mixed, profile_models=names)
    assert slos_of(spec) == {"many": ["p99_first_response <= 1s"], "once": ["p95_latency <= 40ms"]}


def test_one_decoupled_model_gets_a_latency_that_it_has(mixed: dict[str, Any], tune: Tune) -> None:
    spec = drafted_of(tune, **mixed, profile_models="many")
    assert str(spec.slos[0]) == "p99_first_response <= 200ms"


def test_decoupled_models_beside_sequences_are_refused_with_the_two_commands(
    mixed: dict[str, Any], tune: Tune
) -> None:
    drafted_of(tune, code=2, **mixed, profile_models=["speech", "many"])
    assert "many is decoupled, and speech takes sequences: not measured together" in tune.err
    commands = [f"tune init {n} --from-model-analyzer analyzer.yaml" for n in ("many", "speech")]
    assert " and ".join(commands) in " ".join(tune.err.split())
    for command in commands:
        assert tune(*command.split()[1:]) == 0
        assert "refuses" not in tune.err


def test_a_spec_of_tune_is_refused_as_a_file_of_model_analyzer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.chdir(tmp_path)
    write_models(Path("models"), m=OPEN % 8)
    assert tune("init", "models/m", "--output", "spec.yaml") == 0
    for named in ((), ("m",)):
        arguments = ("--from-model-analyzer", "spec.yaml", "--output", "new.yaml")
        assert tune("init", *named, *arguments) == 2
        said = " ".join(tune.err.split())
        assert "spec.yaml:4:1: model: this is a spec of tune" in said
        assert "tune plan spec.yaml" in said
        assert not Path("new.yaml").exists()
