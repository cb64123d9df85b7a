"""A test that measures tells nothing on a machine that was disturbed: it is made again.

Of the tests marked ``integration``, one that fails is repeated, twice at the most, where something
is on record that spoilt its measurements: the hypervisor took CPU while it ran, its `tune` wrote
down disturbances, or the load generator could not keep up. Any other failure counts at once. Each
repetition is told in the summary.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tuner.load.disturbance import STOLEN_CPU_PERCENT
from tuner.load.machine import read_machine, stolen_percent

REPETITIONS = 2
_LOOKS_APART_S = 2.0
BEHIND = "the load generator could not keep up"

_attempt = pytest.StashKey[int]()
_why = pytest.StashKey[list[str]]()
_told = pytest.StashKey[list[str]]()


class Stolen:
    """The largest share of the machine that the hypervisor took in any two seconds, in percent."""

    def __init__(self) -> None:
        self.worst_percent = 0.0
        self._last = read_machine(None)

    def look(self) -> None:
        now = read_machine(None)
        self.worst_percent = max(self.worst_percent, stolen_percent(self._last, now) or 0.0)
        self._last = now


@contextmanager
def watching() -> Iterator[Stolen]:
    stolen, over = Stolen(), threading.Event()

    def look_on() -> None:
        while not over.wait(_LOOKS_APART_S):
            stolen.look()

    thread = threading.Thread(target=look_on, name="stolen CPU", daemon=True)
    thread.start()
    try:
        yield stolen
    finally:
        over.set()
        thread.join()
        stolen.look()


def recorded(directory: Path) -> Iterator[str]:
    """What the runs below a directory wrote down as having spoilt a measurement of theirs."""
    for path in sorted(directory.rglob("*.json*")):
        if path.suffix not in {".json", ".jsonl"} or not path.is_file():
            continue
        lines = path.read_text(errors="replace")
        for text in lines.splitlines() if path.suffix == ".jsonl" else [lines]:
            try:
                yield from _said(json.loads(text))
            except ValueError:  # of a run that was killed, or not JSON on purpose
                continue


def _said(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _said(item)
    elif isinstance(value, dict):
        yield from value.get("disturbances") or ()
        if BEHIND in str(value.get("reason", "")):
            yield value["reason"]
        for item in value.values():
            yield from _said(item)


def _directories(item: pytest.Item) -> Iterator[Path]:
    """Those of its fixtures: paths, and what has a ``directory``."""
    for value in (getattr(item, "funcargs", None) or {}).values():
        place = getattr(value, "directory", value)
        if isinstance(place, Path) and place.is_dir():
            yield place


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        why = item.stash.setdefault(_why, [])
        if BEHIND in str(call.excinfo.value):
            why.append(BEHIND)
        for directory in _directories(item):
            why.extend(recorded(directory))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("integration") is None:
        return None
    attempt = item.stash.get(_attempt, 0)
    why = item.stash[_why] = []
    if attempt == 0:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    with watching() as stolen:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if stolen.worst_percent > STOLEN_CPU_PERCENT:
        why.append(f"the hypervisor took {stolen.worst_percent:.1f} % of the CPU")
    if why and attempt < REPETITIONS and any(report.failed for report in reports):
        item.stash[_attempt] = attempt + 1
        _made_again(item, why[0], nextitem)
        return True
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _made_again(item: pytest.Item, why: str, nextitem: pytest.Item | None) -> None:
    told = item.config.stash.setdefault(_told, [])
    told.append(f"{item.nodeid}: {why}")
    try:  # fixtures of the module are made anew too: what they hold may be what was spoilt
        item.session._setupstate.teardown_exact(None)
    except Exception as error:
        told.append(f"{item.nodeid}: its fixtures did not end well: {error}")
    # By way of the hook, so that each attempt has the whole time limit.
    item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = terminalreporter.config.stash.get(_told, [])
    if told:
        terminalreporter.section("repeated, since the machine was disturbed")
        for line in told:
            terminalreporter.line(line)
