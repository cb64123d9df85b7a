"""The steps in their order, with an emulated bench: what is written, stored, and gone on with."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import the_one
from builders.jobs import Facts
from builders.plans import cut_short, make_file, make_read_only
from builders.reasons import said
from builders.workplace import MODEL, Workplace, best_of, interrupt
from sqlalchemy.exc import OperationalError

from tuner.errors import EnvironmentNotReadyError, SpecError, StalePlanError
from tuner.load.seeds import of_confirmation
from tuner.machine.host import read_host
from tuner.meter.session import Session
from tuner.modelconfig.files import read_config
from tuner.prepare.machine_lock import LockHolder, registered
from tuner.proof.proof import prove
from tuner.record.result_schema import RunDecision
from tuner.record.status import Status
from tuner.record.store import RunStore
from tuner.run import ending
from tuner.run import run as pipeline
from tuner.run.ending import write_back
from tuner.score.trial import Trial
from tuner.search.study import StudyRecord
from tuner.writeback.journal import Action
from tuner.writeback.plan import WritePlan


def printed_command(err: str) -> list[str]:
    """What follows `go on with:`, as a shell would read it."""
    (line,) = [line for line in err.splitlines() if "go on with: " in line]
    return shlex.split(line.partition("go on with: ")[2])


def test_a_winner_is_written_and_the_result_says_so(workplace: Workplace) -> None:
    before = workplace.config.read_text()
    assert workplace.tune("run", "my spec.yaml", "--progress", "none") == 0
    assert (
        workplace.config.read_text()
        == the_one(workplace.result["models"])["config_after"]
        != before
    )
    assert workplace.result["written"]["path"] == str(workplace.config)


@pytest.mark.parametrize("cause", ["a read-only model", "a read-only repository", "a journal"])
def test_repository_that_cannot_be_written_is_refused_before_anything_is_measured(
    cause: str, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = workplace.config.parent
    if cause == "a journal":
        (model.parent / ".tune.journal").symlink_to("elsewhere")
    else:
        make_read_only(model if cause == "a read-only model" else model.parent, monkeypatch)
    assert workplace.tune("run", "my spec.yaml") == 4
    assert "no winner could be written: " in workplace.tune.err
    assert workplace.bench.deployed == []
    assert not workplace.results.exists()
    assert workplace.tune("run", "my spec.yaml", "--no-write", "--progress", "none") == 0


@pytest.mark.parametrize("step", ["find_programs", "serving"])
def test_signal_before_a_resumed_run_is_open_leaves_the_command_that_goes_on(
    step: str, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workplace.bench.then = {1: interrupt}
    assert workplace.tune("run", "my spec.yaml", "--progress", "none") == 130
    run = workplace.store.directory

    def stopped(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(pipeline, step, stopped)
    assert workplace.tune("run", "--resume", run, "--progress", "none") == 130
    assert printed_command(workplace.tune.err)[-2:] == ["--resume", str(run)]
    assert "2 trials kept" in workplace.tune.err


def test_a_run_first_undoes_what_a_killed_tune_left_half_written(workplace: Workplace) -> None:
    repository, before = workplace.config.parent.parent, workplace.config.read_text()
    files = (make_file(repository, MODEL, before, "# half\n"), make_file(repository, "other"))
    cut_short(WritePlan(files, "r1"), MODEL)
    assert workplace.config.read_text() == "# half\n"
    assert workplace.tune("run", str(workplace.spec), "--trials", "2") == 0
    assert the_one(workplace.result["models"])["config_before"] == before
    assert "run r1" in workplace.tune.err


def test_a_model_that_is_a_link_is_written_where_it_leads_and_taken_back_byte_for_byte(
    workplace: Workplace,
) -> None:
    link, real = workplace.config.parent, workplace.spec.parent / "real" / "of-a-group"
    real.parent.mkdir()
    link.rename(real)
    link.symlink_to(real)
    before = (real / "config.pbtxt").read_bytes()
    assert workplace.tune("run", str(workplace.spec), "--trials", "2") == 0
    assert f"{link} " in workplace.tune.err
    assert str(real / "config.pbtxt") in workplace.tune.err
    assert (real / "config.pbtxt").read_bytes() != before
    assert workplace.tune("rollback", MODEL, "--repository", "my repository") == 0
    assert (real / "config.pbtxt").read_bytes() == before
    assert link.readlink() == real


@pytest.mark.parametrize("action", [Action.APPLY, Action.ROLLBACK])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["plan", "my spec.yaml"], 2),
        (["lint", "my repository"], 2),
        (["lint", "my repository", "--model", "other"], 2),
        (["doctor", "my spec.yaml"], 4),
        (["check", "my spec.yaml"], 4),
        (["run", "my spec.yaml", "--no-write"], 4),
        (["models", "my repository"], 0),
    ],
)
def test_read_only_commands_report_half_written_files_and_leave_them(
    workplace: Workplace,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    code: int,
    action: Action,
) -> None:
    monkeypatch.setattr("tuner.run.doctor.run_checks", lambda *_, **__: [])
    workplace.spec.write_text(workplace.spec.read_text() + "server: {binary: /usr/bin/env}\n")
    repository, before = workplace.config.parent.parent, workplace.config.read_text()
    shutil.copytree(repository / MODEL, repository / "other")
    texts = {name: before.replace(MODEL, name) for name in (MODEL, "other")}
    files = [make_file(repository, name, text, f"{text}# new\n") for name, text in texts.items()]
    for file in files if action is Action.ROLLBACK else ():
        file.path.write_text(file.text_after)
    cut_short(WritePlan(tuple(files), "r1"), MODEL, action=action)
    half = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    assert workplace.tune(*command) == code
    new = MODEL if action is Action.APPLY else "other"
    said = workplace.tune.out + workplace.tune.err
    assert "run r1" in said
    assert f"{MODEL}, other in " in said
    assert f"my repository, only {new} " in said
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == half
    assert workplace.tune("rollback", new, "--repository", "my repository") == 0
    assert workplace.tune("lint", "my repository") == 0
    assert "cut short" not in workplace.tune.out


def test_a_run_is_about_the_spec_as_it_was_when_it_began(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read once, and not again after half-written files were put back."""

    def undo(repository: Path, *, write: bool) -> list[str]:
        workplace.spec.write_text("no spec any more")
        return []

    before = workplace.spec.read_text()
    monkeypatch.setattr(pipeline, "undo_half_writes", undo)
    assert workplace.tune("run", str(workplace.spec), "--trials", "2", "--no-write") == 0
    assert workplace.store.manifest().spec_text == before


