"""Tests run side by side, but one that measures has the machine to itself.

With several workers (pytest-xdist) each test holds one lock of the session while it runs, fixtures
included: those of `MEASURING` exclusively, all others shared. First come those without load on a
server; then those with some, beside one another only, which leaves them cores; at last those that
measure. With one worker there is nobody to wait for.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

#: Directories and files below `tests` that put load on a server.
LOADING = ("contract/test_load_generators.py", "docker", "e2e", "integration/load")
#: The longest of them; begun at last it would be waited for.
_BEGUN_FIRST = ("e2e/test_served.py",)
#: Those that assert what the load showed. What is sure to show beside others too, since it is far
#: from any limit, is not among them.
MEASURING = (
    "contract/test_load_generators.py",
    "docker",
    "e2e/test_cache.py",
    "e2e/test_check.py",
    "e2e/test_run.py",
    "integration/load/test_bursts.py",
    "integration/load/test_disturbance.py",
    "integration/load/test_stalls.py",
    "integration/load/test_open_client.py",
    "integration/load/test_overload.py",
)
#: More than the cores, since servers are waited for; further ones would only wait for one another.
_BESIDE_THE_CORES, _MOST_WORKERS = 1, 6
#: Fewer are collected and run before workers have started.
_WORTH_FILES = 20

turns_key = pytest.StashKey["Turns"]()
_directory_key = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


class Turns:
    """One worker's part in the lock that all of them share.

    Who waits for the machine stands in the door meanwhile, so that nobody else goes in.
    """

    def __init__(self, directory: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._door, self._room = (os.open(directory / name, flags) for name in ("door", "room"))
        self.alone = False

    def enter(self, *, alone: bool) -> None:
        """Waits for its turn; who is alone already stays so."""
        if self.alone:
            return
        self.leave()
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        self.alone = alone

    def leave(self) -> None:
        fcntl.flock(self._room, fcntl.LOCK_UN)
        self.alone = False

    def close(self) -> None:
        os.close(self._room)
        os.close(self._door)


def measures(item: pytest.Item) -> bool:
    return _among(MEASURING, item)


def _among(places: Sequence[str], item: pytest.Item) -> bool:
    tests = item.config.rootpath / "tests"
    return any(item.path.is_relative_to(tests / place) for place in places)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many as pay: none for a few files, nor where the output is to be seen as it comes."""
    if config.option.capture == "no" or _files(config.args) < _WORTH_FILES:
        return 0
    return min(len(os.sched_getaffinity(0)) + _BESIDE_THE_CORES, _MOST_WORKERS)


def _files(arguments: list[str]) -> int:
    places = {Path(argument.split("::")[0]) for argument in arguments}
    return sum(len(list(p.rglob("test_*.py"))) if p.is_dir() else 1 for p in places)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Gives each worker the directory of the locks, which goes when the session ends."""
    node.workerinput["turns"] = node.config.stash[_directory_key].name


def pytest_configure(config: pytest.Config) -> None:
    if (given := getattr(config, "workerinput", None)) is not None:
        turns = config.stash[turns_key] = Turns(Path(given["turns"]))
        config.add_cleanup(turns.close)
    elif config.getoption("tx", None):
        directory = config.stash[_directory_key] = tempfile.TemporaryDirectory(prefix="turns-")
        config.add_cleanup(directory.cleanup)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if turns_key in config.stash:
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, bool, bool]:
    return measures(item), _among(LOADING, item), not _among(_BEGUN_FIRST, item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Outermost, so that no time limit runs while it waits."""
    turns = item.config.stash.get(turns_key, None)
    if turns is None:
        return (yield)
    turns.enter(alone=measures(item))
    try:
        return (yield)
    finally:
        turns.leave()
