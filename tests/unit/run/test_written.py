"""The winner of a run of several models: as text, in best/ and in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.jobs import opened
from builders.plans import cut_short, make_file
from builders.results import a_result

from tuner.errors import SpecError
from tuner.load.probes.warmup import WarmUp
from tuner.prepare.job import Job, Request, draw_up, prepare, with_proposal
from tuner.record.store import RunStore
from tuner.run.ending import best_configs, write_back
from tuner.run.repair import undo_half_writes
from tuner.space.candidate import Candidate, variable
from tuner.writeback.plan import WritePlan, refuse_forged
from tuner.writeback.rollback import rollback
from tuner.writeback.target import write_notes

CONFIG = """\
# {name}: a comment
backend: "python"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
"""
SPEC = """\
repository: {repository}
models:
  a: {{space: {{instance_group.count: {{int: [1, 4]}}}}}}
  b: {{space: {{instance_group.count: {{int: [1, 4]}}}}}}
  c: {{}}
streams:
  to-a: {{model: a, share: 50%}}
  to-b: {{model: b, share: 50%}}
workload: {{arrivals: {{kind: poisson}}}}
slo: [p99_latency <= 40ms]
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    for name in ("a", "b", "c"):
        directory = tmp_path / "models" / name / "1"
        directory.mkdir(parents=True)
        (directory / "model.py").write_text("class TritonPythonModel:\n  execute = None\n")
        (directory.parent / "config.pbtxt").write_text(CONFIG.format(name=name))
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(repository=tmp_path / "models"))
    return prepare(Request(spec=spec))


def winner(a: int, b: int) -> Candidate:
    return Candidate.of_models({n: {"instance_group.count": c} for n, c in (("a", a), ("b", b))})


def test_each_config_is_drawn_up_and_all_are_in_one_diff(job: Job) -> None:
    change = draw_up(job, winner(2, 3))
    assert list(change.configs) == ["a", "b"]
    for label, count in (("a", 2), ("b", 3)):
        config = change.configs[label]
        assert config.config_after.startswith(config.config_before.rstrip("\n"))
        assert f"count: {count}" in config.config_after
        assert f"--- a/{label}/config.pbtxt\n" in change.diff


def test_the_best_configs_are_those_that_change_each_under_its_models_name(
    job: Job, tmp_path: Path
) -> None:
    change = draw_up(job, winner(1, 3))
    store = RunStore.create(tmp_path / "results", "a-run")
    store.write_best(best_configs(job, change), ("--cache-config=local,size=1",), ["OMP=1"])
    best = store.directory / "best"
    assert [str(p.relative_to(best)) for p in sorted(best.rglob("*.*"))] == [
        "b/config.pbtxt",
        "environment.txt",
        "server_args.txt",
    ]
    assert (best / "b" / "config.pbtxt").read_text() == change.configs["b"].config_after
    assert (best / "environment.txt").read_text() == "OMP=1\n"


def test_a_variable_that_the_winner_needs_is_a_comment_that_a_rollback_takes_back(
    job: Job,
) -> None:
    configs = [job.served.models[label].files.path for label in ("a", "b")]
    old = [config.read_bytes() for config in configs]
    candidate = Candidate({**winner(2, 1).values, variable("OMP_NUM_THREADS"): 1})
    change = draw_up(job, candidate)
    assert "OMP_NUM_THREADS" not in change.configs["b"].config_after
    with opened(job, Request(job.loaded.path, output=job.loaded.path.parent / "results")) as new:
        write_back(new.manifest, candidate, change)
        text = configs[0].read_text()
        assert text.startswith(draw_up(job, winner(2, 1)).configs["a"].config_after)
        assert "\n# tune:   Docker        docker run -e OMP_NUM_THREADS=1 ...\n" in text
        needed = {"OMP_NUM_THREADS": 1}
        result = a_result(candidate, environment=needed, models=change.configs)
        refuse_forged(new.manifest, result, lambda: job.spec)
        text = change.configs["a"].config_after.replace("OMP_NUM_THREADS=1", "LD_PRELOAD=/x")
        forged = change.configs["a"].model_copy(update={"config_after": text})
        for edited in (
            a_result(candidate, environment={"OMP_NUM_THREADS": 2}, models=change.configs),
            a_result(candidate, environment=needed, models={**change.configs, "a": forged}),
        ):
            with pytest.raises(SpecError, match="does not follow from its fields"):
                refuse_forged(new.manifest, edited, lambda: job.spec)
        rollback(job.spec.repository, "a")
    assert [config.read_bytes() for config in configs] == old


def test_a_winner_with_a_proposed_warm_up_is_not_taken_for_a_forged_one(job: Job) -> None:
    warm_up = WarmUp("a", (4,), "model_warmup [\n]\n", 2.0, 0.1, 1.0, 0.2, 1.5)
    change = with_proposal(job, draw_up(job, winner(2, 1)), warm_up)
    assert "# model_warmup [" in change.configs["a"].config_after
    result = a_result(winner(2, 1), models=change.configs, warm_up=warm_up)
    with opened(job, Request(job.loaded.path, output=job.loaded.path.parent / "results")) as new:
        refuse_forged(new.manifest, result, lambda: job.spec)


def test_only_what_changes_is_written_and_one_rollback_takes_it_back(job: Job) -> None:
    configs = [job.served.models[label].files.path for label in ("a", "b", "c")]
    old = [config.read_text() for config in configs]
    with opened(job, Request(job.loaded.path, output=job.loaded.path.parent / "results")) as new:
        for best, changed in ((winner(2, 3), ["a", "b"]), (winner(1, 4), ["b"])):
            change = draw_up(job, best)
            written = write_back(new.manifest, best, change)
            assert [file.path.parent.name for file in written.files] == changed
            after = [change.configs[label].config_after for label in ("a", "b")]
            assert [config.read_text() for config in configs] == [*after, old[2]]
            rollback(job.spec.repository, "b")
            assert [config.read_text() for config in configs] == old


def test_link_that_blocks_the_write_is_reported_beforehand(job: Job) -> None:
    config = job.served.models["b"].files.path
    outside = job.loaded.path.parent / "b.pbtxt"
    config.rename(outside)
    config.symlink_to(outside)
    (note,) = write_notes(job.searched_files)
    assert f"{config} leads to {outside}" in note


def test_run_first_repairs_half_written_configs(tmp_path: Path, job: Job) -> None:
    repository = tmp_path / "models"
    old = job.served.models["a"].files.text
    files = (make_file(repository, n, CONFIG.format(name=n), f"# new {n}\n") for n in ("a", "b"))
    cut_short(WritePlan(tuple(files), "r1"), "a")
    assert (repository / "a" / "config.pbtxt").read_text() != old
    (note,) = undo_half_writes(repository, write=True)
    assert "run r1" in note
    assert prepare(Request(spec=job.loaded.path)).served.models["a"].files.text == old
    assert list(undo_half_writes(repository, write=True)) == []
