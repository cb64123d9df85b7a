"""Spec files from the corpus in tests/cases, and how they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import the_one

from tuner.errors import SpecError
from tuner.spec.arrivals import TraceArrivals
from tuner.spec.fields import IntRange
from tuner.spec.load import load_spec
from tuner.spec.metrics import P99_LATENCY
from tuner.spec.mistakes import Location, SpecMistakesError, dotted
from tuner.spec.model import Spec
from tuner.spec.workload import FileInputs, ZipfRepeat
from tuner.spec.yaml_tree import dump_scalar, read_yaml

CASES = Path(__file__).parents[2] / "cases"
MINIMAL = (CASES / "good" / "minimal.yaml").read_text()


@pytest.mark.parametrize("path", sorted((CASES / "good").glob("*.yaml")), ids=lambda p: p.stem)
def test_good_specs_load(path: Path) -> None:
    loaded = load_spec(path)
    if any(v.given for v in loaded.spec.server.environment.values()):
        return  # these are not stored as they are
    assert loaded.text == path.read_text()
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("path", sorted((CASES / "bad").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_mistake_of_a_bad_spec_is_reported_with_its_place(path: Path) -> None:
    with pytest.raises(SpecMistakesError) as error:
        load_spec(path)
    lines = [str(mistake).removeprefix(f"{path.parent}/") for mistake in error.value.mistakes]
    assert lines == path.with_suffix(".expected").read_text().splitlines()


def test_a_directory_is_not_called_a_file_that_is_missing(tmp_path: Path) -> None:
    """perf_analyzer takes a directory of inputs."""
    (tmp_path / "inputs").mkdir()
    with pytest.raises(SpecError, match=r"inputs is a directory: write one JSON file, .*64"):
        _load(tmp_path, f"{MINIMAL}workload: {{inputs: {{kind: file, file: inputs}}}}\n")


def test_a_directory_of_a_model_in_place_of_a_spec_says_what_drafts_one(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a directory, not a spec"):
        load_spec(tmp_path)
    (tmp_path / "config.pbtxt").touch()
    with pytest.raises(SpecError, match="is the directory of a model, not a spec") as refused:
        load_spec(tmp_path)
    assert refused.value.hint == f"tune init {tmp_path} drafts one"


@pytest.mark.parametrize(
    ("slos", "message"),
    [
        (
            "{p99_latency: 60ms, throughput: 300/s}",
            r"such as \['p99_latency <= 60ms', 'throughput >= 300/s'\] is expected, not a mapping",
        ),
        ("{p99_latency: {max: 60}}", "a list is expected, not a mapping"),
        ("{m: p99_latency <= 60ms}", "a list is expected, not a mapping"),
        ("p99 <= 60ms", "is expected, not 'p99 <= 60ms'; unknown metric 'p99' .did you mean"),
        (
            "[p99_latency < 60]",
            "'<' is not used here: write p99_latency <= VALUE; p99_latency is bounded by .*60",
        ),
    ],
)
def test_slos_in_another_form_are_refused_with_the_lines_to_write(
    slos: str, message: str, tmp_path: Path
) -> None:
    text = MINIMAL.replace("[p99_latency <= 60ms]", slos)
    assert text != MINIMAL
    with pytest.raises(SpecMistakesError, match=message):
        _load(tmp_path, text)


def test_parameters_of_the_space_have_their_places() -> None:
    path = CASES / "good" / "minimal.yaml"
    mistake = load_spec(path).mistake(("models", "m", "space", "instance_group.count"), "")
    assert mistake.place == f"{path}:5:3"


def _load(directory: Path, text: str) -> object:
    path = directory / "tune.yaml"
    path.write_text(text)
    return load_spec(path).spec


def test_mistakes_are_a_spec_error_with_a_line_each(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        _load(tmp_path, MINIMAL.replace("60ms", "60").replace("model:", "modle:"))
    assert error.value.exit_code == 2
    assert len(error.value.message.splitlines()) == 2
    assert isinstance(error.value, SpecMistakesError)
    last = error.value.mistakes[-1]
    assert (last.line, last.column, last.where) == (3, 7, "slo[0]")
    assert last.file == str(tmp_path / "tune.yaml")


def test_paths_are_relative_to_the_spec_file(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    spec = load_spec(CASES / "good" / "trace.yaml").spec
    assert spec.repository == CASES / "good" / "models"
    assert isinstance(spec.workload.arrivals, TraceArrivals)
    assert spec.workload.arrivals.file == CASES / "good" / "traces" / "monday.txt"
    assert isinstance(the_one(spec.streams).inputs, FileInputs)
    assert the_one(spec.streams).inputs.file.is_absolute()


@pytest.mark.parametrize("letter", ["x", "\u00e9"])
def test_a_run_of_many_models_has_a_name_that_a_directory_can_have(letter: str) -> None:
    def name(count: int) -> str:
        names = [f"{letter * 90}-{number}" for number in range(count)]
        data = {
            "repository": ".",
            "models": {n: {"space": {"max_batch_size": {"choice": [1, 2]}}} for n in names},
            "streams": {n: {"model": n, "share": "10%"} for n in names},
            "slo": ["p99_latency <= 9ms"],
        }
        return Spec.model_validate(data).name

    assert name(1) == f"{letter * 90}-0"
    assert 200 <= len(name(10).encode()) <= 210
    assert name(10) != name(9)


def test_programs_with_a_slash_are_paths_and_others_are_not(tmp_path: Path) -> None:
    text = MINIMAL + "server: {binary: bin/tritonserver}\nworkload: {perf_analyzer: pa}\n"
    path = tmp_path / "tune.yaml"
    path.write_text(text)
    spec = load_spec(path).spec
    assert spec.server.binary == str(tmp_path / "bin" / "tritonserver")
    assert spec.workload.perf_analyzer == "pa"


def test_a_linked_spec_is_relative_to_its_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "real.yaml").write_text(MINIMAL)
    (tmp_path / "tune.yaml").symlink_to(tmp_path / "data" / "real.yaml")
    assert load_spec(tmp_path / "tune.yaml").spec.repository == tmp_path / "repository"


def test_a_byte_order_mark_and_crlf_are_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "tune.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_spec(path).spec.name == "m"


def test_words_of_yaml_keep_their_types() -> None:
    spec = load_spec(CASES / "good" / "yaml_words.yaml").spec
    spaces = {**the_one(spec.models).space, **spec.server.space}
    choices = {path: getattr(parameter, "choice", None) for path, parameter in spaces.items()}
    assert choices["dynamic_batching"] == (False, True)
    assert choices["response_cache.size"] == (False, "1KiB", "64MiB", 1000000)
    assert choices["parameters.mode"] == ("on", "fast", "010", "20:00", 1.5)
    assert choices["parameters.third"] == choices["parameters.other"] == ("1", "2")
    assert the_one(spec.streams).inputs.repeat == ZipfRepeat(kind="zipf", exponent=1)


def test_spec_without_options_has_the_defaults(tmp_path: Path) -> None:
    spec = load_spec(CASES / "good" / "minimal.yaml").spec
    assert spec.workload.arrivals.kind == "poisson"
    assert str(spec.objective) == "maximize goodput"
    assert (spec.budget.trials, spec.budget.time) == (40, None)
    parameter = the_one(spec.models).space["instance_group.count"]
    assert isinstance(parameter, IntRange)
    assert (parameter.int_, parameter.or_, parameter.log) == ((1, 4), None, False)
    assert spec.slos[0].metric is P99_LATENCY


def test_a_wrong_section_does_not_hide_the_rules_of_others(tmp_path: Path) -> None:
    text = MINIMAL + "budget: {trails: 3}\nserver: {mode: docker}\n"
    with pytest.raises(SpecMistakesError) as error:
        _load(tmp_path, text)
    assert [mistake.where for mistake in error.value.mistakes] == ["budget.trails", "server.image"]


def test_a_wrong_parameter_does_not_hide_the_rules_of_others(tmp_path: Path) -> None:
    text = MINIMAL + "  a.b: {int: [2, 1]}\n  max_batch_size: {int: [0, 4]}\n"
    with pytest.raises(SpecMistakesError) as error:
        _load(tmp_path, text)
    assert [mistake.where for mistake in error.value.mistakes] == [
        "space.a.b.int",
        "space.max_batch_size.int[0]",
    ]


def test_the_command_line_may_set_what_the_file_says_otherwise_or_not_at_all(
    tmp_path: Path,
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(MINIMAL)
    overrides = ["budget.trials=3", "space.instance_group.count={int: [1, 3]}"]
    loaded = load_spec(path, overrides)
    assert loaded.spec.budget.trials == 3
    (model,) = loaded.spec.models.values()
    assert model.space["instance_group.count"] == IntRange(int=(1, 3))
    assert loaded.sha256 != load_spec(path).sha256
    stored = tmp_path / "stored.yaml"
    stored.write_text(loaded.text)
    assert load_spec(stored).spec == loaded.spec


SPEC = """\
model: bls
repository: .
server: {args: [%s]}
slo: [p99_latency <= 40ms]
space: {instance_group.count: {int: [1, 4]}}
"""


def loaded(tmp_path: Path, args: str) -> tuple[str, ...]:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC % args)
    return tuple(load_spec(file).spec.server.args)


@pytest.mark.parametrize("args", ["--load-model=add", "--load-model, add"])
def test_the_models_it_calls_are_loaded_by_name(tmp_path: Path, args: str) -> None:
    assert "".join(loaded(tmp_path, args)).startswith("--load-model")


def test_all_values_of_a_field_are_set_together() -> None:
    with pytest.raises(SpecError) as error:
        load_spec(CASES / "good" / "minimal.yaml", ["space.max_batch_size.choice=[4, 8]"])
    assert "--set 'space.max_batch_size={choice: [4, 8]}'" in error.value.message
    assert error.value.hint == ""


def test_a_hint_names_the_part_of_the_spec_whose_keys_are_described() -> None:
    def hint(*overrides: str) -> str:
        with pytest.raises(SpecError) as error:
            load_spec(CASES / "good" / "minimal.yaml", overrides)
        return error.value.hint

    described = "docs/spec.md, under Fields, and tune schema describe the keys of "
    assert hint("budget.colour=red") == described + "budget"
    assert hint("budget.colour=red", "workload.inputs=3") == f"{described}budget and {_INPUTS}"
    assert hint("budget.trails=3") == ""
    assert hint("workload.window=0") == ""


_INPUTS = "streams.NAME.inputs"

_GOOD = sorted((CASES / "good").glob("*.yaml"))


@pytest.mark.parametrize("path", _GOOD, ids=lambda p: p.stem)
def test_a_wrong_value_or_key_is_the_only_mistake(path: Path) -> None:
    """Rules read nothing into a spec with a mistake that is not there without it."""
    for location, spoilt in _spoilt(read_yaml(path.read_text()).data):
        spec = path.with_name(f".{path.name}")
        with pytest.raises(SpecMistakesError) as error:
            _read(spoilt, spec)
        for mistake in error.value.mistakes:
            assert mistake.where.startswith(dotted(location)), (location, mistake)


def _spoilt(data: Any, at: Location = ()) -> Iterator[tuple[Location, Any]]:
    """The data, each time with a value or a key that no spec has, and where that is."""
    if isinstance(data, dict):
        for key, value in data.items():
            for where, spoilt in _spoilt(value, (*at, key)):
                yield where, {**data, key: spoilt}
        yield (*at, "zzz"), {**data, "zzz": {"nonsense": 1}}
    else:
        yield at, {"nonsense": 1}
    if isinstance(data, list) and at[-1] == "slo":
        for number in range(len(data)):
            yield (*at, number), [*data[:number], "nonsense", *data[number + 1 :]]


def _read(data: object, path: Path) -> None:
    """As if the file held the data."""
    path.write_text(dump_scalar(data))
    try:
        load_spec(path)
    finally:
        path.unlink()


_WRONG = {
    "window": "workload.window=0",
    "kind of arrivals": "workload.arrivals={kind: poison}",
    "metric": "slo=[p99_latncy <= 60ms, p99_latency <= 60ms, error_rate <= 2, throughput >= 5/s]",
    "share": "confirm.min_gain=2",
    "number": "budget.trials=0",
    "range": "space.max_batch_size={int: [4, 1]}",
    "field": "space.count={int: [0, 4]}",
    "argument": "server.args=[--http-port=1]",
    "timeout": "server.load_timeout=0",
    "mode": "server.mode=dockr",
    "key": "workload.inputs.uniqe=3",
    "name": "model=a/b",
}


def test_mistakes_together_are_those_of_each_alone() -> None:
    def mistakes(*overrides: str) -> set[str]:
        with pytest.raises(SpecMistakesError) as error:
            load_spec(CASES / "good" / "minimal.yaml", overrides)
        return {f"{m.where}: {m.message}" for m in error.value.mistakes}

    alone = {name: mistakes(override) for name, override in _WRONG.items()}
    assert all(alone.values())
    assert len(alone["metric"]) == 3
    assert mistakes(*_WRONG.values()) == set.union(*alone.values())
