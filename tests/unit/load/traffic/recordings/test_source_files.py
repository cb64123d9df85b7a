"""Files that recordings are made from: packed, in other encodings, or of no text at all."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tuner.errors import SpecError
from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
from tuner.load.traffic.recordings.making import Making
from tuner.load.traffic.recordings.triton_trace import requests_of_trace
from tuner.load.traffic.request_file import data_of, place_in_data

LOG = b"t\n" + b"".join(b"%d\n" % k for k in range(5000))


def times_in(path: Path) -> list[float]:
    return [one.at_s for one in requests_of_log([path], LogColumns(time="t"))]


def test_logs_that_gzip_packed_are_read(tmp_path: Path) -> None:
    """Also of several parts, as rotated logs that were joined."""
    path = tmp_path / "access.log.gz"
    path.write_bytes(gzip.compress(LOG) + gzip.compress(b"5000\n"))
    assert times_in(path) == [float(k) for k in range(5001)]


@pytest.mark.parametrize(
    ("damage", "near"),
    [
        (lambda packed: packed[:-20], r"it ends at byte [\d,]+ "),
        (lambda packed: packed[:-8] + b"\0" * 8, "at or before byte"),
        (lambda packed: packed[:200] + b"\xff" * 50 + packed[250:], "at or before byte"),
        (lambda packed: packed + b"rest", "at or before byte"),
    ],
)
def test_damaged_gzip_file_is_an_error_with_its_place(
    damage: object, near: str, tmp_path: Path
) -> None:
    """A recording of what is readable would miss requests in silence."""
    assert callable(damage)
    path = tmp_path / "access.log.gz"
    path.write_bytes(damage(gzip.compress(LOG, mtime=0)))
    with pytest.raises(SpecError, match=f"the compressed file is damaged: {near}") as refused:
        times_in(path)
    assert "gunzip -c" in refused.value.hint


def test_traces_and_inputs_that_gzip_packed_are_read(tmp_path: Path) -> None:
    activities = [{"id": 1, "model_name": "bert"}, {"id": 1, "timestamps": []}]
    activities[1]["timestamps"] = [{"name": "REQUEST_START", "ns": 10**9}]
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(json.dumps(activities).encode()))
    logged = requests_of_trace([tmp_path / "trace.json.gz"], Making(), batched=True, named=False)
    assert [one.at_s for one in logged] == [1.0]
    path = tmp_path / "inputs.json.gz"
    path.write_bytes(gzip.compress(b'{"data": [{"x": [1]}]}'))
    assert data_of(path) == [{"x": [1]}]
    assert place_in_data(path, (0,)) == f"{path}:1:11"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SpecError, match="the compressed file is damaged"):
        data_of(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_logs_with_the_mark_of_an_encoding_are_read(encoding: str, tmp_path: Path) -> None:
    """As PowerShell writes what it redirects."""
    (tmp_path / "log").write_bytes("t\r\n1\r\n2\r\n".encode(encoding))
    assert times_in(tmp_path / "log") == [1.0, 2.0]


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (b"PAR1\x15\x04", "it is a Parquet file", "CSV"),
        (b"PK\x03\x04\x14", "it is a zip archive", "CSV"),
        (b"\x28\xb5\x2f\xfd\x04", "compressed with zstd", "zstd -d"),
        (b"\x93NUMPY\x01\x00", "it is a NumPy array", "JSON"),
        (b"\x0a\x0d\x0d\x0a\x1c\x00", "a capture of packets", "tshark -r"),
        (b"\xd4\xc3\xb2\xa1\x02\x00", "a capture of packets", "tshark -r"),
        (b"BZh91AY", "compressed with bzip2", "bunzip2 -k"),
        (b"\xfd7zXZ\x00", "compressed with xz", "unxz -k"),
        (b"t\n\xff\xff\n", "it is no text in UTF-8", ""),
    ],
)
def test_files_without_text_are_refused_with_what_to_do(
    content: bytes, message: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(content)
    for read in (times_in, data_of):
        with pytest.raises(SpecError, match=message) as refused:
            read(tmp_path / "log")
        assert hint in refused.value.hint
