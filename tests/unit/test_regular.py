"""Files that others name are read without ever waiting, and no more of them than fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.regular import is_there, read_limited, read_regular


def test_a_name_that_no_file_can_have_is_an_error_of_the_system(tmp_path: Path) -> None:
    for name in ("a\0b", "a" * 300):
        assert not is_there(tmp_path / name)
        with pytest.raises(OSError, match="name"):
            read_regular(tmp_path / name)


def test_a_file_above_its_limit_is_refused_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_limited(path, 5) == b"12345"
    with pytest.raises(OSError, match="more than 0 MiB"):
        read_limited(path, 4)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="more than 1,024 MiB"):
        read_limited(path, 1 << 30)
