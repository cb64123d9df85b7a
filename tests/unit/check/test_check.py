"""A check on an emulated bench: what it measures, what it decides, what it leaves on disk."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
from builders.check_place import CLOSED, Place, ToyBench, ToyPrograms
from builders.messages_checks import SlowClient

from tuner.check import check as steps
from tuner.errors import (
    ClientLimitError,
    DeployRefusedError,
    InterruptedRunError,
    LoadFailedError,
    TunerError,
)
from tuner.measurement.measurement import Measurement
from tuner.reason import Reason, ReasonKind
from tuner.record.checks import Baseline, CheckFacts, find_baseline, question_of
from tuner.record.store import RunStore
from tuner.score.point import Point
from tuner.sentences import sentence
from tuner.space.candidate import Candidate

ROOT = Path(__file__).parents[3]


def test_the_first_check_has_nothing_to_compare_with_and_does_not_pass(place: Place) -> None:
    done = place.check()
    assert done.exit_code == 11
    assert done.facts["status"] == "inconclusive"
    assert "no accepted result" in done.facts["reasons"][0]
    assert place.bench.fresh_servers == 3
    assert not list((place.results / "baselines").glob("*[0-9a-f].json"))
    assert any("--update-baseline" in note for note in place.said_first)  # before a minute of load


def test_a_check_searches_nothing_so_its_space_may_hold_the_current_config_alone(
    place: Place,
) -> None:
    before, _ = place.text.split("space:\n")
    place.text = f"{before}space: {{max_batch_size: {{choice: [16]}}}}\n"
    assert place.check(accept=True).facts["status"] == "accepted"


@pytest.mark.parametrize(("given", "threads"), [("", 1), ('{OMP_NUM_THREADS: "2"}', 2)])
def test_a_check_has_the_variables_with_which_the_config_in_place_was_proved(
    place: Place, monkeypatch: pytest.MonkeyPatch, given: str, threads: int
) -> None:
    environment = f"environment: {given}, " if given else ""
    before, after = place.text.split("space:\n")
    space = "{space: {environment.OMP_NUM_THREADS: {choice: [unset, 1, 2]}}}"
    space = space.replace("{space", f"{{{environment}space")
    place.text = f"{before}server: {space}\nspace:\n{after}"
    config = Candidate.of_models({}, environment={"OMP_NUM_THREADS": 1})
    proved = SimpleNamespace(candidate=config, soak=None)
    monkeypatch.setattr(steps, "credited_config", lambda *_: proved)
    done = place.check(accept=True)
    assert RunStore.open(done.directory).manifest().current.start.environment == {
        "OMP_NUM_THREADS": threads
    }
    notes = [note for note in place.notes if "OMP_NUM_THREADS=1" in note]
    assert len(notes) == (threads == 1)


def test_an_accepted_result_is_what_the_next_check_is_compared_with(place: Place) -> None:
    first = place.check(accept=True)
    assert (first.exit_code, first.facts["status"]) == (0, "accepted")
    assert not any("--update-baseline" in note for note in place.notes)
    assert place.bench.fresh_servers == 10
    assert Path(first.facts["accepted"]).is_file()
    done = place.check()
    assert (done.exit_code, done.facts["status"]) == (0, "fine")
    assert done.facts["baseline"]["run_id"] == first.facts["run_id"]
    assert done.facts["ratio"]["low"] > 0.95
    assert place.bench.fresh_servers == 3


def test_a_config_that_sustains_nothing_any_more_is_given_up_after_three_servers(
    place: Place,
) -> None:
    place.check(accept=True)
    done = place.check(capacity=1e-3)
    assert (done.facts["status"], done.exit_code) == ("slo missed", 10)
    assert place.bench.fresh_servers == 3


@pytest.mark.parametrize(
    ("capacity", "status", "code"),
    [
        (80.0, "regression", 12),
        (10.0, "regression", 12),
        (96.8, "worse", 0),
        (99.0, "fine", 0),
        (130.0, "fine", 0),
    ],
)
def test_lost_share_of_goodput_decides_the_status(
    place: Place, capacity: float, status: str, code: int
) -> None:
    place.text += "check: {nights: 0.4%}\n"  # for a loss between 3 % and 5 % to be told at all
    place.check(accept=True)
    done = place.check(capacity=capacity)
    assert (done.facts["status"], done.exit_code) == (status, code)
    assert done.facts["ratio"]["estimate"] == pytest.approx(capacity / 100, rel=0.02)


@pytest.mark.parametrize("rounds", [5, 10])
def test_noise_gets_all_rounds_and_then_is_inconclusive(place: Place, rounds: int) -> None:
    place.text += f"check: {{rounds: {rounds}}}\n"
    place.check(accept=True)
    done = place.check(capacity=95.5, servers_cv=0.08)
    assert (done.facts["status"], done.exit_code) == ("inconclusive", 11)
    assert place.bench.fresh_servers == rounds


def test_an_slo_that_no_load_meets_is_missed_whatever_the_baseline(place: Place) -> None:
    place.check(accept=True)
    place.text = place.text.replace("p99_latency <= 40ms", "p99_latency <= 10ms")
    done = place.check(accept=True)
    assert (done.facts["status"], done.exit_code) == ("slo missed", 10)
    assert "p99_latency <= 10ms" in done.facts["reasons"][0]
    assert done.facts["accepted"] is None
    assert place.bench.fresh_servers == 3  # after the one on which a load was looked for
    assert len(place.bench.levels) <= 4 + 3 * 5


def test_the_load_that_must_be_stood_decides_before_the_comparison(place: Place) -> None:
    place.text += "check: {at: 110}\n"
    done = place.check(accept=True)
    assert (done.facts["status"], done.exit_code) == ("slo missed", 10)
    assert done.facts["load"] == "110/s"
    place.text = place.text.replace("at: 110", "at: 90")
    assert place.check(accept=True).exit_code == 0
    assert 90.0 in place.bench.levels
    assert place.check().facts["slo"][0]["worst"]["verdict"] == "pass"
    assert place.check(capacity=82.0).exit_code == 10


def test_a_load_at_the_very_edge_is_not_confirmed(place: Place) -> None:
    place.text += "check: {at: 100}\n"
    done = place.check(servers_cv=0.02)
    assert (done.facts["status"], done.exit_code) == ("inconclusive", 11)
    assert "100/s in 1 of 3 rounds" in done.facts["reasons"][0]
    assert place.bench.fresh_servers == 3  # more rounds would not change that


def test_of_listed_loads_the_one_the_baseline_stood_must_be_stood(place: Place) -> None:
    place.text = place.text.replace("{kind: poisson}", CLOSED)
    first = place.check(accept=True, capacity=20.0)
    assert (first.exit_code, first.facts["level"], first.facts["compared"]) == (
        0,
        16.0,
        "throughput",
    )
    assert place.check(capacity=19.8).exit_code == 0
    assert place.bench.levels == [16.0] * 3
    assert place.check(capacity=17.5).exit_code == 12
    assert place.check(capacity=9.0).exit_code == 10


def test_throughputs_at_other_loads_are_not_compared(place: Place) -> None:
    place.text = place.text.replace("{kind: poisson}", CLOSED)
    place.check(accept=True, capacity=20.0)
    place.text += "check: {at: 8}\n"
    done = place.check(capacity=20.0)
    assert (done.exit_code, done.facts["ratio"]) == (11, None)


def test_result_of_another_machine_is_refused_unless_allowed(place: Place) -> None:
    place.check(accept=True)
    place.gpu = "Other GPU"
    done = place.check()
    assert (done.exit_code, done.facts["baseline"]) == (11, None)
    assert "Toy GPU, driver 550" in done.facts["reasons"][0]
    done = place.check(any_machine=True)
    assert (done.exit_code, done.facts["status"]) == (0, "fine")
    assert "Toy GPU, driver 550" in done.facts["reasons"][-1]


def test_accepting_a_worse_result_is_allowed_and_reported(place: Place) -> None:
    place.check(accept=True)
    done = place.check(accept=True, capacity=80.0)
    assert (done.exit_code, done.facts["status"]) == (0, "accepted")
    assert place.check(capacity=80.0).facts["status"] == "fine"


def test_a_config_that_triton_refuses_misses_its_slos(place: Place) -> None:
    done = place.check(fails=DeployRefusedError("no such backend"))
    assert (done.exit_code, done.facts["status"]) == (10, "slo missed")
    assert "no such backend" in done.facts["reasons"][0]


def test_check_without_a_measurement_is_inconclusive(place: Place) -> None:
    done = place.check(fails=LoadFailedError("no result"))
    assert (done.exit_code, done.facts["status"]) == (11, "inconclusive")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InterruptedRunError("interrupted"), "interrupted"),
        (TunerError("broken"), "failed"),
        (ZeroDivisionError("oops"), "failed"),
    ],
)
def test_check_that_breaks_off_leaves_its_reason(
    place: Place, error: Exception, status: str
) -> None:
    with pytest.raises(type(error)):
        place.check(fails=error)
    (path,) = place.results.glob("*/check.json")
    facts = json.loads(path.read_text())
    assert facts["status"] == status
    assert facts["history"] == []
    for name in ("report.md", "junit.xml"):
        assert status in (path.parent / name).read_text()


def test_a_stopped_check_starts_again_with_the_options_that_it_had(place: Place) -> None:
    stopped = InterruptedRunError("interrupted")
    with pytest.raises(InterruptedRunError):
        place.check(accept=True, overrides=("check.rounds=3",), fails=stopped)
    spec, results = place.directory / "spec.yaml", place.results
    options = f"--set=check.rounds=3 --output={results}"
    assert stopped.hint == f"start again: tune check {spec} {options} --update-baseline"
    (report,) = results.glob("*/report.md")
    assert f"tune check {spec} {options}" in report.read_text()


def test_everything_lies_on_disk_and_follows_the_published_schema(place: Place) -> None:
    place.check(accept=True)
    done = place.check(capacity=80.0)
    schema = json.loads((ROOT / "docs" / "schemas" / "check.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(done.facts, schema)
    assert json.loads((done.directory / "check.json").read_text()) == done.facts
    CheckFacts.model_validate(done.facts)
    store = RunStore.open(done.directory)
    rounds = {repeat.round for repeat in store.confirmation()}
    assert rounds == set(range(done.facts["rounds"]))
    assert [r["status"] for r in done.facts["history"]] == ["accepted", "regression"]
    (lines,) = (place.results / "baselines").glob("*.history.jsonl")
    assert [json.loads(line)["status"] for line in lines.read_text().splitlines()] == [
        "accepted",
        "regression",
    ]
    text = (done.directory / "report.md").read_text()
    assert "## emulated-accelerator: regression" in text
    assert "| checked |" in text
    assert "| ratio | 0.799 (" in text
    assert 'failures="1"' in (done.directory / "junit.xml").read_text()


def test_the_baseline_says_where_and_how_it_was_measured(place: Place) -> None:
    done = place.check(accept=True)
    kept = json.loads(Path(done.facts["accepted"]).read_text())
    assert kept["key"]["machine"] == ToyPrograms("Toy GPU").fingerprint()
    assert kept["key"]["question"] == question_of(place.bench.job.spec)
    assert "Toy GPU" in kept["machine"]
    assert len(kept["values"]) == 10
    assert kept["level"] <= kept["expected"]
    assert isinstance(find_baseline(place.results, steps.Key(**kept["key"])), Baseline)


def test_too_few_requests_are_no_verdict(place: Place) -> None:
    done = place.check(accept=True, requests=20)
    assert (done.facts["status"], done.exit_code) == ("inconclusive", 11)
    assert "workload.max_window" in done.facts["reasons"][0]  # the window follows the rate


class ArrivalsBench(ToyBench):
    """Arrivals move each round's capacity by several percent, the same every night."""

    arrivals_cv = 0.04

    def kindness(self, seed: int) -> float:
        return float(np.exp(np.random.default_rng(seed).normal(0.0, self.arrivals_cv)))


