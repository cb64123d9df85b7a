"""Markdown, JUnit, CSV, and all of them in one go."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from builders.candidates import candidate_of
from builders.pages import NASTY, STATUSES, Made, text_of
from builders.reasons import said
from builders.runs import REFUSED, Toy, make_run

from tuner.report import markdown, run_document
from tuner.report.data import load
from tuner.report.frames import _cell, trials_csv
from tuner.report.markdown import code, escaped, fenced
from tuner.report.render import pull_request_of, report_run
from tuner.score.trial import TrialBench


@pytest.mark.parametrize("status", STATUSES)
def test_all_forms_are_written_and_written_again(tmp_path: Path, status: str) -> None:
    run = make_run(tmp_path, Toy(trials=14), status)
    paths = report_run(run)
    assert [p.name for p in paths][:4] == ["report.html", "report.md", "junit.xml", "trials.csv"]
    first = [p.read_bytes() for p in paths]
    assert report_run(run) == paths
    assert [p.read_bytes() for p in paths] == first
    assert not list(run.glob("tmp*"))


def test_a_run_without_trials_is_rendered(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=1), "killed")
    (run / "trials.jsonl").unlink()
    assert all(path.stat().st_size > 0 for path in report_run(run))


class TestMarkdown:
    def test_tables_are_even(self, made: Made) -> None:
        lines = text_of(made("improved", model=NASTY)).splitlines()
        rows = [re.findall(r"(?<!\\)\|", line) for line in lines if line.startswith("| ")]
        assert len(rows) > 20
        blocks = "\n".join(lines).split("\n\n")
        for block in (b for b in blocks if b.startswith("| ")):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1

    def test_text_from_outside_stays_text(self, made: Made) -> None:
        text = text_of(made(model=NASTY))
        outside_code = re.sub(r"(`{3,}).*?\1|(`+)[^`].*?\2", "", text, flags=re.DOTALL)
        assert "<img" not in outside_code
        assert "&lt;img" in outside_code

    def test_a_fence_is_longer_than_any_in_the_text(self) -> None:
        text = "a\n````\nb"
        assert markdown.fenced(text, "") == f"`````\n{text}\n`````"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("p99_latency <= 40ms", "p99_latency <= 40ms"),
            ("_a_ *b* `c`", r"\_a\_ \*b\* \`c\`"),
            ("<b> &lt; & x|y", r"&lt;b> &amp;lt; & x\|y"),
            ("two\nlines", "two lines"),
        ],
    )
    def test_escaped(self, text: str, expected: str) -> None:
        assert markdown.escaped(text) == expected


class TestJUnit:
    def cases(self, text: str) -> dict[str, ET.Element]:
        suite = ET.fromstring(text).find("testsuite")
        assert suite is not None
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases))
        for kind in ("failure", "error"):
            assert suite.get(f"{kind}s") == str(sum(c.find(kind) is not None for c in cases))
        return {str(case.get("name")): case for case in cases}

    @pytest.mark.parametrize(
        ("status", "kind"),
        [("failed", "error"), ("killed", "error"), ("not known", "failure")],
    )
    def test_a_run_without_a_verdict_is_no_pass(self, made: Made, status: str, kind: str) -> None:
        cases = self.cases(run_document.junit_of(made(status)))
        assert cases["confirmation"].find(kind) is not None

    def test_characters_that_xml_forbids_are_replaced(self, made: Made) -> None:
        data = made()
        named = replace(data, manifest=replace(data.manifest, name="a\x00\x1b[31m" + NASTY))
        cases = self.cases(run_document.junit_of(named))
        assert "\ufffd" in str(cases["confirmation"].get("classname"))


class TestCsv:
    def rows(self, text: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(text)))

    def test_one_row_a_trial_with_numbers_in_the_units_of_their_names(self, made: Made) -> None:
        data = made("improved", gpu=True)
        rows = self.rows(trials_csv(data))
        assert [int(row["trial"]) for row in rows] == list(range(40))
        best = rows[data.trial_of(data.best).number]  # type: ignore[union-attr, arg-type]
        assert float(best["score"]) == pytest.approx(float(best["throughput_infer_per_s"]))
        assert float(best["p99_latency_us"]) < 40_000
        assert json.loads(best["server_args"]) == []

    def test_control_characters_in_column_names_are_escaped(self, made: Made) -> None:
        data = made()
        trial = replace(data.trials[0], candidate=candidate_of({"parameters.\x1b[8m\n\u202e": 1}))
        header, _, rest = trials_csv(replace(data, trials=[trial])).partition("\n")
        assert r"field.parameters.\x1b[8m\n\u202e" in header
        assert len(rest.splitlines()) == 1

    def test_failed_trials_have_empty_cells_and_a_reason(self, made: Made) -> None:
        row = self.rows(trials_csv(made()))[5]
        assert row["state"] == "failed"
        assert (row["p99_latency_us"], row["score"]) == ("", "")
        assert row["reason"] == REFUSED

    def test_pandas_reads_numbers_as_numbers(self, made: Made) -> None:
        import pandas as pd

        frame = pd.read_csv(io.StringIO(trials_csv(made(gpu=True))))
        assert frame["p99_latency_us"].dtype == float
        assert frame["field.instance_group.count"].dtype == int
        assert len(frame) == 40

    def test_trial_of_several_benches_says_which_measured_it(self, made: Made) -> None:
        data = made(trials=6)
        trials = (*data.trials[:5], replace(data.trials[5], bench=TrialBench("box", "0,1")))
        rows = self.rows(trials_csv(replace(data, trials=trials)))
        assert [r["bench_host"] for r in rows] == ["", "", "", "", "", "box"]
        assert rows[5]["bench_gpus"] == "0,1"

    def test_text_is_never_a_formula(self, made: Made) -> None:
        data = made(trials=6)
        trials = (*data.trials[:5], replace(data.trials[5], reason=said("=cmd|' /C calc'!A0")))
        rows = self.rows(trials_csv(replace(data, trials=trials)))
        assert rows[5]["reason"] == "'=cmd|' /C calc'!A0"


HOSTILE = "@octocat see https://evil.example and www.evil.example \x1b]0;t\x07 \u202eabc"


def test_markdown_calls_nobody_links_nowhere_and_turns_nothing_round() -> None:
    for text in (escaped(HOSTILE), code(HOSTILE), fenced(HOSTILE, "")):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    text = escaped(HOSTILE)
    assert "@octocat" not in text
    assert not re.search(r"https?://|www\.\w", text)
    assert escaped("ops@example.com at 12:30") == "ops@example.com at 12:30"


def test_a_run_of_an_older_tune_is_rendered_without_the_password_in_its_command(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path, Toy(trials=3), "improved")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["command"] += ["--storage", "postgresql://u:hunter2@db/x"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    report_run(run)
    for name in ("report.html", "report.md", "junit.xml", "trials.csv"):
        assert "hunter2" not in (run / name).read_text()
    assert "hunter2" not in pull_request_of(load(run))


@pytest.mark.parametrize("text", ["=1+1", " =1+1", "\t=1", "\n@SUM(A1)", "-1+2", "+3", "\r=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert str(_cell(text)).startswith("'")
    assert _cell("p99 = 3") == "p99 = 3"
    assert _cell(-1.5) == -1.5
