"""What is checked in and made from the models: search spaces, their schema, docs/spec.md."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

import tuner.spec.fields
import tuner.spec.model
import tuner.spec.server
import tuner.spec.workload
from tuner.spec.load import effective_yaml, load_spec
from tuner.spec.metrics import METRICS, Until
from tuner.spec.mistakes import SpecMistakesError
from tuner.spec.reference import json_schema, with_fields
from tuner.spec.yaml_tree import read_yaml

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "search_spaces").glob("*.yaml"))
GOOD = sorted((ROOT / "tests" / "cases" / "good").glob("*.yaml"))
MODELS = [
    model
    for model in dict.fromkeys(
        model
        for part in (
            tuner.spec.model,
            tuner.spec.fields,
            tuner.spec.server,
            tuner.spec.workload,
        )
        for model in vars(part).values()
        if isinstance(model, type)
    )
    if issubclass(model, BaseModel) and model is not BaseModel
]
#: Mappings whose keys are the user's.
FREE = {"environment", "models", "mounts", "shapes", "space", "streams", "tolerances"}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_there_is_a_spec_for_each_kind_of_model() -> None:
    backends = {
        "python",
        "onnxruntime",
        "tensorrt",
        "pytorch",
        "openvino",
        "fil",
        "dali",
        "tensorflow",
    }
    others = {"template", "quickstart", "bert-onnx", "tiny-bert", "tokenizer", "nlp", "nlp-bls"}
    assert backends | others == {path.stem for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_specs_load_and_arrivals_are_poisson(path: Path) -> None:
    spec = load_spec(path).spec
    assert spec.workload.arrivals.kind == "poisson"
    assert spec.repository == ROOT / "model_repository"
    header, _, schema = path.read_text().splitlines()[0].partition("$schema=")
    assert header == "# yaml-language-server: "
    assert (path.parent / schema).resolve() == ROOT / "docs" / "schemas" / "tune.schema.json"


@pytest.mark.parametrize("path", SHIPPED + GOOD, ids=lambda p: p.stem)
def test_schema_accepts_shipped_and_good_specs(
    path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    assert list(validator.iter_errors(read_yaml(path.read_text()).data)) == []


def _mappings(data: Any, location: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a mapping with fixed keys stands."""
    if isinstance(data, dict):
        if not (location and location[-1] in FREE):
            yield location
        for key, value in data.items():
            yield from _mappings(value, (*location, key))


@pytest.mark.parametrize("path", SHIPPED + GOOD, ids=lambda p: p.stem)
def test_an_extra_key_anywhere_is_refused(
    path: Path, tmp_path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    data = read_yaml(path.read_text()).data
    locations = list(_mappings(data))
    assert locations
    for location in locations:
        changed = copy.deepcopy(data)
        inner = changed
        for part in location:
            inner = inner[part]
        inner["extra_key"] = 1
        assert not validator.is_valid(changed), location
        spec = tmp_path / "extra.yaml"
        spec.write_text(json.dumps(changed))
        with pytest.raises(SpecMistakesError, match=r"extra_key: unknown key 'extra_key'"):
            load_spec(spec)


def test_the_schema_refuses_what_cannot_be_meant(
    validator: jsonschema.Draft202012Validator,
) -> None:
    data = read_yaml((GOOD[0].parent / "minimal.yaml").read_text()).data
    changes: list[dict[str, Any]] = [
        {"slo": ["p99_latency < 60ms"]},
        {"slo": ["p99_latency <= 60"]},
        {"slo": []},
        {"objective": "minimize p99_latency"},
        {"budget": {"time": "5 minutes"}},
        {"confirm": {"min_gain": 2}},
        {"space": {}},
        {"space": {"max_batch_size": [8, 16]}},
        {"workload": {"arrivals": {"kind": "possion"}}},
        {"server": {"mode": "dockr"}},
    ]
    assert [change for change in changes if validator.is_valid({**data, **change})] == []


def test_the_checked_in_schema_is_up_to_date() -> None:
    """Else: tune schema > docs/schemas/tune.schema.json."""
    checked_in = json.loads((ROOT / "docs" / "schemas" / "tune.schema.json").read_text())
    assert checked_in == json.loads(json.dumps(json_schema()))


def test_docs_are_up_to_date() -> None:
    """Else: python -m tuner.spec.reference docs/spec.md."""
    document = (ROOT / "docs" / "spec.md").read_text()
    assert with_fields(document) == document
    assert "- `max_queue" not in document
    assert "### `budget`" in document


BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "spec.md").read_text(), re.DOTALL)
EXAMPLES = [block for block in BLOCKS if "repository:" in block]  # others show one section


