"""A process killed anywhere in a write of several files: the next command leaves no half of it."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from builders.plans import cut_short

from tuner.errors import EnvironmentNotReadyError
from tuner.writeback.plan import FilePlan, WritePlan, apply, sha256_of
from tuner.writeback.rollback import rollback, settle_all

pytestmark = [pytest.mark.integration, pytest.mark.long]

#: The third model has no config before the write.
BEFORE = {"tokenizer": "# old t\n", "bert": "# old b\n", "head": None}
#: A config that the directories have from the beginning, and one in a directory of its own.
CONFIGS = ("config.pbtxt", "configs/a100.pbtxt")
AFTER = {"tokenizer": "# new t\n", "bert": "# new b\n", "head": "# new h\n"}

#: All that a write does to the disk; a kill comes before each, and in the middle of each `write`.
CALLS = [
    (os, "open"),
    (os, "mkdir"),
    (os, "write"),
    (os, "fsync"),
    (os, "ftruncate"),
    (os, "fchmod"),
    (os, "close"),
    (fcntl, "flock"),
    (Path, "replace"),
    (Path, "unlink"),
]


def killed_at(point: int, act: Callable[[], object]) -> bool:
    """Runs ``act`` in a process that is killed at its so-manieth call; False if it came through."""
    child = os.fork()
    if not child:
        left = iter(range(point, -1, -1))
        for owner, name in CALLS:
            setattr(owner, name, counted(getattr(owner, name), left, in_half=name == "write"))
        act()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
    return False


def counted(call: Any, left: Iterator[int], *, in_half: bool) -> Any:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if in_half and next(left, None) == 0:
            descriptor, data = args
            call(descriptor, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)

    return wrapped


def config_in(repository: Path) -> str:
    """The path of each model's config there, by the directory that the repository is in."""
    return repository.parent.name.replace("+", "/")


def contents(repository: Path) -> dict[str, str | None]:
    paths = {name: repository / name / config_in(repository) for name in BEFORE}
    return {name: p.read_text() if p.exists() else None for name, p in paths.items()}


def make_plan(repository: Path) -> WritePlan:
    files = []
    for name, before in BEFORE.items():
        path = repository / name / config_in(repository)
        (repository / name / "1").mkdir(parents=True)
        if before is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_text(before)
        sha256 = None if before is None else sha256_of(before)
        files.append(FilePlan(name, path, sha256, before, AFTER[name] or ""))
    return WritePlan(tuple(files), "r1")


@pytest.mark.parametrize("config", CONFIGS)
def test_killed_at_any_point_several_files_are_all_old_or_all_new_after_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    """The next command finishes it or finds it whole: a run, `tune apply`, or `tune rollback`.

    The same where what is killed was itself putting right what a kill had left.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill loses nothing: no power cut
    follows = cycle([settle, finish, undo])
    halves = []
    for act, start in ((write, BEFORE), (take_back, AFTER), (put_right, BEFORE)):
        for point in count():
            plan = make_plan(tmp_path / config.replace("/", "+") / f"{act.__name__}-{point}")
            for name in ("tokenizer", "head"):
                if start is AFTER:
                    apply(plan)
                if act is put_right:
                    cut_short(plan, "bert", "head")
                if not killed_at(point, partial(act, plan, name)):
                    break
                halves.append(contents(plan.repository) not in (BEFORE, AFTER))
                next(follows)(plan, name)
                undo(plan, name)
            else:
                continue
            break
    assert len(halves) >= 200
    assert sum(halves) >= 15, "the kills did not come between the renames"


def put_right(plan: WritePlan, name: str) -> None:
    list(settle_all(plan.repository))


def write(plan: WritePlan, name: str) -> None:
    apply(plan)


def take_back(plan: WritePlan, name: str) -> None:
    rollback(plan.repository, name)


def settle(plan: WritePlan, name: str) -> None:
    """What a run begins with."""
    list(settle_all(plan.repository))
    assert contents(plan.repository) in (BEFORE, AFTER)


def finish(plan: WritePlan, name: str) -> None:
    apply(plan)
    assert contents(plan.repository) == AFTER
    assert not list(plan.repository.rglob(".*.pbtxt.tune.tmp"))


def undo(plan: WritePlan, name: str) -> None:
    with suppress(EnvironmentNotReadyError):  # nothing to take back: killed before any was noted
        rollback(plan.repository, name)
    assert contents(plan.repository) == BEFORE
