"""Which tests run a line, and whether they notice that it was changed.

Each mutant is tried in a child forked from a process that has imported pytest and the libraries
but nothing of `tuner`: the child imports the module with the change in memory, so no file is ever
touched, and starts within a second.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from mutants import Mutant

#: Imported before forking: what takes longest and is not mutated.
LIBRARIES = (
    "numpy",
    "scipy.special",
    "optuna",
    "pydantic",
    "click",
    "rich",
    "jinja2",
    "yaml",
    "google.protobuf",
    "pandas",
    "numba",
    "psutil",
    "plotly.graph_objects",
)
#: Seconds that a child may take beyond several times its tests' own.
PATIENCE_S, TIMES = 30.0, 8.0
MEMORY_BYTES = 12 << 30
QUIET = ("-q", "--no-header", "--no-summary", "--tb=no", "-x", "-n", "0")


class Outcome(Enum):
    KILLED = "killed"
    TIMEOUT = "killed by running too long"
    SURVIVED = "survived"
    NOT_REACHED = "no test runs it"


@dataclass(frozen=True)
class Reach:
    """Which tests run which lines.

    Attributes:
        seconds: Of each test.
        tests: Path, line, tests.
    """

    seconds: dict[str, float]
    tests: dict[str, dict[str, list[str]]]

    @classmethod
    def read(cls, kept: Path) -> Reach:
        return cls(**json.loads(kept.read_text()))

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that run what a mutant changes; its own room's first, then the quick ones."""
        by_line = self.tests.get(str(mutant.path), {})
        lines = by_line.keys()
        if not mutant.at_import:
            first, last = mutant.lines
            lines = by_line.keys() & {str(n) for n in range(first, last + 1)}
        found = {test for line in lines for test in by_line[line]}
        home = f"tests/unit/{mutant.room}/"
        return sorted(found, key=lambda t: (not t.startswith(home), self.seconds[t], t))


class _Traced:
    """Tells coverage which test is running."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.coverage.switch_context(item.nodeid)
        begin = time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.monotonic() - begin
            self.coverage.switch_context("")


class _Only:
    """Keeps the tests that are to run, in their order."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.place = {test: i for i, test in enumerate(wanted)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (i for i in items if i.nodeid in self.place), key=lambda i: self.place[i.nodeid]
        )


class _Changed(importlib.abc.MetaPathFinder, SourceFileLoader):
    """Finds one module with its source changed."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(mutant.path.resolve()))
        self._source = mutant.source

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> Any:
        return compile(self._source, self.path, "exec", dont_inherit=True)


def preload() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in LIBRARIES:
            importlib.import_module(name)


def reach(paths: Sequence[str], leave_out: Sequence[str], kept: Path) -> Reach:
    """Runs the tests once, all of which must pass, and follows the lines that each runs."""

    def trace() -> int:
        from coverage import Coverage

        coverage = Coverage(source=["tuner"], data_file=None, messages=False, config_file=False)
        tracer = _Traced(coverage)
        coverage.start()
        code = pytest.main(
            [*QUIET, *paths, *(f"--ignore={p}" for p in leave_out)],
            plugins=[tracer],
        )
        coverage.stop()
        data = coverage.get_data()
        lines = {
            str(Path(file).relative_to(Path.cwd())): {
                str(n): sorted(c for c in contexts if c)
                for n, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        kept.write_text(json.dumps({"seconds": tracer.seconds, "tests": lines}))
        return int(code)

    code = _in_child(trace, 3600.0)
    if code != 0:
        raise SystemExit("the tests do not pass as they are, so they tell nothing: run pytest")
    return Reach.read(kept)


def tried(mutant: Mutant, reach: Reach) -> Outcome:
    """Whether any test that runs the change fails; its own room's tests are asked first."""
    wanted = reach.of(mutant)
    if not wanted:
        return Outcome.NOT_REACHED
    home = [t for t in wanted if t.startswith(f"tests/unit/{mutant.room}/")]
    for tests in (home, wanted[len(home) :]):
        outcome = _tried_by(tests, mutant, reach) if tests else Outcome.SURVIVED
        if outcome is not Outcome.SURVIVED:
            return outcome
    return Outcome.SURVIVED


def _tried_by(tests: Sequence[str], mutant: Mutant, reach: Reach) -> Outcome:
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))

    def status() -> int:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        sys.meta_path.insert(0, _Changed(mutant))
        return int(pytest.main([*QUIET, *files], plugins=[_Only(tests)]))

    code = _in_child(status, PATIENCE_S + TIMES * sum(reach.seconds[t] for t in tests))
    if code is None:
        return Outcome.TIMEOUT
    return Outcome.SURVIVED if code == 0 else Outcome.KILLED


def _in_child(work: Callable[[], int], timeout_s: float) -> int | None:
    """The exit status of a forked child; None when it took too long."""
    scratch = tempfile.mkdtemp(prefix="mutation-")
    child = os.fork()
    if child == 0:
        code = 70
        with contextlib.suppress(BaseException):
            os.setsid()
            null = os.open(f"{scratch}/output", os.O_WRONLY | os.O_CREAT)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os.environ["TMPDIR"] = tempfile.tempdir = scratch
            code = work()
        os._exit(code)
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        shutil.rmtree(scratch, ignore_errors=True)
