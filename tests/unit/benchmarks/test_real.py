"""The evidence on real networks: what is kept of a run, and what the page shows of it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import evidence
import pytest
from evidence import Soak, Tuned, credited, kept, measure, page, soak

STARTED = Tuned("magika", 1, "exit 5", 4.25, "about 8:03 (search 5:20, proof 2:42)")
BEFORE = {"credited_infer_per_s": 100.0, "p99_latency_us": 90_000.0}
AFTER = {"credited_infer_per_s": 1250.0, "p99_latency_us": 80_500.0}


def test_what_is_in_the_repository_after_a_run_is_what_it_wrote_or_what_was_there() -> None:
    outcome = {"status": "improved", "baseline": BEFORE, "winner": AFTER, "written": {"path": "m"}}
    better = replace(STARTED, ending="improved", written=True, before_per_s=100.0)
    assert credited(STARTED, outcome) == replace(better, credited_per_s=1250.0, p99_ms=80.5)
    outcome |= {"status": "not known", "written": None}
    same = replace(STARTED, ending="not known", before_per_s=100.0)
    assert credited(STARTED, outcome) == replace(same, credited_per_s=100.0, p99_ms=90.0)


def test_only_a_config_that_was_written_is_soaked(tmp_path: Path) -> None:
    assert soak(tmp_path, replace(STARTED, credited_per_s=100.0)) is None


def test_a_run_that_ended_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def tune_completely(directory: Path, model: str, number: int) -> Tuned:
        commands.append((model, number))
        return replace(STARTED, model=model, number=number)

    monkeypatch.setattr(evidence, "tune_completely", tune_completely)
    for model, number in [("magika", 1), ("ocr", 1), ("magika", 1), ("magika", 2)]:
        measure(tmp_path, model, number)
    assert commands == [("magika", 1), ("ocr", 1), ("magika", 2)]
    assert [(run["model"], run["number"]) for run in kept(tmp_path)] == commands


def test_a_run_whose_soak_failed_is_only_soaked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = evidence.place_of(tmp_path, "magika", 1)
    place.mkdir(parents=True)
    (place / evidence.DONE).write_text(json.dumps(asdict(STARTED)))
    monkeypatch.setattr(evidence, "soak", lambda directory, tuned: Soak(99.0, 5.0, 20.0))
    measure(tmp_path, "magika", 1)
    (run,) = kept(tmp_path)
    assert (run["ending"], run["soak"]["p99_ms"]) == ("exit 5", 20.0)


def test_the_page_has_a_row_for_each_run_by_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "soak", lambda directory, tuned: None)
    monkeypatch.setattr(
        evidence, "tune_completely", lambda _, model, number: replace(STARTED, model=model)
    )
    measure(tmp_path, "ocr", 1)
    measure(tmp_path, "magika", 1)
    head, _, first, second = page(kept(tmp_path)).splitlines()
    assert head.startswith("| network | seed | ended | minutes | planned |")
    assert first.startswith("| magika | 1 | exit 5 | 4.2 | about 8:03 (search 5:20, proof 2:42) |")
    assert second.startswith("| ocr | ")
    assert head.count("|") == first.count("|")
