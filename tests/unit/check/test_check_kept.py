"""What a check measures under which arrivals, what of it is kept, and what its reasons say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from builders.check_place import CLOSED, Noting, Place, ToyBench
from builders.emulated import EmulatedBench

from tuner.check import check as steps
from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, LoadFailedError
from tuner.load.seeds import of_confirmation
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Measurement
from tuner.prepare.machine_lock import only_one_on
from tuner.reason import Reason
from tuner.record.confirmation import Repeat, Role
from tuner.record.status import CheckStatus
from tuner.record.store import RunStore

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces what a bench reads, given the measurement and the server's number."""

    def patch(change: Any) -> None:
        before = ToyBench.reading

        def reading(bench: ToyBench, level: float, seed: int) -> Measurement:
            measurement: Measurement = change(bench, before(bench, level, seed))
            return measurement

        monkeypatch.setattr(ToyBench, "reading", reading)

    return patch


def rows(directory: Path) -> list[Repeat]:
    return RunStore.open(directory).confirmation()


def test_every_round_has_different_arrivals_the_same_every_night(place: Place) -> None:
    accepted = place.check(accept=True)
    first = json.loads(Path(accepted.facts["accepted"]).read_text())["arrivals"]
    assert first == of_confirmation(accepted.directory.name)
    rounds = [a for a in place.bench.loads if a.server > 1]  # the first is for looking
    assert {a.seed for a in place.bench.loads if a.server == 1} == {first}
    assert [a.seed - first for a in rounds] == [a.server - 2 for a in rounds]
    again = place.check(accept=True)
    assert {a.seed - first for a in place.bench.loads if a.server > 1} == {*range(10)}
    assert json.loads(Path(again.facts["accepted"]).read_text())["arrivals"] == first


def test_each_first_accepted_result_has_different_arrivals(place: Place) -> None:
    first = place.check(accept=True).facts["accepted"]
    one = json.loads(Path(first).read_text())["arrivals"]
    Path(first).unlink()
    two = json.loads(Path(place.check(accept=True).facts["accepted"]).read_text())["arrivals"]
    assert one != two


def test_every_measurement_of_a_round_is_kept_in_order(place: Place) -> None:
    place.check(accept=True)
    done = place.check()
    kept = rows(done.directory)
    levels = [repeat.point.level for repeat in kept]
    assert levels == place.bench.levels
    for number in range(3):
        orders = [repeat.order for repeat in kept if repeat.round == number]
        assert orders == list(range(len(orders)))
    assert {repeat.role for repeat in kept} == {Role.CURRENT}
    assert all(fresh for _, fresh in place.bench.deployed)


def test_the_load_that_must_be_stood_is_measured_first_in_every_round(place: Place) -> None:
    place.text += "check: {at: 60}\n"
    done = place.check(accept=True)
    first = [repeat.point.level for repeat in rows(done.directory)]
    starts = [r.order == 0 for r in rows(done.directory)]
    assert [level for level, start in zip(first, starts, strict=True) if start] == [60.0] * 10
    assert done.facts["load"] == "60/s"
    assert done.facts["level"] > 90.0  # the capacity is found all the same