@pytest.mark.long
@pytest.mark.parametrize("servers_cv", [0.01, 0.02, 0.025])
def test_of_twenty_nights_without_a_change_hardly_one_is_inconclusive(
    place: Place, servers_cv: float
) -> None:
    """Nor is one a regression; and a loss of 8 % is found in 19 of 20."""
    place.bench_of = ArrivalsBench

    def nights(capacity: float, first: int) -> list[str]:
        random = [np.random.default_rng(first + night) for night in range(20)]
        return [
            place.check(capacity=capacity, servers_cv=servers_cv, random=r).facts["status"]
            for r in random
        ]

    place.check(accept=True, servers_cv=servers_cv)
    unchanged = nights(100.0, 100)
    assert unchanged.count("inconclusive") <= 1
    assert "regression" not in unchanged
    assert nights(92.0, 200).count("regression") >= 19


def test_no_more_rounds_are_made_than_the_accepted_result_has(place: Place) -> None:
    """Each is compared with the one under the same arrivals: the ups and downs of these cancel."""
    place.bench_of = ArrivalsBench
    accepted = Path(place.check(accept=True).facts["accepted"])
    kept = json.loads(accepted.read_text())
    accepted.write_text(json.dumps({**kept, "values": kept["values"][:6]}))
    done = place.check(capacity=95.5, servers_cv=0.04)
    assert done.facts["rounds"] == 6
    assert len({load.seed for load in place.bench.loads}) == 6
    expected = np.exp((np.log(done.facts["values"]) - np.log(kept["values"][:6])).mean())
    assert done.facts["ratio"]["estimate"] == pytest.approx(expected)


