from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders.candidates import candidate_of, the_one
from builders.measurements import P99_40MS
from builders.pages import Made, text_of, with_configs
from builders.runs import CURRENT, Toy, make_run

from tuner.record.proved import ProvedConfig
from tuner.record.status import Status
from tuner.record.store import RunStore
from tuner.report.data import load
from tuner.report.sentence import verdict_sentence
from tuner.report.tables import change
from tuner.score.judge import Verdict, violation
from tuner.score.point import judge_point


def test_data_of_an_improved_run_add_up(made: Made) -> None:
    data = made("improved")
    assert data.status is Status.IMPROVED
    assert data.current is not None
    assert data.current.candidate == CURRENT
    assert data.best is not None
    assert data.best.judged.passed
    assert len(data.best.rounds) == 3
    assert data.reported_config is data.best
    assert sum(data.result.time.by_phase().values()) == pytest.approx(data.result.time.wall_s)


def test_a_config_that_was_no_trial_keeps_its_numbers(made: Made) -> None:
    """The result says what was judged, so it need not be found among trials and rounds."""
    before = made("improved")
    path = before.directory / "result.json"
    result = json.loads(path.read_text())
    fields = the_one(result["winner"]["candidate"]["models"])
    name = next(n for n in fields if n.endswith("max_queue_delay_microseconds"))
    fields[name] = None
    path.write_text(json.dumps(result))
    after = load(before.directory)
    assert before.best is not None
    assert after.best is not None
    assert after.trial_of(after.best) is None
    assert after.best.rounds == before.best.rounds
    assert after.best.judged == before.best.judged


def test_a_kept_run_is_about_the_current_config(made: Made) -> None:
    data = made("kept")
    assert data.reported_config is data.current
    assert data.slo


def test_slos_that_fail_come_first_then_the_smallest_margin(made: Made) -> None:
    slo = ("avg_latency <= 20s", "p99_latency <= 5ms", "p95_latency <= 21s", "p50_latency <= 3ms")
    data = made("infeasible", slo=slo)
    verdicts = [row.worst.verdict for row in data.slo]
    assert verdicts == [Verdict.FAIL, Verdict.FAIL, Verdict.PASS, Verdict.PASS]
    margins = [row.worst.margin for row in data.slo]
    assert margins[:2] == sorted(margins[:2])  # type: ignore[type-var]
    assert data.best is not None
    assert data.best.credited_infer_per_s is None
    assert data.best_name == "nearest config"


def test_result_is_the_worst_repeat(made: Made) -> None:
    row = next(r for r in made("improved").slo if r.worst.metric == "p99_latency")
    values = [value for value in row.values if value is not None]
    assert len(values) == 3
    assert row.worst.value == max(values)


def test_a_run_that_was_killed_has_no_result_but_a_report(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=6), "killed")
    with (run / "trials.jsonl").open("a") as file:
        file.write('{"number": 6, "cand')
    data = load(run)
    assert data.torn[0].startswith("trials.jsonl:7: ")
    assert data.torn[0] in text_of(data)
    assert data.status is Status.INTERRUPTED
    assert not data.finished
    assert len(data.trials) == 6
    time = data.result.time
    assert 0 < time.wall_s == pytest.approx(sum(time.by_phase().values()))


def test_the_current_config_need_not_be_the_first_trial(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=6), "killed")
    store = RunStore.open(run)
    other = load(run).trials[3].candidate
    assert load(run).current.candidate == CURRENT  # type: ignore[union-attr]
    store.write_manifest({**store.manifest().to_json(), "current": other.to_json()})
    data = load(run)
    current = data.current
    assert current is not None
    assert current.candidate == other
    assert data.trial_of(current) is data.trials[3]
    unmeasured = candidate_of({"instance_group.count": 77}).to_json()
    store.write_manifest({**store.manifest().to_json(), "current": unmeasured})
    assert load(run).current is None


def test_a_run_without_trials(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=1), "killed")
    (run / "trials.jsonl").unlink()
    data = load(run)
    assert (data.current, data.best, data.slo) == (None, None, ())


def test_a_minimised_metric_ranks_low_values_best(made: Made) -> None:
    data = made("killed", objective="minimize p99_latency at 100/s")
    assert not data.maximizes
    assert data.best is not None
    scores = [t.score.value for t in data.scored if t.score and t.score.feasible and t.number]
    best = data.trial_of(data.best)
    assert best is not None
    assert best.score is not None
    assert best.score.value == min(scores)


def test_the_nearest_config_is_the_one_that_misses_by_least(made: Made) -> None:
    """The current config missed by less than the best other one, which was called the nearest."""
    data = made("infeasible")
    assert data.current is not None
    assert data.best is not None
    by = {name: violation(c.judged.slo) for name, c in (("now", data.current), ("best", data.best))}
    assert data.reported_config is (data.current if by["now"] <= by["best"] else data.best)
    far = replace(data.best.rounds[0].measurement, p99_latency_us=9e9)
    worse = ProvedConfig.of(data.best.candidate, [judge_point([P99_40MS], far)], from_search=True)
    near = replace(data.current.rounds[0].measurement, p99_latency_us=41e3)
    now = ProvedConfig.of(CURRENT, [judge_point([P99_40MS], near)], from_search=True)
    data = with_configs(data, current=now, best=worse)
    assert data.reported_config is now
    assert data.best_name == "nearest other config"
    assert "the nearest, the current config, misses" in verdict_sentence(data)
    assert change(data) is None
