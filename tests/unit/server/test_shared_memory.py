"""A region's name and memory, on this machine's own /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import LoadFailedError
from tuner.load.traffic.shared_memory import laying as shared
from tuner.load.traffic.shared_memory.laying import Laying, laying
from tuner.load.traffic.wire import RequestForm
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


def test_files_that_another_container_locks_stay(left: list[Path]) -> None:
    with left[0].open() as file:
        assert lock(file.fileno()) is Lock.ACQUIRED
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


def form_with(outputs: dict[str, int], model: str = "m") -> RequestForm:
    return RequestForm(model, {}, batched=False, batch_size=1, outputs=outputs)


def test_outputs_of_64_requests_have_separate_places_before_all_inputs() -> None:
    form, other = form_with({"y": 100, "text": 0, "z": 4}), form_with({"y": 64}, "n")
    with shm_names() as names, shared_region(names) as region:
        lay = Laying(region, [form, other, form])
        assert lay(b"input")["shared_memory_offset"] == 64 * (128 + 64 + 64)
        first, second, again = (lay.outputs(form, number) for number in (0, 1, 64))
    assert first == again
    assert [place["shared_memory_offset"] for place in (first["y"], first["z"])] == [0, 128]
    assert [place["shared_memory_byte_size"] for place in (first["y"], first["z"])] == [100, 4]
    assert first["text"] == {}
    assert second["y"]["shared_memory_offset"] == 192


def test_large_outputs_get_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "REGION_BYTES", 2048)
    with shm_names() as names, shared_region(names) as region:
        assert Laying(region, [form_with({"y": 256})]).places == 4
        assert Laying(region).places == 1


@pytest.mark.parametrize(
    ("outputs", "words"),
    [({"y": 2000}, "the outputs of one request exceed"), ({"text": 0}, "no output of a fixed")],
)
def test_outputs_without_room_or_size_are_refused(
    outputs: dict[str, int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "REGION_BYTES", 2048)
    with (
        shm_names() as names,
        shared_region(names) as region,
        pytest.raises(LoadFailedError, match=words) as error,
    ):
        Laying(region, [form_with(outputs)])
    assert error.value.hint == "leave out workload.shared_outputs"


def test_a_full_dev_shm_is_noticed_before_the_server_writes_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with (
        shm_names() as names,
        shared_region(names) as region,
        pytest.raises(LoadFailedError, match=r"do not fit into /dev/shm: No space"),
    ):
        Laying(region, [form_with({"y": 100})])


def test_inputs_too_large_for_shared_memory_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shm_names() as names, shared_region(names) as region:
        lay = Laying(region)
        monkeypatch.setattr(shared, "REGION_BYTES", 200)
        lay(b"a" * 100)
        with pytest.raises(LoadFailedError, match="take more than") as error:
            lay(b"b" * 100)
        assert "fewer unique inputs" in error.value.hint

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(SharedRegion, "write", full)
        with pytest.raises(LoadFailedError, match=r"do not fit into /dev/shm.*No space") as error:
            lay(b"c")
        assert "make /dev/shm larger" in error.value.hint


def test_remote_server_gets_no_shared_memory() -> None:
    with laying(Endpoints("h:1", "h:2", None)) as lay:
        assert lay is None
