from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.candidates import candidate_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement
from builders.runs import CONFIG, Toy, manifest_of

from tuner.errors import SpecError, StalePlanError
from tuner.load.latency import measurement_of, observe_open
from tuner.load.perf_analyzer import outputs
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, Rejected, Stage
from tuner.measurement.window import Window
from tuner.record.confirmation import Repeat, Role
from tuner.record.manifest import KeptConfig, Manifest, sha256_of_configs
from tuner.record.store import TRIALS, RunStore, new_run_id
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.spec.slo import Objective


def a_trial(number: int) -> Trial:
    point = judge_point([P99_40MS, NO_ERRORS], synthetic_measurement())
    return Trial(
        number=number,
        candidate=candidate_of({"instance_group.count": number, "x": (1, 2), "y": None}, 1 << 20),
        state=TrialState.MEASURED,
        points=(point,),
        score=score_points(Objective.goodput(), [point]),
        deployment="in place",
        time=TrialTime(0.1, 0.2, 0.3, 0.4),
        started_at="2026-01-01T00:00:00+00:00",
    )


def a_manifest(**changes: Any) -> Manifest:
    return replace(manifest_of(Toy(), "r"), **changes)


def asked(**changes: Any) -> Manifest:
    """After a server was asked for the model's config."""
    return a_manifest(
        models={"m": KeptConfig("m", "m/config.pbtxt", "", None, completed="")}, **changes
    )


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore.create(tmp_path, "run-1")
    store.write_manifest(a_manifest().to_json())
    return store


def test_trials_come_back_as_they_were(store: RunStore) -> None:
    trials = [a_trial(0), a_trial(1)]
    for trial in trials:
        store.append_trial(trial)
    assert store.trials() == trials


def test_a_torn_last_line_is_dropped_and_overwritten(store: RunStore) -> None:
    store.append_trial(a_trial(0))
    path = store.directory / "trials.jsonl"
    with path.open("ab") as file:
        file.write(b'{"number": 1, "candi')
    assert [t.number for t in store.trials()] == [0]
    store.append_trial(a_trial(1))
    assert [t.number for t in store.trials()] == [0, 1]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_second_writer_is_refused(store: RunStore) -> None:
    with store.locked(), pytest.raises(SpecError, match="written by another tune"):
        with RunStore(store.directory).locked():
            pass


def test_a_directory_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not a run"):
        RunStore.open(tmp_path)


@pytest.mark.parametrize("measurement", [None, synthetic_measurement()])
def test_rejected_measurements_come_back(store: RunStore, measurement: Measurement | None) -> None:
    row = Rejected("it was disturbed", "key", 100.0, 4.5, Stage.SEARCH, measurement)
    store.append_rejected(row)
    assert store.rejected() == [row]


def test_an_interrupted_round_is_rejected_row_by_row(store: RunStore) -> None:
    points = [judge_point([P99_40MS], synthetic_measurement(level)) for level in (110.0, 120.0)]
    for number, point in enumerate(points):
        store.append_confirmation(Repeat(number, 0, Role.CURRENT, "key", point))
    first, _ = store.confirmation()
    store.cut_confirmation(1)
    assert store.confirmation() == [first]
    point = points[1]
    (found,) = store.rejected()
    assert (found.candidate_key, found.level, found.stage) == ("key", 120.0, Stage.CONFIRMATION)
    assert found.measurement == point.measurement
    assert "interrupted" in found.reason


def test_json_never_holds_a_nan(store: RunStore) -> None:
    with pytest.raises(ValueError):
        store.write_result({"value": math.nan})
    assert store.result() is None


def test_run_ids_sort_by_time_and_differ() -> None:
    early = new_run_id("m", datetime(2026, 1, 1, tzinfo=UTC))
    late = new_run_id("m", datetime(2026, 1, 2, tzinfo=UTC))
    assert early < late
    assert len({new_run_id("m", datetime(2026, 1, 1, tzinfo=UTC)) for _ in range(20)}) > 15


