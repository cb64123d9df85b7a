"""The benchmark of nightly checks: what it serves each night, keeps, and calls a miss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import nights
import pytest
from confirmation import MODEL

from tuner.modelconfig.message import parse
from tuner.run.status import CheckStatus

TIME = "exclusive_base_ms"


class Checks:
    """`tune check` in name: each call ends as it was told to, and keeps what it was asked."""

    def __init__(self, directory: Path, *endings: CheckStatus) -> None:
        self.directory, self.endings = directory, list(endings)
        self.served: list[float] = []
        self.asked: list[Sequence[str]] = []

    def __call__(self, arguments: Sequence[str]) -> int:
        config = parse((self.directory / "models" / MODEL / "config.pbtxt").read_text())
        self.served.append(float(config.parameters[TIME].string_value))
        self.asked.append(arguments)
        if "--update-baseline" in arguments:
            baseline = self.directory / "results" / "baselines" / "one.json"
            baseline.parent.mkdir(parents=True)
            baseline.write_text("{}")
            return 0
        status = self.endings.pop(0)
        run = self.directory / "results" / f"check-{len(self.asked)}"
        run.mkdir(parents=True)
        facts = {
            "status": status.value,
            "exit_code": status.exit_code,
            "ratio": {"estimate": 0.99, "low": 0.97, "high": 1.01},
            "reasons": ["Disturbed: by a test"],
            "seconds": 40.04,
        }
        (run / "check.json").write_text(json.dumps(facts))
        return status.exit_code


def called(monkeypatch: pytest.MonkeyPatch, checks: Checks, *options: str) -> int:
    monkeypatch.setattr("sys.argv", ["nights.py", str(checks.directory), *options])
    return nights.main(checks)


def test_a_loss_is_served_after_the_config_was_accepted_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = Checks(tmp_path, CheckStatus.REGRESSION, CheckStatus.REGRESSION)
    assert called(monkeypatch, checks, "--nights", "2", "--loss", "8") == 0
    assert checks.served == pytest.approx([4.0, 4.0 / 0.92, 4.0 / 0.92], abs=1e-4)
    assert ["--update-baseline" in a for a in checks.asked] == [True, False, False]
    captured = capsys.readouterr()
    assert "regression 2" in captured.out
    assert "night 1: regression, 0.990 of what was accepted, 40 s, disturbed" in captured.err


def test_nights_that_were_made_are_not_made_again_and_both_kinds_share_what_was_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = Checks(tmp_path, CheckStatus.REGRESSION, CheckStatus.FINE, CheckStatus.WORSE)
    assert called(monkeypatch, checks, "--nights", "1", "--loss", "8") == 0
    assert called(monkeypatch, checks, "--nights", "1") == 0
    assert called(monkeypatch, checks, "--nights", "2") == 0
    assert called(monkeypatch, checks, "--nights", "2") == 0
    assert checks.served == pytest.approx([4.0, 4.0 / 0.92, 4.0, 4.0], abs=1e-4)
    assert sum("--update-baseline" in a for a in checks.asked) == 1


@pytest.mark.parametrize(
    ("loss", "endings", "code"),
    [
        ("0", [CheckStatus.FINE] * 19 + [CheckStatus.INCONCLUSIVE], 0),
        ("0", [CheckStatus.FINE] * 18 + [CheckStatus.INCONCLUSIVE] * 2, 1),
        ("0", [CheckStatus.FINE] * 19 + [CheckStatus.REGRESSION], 1),
        ("0", [CheckStatus.FINE] * 19 + [CheckStatus.MISSED], 1),
        ("8", [CheckStatus.REGRESSION] * 19 + [CheckStatus.WORSE], 0),
        ("8", [CheckStatus.REGRESSION] * 18 + [CheckStatus.INCONCLUSIVE] * 2, 1),
    ],
)
def test_the_figures_of_the_project_decide(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loss: str,
    endings: list[CheckStatus],
    code: int,
) -> None:
    assert called(monkeypatch, Checks(tmp_path, *endings), "--loss", loss) == code


def test_an_exit_code_that_is_not_the_one_that_was_written_is_a_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = Checks(tmp_path, CheckStatus.FINE)
    monkeypatch.setattr("sys.argv", ["nights.py", str(tmp_path), "--nights", "1"])
    with pytest.raises(SystemExit, match="ended with 12, not as it says"):
        nights.main(lambda asked: checks(asked) or 12 * ("--update-baseline" not in asked))
