"""A process killed anywhere in a write: the next command leaves no half of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, cycle
from pathlib import Path

import pytest
from builders.killed import Killer
from builders.plans import cut_short, make_file

from tuner.errors import SpecError
from tuner.writeback.apply import apply
from tuner.writeback.plan import WritePlan
from tuner.writeback.repository import repair
from tuner.writeback.rollback import rollback

pytestmark = [pytest.mark.integration, pytest.mark.long]

#: Before the write and after it; the third model has no config before.
TEXTS = {
    "tokenizer": ("# old t\n", "# new t\n"),
    "bert": ("# old b\n", "# new b\n"),
    "head": (None, "# new h\n"),
}


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with Killer() as started:
        yield started


def contents(plan: WritePlan) -> list[str | None]:
    return [f.path.read_text() if f.path.exists() else None for f in plan.files]


def before(plan: WritePlan) -> list[str | None]:
    return [f.text_before for f in plan.files]


def after(plan: WritePlan) -> list[str | None]:
    return [f.text_after for f in plan.files]


def make_plan(repository: Path, models: Sequence[str], config: str) -> WritePlan:
    files = (make_file(repository, m, *TEXTS[m], config=config) for m in models)
    return WritePlan(tuple(files), "r1")


@pytest.mark.parametrize(
    ("models", "config"),
    [
        (("tokenizer", "bert", "head"), "config.pbtxt"),
        (("tokenizer", "bert", "head"), "configs/a100.pbtxt"),
        (("bert",), "config.pbtxt"),
        (("head",), "config.pbtxt"),
    ],
)
def test_killed_at_any_point_all_files_are_old_or_new_after_the_next_command(
    tmp_path: Path, killer: Killer, models: tuple[str, ...], config: str
) -> None:
    """The next command finishes it or finds it whole: a run, `tune apply`, or `tune rollback`.

    The same where what is killed was itself putting right what a kill had left.
    """
    follows = cycle([settle, finish, undo])
    several = len(models) > 1
    halves = []
    for act in (write, take_back, put_right) if several else (write, take_back):
        for point in count():
            plan = make_plan(tmp_path / f"{act.__name__}-{point}", models, config)
            for name in dict.fromkeys((models[0], models[-1])):
                if act is take_back:
                    apply(plan)
                if act is put_right:
                    cut_short(plan, "bert", "head")
                if not killer.killed_at(point, act(plan, name)):
                    break
                halves.append(contents(plan) not in (before(plan), after(plan)))
                next(follows)(plan, name)
                undo(plan, name)
            else:
                continue
            break
    assert len(halves) >= (200 if several else 20)
    assert sum(halves) >= 15 if several else not any(halves)


def test_killed_rollback_of_an_unrecorded_write_is_complete_after_the_next_command(
    tmp_path: Path, killer: Killer
) -> None:
    halves = []
    for point in count():
        plan = make_plan(tmp_path / str(point), list(TEXTS), "config.pbtxt")
        apply(plan)
        if not killer.killed_at(point, partial(repair, plan.repository, unrecorded="r1")):
            break
        halves.append(contents(plan) not in (before(plan), after(plan)))
        settle(plan, "")
        repair(plan.repository, unrecorded="r1")
        assert contents(plan) == before(plan)
    assert sum(halves) >= 5


def put_right(plan: WritePlan, name: str) -> Callable[[], object]:
    return partial(repair, plan.repository)


def write(plan: WritePlan, name: str) -> Callable[[], object]:
    return partial(apply, plan)


def take_back(plan: WritePlan, name: str) -> Callable[[], object]:
    return partial(rollback, plan.repository, name)


def settle(plan: WritePlan, name: str) -> None:
    """What a run begins with."""
    repair(plan.repository)
    assert contents(plan) in (before(plan), after(plan))


def finish(plan: WritePlan, name: str) -> None:
    apply(plan)
    assert contents(plan) == after(plan)
    assert not list(plan.repository.rglob(".*.pbtxt.tune.tmp"))


def undo(plan: WritePlan, name: str) -> None:
    with suppress(SpecError):  # nothing to restore: killed before any was noted
        rollback(plan.repository, name)
    assert contents(plan) == before(plan)
