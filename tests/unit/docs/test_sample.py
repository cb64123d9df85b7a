"""The sample is a run as it would be stored today, and what readers download is small."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import jsonschema
from builders.documents import TOP

from tuner.record.result_schema import json_schema

SAMPLE = TOP / "results" / "sample"


def test_sample_result_follows_the_schema_and_its_rows_are_the_trials() -> None:
    result = json.loads((SAMPLE / "result.json").read_text())
    jsonschema.validate(result, json_schema())
    assert result["status"] == "improved"
    with (SAMPLE / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["trial"]) for row in rows] == list(range(len(rows)))
    measured = sum(row["state"] != "failed" for row in rows)
    assert measured == sum(result["trials"][state] for state in ("measured", "pruned"))


def test_the_report_and_the_picture_of_it_are_small() -> None:
    def size(path: Path) -> int:
        return path.stat().st_size

    report = (SAMPLE / "report.html").read_text()
    result = json.loads((SAMPLE / "result.json").read_text())
    assert result["run_id"] in report
    assert size(SAMPLE / "report.html") <= 2_200_000
    picture = TOP / "docs" / "sample-report.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert size(picture) <= 200_000
