from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tuner.server import binaries
from tuner.server.binaries import Installation, Origin
from tuner.triton.doctor import run_checks


@pytest.mark.parametrize(
    ("version", "warned"),
    [("2.51.0", True), ("2.59.0", True), ("2.59.1", False), ("2.60.0", False), ("odd", False)],
)
def test_a_server_with_public_holes_is_warned_of_and_fine_all_the_same(
    version: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def found(*_: object) -> Iterator[Installation]:
        yield Installation(Path("/t"), version, Origin.PATH, {})

    for program in ("tritonserver", "perf_analyzer"):
        monkeypatch.setattr(binaries, program, found)
    monkeypatch.setattr("tuner.triton.doctor.free_ports", lambda _: nullcontext((1, 2, 3)))
    check, *_ = run_checks({})
    assert (check.id, check.ok) == ("tritonserver", True)
    assert check.mend.startswith("older than release 25.07") is warned
