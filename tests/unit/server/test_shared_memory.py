"""A region's name and memory, on this machine's own /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import LoadFailedError
from tuner.load.traffic.shared_memory import laying as shared
from tuner.load.traffic.shared_memory.laying import Laying, laying
from tuner.locking import Lock, lock
from tuner.server.server import Endpoints
from tuner.server.shared_memory import SHM, SharedRegion, shared_region, shm_names

NEVER_A_PID = 1 << 23


def test_a_region_has_a_name_until_it_is_hidden_and_no_memory_once_it_is_cleared() -> None:
    with shm_names() as names, shared_region(names) as region:
        assert region.path.stat().st_mode & 0o777 == 0o600
        assert f"-{os.getpid()}-" in region.name
        region.hide()
        assert not region.path.exists()
        region.write(5, b"image")
        assert os.pread(region.descriptor, 5, 5) == b"image"
        region.clear()
        assert os.pread(region.descriptor, 5, 5) == bytes(5)
        assert os.fstat(region.descriptor).st_blocks == 0


@pytest.fixture
def left() -> Iterator[list[Path]]:
    """What a process that was killed has left, its own file first."""
    prefix = f"tune-{NEVER_A_PID}-0123456789abcdef-"
    paths = [Path(SHM, prefix + name) for name in ("owner", "requests", "bc17-4c2d")]
    for path in paths:
        path.touch()
    yield paths
    for path in paths:
        path.unlink(missing_ok=True)


def test_all_that_a_killed_process_left_is_removed_and_what_others_have_stays(
    left: list[Path],
) -> None:
    with shm_names() as first, shared_region(first) as region, shm_names() as second:
        assert not any(path.exists() for path in left)
        assert region.path.exists()
        assert Path(SHM, f"{second}owner").exists()
    assert not region.path.exists()
    assert not Path(SHM, f"{second}owner").exists()


def test_what_another_container_holds_stays(left: list[Path]) -> None:
    with left[0].open() as held:
        assert lock(held.fileno()) is Lock.ACQUIRED
        with shm_names():
            assert all(path.exists() for path in left)


def test_names_that_tune_does_not_make_stay(left: list[Path]) -> None:
    left[0].unlink()
    left[0] = Path(SHM, f"tune-{NEVER_A_PID}-owner")
    left[0].touch()
    with shm_names():
        assert all(path.exists() for path in left)


def test_equal_inputs_are_laid_once_and_each_begins_where_tensors_do() -> None:
    with shm_names() as names, shared_region(names) as region:
        lay = Laying(region)
        places = [lay(raw)["shared_memory_offset"] for raw in (b"a" * 100, b"b", b"a" * 100)]
        assert places == [0, 128, 0]
        assert os.pread(region.descriptor, 1, 128) == b"b"


def test_what_does_not_fit_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with shm_names() as names, shared_region(names) as region:
        lay = Laying(region)
        monkeypatch.setattr(shared, "REGION_BYTES", 200)
        lay(b"a" * 100)
        with pytest.raises(LoadFailedError, match="take more than") as told:
            lay(b"b" * 100)
        assert "fewer unique inputs" in told.value.hint

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(SharedRegion, "write", full)
        with pytest.raises(LoadFailedError, match=r"do not fit into /dev/shm.*No space") as told:
            lay(b"c")
        assert "make /dev/shm larger" in told.value.hint


def test_without_shared_memory_nothing_is_laid() -> None:
    with laying(Endpoints("h:1", "h:2", None)) as lay:
        assert lay is None
