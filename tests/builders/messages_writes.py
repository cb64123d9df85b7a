"""Why a config is not written or not taken back, and what is said of one that is."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from builders.plans import AFTER, BEFORE, cut_short, make_file, make_plan
from builders.refusals import Case
from builders.results import a_result

from tuner.record.manifest import KeptConfig, Manifest
from tuner.record.result_schema import ChangedConfig, WrittenFacts
from tuner.record.status import Status
from tuner.space.candidate import Candidate
from tuner.writeback.apply import apply
from tuner.writeback.journal import journal_of, locked_journal
from tuner.writeback.plan import WritePlan, file_plans, plan_from_run, sha256_of
from tuner.writeback.repository import half_written
from tuner.writeback.target import target_of

OLD, NEW = "max_batch_size: 1\n", "max_batch_size: 8"
RESULT = a_result(
    Candidate(),
    models={"m": ChangedConfig(config_before=OLD, config_after=NEW)},
    server_args=("--x=1",),
)


def manifest(config_text: str = OLD, config_sha256: str | None = "") -> Manifest:
    sha256 = sha256_of(config_text) if config_sha256 == "" else config_sha256
    return Manifest(
        run_id="r1", created_at="", spec_path="", spec_text="", spec_sha256="", spec={}, name="m",
        seed=0, models={"m": KeptConfig("m", "/repo/m/config.pbtxt", config_text, sha256)},
        versions={}, host={}, gpus=(), fingerprint="f",
        current=Candidate.of_models({"m": {}}), arrivals=1, streams={"m": "m"},
    )  # fmt: skip


def wrote(sha256_after: str) -> WrittenFacts:
    before = sha256_of(OLD)
    return WrittenFacts(path="p", sha256_before=before, sha256_after=sha256_after, backup=None)


def failing(number: int) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


def no_plans() -> dict[str, Case]:
    """Of runs that have no winner, or contradict themselves."""

    def of(facts: Manifest, **changes: object) -> Case:
        return lambda _: plan_from_run(facts, RESULT.model_copy(update=changes))

    def winner(text: str) -> dict[str, object]:
        return {"models": {"m": ChangedConfig(config_before=OLD, config_after=text)}}

    def forged(here: Path) -> None:
        path = str(make_file(here, "m").path)
        kept = KeptConfig("m", path, BEFORE, sha256_of(BEFORE), write_to="../n/config.pbtxt")
        apply(WritePlan(tuple(file_plans(kept, AFTER)), "r1"))

    return {
        "it kept the current config": of(manifest(), status=Status.KEPT, winner=None, models={}),
        "no config met the SLOs": of(manifest(), status=Status.INFEASIBLE, winner=None),
        "it failed": of(manifest(), status=Status.FAILED, winner=None),
        "the config it read has another hash": of(manifest(OLD, sha256_of("other"))),
        "the config it read was not there": of(manifest(OLD, None)),
        "the config it read is half a config": of(manifest("half {")),
        "its winner is a script": of(manifest(), **winner("\n\n#!/bin/sh\nrm")),
        "its winner is no text": of(manifest(), **winner("\udcff")),
        "it wrote another config": of(manifest(), written=wrote("0" * 64)),
        "its result is about another model": of(manifest(), model="n"),
        "its config lies in another model": forged,
    }


def in_place(make: Callable[[Path], object]) -> Callable[[Path], WritePlan]:
    """A plan whose file became something else meanwhile."""

    def plan(here: Path) -> WritePlan:
        made = make_plan(here)
        made.path.unlink()
        make(made.path)
        return made

    return plan


def linked(repository: Path, target: Path) -> WritePlan:
    """A plan for a model whose config is a link to ``target``."""
    plan = make_plan(repository)
    target.parent.mkdir(parents=True, exist_ok=True)
    plan.path.rename(target)
    plan.path.symlink_to(target)
    return plan


def applied(plan: Callable[[Path], WritePlan]) -> Case:
    return lambda here: apply(plan(here))


def appeared(here: Path) -> None:
    plan = make_plan(here, before=None)
    plan.path.write_text("somebody's own\n")
    apply(plan)


def no_directory(here: Path) -> None:
    plan = make_plan(here, before=None)
    shutil.rmtree(plan.path.parent)
    apply(plan)


def no_version(here: Path) -> None:
    (here / "m").mkdir()
    target_of(here / "m" / "config.pbtxt", "m")


def mounted(here: Path) -> None:
    data = here / "mnt" / "..2026_09_01_08_00_00.123456789"
    make_plan(data)
    (here / "mnt" / "..data").symlink_to(data.name)
    (here / "mnt" / "m").symlink_to("..data/m")
    target_of(here / "mnt" / "m" / "config.pbtxt", "m")


def annexed(here: Path) -> None:
    linked(here, here / ".git" / "annex" / "objects" / "SHA256E-s9--abc")
    target_of(here / "m" / "config.pbtxt", "m")


def locked(here: Path) -> None:
    plan = make_plan(here)
    with locked_journal(here):
        apply(plan)


def shared(here: Path) -> None:
    files = [make_file(here, name, "# old\n", "# new\n") for name in ("a", "b")]
    (here / "both.pbtxt").write_text("# old\n")
    for file in files:
        file.path.unlink()
        file.path.symlink_to(here / "both.pbtxt")
    apply(WritePlan((files[0], replace(files[1], text_after="# other\n")), "r1"))


def outside(here: Path) -> None:
    apply(linked(here / "models", here / "elsewhere" / "m.pbtxt"))


def no_journal(make: Callable[[Path], object]) -> Case:
    def case(here: Path) -> None:
        make(journal_of(here))
        apply(make_plan(here))

    return case


def where(module: Any, name: str, number: int) -> Case:
    def case(here: Path) -> None:
        plan = make_plan(here)
        with patch.object(module, name, failing(number)):
            apply(plan)

    return case


def named(here: Path) -> WritePlan:
    path = make_file(here, "m").path
    kept = KeptConfig("m", str(path), BEFORE, sha256_of(BEFORE), write_to="configs/a100.pbtxt")
    return WritePlan(tuple(file_plans(kept, AFTER)), "r1")


def made_of_another(here: Path) -> None:
    plan = named(here)
    (here / "m" / "config.pbtxt").write_text("max_batch_size: 2\n")
    apply(plan)


def named_appeared(here: Path) -> None:
    plan = named(here)
    make_file(here, "m", "# somebody else's\n", config="configs/a100.pbtxt")
    apply(plan)


def not_written() -> dict[str, Case]:
    return {
        "it was edited since the run": applied(in_place(lambda p: p.write_text("edited\n"))),
        "it was removed since the run": applied(in_place(lambda _: None)),
        "it appeared since the run": appeared,
        "what configs/a100.pbtxt was made of was edited": made_of_another,
        "configs/a100.pbtxt appeared": named_appeared,
        "its model is gone": no_directory,
        "its directory is no model": no_version,
        "it is a pipe": applied(in_place(os.mkfifo)),
        "it is a directory": applied(in_place(Path.mkdir)),
        "it is a device": applied(in_place(lambda p: p.symlink_to("/dev/zero"))),
        "it leads nowhere": applied(in_place(lambda p: p.symlink_to("new"))),
        "it is another file": lambda _: target_of(Path("/home/u/.ssh/authorized_keys"), ".ssh"),
        "it is mounted by Kubernetes": mounted,
        "it lies in a store of contents": annexed,
        "it leads out of the repository": outside,
        "two models have it and would differ": shared,
        "another tune writes": locked,
        "its lock fails": where(fcntl, "flock", errno.EIO),
        "its attributes cannot be listed": where(os, "listxattr", errno.EIO),
        "it cannot be renamed": where(Path, "replace", errno.EPERM),
        "the journal is a pipe": no_journal(os.mkfifo),
        "the journal is a directory": no_journal(Path.mkdir),
        "the journal is a link": no_journal(lambda p: p.symlink_to("victim")),
    }


def write_notes() -> dict[str, Case]:
    def half(here: Path) -> WritePlan:
        files = tuple(make_file(here, m) for m in ("m", "n"))
        cut_short(WritePlan(files, "r1"), "n")
        return WritePlan((make_file(here, "other", "# old\n", "# new\n"),), "r0")

    def seen(here: Path) -> str:
        half(here)
        error = half_written(here)
        assert error is not None
        return f"{error.message}\nnext: {error.hint}"

    def shared(here: Path) -> tuple[str, ...]:
        target = here / "configs" / "both.pbtxt"
        plan = linked(here, target)
        (here / "other" / "1").mkdir(parents=True)
        (here / "other" / "config.pbtxt").symlink_to(target)
        return apply(plan).all_notes

    def another(here: Path) -> tuple[str, ...]:
        plan = make_plan(here)
        (here / "other").mkdir()
        (here / "other" / "config.pbtxt").symlink_to(plan.path)
        return apply(plan).all_notes

    def outside(here: Path) -> tuple[str, ...]:
        plan = linked(here / "models", here / "elsewhere" / "m.pbtxt")
        return apply(plan, through_links=True).all_notes

    def unlocked(here: Path) -> tuple[str, ...]:
        with patch.object(fcntl, "flock", failing(errno.ENOLCK)):
            return apply(make_plan(here)).all_notes

    def moved(here: Path) -> tuple[str, ...]:
        (here / "repo").mkdir()
        (here / "repo" / "m").symlink_to("../real/m")
        (file,) = make_plan(here / "real").files
        path = here / "repo" / "m" / "config.pbtxt"
        return apply(WritePlan((replace(file, path=path),), "r1")).all_notes

    return {
        "half a write is there": seen,
        "half a write was undone first": lambda here: apply(half(here)).all_notes,
        "the file is a link of two models": shared,
        "another model links to the file": another,
        "the file lies outside": outside,
        "the model is a link": moved,
        "the file is of one kind of machine": lambda here: apply(named(here)).all_notes,
        "the file system has no locks": unlocked,
    }
