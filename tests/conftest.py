"""Shared by all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples every time: a failure in continuous integration can be had again, and a passing
# commit stays one. `pytest --hypothesis-profile=default` looks for new ones.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# What fails there tells its values too.
pytest.register_assert_rewrite("contract.load_contract", "contract.server_contract")

# A test that measures is alone on the machine, and made again where that was disturbed; `pytester`
# tests that.
pytest_plugins = ["turns", "disturbed", "pytester"]
