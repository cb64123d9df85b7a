"""What held for long is what every format tells, with how many were late."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from unit.report.synthetic import Toy, make_run, measure

from tuner.cli.verdict import lines_of
from tuner.confirm.repeatability import noise_of
from tuner.report import html, junit, markdown
from tuner.report.data import load
from tuner.report.pull_request import pull_request_of
from tuner.report.quantities import rate_text
from tuner.report.sentence import soak_sentences, verdict_sentence
from tuner.report.tables import comparison
from tuner.run.confirmation import Repeat, Role, Soak, Soaked
from tuner.run.reading import UnreadableFileError
from tuner.run.result_schema import Result
from tuner.run.store import RunStore
from tuner.score.late_share import LateShare
from tuner.score.point import judge_point
from tuner.space.candidate import Candidate

LATE = LateShare(requests=48_000, late=288, effective=1900.0, at_most=0.0094)
TOLD = "0.6 % late (at most 0.94 %)"


def soaked_run(parent: Path, share: float, role: str = "winner") -> tuple[Path, Soak]:
    """A run whose winner (or kept config) stood only a share of its claim for long."""
    run = make_run(parent, Toy(trials=20), "improved" if role == "winner" else "kept")
    store = RunStore.open(run)
    result = json.loads((run / "result.json").read_text())
    facts = result[role]
    candidate = Candidate.from_json(facts)
    claimed = min(m["load"]["level"] for m in facts["measurements"])
    slos = Toy().slos
    tried = []
    for level, late_by in ((claimed, 3.0), (share * claimed, 1.0)):
        made = replace(measure(candidate, level, 600_000), duration_s=30.0)
        made = replace(made, p99_latency_us=late_by * 35e3, latencies_us=np.array([late_by * 35e3]))
        made = replace(made, throughput_infer_per_s=level, completed_count=48_000)
        point = judge_point(slos, made)
        tried.append(Soaked(point.measurement, point.slo, LATE))
        repeat = Repeat(0, len(tried) - 1, Role.SOAK, candidate.key, point)
        store.append_confirmation(repeat)
    soak = Soak(tuple(tried))
    facts["soak"] = soak.to_json()
    facts["goodput_infer_per_s"] = tried[-1].throughput_infer_per_s
    (run / "result.json").write_text(json.dumps(result))
    return run, soak


def test_every_format_tells_the_load_that_held(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 0.9)
    data = load(run)
    assert soak.held is not None
    held = soak.held.throughput_infer_per_s
    standing = f"{rate_text(held)} within "
    lasting = f" in each of 3 rounds, and for 30 s: {TOLD}"
    assert standing in verdict_sentence(data)
    assert lasting in verdict_sentence(data)
    sentences = [f"Soak: {s.sentence}." for s in soak.tried]
    for text in (markdown.render(data), pull_request_of(data), html.render(data)):
        assert TOLD in text
        assert rate_text(held) in text
        for sentence in sentences:
            assert sentence.split(": ")[1] in text
    told = ET.fromstring(junit.render(data)).find(".//testcase[@name='confirmation']/system-out")
    assert told is not None
    assert told.text is not None
    assert all(sentence in told.text for sentence in sentences)
    table = comparison(data)
    assert table is not None
    assert table.rows[0][0] == "goodput"
    assert table.rows[0][2] == f"{rate_text(held)}{lasting}"
    assert {row[0]: row[2] for row in table.rows}["throughput"] == rate_text(held)


def test_a_claim_above_what_a_round_stood_is_told_by_the_soak_alone(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 1.2)
    assert soak.held is not None
    held = rate_text(soak.held.throughput_infer_per_s)
    table = comparison(load(run))
    assert table is not None
    assert table.rows[0][2] == f"{held} for 30 s: {TOLD}"


def test_a_kept_config_is_told_by_what_it_stands_for_long(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 0.9, "baseline")
    assert soak.held is not None
    data = load(run)
    assert f"{rate_text(soak.held.throughput_infer_per_s)} within " in verdict_sentence(data)
    assert f"for 30 s: {TOLD}" in verdict_sentence(data)
    result = json.loads((run / "result.json").read_text())
    assert any(line.startswith("  soak ") for line in lines_of(run, Result.from_json(result)))


def test_a_soak_is_no_round(tmp_path: Path) -> None:
    plain = make_run(tmp_path / "plain", Toy(trials=20))
    run, _ = soaked_run(tmp_path / "soaked", 0.9)
    noise = [noise_of(RunStore.open(r).confirmation()) for r in (plain, run)]
    assert noise[0] == noise[1]
    data = load(run)
    assert data.best is not None
    assert len(data.best.proofs) == 3


@pytest.mark.parametrize("tried", [0, 1])
def test_a_claim_without_a_soak_that_held_is_that_of_the_rounds(tmp_path: Path, tried: int) -> None:
    run, soak = soaked_run(tmp_path, 0.9)
    result = json.loads((run / "result.json").read_text())
    rounds = result["winner"]["worst_round_infer_per_s"]
    given_up = Soak(soak.tried[:tried], "the load generator could not keep up")
    result["winner"] |= {"soak": given_up.to_json(), "goodput_infer_per_s": rounds}
    (run / "result.json").write_text(json.dumps(result))
    data = load(run)
    assert f"{rate_text(rounds)} within" in verdict_sentence(data)
    assert "for 30 s" not in verdict_sentence(data)
    assert "Soak: the load generator could not keep up." in markdown.render(data)
    goodput = next(line for line in lines_of(run, Result.from_json(result)) if "goodput" in line)
    assert f"{rounds:.4g}/s in every" in goodput


@pytest.mark.parametrize("part", ["measurement", "slo"])
def test_a_soak_that_is_not_as_tune_writes_it_is_named(tmp_path: Path, part: str) -> None:
    run, _ = soaked_run(tmp_path, 0.9)
    result = json.loads((run / "result.json").read_text())
    del result["winner"]["soak"]["tried"][0][part]
    (run / "result.json").write_text(json.dumps(result))
    with pytest.raises(UnreadableFileError, match=r"result\.json"):
        load(run)


def test_a_reason_that_ends_in_a_full_stop_gets_no_second_one(tmp_path: Path) -> None:
    data = load(make_run(tmp_path))
    assert data.best is not None
    soak = replace(data.best.soak, reason="Other processes took 74 % of the CPU.")
    told = soak_sentences(replace(data, best=replace(data.best, soak=soak)))
    assert told[-1] == "Soak: Other processes took 74 % of the CPU."