def test_no_write_leaves_the_repository_as_it_is(workplace: Workplace) -> None:
    before = workplace.config.read_bytes()
    files = sorted(workplace.config.parent.iterdir())
    assert workplace.tune("run", "my spec.yaml", "--no-write", "--progress", "none") == 0
    assert workplace.config.read_bytes() == before
    assert sorted(workplace.config.parent.iterdir()) == files
    assert workplace.result["written"] is None
    assert workplace.result["status"] == "improved"
    assert (workplace.store.directory / "best" / "proposal.patch").is_file()


def test_printed_command_resumes_with_all_choices(workplace: Workplace) -> None:
    before = workplace.config.read_bytes()
    workplace.bench.then = {1: interrupt}
    chosen = ["--no-write", "--seed", "7", "--trials", "3", "--time-budget", "10m"]
    chosen += ["--output", "results"]
    assert workplace.tune("run", "my spec.yaml", "--progress", "none", *chosen) == 130
    err = workplace.tune.err
    assert " 2 trials " in err
    tune, *arguments = printed_command(err)
    assert tune == "tune"
    assert workplace.tune(*arguments) == 0
    manifest = workplace.store.manifest()
    assert manifest.seed == 7
    assert len(workplace.store.trials()) == 3
    assert (workplace.store.directory / "study.db").exists()
    assert workplace.config.read_bytes() == before
    assert workplace.result["written"] is None
    assert workplace.result["status"] == "improved"