@pytest.mark.parametrize(
    ("example", "name", "served"),
    list(
        zip(
            EXAMPLES,
            ["tiny-bert", "nlp", "chat+search", "speech", "chat+search", "chat"],
            [1, 3, 2, 1, 2, 2],
            strict=True,
        )
    ),
    ids=["one model", "an ensemble", "two models", "sequences", "a background", "a neighbour"],
)
def test_each_example_of_the_guide_loads_and_fits_the_schema(
    example: str,
    name: str,
    served: int,
    tmp_path: Path,
    validator: jsonschema.Draft202012Validator,
) -> None:
    path = tmp_path / "tune.yaml"
    path.write_text(example)
    spec = load_spec(path).spec
    assert (spec.name, len(spec.models)) == (name, served)
    assert list(validator.iter_errors(read_yaml(example).data)) == []


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_every_field_has_a_description(model: type[BaseModel]) -> None:
    assert model.__doc__
    missing = [name for name, field in model.model_fields.items() if not field.description]
    assert missing == []


def test_the_template_shows_every_field() -> None:
    text = (ROOT / "search_spaces" / "template.yaml").read_text()
    names = {f.alias or name for m in MODELS for name, f in m.model_fields.items()} - {"name"}
    assert [name for name in sorted(names) if f"{name}:" not in text] == []


def test_values_of_the_template_are_the_defaults() -> None:
    spec = load_spec(ROOT / "search_spaces" / "template.yaml").spec
    assert spec.check == tuner.spec.model.Check()
    assert spec.confirm == tuner.spec.model.Confirm()
    assert spec.search == tuner.spec.model.Search()
    assert spec.workload == tuner.spec.workload.Workload()


@pytest.mark.parametrize(("number", "name"), [(0, "nlp"), (1, "chat+search")])
def test_the_long_forms_in_the_template_load(number: int, name: str, tmp_path: Path) -> None:
    """In place of what stands there for one model."""
    text = (ROOT / "search_spaces" / "template.yaml").read_text()
    blocks = re.findall(r"^# \w+:.*\n(?:# .*\n)+(?=\n)", text, re.MULTILINE)
    path = tmp_path / "tune.yaml"
    path.write_text(f"repository: .\n{re.sub('^# ', '', blocks[number], flags=re.MULTILINE)}")
    assert load_spec(path).spec.name == name
    assert len(blocks) == 2


@pytest.mark.parametrize("path", SHIPPED + GOOD, ids=lambda p: p.stem)
def test_the_effective_spec_is_the_same_spec(path: Path, tmp_path: Path) -> None:
    spec = load_spec(path).spec
    effective = tmp_path / "effective.yaml"
    given = {v.given for v in spec.server.environment.values()} - {None}
    text = effective_yaml(spec).replace("'***'", f"'{next(iter(given), '')}'")
    effective.write_text(text)
    assert load_spec(effective).spec == spec


def test_the_effective_spec_marks_defaults() -> None:
    lines = effective_yaml(load_spec(ROOT / "search_spaces" / "tiny-bert.yaml").spec).splitlines()
    assert "  window: 3s  # default" in lines
    assert "  time: 20m" in lines
    assert "    choice: [off, 1MiB, 64MiB]" in lines
    assert "search:  # default" in lines
    assert "workload:" in lines


def test_the_guide_and_the_template_name_every_metric() -> None:
    guide = (ROOT / "docs" / "spec.md").read_text()
    template = (ROOT / "search_spaces" / "template.yaml").read_text()
    ends = {m.name.partition("_")[2] for m in METRICS.values() if m.until is not Until.ANSWER}
    names = [m.name for m in METRICS.values() if m.until is Until.ANSWER]
    assert [name for name in names if f"`{name}" not in guide] == []
    assert [name for name in names if name.removesuffix("_latency") not in template] == []
    assert [end for end in ends if f"_{end}`" not in guide or f"_{end}" not in template] == []
