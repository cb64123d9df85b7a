"""One model or many: the short form and the long one of the same spec."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import the_one

from tuner.spec.load import load_spec
from tuner.spec.model import Spec
from tuner.spec.slo import Slo
from tuner.spec.yaml_tree import read_yaml

CASES = Path(__file__).parents[2] / "cases" / "good"
COUNT: dict[str, Any] = {"instance_group.count": {"int": [1, 4]}}
BOUND = Slo.parse("p99_latency <= 60ms")
CACHE: dict[str, Any] = {"response_cache.size": {"choice": [False, "1MiB"]}}
SHORT: dict[str, Any] = {
    "model": "m",
    "repository": "models",
    "space": {**COUNT, **CACHE},
    "workload": {"inputs": {"kind": "random", "unique": 9}, "batch_size": 4, "window": "5s"},
    "slo": ["p99_latency <= 60ms", "gpu_memory <= 8GiB"],
}


def with_streams(**streams: Any) -> Spec:
    models = {"a": {"space": COUNT}, "b": {}}
    return Spec.model_validate({"repository": "x", "models": models, "streams": streams})


def test_the_short_form_is_one_model_and_one_stream_of_its_name() -> None:
    spec = Spec.model_validate(SHORT)
    (model, stream), (label, name) = (
        (the_one(spec.models), the_one(spec.streams)),
        (*spec.models, *spec.streams),
    )
    assert (label, name, spec.name, stream.model) == ("m", "m", "m", "m")
    assert (list(model.space), list(spec.server.space)) == (list(COUNT), list(CACHE))
    assert (stream.batch_size, getattr(stream.inputs, "unique", None)) == (4, 9)
    assert [str(slo) for slo in spec.slos] == SHORT["slo"]
    assert spec.shares == {"m": 1.0}


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda p: p.stem)
def test_a_spec_is_stored_in_the_form_it_was_written_in(path: Path) -> None:
    written, spec = read_yaml(path.read_text()).data, load_spec(path).spec
    stored = spec.plain()
    for key in ("model", "models", "space", "streams"):
        assert (key in stored) == (key in written), key
    assert Spec.model_validate(stored).plain() == stored


def test_short_form_is_not_changed_by_validation() -> None:
    given = copy.deepcopy(SHORT)
    Spec.model_validate(given)
    assert given == SHORT


def test_models_beside_model_are_parts_of_one_stream() -> None:
    spec = Spec.model_validate(
        {**SHORT, "model": "nlp", "space": CACHE, "models": {"step": {"space": COUNT}}}
    )
    assert (list(spec.models), the_one(spec.streams).model) == (["step", "nlp"], "nlp")
    assert (spec.name, spec.models["nlp"].space, list(spec.server.space)) == (
        "nlp",
        {},
        list(CACHE),
    )


def test_space_of_one_model_is_separate_from_others() -> None:
    spec = Spec.model_validate({**SHORT, "models": {"other": None}})
    assert (list(spec.models["m"].space), spec.models["other"].space) == (list(COUNT), {})


def test_streams_ask_model_where_they_name_none() -> None:
    streams = {"few": {"share": "20%"}, "many": {"share": "80%", "batch_size": 8}}
    spec = Spec.model_validate({**SHORT, "workload": {}, "streams": streams})
    assert {stream.model for stream in spec.streams.values()} == {"m"} == set(spec.models)
    assert spec.shares == {"few": 0.2, "many": 0.8}


def test_model_beside_streams_is_that_of_at_least_one_stream() -> None:
    models = {"b": {}}
    streams = {"x": {"share": "20%"}, "y": {"model": "b", "share": "80%"}}
    spec = Spec.model_validate({**SHORT, "workload": {}, "models": models, "streams": streams})
    assert [stream.model for stream in spec.streams.values()] == ["m", "b"]
    streams["x"]["model"] = "b"
    with pytest.raises(ValueError, match="model\n  Extra inputs"):
        Spec.model_validate({**SHORT, "workload": {}, "models": models, "streams": streams})


def test_a_bound_at_the_top_holds_for_each_stream_and_the_servers_once() -> None:
    spec = load_spec(CASES / "streams.yaml").spec
    assert [str(slo) for slo in spec.slos] == [
        "interactive: error_rate <= 0%",
        "bulk: error_rate <= 0%",
        "nightly: error_rate <= 0%",
        "gpu_memory <= 14GiB",
        "interactive: p99_latency <= 60ms",
        "bulk: p99_latency <= 500ms",
    ]
    assert spec.shares == {"interactive": 0.75, "bulk": 0.25}
    assert spec.name == "chat+search"


def test_a_throughput_at_the_top_is_of_all_streams_together() -> None:
    spec = with_streams(x={"model": "a", "share": "50%"}, y={"model": "b", "share": "50%"})
    bounded = spec.model_copy(update={"slo": (Slo.parse("throughput >= 300/s"),)})
    assert [str(slo) for slo in bounded.slos] == ["throughput >= 300/s"]


def test_the_only_stream_with_a_part_in_the_load_has_all_of_it() -> None:
    spec = with_streams(x={"model": "a"}, night={"model": "b", "rate": "0.5/s"})
    assert spec.shares == {"x": 1.0}
    assert (float(spec.streams["night"].rate or 0), str(spec.streams["night"].rate)) == (
        0.5,
        "0.5/s",
    )


def test_a_space_that_is_written_in_both_forms_is_refused_by_the_model_itself() -> None:
    with pytest.raises(ValueError, match="space\n  Extra inputs"):
        Spec.model_validate({**SHORT, "models": {"m": {"space": COUNT}}})


@pytest.mark.parametrize(("more", "short"), [({}, True), ({"slo": ["error_rate <= 0%"]}, False)])
def test_stream_named_like_its_model_uses_the_short_form_where_complete(
    more: dict[str, Any], short: bool
) -> None:
    spec = with_streams(a={"model": "a", **more}).model_copy(update={"slo": (BOUND,)})
    assert ("model" in spec.plain(), "streams" in spec.plain()) == (short, not short)
    assert Spec.model_validate(spec.plain()) == spec


TUNER = Path(__file__).parents[3] / "tuner"
#: Of the short form, which nothing below `spec/` sees.
SHORT_FORM = re.compile(r"\bspec\.(model|space|slo|workload\.(inputs|batch_size))\b")
#: The one model of the short form, by the label that it has there.
UNNAMED = re.compile(r"models\[\"\"\]|candidate\.of\(\"\"\)")
IMPORT = re.compile(r"^\s*(from|import) ")


def lines_that(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(TUNER)}:{number}: {line.strip()}"
        for path in sorted(TUNER.rglob("*.py"))
        if path.relative_to(TUNER).parts[0] != "spec"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line) and not IMPORT.match(line)
    ]


def test_nothing_below_the_spec_sees_its_short_form() -> None:
    assert lines_that(SHORT_FORM) == []


def test_nothing_asks_for_the_model_that_has_no_name() -> None:
    """Whoever handles it handles every other, by its label."""
    assert lines_that(UNNAMED) == []