def test_a_manifest_comes_back_as_it_was(store: RunStore) -> None:
    assert store.manifest().to_json() == a_manifest().to_json()


def test_resuming_another_experiment_is_refused_by_name() -> None:
    one = a_manifest(spec_path="one.yaml", spec_sha256="1")
    with pytest.raises(SpecError, match=r"\n  one.yaml was edited, or --set or a variable changes"):
        one.refuse_if_different(replace(one, spec_sha256="2"))
    other = a_manifest(spec_path="other.yaml", spec_sha256="2", models={})
    with pytest.raises(
        SpecError, match=r"\n  it is a run of one.yaml, not of other.yaml$"
    ) as refused:
        one.refuse_if_different(other)
    assert refused.value.hint == f"leave the spec out: tune run --resume {one.run_id}"
    with pytest.raises(SpecError, match=r"\n  tune: 1 then, 2 now$"):
        replace(one, versions={"tune": "1"}).refuse_if_different(
            replace(one, versions={"tune": "2"})
        )
    a_manifest().refuse_if_different(a_manifest(created_at="later", run_id="q"))


def test_a_run_is_not_resumed_under_another_recording() -> None:
    file = "workload.arrivals.file"
    one, other = (a_manifest(load_files={file: held}) for held in ("1", "2"))
    with pytest.raises(SpecError, match=rf"\n  {file}: its file holds something else now$"):
        one.refuse_if_different(other)
    one.refuse_if_different(a_manifest(load_files={file: "1"}))


def test_resuming_says_which_model_has_another_config_by_now() -> None:
    def of(**sha256: str | None) -> Manifest:
        kept = {n: KeptConfig(n, f"{n}/config.pbtxt", "", sha256[n]) for n in sha256}
        return a_manifest(models=kept)

    with pytest.raises(StalePlanError, match=r"\n  config.pbtxt of bert was edited$") as refused:
        of(tokenizer="1", bert="2").refuse_if_different(of(tokenizer="1", bert="3"))
    assert refused.value.exit_code == 13
    with pytest.raises(StalePlanError, match=r"\n  config.pbtxt of bert was edited$"):
        of(bert=None).refuse_if_different(of(bert="3"))
    with pytest.raises(StalePlanError, match=r"\n  config.pbtxt of bert was edited$"):
        of(bert="2").refuse_if_different(of(bert=None))
    with pytest.raises(StalePlanError, match=r"\n  config.pbtxt of head was edited$"):
        of(bert="2").refuse_if_different(of(bert="2", head="1"))


def test_the_configs_of_several_models_have_one_hash_and_that_of_one_is_its_own() -> None:
    assert sha256_of_configs({"m": "abc"}) == "abc"
    both = sha256_of_configs({"bert": "1", "head": "2"})
    assert both == sha256_of_configs({"head": "2", "bert": "1"})
    assert both != sha256_of_configs({"bert": "2", "head": "1"})
    assert a_manifest().config_sha256 == hashlib.sha256(CONFIG.encode()).hexdigest()


@pytest.mark.parametrize(
    "changed",
    [{"streams": {"texts": "bert"}}, {"streams": {}}, {"models": {}}],
)
def test_a_manifest_whose_streams_ask_what_is_not_served_is_none(
    changed: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match="gets requests is not served"):
        Manifest.from_json({**a_manifest().to_json(), **changed})


def test_a_manifest_with_a_part_that_is_not_served_is_none() -> None:
    kept = KeptConfig("m", "m/config.pbtxt", "", None, parts=("bert",))
    with pytest.raises(ValueError, match="gets requests is not served"):
        Manifest.from_json(a_manifest(models={"m": kept}).to_json())


