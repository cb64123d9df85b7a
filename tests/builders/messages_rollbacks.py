"""Why a config is not taken back."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

from builders.messages_writes import failing
from builders.plans import cut_short, make_file, make_plan
from builders.refusals import Case

from tuner.writeback.apply import apply
from tuner.writeback.journal import journal_of
from tuner.writeback.plan import WritePlan
from tuner.writeback.rollback import rollback


def written(here: Path, *models: str) -> WritePlan:
    plan = WritePlan(tuple(make_file(here, m) for m in models or ("m",)), "r1")
    apply(plan)
    return plan


def never(here: Path) -> None:
    make_plan(here)
    rollback(here, "m")


def ensemble(here: Path) -> None:
    step = '{ model_name: "bert" model_version: -1 }'
    text = f'platform: "ensemble" ensemble_scheduling {{ step [ {step} ] }}'
    make_file(here, "whole", text)
    make_file(here, "bert")
    rollback(here, "whole")


def edited(here: Path) -> None:
    plan = written(here, "tokenizer", "bert")
    plan.files[1].path.write_text("# by hand\n")
    rollback(here, "tokenizer")


def removed(here: Path) -> None:
    written(here, "head", "bert")
    shutil.rmtree(here / "bert")
    rollback(here, "head")


def piped(here: Path) -> None:
    (file,) = written(here).files
    file.path.unlink()
    os.mkfifo(file.path)
    rollback(here, "m")


def half(here: Path) -> None:
    plan = WritePlan(tuple(make_file(here, m) for m in ("tokenizer", "bert")), "r1")
    cut_short(plan, "tokenizer")
    plan.files[1].path.write_text("# by hand\n")
    rollback(here, "tokenizer")


def no_backup(here: Path) -> None:
    written(here)
    (backup,) = (here / "m").glob(".*.bak")
    backup.write_text("damaged")
    rollback(here, "m")


def damaged(line: str) -> Case:
    def case(here: Path) -> None:
        written(here)
        with journal_of(here).open("a") as journal:
            journal.write(f"{line}\n")
        rollback(here, "m")

    return case


def elsewhere(here: Path) -> None:
    written(here)
    first, *_ = journal_of(here).read_text().splitlines()
    entry = json.loads(first)
    entry["files"][0]["path"] = "../m/config.pbtxt"
    journal_of(here).write_text(json.dumps(entry) + "\n")
    rollback(here, "m")


def colleagues(here: Path) -> None:
    written(here)
    opened = os.open

    def refused(path: Any, flags: int, *args: Any) -> int:
        if Path(path).name == journal_of(here).name and not flags & os.O_CREAT:
            failing(errno.EACCES)()
        return opened(path, flags, *args)

    with patch.object(os, "open", refused):
        rollback(here, "m")


def no_model(name: str) -> Case:
    def case(here: Path) -> None:
        written(here)
        rollback(here, name)

    return case


def not_rolled_back() -> dict[str, Case]:
    return {
        "tune never wrote it": never,
        "tune never wrote a step of the ensemble": ensemble,
        "a config was edited after the write": edited,
        "a model of the write is gone": removed,
        "it is a pipe now": piped,
        "half a write was edited": half,
        "its backup is damaged": no_backup,
        "the journal has half a line": damaged("half a li"),
        "the journal has a line of something else": damaged("[]"),
        "the journal names a file elsewhere": elsewhere,
        "the journal is a colleague's alone": colleagues,
        "the model is a path": no_model("../x/m"),
        "the model is the repository": no_model("."),
        "the model has no name": no_model(""),
    }