def test_a_result_whose_latencies_another_client_took_is_not_compared(place: Place) -> None:
    accepted = Path(place.check(accept=True).facts["accepted"])
    other = json.loads(accepted.read_text())
    assert other["client"] == "perf_analyzer"
    accepted.write_text(json.dumps({**other, "client": "tune"}))
    before = place.bench
    done = place.check()
    assert (done.facts["status"], done.exit_code) == ("inconclusive", 11)
    assert "perf_analyzer" in done.facts["reasons"][0]
    assert place.bench is before  # told before a minute of load
    assert place.check(accept=True).facts["status"] == "accepted"
    assert place.check().facts["status"] == "fine"


def test_a_closed_loop_is_compared_by_all_its_rounds(place: Place) -> None:
    """It has no arrivals that two nights could share: pairs would only leave rounds out."""
    place.text = place.text.replace("{kind: poisson}", CLOSED)
    accepted = Path(place.check(accept=True, capacity=20.0).facts["accepted"])
    kept = json.loads(accepted.read_text())
    kept["values"] = [*kept["values"][:5], *(2 * v for v in kept["values"][5:])]
    accepted.write_text(json.dumps(kept))
    ratio = place.check(capacity=20.0).facts["ratio"]
    assert ratio["estimate"] == pytest.approx(2**-0.5, rel=0.02)


