"""A run's directory, new or resumed: locked before anything in it is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders.candidates import candidate_of, the_one
from builders.jobs import SPEC, a_job, opened
from builders.measurements import P99_40MS, synthetic_measurement
from builders.reasons import said
from builders.results import a_result

from tuner.errors import SpecError
from tuner.measurement.measurement import Rejected, Stage
from tuner.modelconfig.base import Base
from tuner.modelconfig.message import parse
from tuner.prepare.job import Job, Request, draw_up, prepare
from tuner.prepare.timebook import Phase, TimeBook
from tuner.reason import Reason
from tuner.record.confirmation import Repeat, Role
from tuner.record.store import RunStore
from tuner.run.ending import write_back
from tuner.score.point import judge_point
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.writeback.rollback import rollback


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path)


@pytest.fixture
def run(job: Job, tmp_path: Path) -> RunStore:
    """One trial, a confirmation that was not finished, a measurement that it rejected."""
    with opened(job, Request(job.loaded.path, output=tmp_path / "results")) as new:
        store: RunStore = new.store
    store.append_trial(
        Trial(
            0, job.space.current, TrialState.FAILED, reason=said("no"), time=TrialTime(1, 2, 4, 0)
        )
    )
    point = judge_point([P99_40MS], synthetic_measurement())
    store.append_confirmation(Repeat(0, 0, Role.CURRENT, "k", point))
    store.append_rejected(Rejected(Reason.of_text("why"), "k", 100.0, 8.0, Stage.CONFIRMATION))
    store.append_rejected(Rejected(Reason.of_text("why"), "k", 100.0, 3.0, Stage.SEARCH))
    store.write_result(a_result())
    return store


def resumed(run: RunStore) -> Request:
    return Request(Path("spec.yaml"), resume=run.directory)


def test_a_manifest_says_what_a_run_is_made_with(job: Job, tmp_path: Path) -> None:
    request = Request(
        job.loaded.path, output=tmp_path / "results", trials=3, command=("tune", "run", "x")
    )
    with opened(job, request) as new:
        manifest = RunStore.open(new.store.directory).manifest()
    assert (manifest.run_id, manifest.name) == ("a-run", "emulated-accelerator")
    assert (manifest.spec_path, manifest.spec_text) == (str(job.loaded.path), job.loaded.text)
    assert manifest.spec_sha256 == job.loaded.sha256
    config = the_one(manifest.models)
    assert (config.path, config.text) == (
        str(the_one(job.served.models).files.path),
        the_one(job.served.models).files.text,
    )
    assert config.sha256 == the_one(job.served.models).files.sha256
    assert (manifest.seed, manifest.space_size) == (0, 4)
    assert manifest.current == job.space.current
    assert manifest.spec["slo"] == ["p99_latency <= 40ms"]
    assert (manifest.host, list(manifest.gpus)) == ({"cpu": "a cpu"}, [])
    assert (manifest.versions, manifest.fingerprint) == ({"tritonserver": "1"}, "0" * 16)
    assert list(manifest.command) == ["tune", "run", "x"]
    assert manifest.choices.trials == 3
    assert len(manifest.created_at) == len("2025-01-01T00:00:00+00:00")


def test_new_choices_hold_for_the_next_resume(job: Job, run: RunStore) -> None:
    before = run.manifest()
    with opened(job, replace(resumed(run), trials=7, write=False)):
        pass
    choices = run.manifest().choices
    assert (choices.trials, choices.write) == (7, False)
    assert choices.directory == before.choices.directory
    with opened(job, resumed(run)):
        pass
    assert run.manifest().choices.trials is None


def test_a_run_that_is_being_written_is_left_as_it_is(job: Job, run: RunStore) -> None:
    with (
        run.locked(),
        pytest.raises(SpecError, match="another tune is writing"),
        opened(job, resumed(run)),
    ):
        pass
    assert len(run.confirmation()) == 1
    assert run.result() is not None


def test_time_spent_before_a_resume_is_counted(job: Job, run: RunStore) -> None:
    book = TimeBook(clock=lambda: 0.0)
    with opened(job, resumed(run), book):
        pass
    assert book.seconds(Phase.DEPLOYING) == 2.0
    # The trial's (the search's rejected ones are in it), and the confirmation that was given up.
    assert book.seconds(Phase.MEASURING) == 4.0 + 8.0


def test_an_earlier_end_does_not_outlive_its_confirmation(job: Job, run: RunStore) -> None:
    with opened(job, resumed(run)) as again:
        assert [t.number for t in again.searcher.history] == [0]
    assert run.confirmation() == []
    assert run.result() is None
    assert [r.stage for r in run.rejected()].count(Stage.CONFIRMATION) == 2


def test_a_run_is_not_resumed_where_the_server_completes_another_config(
    job: Job, tmp_path: Path
) -> None:
    request = Request(job.loaded.path, output=tmp_path / "results")
    with opened(job, request) as new:
        assert the_one(new.manifest.models).completed is not None
        assert (
            parse(the_one(new.manifest.models).completed)
            == the_one(job.served.models).base.completed
        )
        directory = new.store.directory
    resumed = replace(request, resume=directory)
    running = parse(the_one(job.served.models).files.text + "input { name: 'more' }")
    base = Base.of_server(the_one(job.served.models).base.file, running, completes=True)
    other = job.over(job.served.over({job.spec.name: base}))
    with pytest.raises(SpecError) as refused:
        with opened(other, resumed):
            pass
    assert '+  name: "more"' in refused.value.message
    with opened(job, resumed):
        pass


def test_a_run_of_an_older_tune_does_not_know_what_was_completed(job: Job, run: RunStore) -> None:
    data = run.manifest().to_json()
    del the_one(data["models"])["completed"], the_one(data["models"])["overridden"]
    run.write_manifest(data)
    assert the_one(run.manifest().models).completed is None
    with opened(job, resumed(run)) as again:
        assert [t.number for t in again.searcher.history] == [0]


def test_the_manifest_states_no_hash_where_there_is_no_config(tmp_path: Path) -> None:
    job = job_without_config(tmp_path)
    with opened(job, Request(job.loaded.path, output=tmp_path / "results")) as new:
        config = the_one(new.manifest.models)
        assert (config.sha256, config.text) == (None, "")


def test_a_model_without_a_config_gets_one_and_loses_it_by_rollback(tmp_path: Path) -> None:
    job = job_without_config(tmp_path)
    with opened(job, Request(job.loaded.path, output=tmp_path / "results")) as new:
        winner = candidate_of({"instance_group.count": 3}, model=job.spec.name)
        change = draw_up(job, winner)
        (written,) = write_back(new.manifest, winner, change).files
    assert (written.path, written.sha256_before) == (the_one(job.served.models).files.path, None)
    assert parse(the_one(job.served.models).files.path.read_text()).instance_group[0].count == 3
    assert rollback(job.spec.repository, "m").files[0].sha256_after is None
    assert not the_one(job.served.models).files.path.exists()


def job_without_config(tmp_path: Path) -> Job:
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    (tmp_path / "models" / "m" / "1" / "model.onnx").touch()
    spec = tmp_path / "spec.yaml"
    text = SPEC.format(repository=tmp_path / "models")
    spec.write_text(text.replace("emulated-accelerator", "m"))
    return prepare(Request(spec=spec))
