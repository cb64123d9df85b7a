from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from builders.runs import make_run

from tuner.record.result_schema import Result, check, json_schema

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "result.schema.json"


@pytest.fixture
def result(tmp_path: Path) -> dict[str, Any]:
    data = json.loads((make_run(tmp_path) / "result.json").read_text())
    assert isinstance(data, dict)
    return data


def test_the_published_schema_is_the_one_in_the_code() -> None:
    assert json.loads(PUBLISHED.read_text()) == json_schema()


def test_the_published_schema_is_a_schema_and_accepts_a_result(result: dict[str, Any]) -> None:
    schema = json.loads(PUBLISHED.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(result, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**result, "status": "good"}, schema)


def test_a_result_has_no_mistakes(result: dict[str, Any]) -> None:
    assert check(result) == []


def test_keys_it_does_not_know_are_no_mistake(result: dict[str, Any]) -> None:
    result["winner"]["novel"] = 1
    assert check({**result, "novel": 1}) == []


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("schema_version", 2, "schema_version"),
        ("status", "good", "status"),
        ("winner", {}, "winner.candidate"),
        ("time", {"wall_s": 1}, "time.measuring_s"),
        ("trials", {"asked": -1}, "trials.asked"),
        ("written", {"path": "p", "sha256_before": "x", "sha256_after": None, "backup": None},
         "written.sha256_before"),
    ],
)  # fmt: skip
def test_mistakes_are_named(result: dict[str, Any], key: str, value: Any, where: str) -> None:
    assert any(line.startswith(f"{where}: ") for line in check({**result, key: value}))


def test_seconds_that_do_not_add_up_are_a_mistake(result: dict[str, Any]) -> None:
    result["time"]["wall_s"] *= 2
    assert len(check(result)) == 1
    assert check(result)[0].startswith("time: the phases add up to ")


def test_phases_come_longest_first_and_without_the_sum(result: dict[str, Any]) -> None:
    phases = Result.model_validate(result).time.by_phase()
    assert "wall_s" not in phases
    assert list(phases.values()) == sorted(phases.values(), reverse=True)
