"""A test that measures tells nothing on a machine that was disturbed: it is made again.

Of the tests marked ``integration``, one that fails is repeated, twice at the most, where something
is on record that spoilt its measurements: the machine stood still while it ran, its `tune` wrote
down disturbances, or the load generator could not keep up. Any other failure counts at once.

A while passes before each repetition. A test that failed every time while the machine stood still
for much of the time is *not judged*: it is reported as skipped, with its failure in the summary,
since a measurement on such a machine speaks neither for the code nor against it. So few may go
unjudged that a defect which breaks measuring fails the session all the same.

Other tests beside it (`turns`) disturb it too: it is repeated at once, alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from turns import turns_key

from tuner.load.watch.stalls import quiet_percent, watch_stalls
from tuner.measurement.window import NO_BOUND

REPETITIONS = 2
#: With stalls for so much of the time in each attempt a failure is no evidence.
UNJUDGED_PERCENT = 2.0
#: More failures than these count even so, in a session; each of its workers has its part of them.
MOST_UNJUDGED = 8
#: Before each repetition, and in a session at most: stalls come in spells, and may show only under
#: load, so that nothing can be learnt by looking on. Each worker has its part of that too.
_PAUSE_S, _PAUSES_S = 20.0, 480.0
BEHIND = "the load generator could not keep up"
BESIDE = "other tests ran beside it"

_attempt = pytest.StashKey[int]()
_why = pytest.StashKey[list[str]]()
_least_percent = pytest.StashKey[float]()
_unjudged = pytest.StashKey[int]()
_paused_s = pytest.StashKey[float]()
#: Properties of a test's reports, by which a worker's words reach the summary.
_TOLD, _UNJUDGED = "repeated", "not judged"


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
    turns = item.config.stash.get(turns_key, None)
    beside = turns is not None and not turns.alone
    begin_ns = time.time_ns()
    with watch_stalls(NO_BOUND) as stalls:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    stalled = stalls.percent(begin_ns, time.time_ns()) or 0.0
    if stalled > quiet_percent(NO_BOUND):
        why.append(f"the machine stood still for {stalled:.1f} % of the time")
    least = min(item.stash.get(_least_percent, 100.0), stalled)
    item.stash[_least_percent] = least
    if any(report.failed for report in reports):
        if (beside or why) and attempt < REPETITIONS:
            item.stash[_attempt] = attempt + 1
            _made_again(item, BESIDE if beside else why[0], nextitem)
            return True
        if least >= UNJUDGED_PERCENT:
            _leave_unjudged(item, reports, least)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _made_again(item: pytest.Item, why: str, nextitem: pytest.Item | None) -> None:
    item.user_properties.append((_TOLD, f"{item.nodeid}: {why}"))
    try:  # fixtures of the module are made anew too: what they hold may be what was spoilt
        item.session._setupstate.teardown_exact(None)
    except Exception as error:
        ended = f"{item.nodeid}: its fixtures did not end well: {error}"
        item.user_properties.append((_TOLD, ended))
    if why == BESIDE:
        item.config.stash[turns_key].enter(alone=True)
    else:
        _pause(item.config)
    # By way of the hook, so that each attempt has the whole time limit.
    item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)


def _workers(config: pytest.Config) -> int:
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def _pause(config: pytest.Config) -> None:
    before = config.stash.get(_paused_s, 0.0)
    pause_s = min(_PAUSE_S, _PAUSES_S / _workers(config) - before)
    time.sleep(pause_s)
    config.stash[_paused_s] = before + pause_s


def _leave_unjudged(item: pytest.Item, reports: list[pytest.TestReport], least: float) -> None:
    unjudged = item.config.stash.get(_unjudged, 0)
    if unjudged >= MOST_UNJUDGED // _workers(item.config):
        return
    item.config.stash[_unjudged] = unjudged + 1
    words = "; ".join(_last_line(report) for report in reports if report.failed)
    told = (
        f"{item.nodeid}: the machine stood still for {least:.1f} % of the time in each of "
        f"{REPETITIONS + 1} attempts; the last ended with: {words}"
    )
    path, line, _ = item.location
    for report in reports:
        report.user_properties.append((_UNJUDGED, told))
        if report.failed:
            report.outcome = "skipped"
            report.longrepr = (path, (line or 0) + 1, "not judged: the machine was disturbed")


def _last_line(report: pytest.TestReport) -> str:
    lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return lines[0].removeprefix("E").strip() if lines else report.longreprtext[-200:]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, title in (
        (_UNJUDGED, f"not judged, {MOST_UNJUDGED} at most: run them on a quiet machine"),
        (_TOLD, "repeated, since the machine was disturbed"),
    ):
        if lines := [text for key, text in _properties(terminalreporter) if key == name]:
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.line(line)


def _properties(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[str, str]]:
    """What the reports of all workers carry, once for each test."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "teardown":
                yield from report.user_properties
