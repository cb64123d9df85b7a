"""Runs, hands, kills and full disks in any order: each config is whole, and can be had back.

`History` says what tune promises, by itself. After a kill or a failure it is open how far the
journal came, so there are several histories until what is seen rules them out.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders.plans import make_file
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from tuner.errors import SpecError, StalePlanError, TunerError
from tuner.writeback.apply import apply
from tuner.writeback.journal import Action
from tuner.writeback.plan import FilePlan, WritePlan, sha256_of
from tuner.writeback.repository import half_written, repair
from tuner.writeback.rollback import rollback
from tuner.writeback.target import Written

Texts = Mapping[str, str | None]
#: Of each model that a run searched: the config that it read, and its winner's.
Plan = Mapping[str, tuple[str | None, str]]

CONFIGS = {"a": "config.pbtxt", "b": "config.pbtxt", "c": "configs/a100.pbtxt"}
BY_HAND: dict[str, str | None] = {"a": "# a's own\n", "b": "# b's own\n", "c": None}
MODES = {"a": 0o640, "b": 0o604}
MODELS = st.sampled_from(list(CONFIGS))
WINNERS = st.sampled_from([f"max_batch_size: {number}\n" for number in (1, 2, 4, 8)])

# ------------------------------------------------------------------------- what tune promises


@dataclass(frozen=True)
class Entry:
    """A write or a rollback, and what its files were before and after; `end` as in a journal."""

    action: Action
    before: Texts
    after: Texts
    end: Action | None = None

    @property
    def old(self) -> Texts:
        return self.before if self.action is Action.APPLY else self.after

    @property
    def new(self) -> Texts:
        return self.after if self.action is Action.APPLY else self.before

    def ended(self, *, with_the_winner: bool) -> Entry:
        made = with_the_winner is (self.action is Action.APPLY)
        return replace(self, end=Action.DONE if made else Action.UNDONE)


History = tuple[Entry, ...]


class Step(NamedTuple):
    """What is on disk: configs and history."""

    files: Texts
    history: History


@dataclass(frozen=True)
class Course:
    """The steps of a command, and how it ends where nothing goes wrong.

    Attributes:
        opening: First nothing is done yet; then what a kill left is undone, and that is noted.
        entry: What is written after that.
    """

    opening: tuple[Step, ...]
    entry: Entry | None = None
    error: type[TunerError] | None = None
    changed: bool = False

    @property
    def there(self) -> Step:
        return self.opening[-1]

    @property
    def steps(self) -> tuple[Step, ...]:
        if self.entry is None:
            return self.opening
        there, history = self.there
        files, done = {**there, **self.entry.after}, replace(self.entry, end=Action.DONE)
        noted = (*history, self.entry)
        last = Step(files, (*history, done))
        return (*self.opening, Step(there, noted), Step(files, noted), last)

    @property
    def puts(self) -> list[str]:
        """The models whose config is replaced or removed."""
        both = [(one.files, other.files) for one, other in pairwise(self.steps)]
        return [model for one, other in both for model in one if one[model] != other[model]]

    def then(self, action: Action, after: Texts) -> Course:
        entry = Entry(action, {model: self.there.files[model] for model in after}, after)
        return replace(self, entry=entry, changed=True)


def opened(start: Step, *, force: bool = False) -> Course:
    """A write without an end is undone, if it can be seen to be half of one."""
    if not start.history or start.history[-1].end is not None:
        return Course((start,))
    *earlier, entry = start.history
    old, new, present = entry.old, entry.new, {model: start.files[model] for model in entry.old}
    if present in (old, new):
        complete = entry.ended(with_the_winner=present == new)
        return Course((start, Step(start.files, (*earlier, complete))))
    if not any(present[model] == new[model] for model in new):
        return Course((start,))
    if not force and any(present[model] not in (old[model], new[model]) for model in new):
        return Course((start,), error=StalePlanError)
    files, undone = {**start.files, **old}, entry.ended(with_the_winner=False)
    back = Step(files, start.history), Step(files, (*earlier, undone))
    return Course((start, *back), changed=True)


def applied(start: Step, plan: Plan) -> Course:
    course = replace(opened(start), changed=False)
    there = course.there.files
    if course.error is not None:
        return course
    if any(there[model] not in texts for model, texts in plan.items()):
        return replace(course, error=StalePlanError)
    wanted = {m: new for m, (old, new) in plan.items() if new not in (old, there[m])}
    return course.then(Action.APPLY, wanted) if wanted else course


def taken_back(start: Step, model: str, *, force: bool) -> Course:
    course = opened(start, force=force)
    files, history = course.there
    of_model = [entry for entry in reversed(history) if model in entry.after]
    if course.error is not None:
        return course
    if not of_model:
        return replace(course, error=SpecError, changed=False)
    if course.changed and of_model[0] is history[-1]:
        return course
    course = replace(course, changed=False)
    entry = next((entry for entry in of_model if was_made(entry, model, files)), of_model[0])
    old, new = entry.old, entry.new
    is_old = files[model] == old[model]
    if is_old and (entry.action is Action.ROLLBACK or all(files[m] != new[m] for m in new)):
        return course
    if not force and any(files[m] not in (old[m], new[m]) for m in new):
        return replace(course, error=StalePlanError)
    return course.then(Action.ROLLBACK, {m: old[m] for m in old if files[m] != old[m]})


def was_made(entry: Entry, model: str, files: Texts) -> bool:
    """Where a write has no end, the file itself tells."""
    if entry.end is None and entry.action is Action.APPLY:
        return files[model] != entry.before[model]
    return entry.end is not Action.UNDONE


class Ended(NamedTuple):
    """How a command ended; whether it was disturbed, and what an editor saved meanwhile."""

    error: TunerError | Killed | None
    changed: bool
    struck: bool
    saved: Texts


def possible(course: Course, present: Texts, ended: Ended) -> Iterator[History]:
    """What the history may be by now, if this was its course."""
    error, changed, struck, saved = ended
    if isinstance(error, Killed):
        yield from map(without_failures, killed(course, present))
        return
    promise = (course.error or type(None), course.steps[-1].files, course.changed)
    if promise == (type(error), present, changed):
        yield without_failures(course.steps[-1].history)
    if struck:
        alone = {model: text for model, text in present.items() if model not in saved}
        yield from map(without_failures, disturbed(course, alone, error))


def killed(course: Course, present: Texts) -> Iterator[History]:
    """Where the command may have come: of two steps each file is as in the one or the other."""
    for one, other in pairwise((course.steps[0], *course.steps)):
        if all(text in (one.files[model], other.files[model]) for model, text in present.items()):
            yield from (one.history, other.history)


def disturbed(course: Course, present: Texts, error: TunerError | None) -> Iterator[History]:
    """All is written, or nothing is; of what a kill left, a part may be undone.

    A note of an end may have failed, which is no error.
    """
    last, (there, history) = course.steps[-1], course.there
    possible = []
    if error is None and course.error is None and agree(present, last.files):
        possible = [step.history for step in course.steps if step.files == last.files]
    elif error is not None:
        possible = [*killed(Course(course.opening), present)]
        if course.entry is not None and agree(present, there):
            ends = (None, Action.UNDONE)
            possible += [(*history, replace(course.entry, end=end)) for end in ends]
    first = course.steps[0].history
    for history in possible:
        yield history
        yield (*first, *history[len(first) :])


def agree(present: Texts, files: Texts) -> bool:
    return all(files[model] == text for model, text in present.items())


def without_failures(history: History) -> History:
    """Less the writes that were undone, where another one says more of the same models."""
    made = {model for entry in history if entry.end is Action.DONE for model in entry.after}
    return tuple(e for e in history if e.end is not Action.UNDONE or not made.issuperset(e.after))


# ----------------------------------------------------------------------------- what goes wrong


class Killed(BaseException):
    """The process is gone."""


class Wrong(Enum):
    KILL = "a kill"
    FAIL = "a call that fails, once"
    SAVE = "an editor that saves a config"


#: All that a command does to the disk, as in `tests/integration/writeback/test_kill.py`; and reads.
CALLS = [
    *((os, name) for name in ("open", "mkdir", "write", "fsync", "ftruncate", "fchmod", "close")),
    *((os, "pread"), (os, "listxattr"), (fcntl, "flock"), (Path, "replace"), (Path, "unlink")),
]
ANY = "any"
#: An editor saves here: not between the last look at a file and its rename, which nobody can help.
SYNC = "fsync"
#: A config is replaced or removed.
PUT = "put"


@dataclass
class Fault:
    """What goes wrong at the so-manieth of some calls; ``model`` is whose config is saved."""

    wrong: Wrong
    at: int
    calls: str = ANY
    model: str = ""
    struck: bool = False

    def within(self, course: Course) -> Fault:
        """At a call that a command has, most likely."""
        puts = len(course.puts)
        calls = {ANY: 10 + 33 * puts, PUT: max(puts, 1), SYNC: 1 + 5 * puts}
        return replace(self, at=self.at % calls[self.calls])

    def wrap(self, name: str, call: Callable[..., Any], save: Callable[[str], None]) -> Any:
        real = (lambda _: None) if name == "fsync" else call  # no power is cut here

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            visible = name in ("replace", "unlink") and args[-1].name[0] != "."
            if not self.struck and self.calls in (ANY, name, PUT if visible else ANY):
                self.at -= 1
                if self.at < 0 and (name != "close" or self.wrong is Wrong.KILL):
                    self.struck = True
                    self._strike(name, call, args, save)
            if self.struck and self.wrong is Wrong.KILL and name != "close":
                raise Killed  # whatever the process would still do; the system closes its files
            return real(*args, **kwargs)

        return wrapped

    def _strike(self, name: str, call: Any, args: Any, save: Callable[[str], None]) -> None:
        if self.wrong is Wrong.SAVE:
            save(self.model)
        elif self.wrong is Wrong.FAIL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        elif name == "write":
            call(args[0], bytes(args[1])[: len(args[1]) // 2])


INTERRUPTIONS = st.builds(
    Fault,
    st.sampled_from([Wrong.KILL, Wrong.FAIL]),
    st.integers(0, 999),
    st.sampled_from([ANY, PUT]),
)
SAVES = st.builds(Fault, st.just(Wrong.SAVE), st.integers(0, 999), st.just(SYNC), MODELS)
#: A kill between the renames of several files.
HALFWAY = st.builds(Fault, st.just(Wrong.KILL), st.integers(1, 2), st.just(PUT))
FAULTS = st.none() | INTERRUPTIONS | SAVES | HALFWAY


# ------------------------------------------------------------------------------ what happens


class Commands(RuleBasedStateMachine):
    """Commands and hands, one after the other, on the configs of three models."""

    plans = Bundle("plans")

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.repository = Path(self.place.name, "0")
        self.histories: list[History] = [()]
        self.replaced: set[tuple[str, str]] = set()
        self.count = 0
        for model, text in BY_HAND.items():
            make_file(self.repository, model, text, config=CONFIGS[model])
        for model, mode in MODES.items():
            self.path(model).chmod(mode)

    def teardown(self) -> None:
        self.place.cleanup()

    @rule(
        target=plans,
        winners=st.fixed_dictionaries(dict.fromkeys(CONFIGS, WINNERS))
        | st.dictionaries(MODELS, WINNERS, min_size=1),
        fault=FAULTS,
    )
    def a_run_writes_its_winner(self, winners: Mapping[str, str], fault: Fault | None) -> Plan:
        texts = self.files()
        plan = {model: (texts[model], text) for model, text in winners.items()}
        self.write(plan, fault)
        return plan

    @rule(plan=plans, fault=FAULTS)
    def the_winner_is_applied_again(self, plan: Plan, fault: Fault | None) -> None:
        self.write(plan, fault)

    @precondition(lambda self: self.histories != [()])
    @rule(model=MODELS, force=st.booleans(), fault=FAULTS)
    def it_is_taken_back(self, model: str, force: bool, fault: Fault | None) -> None:
        act = partial(rollback, self.repository, model, force=force)
        self.command(act, partial(taken_back, model=model, force=force), fault)

    @precondition(lambda self: any(h and h[-1].end is None for h in self.histories))
    @rule(fault=FAULTS)
    def a_run_begins(self, fault: Fault | None) -> None:
        self.command(partial(repair, self.repository), opened, fault)

    @rule(model=MODELS, text=st.none() | st.just("# by hand\n") | WINNERS)
    def a_hand_edits(self, model: str, text: str | None) -> None:
        if text is not None:
            self.path(model).parent.mkdir(exist_ok=True)
            self.path(model).write_text(text)
        else:
            self.path(model).unlink(missing_ok=True)

    @precondition(lambda self: self.histories != [()])
    @rule()
    def the_repository_is_moved(self) -> None:
        self.count += 1
        self.repository = self.repository.rename(self.repository.with_name(str(self.count)))

    @precondition(lambda self: any(h and h[-1].end is None for h in self.histories))
    @rule(plan=plans, model=MODELS, force=st.booleans())
    def looking_changes_nothing(self, plan: Plan, model: str, force: bool) -> None:
        before, half = self.files(), half_written(self.repository) is not None
        with suppress(TunerError):
            apply(self.drawn_up(plan), dry_run=True)
        with suppress(TunerError):
            rollback(self.repository, model, force=force, dry_run=True)
        assert self.files() == before
        courses = [(opened(Step(before, history)), history) for history in self.histories]
        self.histories = [history for c, history in courses if half is (c.changed or bool(c.error))]
        assert self.histories, f"half a write is told: {half}"

    @invariant()
    def what_was_replaced_is_kept(self) -> None:
        assert self.replaced <= self.backups()

    @invariant()
    def triton_finds_nothing_new(self) -> None:
        """It takes a directory of a repository for a model, and one of a model for a version."""
        visible = {*CONFIGS, "1", "config.pbtxt", "configs", "a100.pbtxt"}
        for path in self.repository.rglob("*"):
            assert path.name in visible or (path.name[0] == "." and path.is_file()), path

    def path(self, model: str) -> Path:
        return self.repository / model / CONFIGS[model]

    def files(self) -> dict[str, str | None]:
        paths = {model: self.path(model) for model in CONFIGS}
        return {model: path.read_text() if path.exists() else None for model, path in paths.items()}

    def states(self) -> dict[str, os.stat_result]:
        return {m: self.path(m).stat() for m, text in self.files().items() if text is not None}

    def backups(self) -> set[tuple[str, str]]:
        kept = self.repository.rglob(".*.tune.*.bak")
        return {(str(p.relative_to(self.repository).parts[0]), p.read_text()) for p in kept}

    def left_over(self) -> set[str]:
        return {str(p.relative_to(self.repository)) for p in self.repository.rglob(".*.tmp")}

    def drawn_up(self, plan: Plan) -> WritePlan:
        files = (
            FilePlan(m, self.path(m), None if old is None else sha256_of(old), old, new)
            for m, (old, new) in plan.items()
        )
        return WritePlan(tuple(files), "r")

    def write(self, plan: Plan, fault: Fault | None) -> None:
        self.command(lambda: apply(self.drawn_up(plan)), partial(applied, plan=plan), fault)

    def command(
        self,
        act: Callable[[], Written | None],
        promised: Callable[[Step], Course],
        fault: Fault | None,
    ) -> None:
        """Rules out each history after which it would have done something else."""
        before, states, left_over = self.files(), self.states(), self.left_over()
        courses = [promised(Step(before, history)) for history in self.histories]
        fault = Fault(Wrong.FAIL, 10**6) if fault is None else fault.within(courses[0])
        ended = self.carried_out(act, fault)
        if ended.saved:  # before the command looked, or after that
            start = {**before, **ended.saved}
            courses += [promised(Step(start, history)) for history in self.histories]
        after = self.files()
        self.histories = []
        for history in (h for course in courses for h in possible(course, after, ended)):
            if history not in self.histories:
                self.histories.append(history)
        assert self.histories, f"{before} -> {after}, {ended}; promised: {courses}"
        there = {(m, text) for m, text in {**before, **ended.saved}.items() if text is not None}
        self.replaced |= {(model, text) for model, text in there if after[model] != text}
        both = [(m, states[m], now) for m, now in self.states().items() if m in states]
        assert all(old.st_mode == now.st_mode for _, old, now in both)
        if not ended.struck:
            touched = {m for m, old, now in both if old.st_mtime_ns != now.st_mtime_ns}
            assert touched <= {model for course in courses for model in course.puts}
        if not isinstance(ended.error, Killed):
            assert self.left_over() <= left_over

    def carried_out(self, act: Callable[[], Written | None], fault: Fault) -> Ended:
        saved: dict[str, str | None] = {}

        def save(model: str) -> None:
            self.count += 1
            saved[model] = f"# saved {self.count}\n"
            self.a_hand_edits(model, saved[model])

        with pytest.MonkeyPatch.context() as patch:
            for owner, name in CALLS:
                patch.setattr(owner, name, fault.wrap(name, getattr(owner, name), save))
            try:
                result = act()
            except (TunerError, Killed) as error:
                return Ended(error, False, fault.struck, saved)
        return Ended(None, result is not None and result.changed, fault.struck, saved)


Commands.TestCase.settings = settings(stateful_step_count=25, deadline=None)
TestAnyOrder = Commands.TestCase
