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
from builders.runs import CONFIG, MANIFEST

from tuner.load.latency import figures_of, observe_open
from tuner.load.perf_analyzer import outputs
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, Rejected, Stage
from tuner.measurement.window import Window
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Repeat, Role
from tuner.record.manifest import KeptConfig, Manifest, sha256_of_configs
from tuner.record.reading import UnreadableFileError
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
    return replace(MANIFEST, **changes)


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


@pytest.mark.parametrize("torn", [bytes(300), b'{"number": 1, "candi'])
def test_loss_of_a_cut_file_is_reported_with_file_and_line(torn: bytes, store: RunStore) -> None:
    assert store.torn() == ()
    store.append_trial(a_trial(0))
    with (store.directory / TRIALS).open("ab") as file:
        file.write(torn)
    (said,) = store.torn()
    assert said.startswith("trials.jsonl:2: ")
    assert f"{len(torn)} bytes are left out" in said


@pytest.mark.parametrize("name", ["server", "confirm", "models"])
def test_manifest_whose_spec_has_no_mapping_for_a_section_is_refused(
    name: str, store: RunStore
) -> None:
    manifest = a_manifest().to_json()
    store.write_manifest({**manifest, "spec": {**manifest["spec"], name: None}})
    with pytest.raises(UnreadableFileError, match=f"spec.{name} is None"):
        store.manifest()


@pytest.mark.parametrize("measurement", [None, synthetic_measurement()])
def test_rejected_measurements_come_back(store: RunStore, measurement: Measurement | None) -> None:
    row = Rejected(Reason.of_text("it was disturbed"), "key", 100.0, 4.5, Stage.SEARCH, measurement)
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
    (rejected,) = store.rejected()
    assert (rejected.candidate_key, rejected.level, rejected.stage) == (
        "key",
        120.0,
        Stage.CONFIRMATION,
    )
    assert rejected.measurement == point.measurement
    assert rejected.reason.kind is ReasonKind.PROOF_INTERRUPTED


def test_json_never_holds_a_nan(store: RunStore) -> None:
    before = (store.directory / "manifest.json").read_bytes()
    with pytest.raises(ValueError):
        store.write_manifest({"value": math.nan})
    assert (store.directory / "manifest.json").read_bytes() == before


def test_run_ids_sort_by_time_and_differ() -> None:
    early = new_run_id("m", datetime(2026, 1, 1, tzinfo=UTC))
    late = new_run_id("m", datetime(2026, 1, 2, tzinfo=UTC))
    assert early < late
    assert len({new_run_id("m", datetime(2026, 1, 1, tzinfo=UTC)) for _ in range(20)}) > 15


def test_a_manifest_comes_back_as_it_was(store: RunStore) -> None:
    assert store.manifest().to_json() == a_manifest().to_json()


def completed(text: str | None) -> Manifest:
    """After a server was asked for the model's config."""
    return a_manifest(models={"m": KeptConfig("m", "m/config.pbtxt", "", None, completed=text)})


@pytest.mark.parametrize("started_with", [None, "perf_analyzer", "tune"])
def test_a_run_is_resumed_where_nothing_changed_that_counts(started_with: str | None) -> None:
    """What is refused instead is told in `golden/messages/run-not-resumed.txt`."""
    changes = {"workload.arrivals.file": "1"}
    before = a_manifest(client=started_with, load_files=changes)
    before.refuse_if_different(replace(before, created_at="later", run_id="q"))
    completed("a").refuse_if_completed_otherwise(completed("a"))
    completed(None).refuse_if_completed_otherwise(completed("a"))
    now = replace(completed(""), client=started_with or "perf_analyzer")  # an older tune's
    replace(completed(""), client=started_with).refuse_if_measured_otherwise(now)
    a_manifest().refuse_if_measured_otherwise(now)  # no server was asked: nothing is measured yet


def test_configs_of_several_models_have_one_hash_unlike_that_of_each() -> None:
    assert sha256_of_configs({"m": "abc"}) == "abc"
    both = sha256_of_configs({"bert": "1", "head": "2"})
    assert both == sha256_of_configs({"head": "2", "bert": "1"})
    assert both != sha256_of_configs({"bert": "2", "head": "1"})
    assert a_manifest().config_sha256 == hashlib.sha256(CONFIG.encode()).hexdigest()


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
    measurement = Measurement.of_all(figures_of(observed, LOAD, seed=1))  # 4: the percentile
    point = judge_point([P99_40MS], measurement)
    assert point.measurement is measurement  # carried, not turned into anything
    trial = Trial(0, candidate_of({}), TrialState.MEASURED, (point,))
    RunStore(tmp_path).append_trial(trial)  # 5: a number in a line

    (stored,) = json.loads((tmp_path / TRIALS).read_text())["points"]
    assert stored["measurement"]["p99_latency_us"] == pytest.approx(99_000.0, abs=0.5)
    assert stored["slo"][0]["value"] == stored["measurement"]["p99_latency_us"]