def test_insufficient_time_is_refused_before_anything_starts_but_not_on_resume(
    workplace: Workplace,
) -> None:
    short = ["--time-budget", "2s", "--progress", "none"]
    assert workplace.tune("run", "my spec.yaml", *short) == 2
    assert not workplace.results.exists()
    workplace.bench.then = {1: interrupt}
    assert workplace.tune("run", "my spec.yaml", "--progress", "none") == 130
    assert workplace.tune("run", "--resume", str(workplace.store.directory), *short) == 0


def test_each_run_confirms_under_other_arrivals_and_a_resumed_run_under_the_same(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def prove(session: Session, trials: Sequence[Trial], _: object) -> RunDecision:
        assert session.arrivals is not None
        seen.append(session.arrivals)
        if len(seen) == 1:
            interrupt()
        return best_of(trials)

    monkeypatch.setattr(pipeline, "prove", prove)
    run = ["run", "my spec.yaml", "--progress", "none", "--no-write"]
    assert workplace.tune(*run) == 130
    stored = workplace.store.manifest()
    assert workplace.tune("run", "--resume", str(workplace.store.directory)) == 0
    assert workplace.tune(*run) == 0
    assert seen[0] == seen[1] == stored.arrivals == of_confirmation(stored.run_id) != seen[2]


def test_a_run_is_gone_on_with_from_another_directory(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workplace.bench.then = {1: interrupt}
    assert workplace.tune("run", "my spec.yaml", "--progress", "none") == 130
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    directory = str(workplace.store.directory)
    assert workplace.tune("run", "--resume", directory, "--progress", "none") == 0
    assert workplace.config.read_text() == the_one(workplace.result["models"])["config_after"]


def interrupted(workplace: Workplace, *options: str) -> str:
    """A run stopped after its second trial; its directory."""
    workplace.bench.then = {1: interrupt}
    assert workplace.tune("run", "my spec.yaml", "--progress", "none", *options) == 130
    return str(workplace.store.directory)


def test_options_given_to_a_resume_override_the_stored_ones(workplace: Workplace) -> None:
    run = interrupted(workplace, "--trials", "2")
    again = ["--trials", "3", "--no-write", "--progress", "none"]
    assert workplace.tune("run", "--resume", run, *again) == 0
    assert len(workplace.store.trials()) == 3
    assert workplace.result["written"] is None
    choices = workplace.store.manifest().choices
    assert (choices.trials, choices.write) == (3, False)


def test_path_of_a_moved_spec_is_required(workplace: Workplace) -> None:
    run = interrupted(workplace)
    moved = workplace.spec.rename(workplace.spec.with_name("moved.yaml"))
    assert workplace.tune("run", "--resume", run) == 2
    err = workplace.tune.err
    assert str(workplace.spec) in err
    assert workplace.tune("run", str(moved), "--resume", run, "--progress", "none") == 0


@pytest.mark.parametrize(
    ("changed", "code", "named"),
    [
        ("spec", 2, "my spec.yaml "),
        ("another", 2, "it is a run of my spec.yaml"),
        ("config", 13, f"config.pbtxt of {MODEL} "),
        ("machine", 2, "machine (fingerprint): "),
    ],
)
def test_nothing_is_started_for_a_run_whose_spec_config_or_machine_is_another_now(
    changed: str, code: int, named: str, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = interrupted(workplace)

    def never(*_: object) -> Any:
        raise AssertionError("started")

    monkeypatch.setattr(pipeline, "find_programs", never)
    if changed == "machine":
        monkeypatch.setattr(pipeline, "host_of", lambda *_: read_host({}))
    else:
        other = workplace.spec.with_name("other.yaml")
        other.write_text(workplace.spec.read_text())
        path = {"spec": workplace.spec, "another": other}.get(changed, workplace.config)
        path.write_text(path.read_text() + "# more\n")
    specs = ["other.yaml"] if changed == "another" else []
    assert workplace.tune("run", *specs, "--resume", run) == code
    assert f"\n  {named}" in workplace.tune.err


def test_neither_spec_nor_run_is_a_usage_error(workplace: Workplace) -> None:
    assert workplace.tune("run") == 2


def test_run_of_an_earlier_version_leaves_its_storage_and_says_so(workplace: Workplace) -> None:
    run = interrupted(workplace)
    path = Path(run) / "manifest.json"
    data = json.loads(path.read_text())
    data["choices"]["storage"] = "postgresql://tuner:***@db/optuna"
    path.write_text(json.dumps(data))
    assert workplace.tune("run", "--resume", run) == 0
    assert "used the storage postgresql://tuner:***@db/optuna" in workplace.tune.err
    assert "storage" not in json.loads(path.read_text())["choices"]


def test_a_comment_in_latin_1_keeps_its_bytes(workplace: Workplace) -> None:
    comment = b"# \xfcber\x85 caf\xe9"
    field = b"instance_group ["
    before = workplace.config.read_bytes().replace(field, comment + b"\n" + field)
    workplace.config.write_bytes(before)
    assert workplace.tune("run", "my spec.yaml", "--no-write", "--progress", "none") == 0
    best = workplace.store.directory / "best"
    after = (best / MODEL / "config.pbtxt").read_bytes()
    assert comment in after
    assert b"\n " + comment + b"\n" in (best / "proposal.patch").read_bytes()
    assert comment.decode("latin-1") in the_one(workplace.result["models"])["config_before"]
    assert workplace.tune("apply", str(workplace.store.directory)) == 0
    assert workplace.config.read_bytes() == after != before
    assert workplace.tune("rollback", MODEL, "--repository", "my repository") == 0
    assert workplace.config.read_bytes() == before


def test_a_run_with_an_encoding_that_no_config_has_is_not_read(workplace: Workplace) -> None:
    assert workplace.tune("run", "my spec.yaml", "--no-write", "--progress", "none") == 0
    path = workplace.store.directory / "manifest.json"
    data = json.loads(path.read_text())
    assert the_one(data["models"]).pop("encoding") == "utf-8"
    path.write_text(json.dumps(data))
    assert the_one(workplace.store.manifest().models).encoding == "utf-8"  # of an older tune
    the_one(data["models"])["encoding"] = "utf-16"
    path.write_text(json.dumps(data))
    assert workplace.tune("apply", str(workplace.store.directory)) == SpecError.exit_code


def test_a_refused_write_keeps_the_winner_for_apply(workplace: Workplace) -> None:
    theirs = workplace.config.read_text() + "# edited meanwhile\n"
    workplace.bench.then = {1: lambda: workplace.config.write_text(theirs)}
    assert workplace.tune("run", "my spec.yaml", "--progress", "none") == StalePlanError.exit_code
    assert workplace.config.read_text() == theirs
    assert workplace.result["status"] == "improved"
    assert workplace.result["winner"] is not None
    assert workplace.result["written"] is None
    assert workplace.result["trials"]["asked"] >= 4
    workplace.config.write_text(the_one(workplace.result["models"])["config_before"])
    assert workplace.tune("apply", str(workplace.store.directory)) == 0
    assert workplace.config.read_text() == the_one(workplace.result["models"])["config_after"]


def test_edit_of_a_config_is_reported_before_the_next_trial_with_what_happens_at_the_end(
    workplace: Workplace,
) -> None:
    before = workplace.config.read_text()
    workplace.bench.then = {
        1: lambda: workplace.config.write_text(f"{before}# edited meanwhile\n"),
        2: lambda: workplace.config.write_text(before),
    }
    assert workplace.tune("run", "my spec.yaml") == 0
    err = workplace.tune.err
    edited, restored = f"{workplace.config} was edited meanwhile", "is again as the run read it"
    assert 0 < err.find(edited) < err.find(restored)
    assert err.count(edited) == err.count(restored) == 1
    assert f"not written (exit code {StalePlanError.exit_code}) but kept for `tune apply`" in err
    assert workplace.config.read_text() == the_one(workplace.result["models"])["config_after"]


def test_ctrl_c_during_the_overload_writes_nothing_and_can_be_gone_on_with(
    workplace: Workplace,
) -> None:
    before = workplace.config.read_bytes()
    workplace.overloading = interrupt
    assert workplace.tune("run", "my spec.yaml") == 130
    err = workplace.tune.err
    assert " 4 trials " in err
    assert workplace.config.read_bytes() == before
    assert workplace.result["status"] == "interrupted"
    workplace.overloading = lambda: None
    assert workplace.tune(*printed_command(err)[1:]) == 0
    assert workplace.config.read_bytes() != before


def test_ctrl_c_during_the_soak_writes_nothing_and_can_be_gone_on_with(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "prove", prove)
    soak = workplace.bench.soak

    def interrupted_soak(*arguments: Any) -> Any:
        interrupt()
        return soak(*arguments)

    monkeypatch.setattr(workplace.bench, "soak", interrupted_soak)
    before = workplace.config.read_bytes()
    assert workplace.tune("run", "my spec.yaml") == 130
    err = workplace.tune.err
    assert " 4 trials " in err
    assert workplace.config.read_bytes() == before
    assert "soak" in [repeat.role.value for repeat in workplace.store.confirmation()]
    monkeypatch.setattr(workplace.bench, "soak", soak)
    rows, measured = workplace.store.confirmation(), len(workplace.bench.loads)
    assert workplace.tune(*printed_command(err)[1:]) == 0
    assert workplace.config.read_bytes() != before
    assert workplace.result["winner"]["soak"]["tried"]
    assert workplace.store.confirmation() == rows
    assert (len(workplace.bench.loads), len(workplace.bench.soaks)) == (measured, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_writing_comes_after_the_result_is_stored(
    number: signal.Signals, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(*arguments: Any) -> Any:
        done = write_back(*arguments)
        signal.raise_signal(number)
        return done

    monkeypatch.setattr(ending, "write_back", written)
    code = workplace.tune("run", "my spec.yaml", "--progress", "none")
    assert code == (130 if number == signal.SIGTERM else 0)
    assert workplace.config.read_text() == the_one(workplace.result["models"])["config_after"]
    assert workplace.result["status"] == "improved"
    assert workplace.result["written"] is not None
    assert (workplace.store.directory / "report.html").is_file()


class Killed(BaseException):
    """Nothing of ours catches it."""


@pytest.mark.parametrize(
    ("recorded", "write_to"),
    [(False, "config.pbtxt"), (True, "config.pbtxt"), (False, "configs/a100.pbtxt")],
)
def test_a_run_killed_when_it_has_just_written_ends_as_it_would_have(
    recorded: bool, write_to: str, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workplace.spec.write_text(f"write_to: {write_to}\n{workplace.spec.read_text()}")
    config = workplace.config.parent / write_to
    before = read_config(config)

    def write_and_die(*arguments: Any) -> Any:
        write_back(*arguments)
        raise Killed

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if recorded:
            patch.setattr("tuner.report.render.report_run", die)
        else:
            patch.setattr(ending, "write_back", write_and_die)
        with pytest.raises(Killed):
            workplace.tune("run", "my spec.yaml", "--progress", "none")
    after = read_config(config)
    assert after != before
    if not recorded:  # nor is what a power cut has torn
        (workplace.store.directory / "result.json").write_text('{"version": 1, ')
    deployed = len(workplace.bench.deployed)
    again = ("run", "--resume", str(workplace.store.directory))
    longer = workplace.tune(*again, "--trials", "50")
    assert longer == 13, "another experiment: it would begin with the winner"
    assert workplace.tune(*again) == 0
    assert ("is undone" in workplace.tune.err) is not recorded
    assert read_config(config) == after
    assert workplace.result["written"] is not None
    assert (workplace.store.directory / "report.html").is_file()
    assert len(workplace.bench.deployed) == deployed
    assert workplace.tune("rollback", workplace.store.run_id, "--output", "results") == 0
    assert read_config(config) == before


def test_server_that_cannot_be_restored_fails_the_run_but_keeps_its_result(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def find_programs(*_: object) -> Iterator[Any]:
        yield Facts()
        raise EnvironmentNotReadyError("left otherwise")

    monkeypatch.setattr(pipeline, "find_programs", find_programs)
    kept = RunDecision.of(Status.KEPT, (said("none is better"),), None)
    monkeypatch.setattr(pipeline, "prove", lambda *_: kept)
    assert workplace.tune("run", "my spec.yaml", "--progress", "none") == 4
    assert "left otherwise" in workplace.tune.err
    assert workplace.result["status"] == "kept"


@pytest.mark.parametrize(
    "garbage", [b"no database at all" * 500, b"SQLite format 3\0" + b"x" * 9000]
)
def test_a_damaged_study_is_made_anew_from_the_trials(garbage: bytes, workplace: Workplace) -> None:
    run = interrupted(workplace)
    before = workplace.store.trials()
    (Path(run) / "study.db").write_bytes(garbage)
    assert workplace.tune("run", "--resume", run) == 0
    assert "rebuilt from trials.jsonl" in workplace.tune.err
    assert workplace.store.trials()[: len(before)] == before
    (aside,) = Path(run).glob("study.db.damaged-*")
    assert aside.read_bytes() == garbage


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_database(*_: object) -> None:
    raise OperationalError("INSERT", {}, Exception("database or disk is full"))


@pytest.mark.parametrize(
    ("where", "name", "failing"),
    [
        (RunStore, "append_trial", full_disk),
        (RunStore, "write_best", full_disk),
        (StudyRecord, "write", full_database),
    ],
)
def test_a_full_disk_during_a_run_is_no_defect_of_tune(
    where: type,
    name: str,
    failing: Callable[..., None],
    workplace: Workplace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, name, failing)
    code = workplace.tune("run", "my spec.yaml", "--no-write", "--progress", "plain")
    err = workplace.tune.err
    assert code == EnvironmentNotReadyError.exit_code, err
    assert "no space left" in err or "disk is full" in err
    assert "Traceback" not in err
    assert "defect" not in err


def test_a_disk_that_stays_full_keeps_the_first_error(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunStore, "append_trial", full_disk)
    monkeypatch.setattr(RunStore, "write_result", full_disk)
    assert workplace.tune("run", "my spec.yaml") == EnvironmentNotReadyError.exit_code
    assert "Traceback" not in workplace.tune.err


def test_a_run_whose_report_cannot_be_written_says_that_its_winner_is(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = workplace.config.read_bytes()
    monkeypatch.setattr("tuner.report.render.report_run", full_disk)
    assert workplace.tune("run", "my spec.yaml") == EnvironmentNotReadyError.exit_code
    assert workplace.config.read_bytes() != before
    assert f"the winner is written: {workplace.config}" in workplace.tune.err


def test_a_second_run_of_a_model_is_refused_and_leaves_nothing(workplace: Workplace) -> None:
    def again() -> None:
        assert workplace.tune("run", "my spec.yaml") == EnvironmentNotReadyError.exit_code
        first = f"tune run {workplace.store.run_id} (pid {os.getpid()}"
        refused.append(first in workplace.tune.err)

    refused: list[bool] = []
    workplace.bench.then = {1: again}
    assert workplace.tune("run", "my spec.yaml", "--progress", "none") == 0
    assert refused == [True]


def test_who_measures_at_the_same_time_is_noted(workplace: Workplace) -> None:
    other = LockHolder(
        os.getpid(), "check", "elsewhere", ("/other",), "all", "2025-03-01T10:00:00+00:00"
    )
    with registered(other):
        assert workplace.tune("run", "my spec.yaml") == 0
    said = f"tune check elsewhere (pid {os.getpid()}, since 2025-03-01 10:00 UTC) also"
    assert said in workplace.tune.err
