from __future__ import annotations

from pathlib import Path

import pytest

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.cli.terminal import annotation, append_summary


def test_annotations_are_one_line_whatever_is_in_them() -> None:
    line = annotation("error", "50% of\r\ntwo", title="a,b:c", file="x y.yaml", line=3)
    assert line == "::error title=a%2Cb%3Ac,file=x y.yaml,line=3::50%25 of%0Atwo"
    assert annotation("notice", "plain") == "::notice::plain"


def test_reports_are_appended_to_the_summary_of_the_step(tmp_path: Path) -> None:
    report, summary = tmp_path / "report.md", tmp_path / "summary.md"
    report.write_text("## one\n")
    append_summary(report, {})
    assert not summary.exists()
    for _ in range(2):
        append_summary(report, {"GITHUB_STEP_SUMMARY": str(summary)})
    assert summary.read_text() == "## one\n\n## one\n\n"


def test_a_summary_that_cannot_be_written_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.md").write_text("## one\n")
    append_summary(tmp_path / "report.md", {"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "s.md")})
    assert "cannot be written" in capsys.readouterr().err


def test_mistakes_of_a_spec_are_annotated_where_ci_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("model: m\nrepository: r\nslo: [p99_latency <= 5ms]\nbudgt: 3\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert guarded(cli, ["check", str(spec)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"::error file={spec},line=4,col=1::" in err


def test_lint_annotates_files_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(
        'name: "m"\nbackend: "onnxruntime"\nmax_batch_size: 4\n'
        "dynamic_batching { preferred_batch_size: [8] }\n"
    )
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert guarded(cli, ["lint", str(tmp_path), "--format", "json"]) == 2
    out, err = capsys.readouterr()
    assert "::" not in out
    assert f"::error file={tmp_path}/m/config.pbtxt,line=4" in err