def test_live_view_names_the_current_step(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    phases: list[str] = []
    monkeypatch.setattr(Noting, "phase", lambda _, text: phases.append(text))
    place.check()
    rounds = [f"round {number} of at most 10" for number in (1, 2, 3)]
    assert phases == ["serving emulated-accelerator", "looking for the capacity", *rounds]
    phases.clear()
    place.text = place.text.replace("{kind: poisson}", CLOSED)
    place.check(capacity=20.0)
    assert phases[1] == "looking for the highest load that is sustained"


def test_the_only_load_that_is_listed_is_not_looked_for(place: Place) -> None:
    one = CLOSED.replace("[8, 16]", "[8]")
    place.text = place.text.replace("{kind: poisson}", one)
    done = place.check(capacity=20.0)
    assert place.bench.levels == [8.0] * 3
    assert (done.facts["level"], done.facts["load"]) == (8.0, "8 concurrent")


def test_a_metric_that_is_minimised_is_better_where_it_is_less(place: Place) -> None:
    place.text = place.text.replace("maximize goodput", "minimize p99_latency at 60/s")
    first = place.check(accept=True)
    assert (first.facts["compared"], first.facts["status"]) == ("p99_latency", "accepted")
    worse = place.check(capacity=70.0)
    assert (worse.facts["status"], worse.exit_code) == ("regression", 12)
    assert worse.facts["ratio"]["estimate"] == pytest.approx(15.4 / 22.3, rel=0.03)
    assert place.check(capacity=130.0).facts["ratio"]["estimate"] > 1.0
    assert "P99_latency is " in worse.facts["reasons"][0]


def test_a_metric_that_one_round_lacks_is_not_compared(place: Place, patched: Any) -> None:
    place.text = place.text.replace("maximize goodput", "minimize gpu_memory at 60/s")

    def without(bench: EmulatedBench, measurement: Measurement) -> Measurement:
        used = None if len(bench.deployed) == 2 else 1 << 30
        return replace(measurement, host=HostUse(gpu_memory_used_bytes=used))

    patched(without)
    done = place.check(accept=True)
    assert (done.exit_code, done.facts["values"], done.facts["accepted"]) == (11, [], None)
    (reason,) = done.facts["reasons"]
    assert "gpu_memory" in reason


def test_a_result_that_was_nothing_is_no_base_of_a_ratio(place: Place) -> None:
    accepted = Path(place.check(accept=True).facts["accepted"])
    kept = json.loads(accepted.read_text())
    accepted.write_text(json.dumps({**kept, "values": [0.0, *kept["values"][1:]]}))
    done = place.check()
    assert (done.facts["ratio"], done.exit_code) == (None, 11)


def test_rounds_are_compared_in_pairs_as_far_as_both_have_them(place: Place) -> None:
    accepted = Path(place.check(accept=True, servers_cv=0.0).facts["accepted"])
    kept = json.loads(accepted.read_text())
    uneven = [v * f for v, f in zip(kept["values"], (1, 1, 1, 9, 9, 9, 9, 9, 9, 9), strict=True)]
    accepted.write_text(json.dumps({**kept, "values": uneven}))
    ratio = place.check(servers_cv=0.0).facts["ratio"]
    assert ratio["estimate"] == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("fine", 0),
        ("worse", 0),
        ("accepted", 0),
        ("slo missed", 10),
        ("inconclusive", 11),
        ("regression", 12),
        ("interrupted", 130),
        ("failed", 1),
    ],
)
def test_the_exit_codes_are_the_documented_ones(status: str, code: int) -> None:
    assert CheckStatus(status).exit_code == code


def test_file_of_a_check_contains_all_findings(place: Place) -> None:
    accepted = place.check(accept=True)
    done = place.check()
    facts = json.loads((done.directory / "check.json").read_text())
    assert (facts["kind"], facts["schema_version"], facts["rounds"]) == ("check", 1, 3)
    assert facts["machine"] == "Toy CPU, 2 cores; Toy GPU, driver 550; tritonserver 2.51.0"
    assert (facts["warn"], facts["fail"], facts["confidence"]) == (0.03, 0.05, 0.95)
    assert facts["baseline"]["accepted_at"] == accepted.facts["checked_at"]
    assert facts["load"].startswith("about ")
    assert facts["level"] == min(facts["level"], *facts["values"])
    assert facts["history"][-1]["value"] == pytest.approx(geometric_mean(facts["values"]))
    assert len(facts["slo"][0]["values"]) == 3
    worst = max(facts["slo"][0]["values"])
    assert facts["slo"][0]["worst"]["value"] == worst


def test_the_trend_is_of_the_last_ten_checks(place: Place) -> None:
    place.check(accept=True)
    (lines,) = (place.results / "baselines").glob("*.history.jsonl")
    first = json.loads(lines.read_text())
    older = [json.dumps({**first, "run_id": f"older-{n}"}) for n in range(12)]
    lines.write_text("\n".join(older) + "\n")
    done = place.check()
    listed = [row["run_id"] for row in done.facts["history"]]
    assert listed == [*(f"older-{n}" for n in range(3, 12)), done.facts["run_id"]]
    assert len(lines.read_text().splitlines()) == 13


