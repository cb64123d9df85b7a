from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders.candidates import candidate_of, the_one
from builders.pages import Made
from builders.runs import CURRENT, Toy, make_run, measure

from tuner.errors import SpecError, TunerError
from tuner.report.data import ReportData, load
from tuner.run.confirmation import Repeat, Role
from tuner.run.status import Status
from tuner.run.store import RunStore
from tuner.score.judge import Verdict, passes
from tuner.score.point import judge_point
from tuner.spec.slo import Slo


def test_an_improved_run(made: Made) -> None:
    data = made("improved")
    assert data.status is Status.IMPROVED
    assert data.current is not None
    assert data.current.candidate == CURRENT
    assert data.best is not None
    assert data.best.judged is not None
    assert passes(data.best.judged.slo)
    assert [r.role for r in data.best.repeats] == [Role.CANDIDATE] * 3
    assert data.subject is data.best
    assert sum(data.result.time.by_phase().values()) == pytest.approx(data.result.time.wall_s)


def test_a_winner_that_lost_a_field_with_its_default_keeps_its_numbers(made: Made) -> None:
    """The result says what was judged, so it need not be found among the rounds."""
    before = made("improved")
    path = before.directory / "result.json"
    result = json.loads(path.read_text())
    fields = the_one(result["winner"]["models"])
    dropped = next(name for name in fields if name.endswith("max_queue_delay_microseconds"))
    path.write_text(
        json.dumps(
            {**result, "winner": {**result["winner"], "models": {"toy": {**fields, dropped: None}}}}
        )
    )
    after = load(before.directory)
    assert before.best is not None
    assert after.best is not None
    assert after.best.candidate != before.best.candidate
    assert after.best.proofs == before.best.proofs
    assert after.best.judged == before.best.judged


def test_a_result_that_does_not_say_what_was_judged_is_read_from_the_rounds(made: Made) -> None:
    before = made("improved")
    path = before.directory / "result.json"
    result = json.loads(path.read_text())
    del result["winner"]["verdicts"]
    path.write_text(json.dumps(result))
    after = load(before.directory)
    assert before.best is not None
    assert after.best is not None
    assert [p.measurement for p in after.best.proofs] == [p.measurement for p in before.best.proofs]


def test_points_come_by_rising_load(made: Made) -> None:
    best = made("improved").best
    assert best is not None
    levels = [p.measurement.load.level for p in best.points]
    assert levels == sorted(levels)
    assert len(levels) > 2


def test_a_kept_run_is_about_the_current_config(made: Made) -> None:
    data = made("kept")
    assert data.subject is data.current
    assert data.slo


def test_slos_that_fail_come_first_then_the_smallest_margin(made: Made) -> None:
    slo = ("avg_latency <= 20s", "p99_latency <= 5ms", "p95_latency <= 21s", "p50_latency <= 3ms")
    data = made("infeasible", slo=slo)
    verdicts = [row.found.verdict for row in data.slo]
    assert verdicts == [Verdict.FAIL, Verdict.FAIL, Verdict.PASS, Verdict.PASS]
    margins = [row.found.margin for row in data.slo]
    assert margins[:2] == sorted(margins[:2])  # type: ignore[type-var]
    assert data.best is not None
    assert data.best.goodput_infer_per_s is None
    assert data.best_name == "nearest config"


def test_the_worst_repeat_is_what_was_found(made: Made) -> None:
    row = next(r for r in made("improved").slo if r.found.metric == "p99_latency")
    values = [r.value for r in row.rounds if r.value is not None]
    assert len(values) == 3
    assert row.found.value == max(values)


def rotated(made: Made, *, last_met: bool) -> ReportData:
    """A finalist measured just below and just above its capacity in each of three rounds."""
    data = made("unconfirmed")
    assert data.best is not None
    store = RunStore(data.directory)
    store.cut_confirmation(0)
    for round_ in range(3):
        for order, level in enumerate((96.0, 104.0)):
            met = level < 100.0 and (round_ < 2 or last_met)
            slo = Slo.parse("p99_latency <= 10s" if met else "p99_latency <= 1us")
            measured = measure(data.best.candidate, level, round_)
            measured = replace(measured, throughput_infer_per_s=level, completed_count=1000)
            point = judge_point([slo], measured)
            key = data.best.candidate.key
            store.append_confirmation(Repeat(round_, order, Role.CANDIDATE, key, point))
    return load(data.directory)


def test_what_a_finalist_stood_in_its_last_round_stands_for_it(made: Made) -> None:
    best = rotated(made, last_met=True).best
    assert best is not None
    assert best.judged is not None
    assert best.judged.measurement.load.level == 96.0
    assert best.goodput_infer_per_s == 96.0
    assert [p.measurement.load.level for p in best.proofs] == [96.0] * 3


def test_a_finalist_that_missed_its_last_round_is_shown_to(made: Made) -> None:
    data = rotated(made, last_met=False)
    assert data.best is not None
    assert data.best.goodput_infer_per_s is None
    assert data.best_name == "best of the search"
    (row,) = data.slo
    assert row.found.verdict is Verdict.FAIL
    assert [r.verdict for r in row.rounds] == [Verdict.PASS, Verdict.PASS, Verdict.FAIL]


def test_the_winners_numbers_are_of_the_load_it_stood_in_every_round(made: Made) -> None:
    best = made("improved").best
    assert best is not None
    assert best.judged is not None
    rates = [p.measurement.throughput_infer_per_s for p in best.proofs]
    assert len(set(rates)) == 3
    assert best.goodput_infer_per_s == min(rates)
    assert best.judged.measurement.throughput_infer_per_s == min(rates)


def test_a_run_that_was_killed_has_no_result_but_a_report(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=6), "killed")
    with (run / "trials.jsonl").open("a") as file:
        file.write('{"number": 6, "cand')
    data = load(run)
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
    current = load(run).current
    assert current is not None
    assert (current.candidate, current.trial) == (other, 3)
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
    best = next(t for t in data.trials if t.number == data.best.trial)
    assert best.score is not None
    assert best.score.value == min(scores)


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not a run"):
        load(tmp_path)


def test_a_result_that_breaks_the_schema_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "status": "splendid"}))
    with pytest.raises(TunerError, match="does not follow version 1:\n  status: "):
        load(run)


def test_a_broken_trial_is_explained(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "trials.jsonl").write_text('{"number": 0}\n')
    with pytest.raises(TunerError, match=r"trials.jsonl:1 cannot be read: 'candidate'") as caught:
        load(run)
    assert caught.value.hint
