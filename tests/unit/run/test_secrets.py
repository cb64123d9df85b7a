"""A password is planted wherever one may come in, and sought in all that comes out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.workplace import Workplace, interrupt

MARK = "hunter2"
ENVIRONMENT = f"""\
server:
  environment:
    AWS_SECRET_ACCESS_KEY: {MARK}  # {MARK}, as ever
    HF_TOKEN: {{from: HF_TOKEN}}
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    place = Workplace(tmp_path, monkeypatch)
    place.spec.write_text(place.spec.read_text() + ENVIRONMENT)
    monkeypatch.setenv("HF_TOKEN", MARK)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return place


def tune(workplace: Workplace, *arguments: str) -> int:
    """As from a shell: the command line is in `sys.argv` too."""
    sys.argv = ["tune", *arguments]
    return workplace.tune(*arguments)


@pytest.fixture(autouse=True)
def _argv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tune"])  # put back afterwards


def files_with_password(workplace: Workplace) -> Iterator[Path]:
    """Files that hold the password, the spec aside."""
    for path in workplace.spec.parent.rglob("*"):
        if path.is_file() and path != workplace.spec and MARK.encode() in path.read_bytes():
            yield path


def test_no_file_no_line_and_no_study_holds_a_password(
    workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    workplace.bench.then[2] = interrupt
    assert tune(workplace, "run", "my spec.yaml") == 130
    run = str(workplace.store.directory)
    assert tune(workplace, "run", "--resume", run, "-v") == 0
    for form in ("text", "json", "markdown", "pr", "patch"):
        assert tune(workplace, "report", run, "--format", form) == 0
    assert tune(workplace, "apply", run, "--dry-run") in (0, 13)
    out, err = capsys.readouterr()
    assert MARK not in out + err
    assert list(files_with_password(workplace)) == []
    stored = workplace.store.manifest().to_json()
    assert "AWS_SECRET_ACCESS_KEY: '***'" in stored["spec_text"]
    assert stored["spec"]["server"]["environment"]["HF_TOKEN"] == {"from": "HF_TOKEN"}


def test_another_value_of_the_environment_is_another_run(
    workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    workplace.bench.then[2] = interrupt
    assert tune(workplace, "run", "my spec.yaml") == 130
    run = str(workplace.store.directory)
    workplace.spec.write_text(workplace.spec.read_text().replace(f": {MARK}", ": another"))
    capsys.readouterr()
    assert tune(workplace, "run", "--resume", run) == 2
    err = capsys.readouterr().err
    assert "my spec.yaml" in err
    assert MARK not in err
    assert "another\n" not in err.replace("another experiment", "")


@pytest.mark.parametrize(("umask", "forbidden"), [(0o077, 0o077), (0o002, 0o002)])
def test_the_files_of_a_run_are_made_as_the_umask_says(
    umask: int, forbidden: int, workplace: Workplace
) -> None:
    before = os.umask(umask)
    try:
        assert tune(workplace, "run", "my spec.yaml", "--no-write", "--progress", "none") == 0
    finally:
        os.umask(before)
    files = [p for p in workplace.results.rglob("*") if p.is_file()]
    modes = {str(p.relative_to(workplace.results)): p.stat().st_mode & 0o777 for p in files}
    assert {name: oct(mode) for name, mode in modes.items() if mode & forbidden} == {}
    if umask == 0o002:
        reports = [mode for name, mode in modes.items() if name.endswith(("json", "html", "md"))]
        assert reports
        assert all(mode == 0o664 for mode in reports)