def test_a_model_that_is_completed_otherwise_is_named() -> None:
    def of(completed: str | None) -> Manifest:
        same = KeptConfig("head", "head/config.pbtxt", "", None, completed="name: 'head'")
        bert = KeptConfig("bert", "bert/config.pbtxt", "", None, completed=completed)
        return a_manifest(models={"head": same, "bert": bert})

    of("a").refuse_if_completed_otherwise(of("a"))
    of(None).refuse_if_completed_otherwise(of("a"))
    with pytest.raises(SpecError, match="config of bert as the server completes it") as refused:
        of("a").refuse_if_completed_otherwise(of("b"))
    assert "-a" in refused.value.message
    assert "+b" in refused.value.message


def test_a_manifest_of_another_version_is_refused() -> None:
    with pytest.raises(SpecError, match="manifest version 9"):
        Manifest.from_json({**a_manifest().to_json(), "schema_version": 9})


@pytest.mark.parametrize(
    ("started_with", "now", "refused"),
    [
        ("perf_analyzer", "perf_analyzer", False),
        ("tune", "tune", False),
        ("perf_analyzer", "tune", True),
        ("tune", "perf_analyzer", True),
        (None, "perf_analyzer", False),  # an older tune's
        (None, "tune", True),  # it mixed two kinds of latency
    ],
)
def test_a_run_is_not_resumed_with_another_kind_of_latency(
    started_with: str | None, now: str, refused: bool
) -> None:
    before = asked(client=started_with)
    if refused:
        with pytest.raises(SpecError, match="latencies were not taken by"):
            before.refuse_if_measured_otherwise(asked(client=now))
    else:
        before.refuse_if_measured_otherwise(asked(client=now))


def test_a_run_that_no_server_was_asked_for_has_measured_nothing_yet() -> None:
    a_manifest().refuse_if_measured_otherwise(asked(client="tune"))
    with pytest.raises(SpecError, match="latencies were not taken by"):
        asked().refuse_if_measured_otherwise(asked(client="tune"))


WINDOW = Window(duration_s=1.0, warmup_s=1.0, deadline_s=10.0)
LOAD = LoadPoint(Arrivals.POISSON, 100.0)
DUE_S = np.arange(250) / 100.0
START_NS = 1_795_000_000_000_000_000


def test_the_p99_of_a_trial_is_that_of_the_time_stamps_in_the_export(tmp_path: Path) -> None:
    """Of the hundred requests due in the window one takes 1 ms, one 2 ms, and so on."""
    sent_ns = START_NS + np.rint(1e9 * DUE_S).astype(np.int64)
    answered_ns = sent_ns + (1 + np.arange(250) % 100) * 1_000_000
    requests = ",".join(
        f'{{"timestamp":{sent},"request_inputs":{{}},"response_timestamps":[{answered}]}}'
        for sent, answered in zip(sent_ns, answered_ns, strict=True)
    )
    end = f'"window_boundaries":[{START_NS},{answered_ns.max()}]'
    text = f'{{"experiments":[{{"requests":[{requests}],{end}}}],"version":"2.51.0"}}'  # 1: digits
    (tmp_path / "export.json").write_text(text)

    stamps = outputs.read_export(tmp_path / "export.json")  # 2: nanoseconds, sent and answered
    observed = observe_open(stamps, DUE_S, WINDOW)  # 3: latencies from due to answered, ascending
    measurement = measurement_of(observed, LOAD, seed=1)  # 4: the percentile
    point = judge_point([P99_40MS], measurement)
    assert point.measurement is measurement  # carried, not turned into anything
    trial = Trial(0, candidate_of({}), TrialState.MEASURED, (point,))
    RunStore(tmp_path).append_trial(trial)  # 5: a number in a line

    (stored,) = json.loads((tmp_path / TRIALS).read_text())["points"]
    assert stored["measurement"]["p99_latency_us"] == pytest.approx(99_000.0, abs=0.5)
    assert stored["slo"][0]["value"] == stored["measurement"]["p99_latency_us"]