def test_a_measurement_that_fails_later_leaves_no_verdict_and_no_line(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place.check(accept=True)

    def fails(*_: object, **__: object) -> None:
        raise LoadFailedError("no result came")

    monkeypatch.setattr(ToyBench, "measure", fails)
    done = place.check()
    assert done.facts["reasons"][0].endswith(": no result came")
    assert (done.facts["rounds"], done.facts["load"], done.facts["ratio"]) == (0, None, None)
    assert [row["status"] for row in done.facts["history"]] == ["accepted"]


def test_a_verdict_that_was_stored_is_not_overwritten_by_what_fails_after_it(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise InterruptedRunError("interrupted")

    place.check(accept=True)
    monkeypatch.setattr(steps, "append_history", fails)
    with pytest.raises(InterruptedRunError):
        place.check()
    newest = max(place.results.glob("*/check.json"), key=lambda p: p.stat().st_mtime_ns)
    assert json.loads(newest.read_text())["status"] == "fine"


def test_a_second_check_of_a_model_may_go_on_beside_the_first_and_no_run_may(place: Place) -> None:
    done = place.check()
    with only_one_on(place.bench.job, reading=True):
        assert place.check().exit_code == done.exit_code
    with only_one_on(place.bench.job), pytest.raises(EnvironmentNotReadyError, match="being meas"):
        place.check()


def accepted_long_ago(place: Place, **facts: object) -> Path:
    accepted = Path(place.check(accept=True).facts["accepted"])
    kept = json.loads(accepted.read_text()) | {"accepted_at": "2025-01-01T02:00:00+00:00"}
    accepted.write_text(json.dumps({**kept, **facts}))
    return accepted


def test_a_night_of_another_day_that_shows_no_change_joins_the_accepted_one(place: Place) -> None:
    accepted = accepted_long_ago(place, later={"2025-01-02": 0.99})
    assert place.check(capacity=80.0).facts["status"] == "regression"
    assert len(json.loads(accepted.read_text())["later"]) == 1
    done = place.check()
    assert done.facts["nights"] == 2
    *_, (day, ratio) = json.loads(accepted.read_text())["later"].items()
    assert day == done.facts["checked_at"][:10]
    assert ratio == pytest.approx(done.facts["ratio"]["estimate"] * 0.99**0.5)
    assert place.check().facts["nights"] == 3
    assert len(json.loads(accepted.read_text())["later"]) == 2  # the same day again


@pytest.mark.parametrize(
    ("lasting", "disturbed", "status"),
    [
        (1.0, "", "fine"),
        (0.7, "", "regression"),
        (0.78, "a neighbour took 20 % of the CPU", "fine"),
    ],
)
def test_the_credited_load_is_soaked_once(
    place: Place, patched: Any, lasting: float, disturbed: str, status: str
) -> None:
    accepted_long_ago(place, credited=80.0, later={f"2025-01-0{day}": 1.0 for day in range(2, 8)})
    if disturbed:
        patched(
            lambda _, measurement: replace(measurement, disturbances=(Reason.of_text(disturbed),))
        )

    def bench_of(*job: Any, **bench: Any) -> ToyBench:
        made = ToyBench(*job, **bench)
        made.lasting = lasting
        return made

    place.bench_of = bench_of
    done = place.check()
    assert [load.level for load in place.bench.soaks] == [80.0]
    assert done.facts["status"] == status
    (credited,) = (reason for reason in done.facts["reasons"] if "credited" in reason)
    assert (disturbed or " 80/s for 30 s") in credited


def test_the_credited_load_is_not_soaked_where_the_spec_wants_none(place: Place) -> None:
    accepted_long_ago(place, credited=80.0)
    place.text += "check: {at: 60}\n"
    place.check()
    assert not place.bench.soaks
