"""Two on one model, and two on one machine: who measures is seen by others as long as it lives."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import the_one
from builders.jobs import SPEC
from builders.serving import served_several

from tuner.errors import EnvironmentNotReadyError
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.machine_lock import (
    LockHolder,
    among_neighbours,
    only_one_on,
    others,
    registered,
    registry,
)
from tuner.space.candidate import Candidate

MODEL = "emulated-accelerator"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    model = tmp_path / "models" / MODEL
    (model / "1").mkdir(parents=True)
    source = Path(__file__).parents[3] / "model_repository" / MODEL
    (model / "config.pbtxt").write_text((source / "config.pbtxt").read_text())
    (model / "1" / "model.py").write_text((source / "1" / "model.py").read_text())
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(repository="models"))
    return prepare(Request(spec=spec))


def test_a_second_run_on_a_model_is_refused_by_the_name_of_the_first(job: Job) -> None:
    files = sorted(the_one(job.served.models).files.path.parent.iterdir())
    with only_one_on(job), among_neighbours("run", "the-first", job, print):
        with pytest.raises(EnvironmentNotReadyError) as refused, only_one_on(job):
            pass
        assert f"the-first (pid {os.getpid()}" in refused.value.message
        assert sorted(the_one(job.served.models).files.path.parent.iterdir()) == files
    with only_one_on(job):
        pass


def test_checks_go_together_but_not_with_a_run(job: Job) -> None:
    with only_one_on(job, reading=True), among_neighbours("check", "a-check", job, print):
        with only_one_on(job, reading=True):
            pass
        with pytest.raises(EnvironmentNotReadyError, match="tune check a-check"), only_one_on(job):
            pass


def test_a_run_of_another_machine_is_refused_without_a_name(job: Job) -> None:
    with only_one_on(job):
        with pytest.raises(EnvironmentNotReadyError, match="on another machine"), only_one_on(job):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EBADF])
def test_a_file_system_without_locks_keeps_nobody_from_measuring(
    code: int, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    directory = the_one(job.served.models).files.path.parent.stat()

    def flock(descriptor: int, operation: int) -> None:
        if os.path.samestat(os.fstat(descriptor), directory):
            raise OSError(code, os.strerror(code))
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with only_one_on(job), among_neighbours("run", "the-first", job, print):
        with pytest.raises(EnvironmentNotReadyError, match="the-first"), only_one_on(job):
            pass


def test_benches_of_one_run_are_no_neighbours_of_each_other(job: Job) -> None:
    notes: list[str] = []
    with among_neighbours("run", "one", job, notes.append):
        with among_neighbours("run", "one", job, notes.append):
            pass
    assert notes == []


def test_each_notes_once_that_the_other_disturbs(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.prepare.machine_lock.POLL_S", 0.0)
    notes: list[str] = []
    with among_neighbours("run", "one", job, notes.append) as one:
        assert notes == []
        with among_neighbours("run", "two", job, notes.append):
            one.look()
            one.look()
        one.look()
    assert len(notes) == 2
    assert ["run one" in notes[0], "run two" in notes[1]] == [True, True]


def test_runs_on_different_gpus_are_not_reported(job: Job) -> None:
    notes: list[str] = []
    with among_neighbours("run", "one", on(job, (0,)), notes.append):
        with among_neighbours("run", "two", on(job, (1,)), notes.append):
            pass
    assert notes == []


def on(job: Job, gpus: Any) -> Job:
    server = job.spec.server.model_copy(update={"gpus": gpus})
    return replace(job, spec=job.spec.model_copy(update={"server": server}))


@pytest.fixture
def several(job: Job) -> Job:
    """Three models, of which one is only loaded."""
    repository = the_one(job.served.models).files.directory.parent
    served = served_several(repository, one="", two="", beside="")
    return searching(replace(job, known_models=served), "one", "two")


def searching(job: Job, *labels: str) -> Job:
    fields = Candidate.of_models({label: {"max_batch_size": 4} for label in labels})
    return replace(job, known_space=replace(job.space, current=fields))


@pytest.mark.parametrize("label", ["one", "two"])
def test_a_run_of_several_models_keeps_others_from_each_that_it_searches(
    label: str, several: Job
) -> None:
    with only_one_on(several), among_neighbours("run", "the-first", several, print):
        with pytest.raises(EnvironmentNotReadyError, match=f"models/{label} is.*the-first"):
            with only_one_on(searching(several, label)):
                pass
    with only_one_on(searching(several, label)), pytest.raises(EnvironmentNotReadyError):
        with only_one_on(several):
            pass
    with only_one_on(several):  # what it got before it was refused is free again
        pass


def test_a_model_that_is_only_loaded_is_anybodys(several: Job) -> None:
    free = False
    with only_one_on(several), among_neighbours("run", "the-first", several, print):
        with only_one_on(searching(several, "beside")):
            free = True
    assert free


@pytest.fixture(autouse=True)
def separate_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.prepare.machine_lock.registry", lambda: tmp_path / "measuring")
    monkeypatch.setattr(f"{__name__}.registry", lambda: tmp_path / "measuring")


def measuring(gpus: str | tuple[int, ...] = "all", run: str = "r") -> LockHolder:
    return LockHolder(os.getpid(), "run", run, ("/models/m",), gpus, "2025-03-01T10:00:00+00:00")


def test_others_are_seen_while_they_measure() -> None:
    with registered(measuring(run="a")) as a, registered(measuring((0, 1), run="b")):
        assert others(a) == [measuring((0, 1), run="b")]
        assert {o.run for o in others(None)} == {"a", "b"}
    assert others(None) == []
    assert list(registry().iterdir()) == []


def test_record_of_a_killed_process_is_ignored_and_removed() -> None:
    with registered(measuring()):
        pass
    left = [registry() / f"{1 << 30}-0000dead.{suffix}" for suffix in ("json", "new")]
    left[0].write_text(json.dumps(asdict(measuring())))
    left[1].touch()
    assert others(None) == []
    assert list(registry().iterdir()) == []


@pytest.mark.parametrize("name", ["config.json", "7-0000dead.json", "7-0000dead.new", "7.json"])
def test_file_that_no_tune_wrote_is_not_removed(name: str) -> None:
    with registered(measuring()):
        pass
    theirs = registry() / name
    theirs.write_text('{"mine": 1}')
    assert others(None) == []
    assert theirs.read_text() == '{"mine": 1}'


@pytest.mark.parametrize("place", ["a link", "another user's directory"])
def test_place_that_another_user_controls_is_neither_read_nor_changed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    left = victim / f"{1 << 30}-0000dead.json"
    left.write_text(json.dumps(asdict(measuring())))
    if place == "a link":
        registry().symlink_to(victim)
    else:
        victim.rename(registry())
        left = registry() / left.name
        of_another_user(monkeypatch)
    with registered(measuring()) as record:
        assert record is None
        assert others(record) == []
    assert left.exists()


def of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4321)
    if os.getuid() == 0:  # whose directories count
        os.chown(registry(), 4322, -1)


def test_place_of_another_user_is_used_where_only_owners_remove_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry().mkdir()
    registry().chmod(0o1777)
    of_another_user(monkeypatch)
    with registered(measuring(run="a")) as record:
        assert record is not None
        assert [other.run for other in others(None)] == ["a"]


@pytest.mark.parametrize("process", ["of another user", "that is not there"])
def test_a_claim_for_somebody_elses_process_is_passed_over(
    process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = 1 if process == "of another user" else 1 << 30
    with registered(replace(measuring(), pid=pid)) as file:
        assert file is not None
        status = list(file.stat())
        status[4] = 4321  # of its owner
        monkeypatch.setattr("os.fstat", lambda _: os.stat_result(status))
        assert others(None) == []


def test_foreign_files_in_the_registry_are_ignored() -> None:
    with registered(measuring()) as record:
        os.mkfifo(registry() / "7-00000001.json")
        (registry() / "7-00000002.json").symlink_to("/dev/zero")
        (registry() / "7-00000003.json").mkdir()
        (registry() / "7-00000004.json").write_text("x" * 20_000)
        (registry() / "7-00000005.json").write_text("[" * 9_000)
        assert others(record) == []


def test_a_machine_without_a_place_for_it_keeps_nobody_from_measuring(tmp_path: Path) -> None:
    registry().symlink_to(tmp_path)
    with registered(measuring()) as record:
        assert record is None
        assert others(record) == []


@pytest.mark.parametrize(
    ("mine", "yours", "disturbed"),
    [
        ("all", "all", True),
        ("none", "none", True),
        ((0,), "all", True),
        ((0,), "none", True),
        ((0, 1), (1, 2), True),
        ((0,), (1,), False),
    ],
)
def test_two_runs_on_different_gpus_do_not_conflict(
    mine: str | tuple[int, ...], yours: str | tuple[int, ...], disturbed: bool
) -> None:
    assert measuring(mine).disturbs(measuring(yours)) is disturbed


@pytest.mark.parametrize(
    ("gpus", "mine", "yours", "disturbed"),
    [
        ("none", (0, 1), (2, 3), False),
        ("none", (0, 1), (1, 2), True),
        ("none", (), (1, 2), True),
        ("all", (0, 1), (2, 3), True),  # both may use the machine's GPU
    ],
)
def test_separate_cpus_keep_two_apart_that_share_no_gpu(
    monkeypatch: pytest.MonkeyPatch,
    gpus: str,
    mine: tuple[int, ...],
    yours: tuple[int, ...],
    disturbed: bool,
) -> None:
    monkeypatch.setattr("tuner.prepare.machine_lock.has_gpu", lambda: True)
    one, other = replace(measuring(gpus), cpus=mine), replace(measuring(gpus), cpus=yours)
    assert one.disturbs(other) is disturbed
    monkeypatch.setattr("tuner.prepare.machine_lock.has_gpu", lambda: False)
    assert one.disturbs(other) is (disturbed and gpus == "none")