class UpTo(ToyBench):
    """Above a load of 30 no result comes."""

    def reading(self, level: float, seed: int) -> Measurement:
        if level > 30.0:
            raise LoadFailedError(f"no result at {level}")
        return super().reading(level, seed)


def test_a_config_that_drowns_in_the_load_it_once_stood_is_measured_below_it(place: Place) -> None:
    """It became ten times as slow: that is the regression to be told, not a failed measurement."""
    place.check(accept=True)
    seed = place.bench.loads[0].seed
    place.bench_of = UpTo
    done = place.check(capacity=10.0)
    assert (done.facts["status"], done.exit_code) == ("regression", 12)
    assert done.facts["ratio"]["estimate"] == pytest.approx(0.1, rel=0.02)
    first, *_ = [a.level for a in place.bench.loads if a.seed == seed]
    assert first == pytest.approx(96.0, rel=0.02)
    again = [a.level for a in place.bench.loads if a.seed == seed + 1]
    assert max(again) < 30.0  # the next round begins where the first found it


def test_a_load_generator_that_is_the_limit_tonight_shows_no_regression(place: Place) -> None:
    place.check(accept=True)
    place.bench_of = SlowClient
    done = place.check()
    assert place.bench.levels[:2] == pytest.approx([96.0, 45.0], rel=0.02)
    assert (done.facts["status"], done.exit_code) == ("inconclusive", 11)
    assert " 45/s " in done.facts["reasons"][0]


def test_load_generator_that_was_the_limit_before_too_is_reported_and_passes(place: Place) -> None:
    place.bench_of = SlowClient
    first = place.check(accept=True)
    done = place.check()
    assert (first.facts["status"], done.facts["status"]) == ("accepted", "fine")
    for facts in (first.facts, done.facts):
        assert "/s at most" in facts["reasons"][1]


def test_a_round_goes_on_below_a_load_that_a_hindered_load_generator_did_not_send(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would end with nothing but misses, and the check with "at the very edge"."""
    place.check(accept=True)
    before, levels = ToyBench.measure, list[float]()

    def measure(bench: ToyBench, level: float, seed: int, least_s: float = 0.0) -> Point:
        levels.append(level)
        if len(levels) == 2:
            raise ClientLimitError("the load generator could not keep up")
        return before(bench, level, seed, least_s)

    monkeypatch.setattr(ToyBench, "measure", measure)
    done = place.check(capacity=88.0)
    assert done.exit_code == 11
    assert " 43.79/s " in done.facts["reasons"][0]


def test_disturbances_of_a_check_are_one_remark() -> None:
    busy, paused, again = map(Reason.of_text, ("The CPU was busy.", "It paused.", "Again."))
    one = Reason(ReasonKind.DISTURBED_CHECK, causes=(busy,))
    assert sentence(one) == "Disturbed: The CPU was busy."
    several = Reason(ReasonKind.DISTURBED_CHECK, causes=(busy, paused, again))
    assert sentence(several) == "Disturbed: The CPU was busy. And 2 other disturbances."
