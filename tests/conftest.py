"""Shared by all tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from builders.golden import OPTION, Golden
from hypothesis import settings

from tuner.server.binaries import fetch_tritonserver

# The same examples every time: a failure in continuous integration can be had again, and a passing
# commit stays one. `pytest --hypothesis-profile=default` looks for new ones.
# No deadline: how long one takes says how busy the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", max_examples=10_000)
settings.load_profile("repeatable")

# What fails there tells its values too.
pytest.register_assert_rewrite("contract.server_contract")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="write tests/golden anew: see its git diff")


@pytest.fixture(scope="session", autouse=True)
def _separate_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test adds to the real user's list of runs, or sees a run of another worker's test.

    Who measures has a file in the temporary directory, and so has the emulated accelerator's lock.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tests-") as temporary,  # short, for names of sockets
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("TMPDIR", temporary)
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.config)


@pytest.fixture(scope="session", autouse=True)
def _server(request: pytest.FixtureRequest) -> None:
    """For tests with a real server: fetched where a run would fetch it, as its own is."""
    if any(item.get_closest_marker("integration") for item in request.session.items):
        fetch_tritonserver(None, os.environ, print)


def pytest_configure(config: pytest.Config) -> None:
    """Runs all of a file that is named, however long it takes."""
    if _names_files(config):
        expression = config.option.markexpr
        config.option.markexpr = expression.replace("not long and not measuring and ", "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """No workers for files that are named; else as many as there are cores."""
    return 0 if _names_files(config) else None


def _names_files(config: pytest.Config) -> bool:
    return all(argument.split("::")[0].endswith(".py") for argument in config.args)
