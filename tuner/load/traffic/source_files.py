"""Files that recordings are made from: plain, or packed with gzip; read piece by piece."""

from __future__ import annotations

import errno
import os
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import BadGzipFile, GzipFile
from pathlib import Path
from typing import BinaryIO, cast

from tuner.errors import SpecError
from tuner.regular import open_regular, read_limited

_GZIP = b"\x1f\x8b"
_OF_PACKETS = (
    "write its requests as CSV: tshark -r {file} -Y http.request -T fields -E header=y "
    "-E separator=, -e frame.time_epoch -e http.request.uri"
)
#: First bytes of files that are no text: what they are, and what to do.
_BINARY = (
    (b"PAR1", "a Parquet file", "write its rows as CSV, or as JSON lines"),
    (
        *(b"PK\x03\x04", "a zip archive, as Excel's and NumPy's files are"),
        "unpack it, or save the sheet as CSV",
    ),
    (b"\x93NUMPY", "a NumPy array", "write its values as JSON, by its method tolist()"),
    (b"\x0a\x0d\x0d\x0a", "a capture of packets", _OF_PACKETS),
    (b"\xd4\xc3\xb2\xa1", "a capture of packets", _OF_PACKETS),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first: zstd -d {file}"),
    (b"BZh", "compressed with bzip2", "unpack it first: bunzip2 -k {file}"),
    (b"\xfd7zXZ", "compressed with xz", "unpack it first: unxz -k {file}"),
)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for reading; raises `SpecError` if it cannot be read."""
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error


@contextmanager
def opened_source(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for reading; what gzip packed is unpacked while it is read.

    Raises:
        SpecError: It cannot be read, is damaged, or is of a form that holds no text.
    """
    with opened(path) as raw:
        head = raw.read(8)
        raw.seek(0)
        _refuse_binary(path, head)
        if not head.startswith(_GZIP):
            yield raw
            return
        try:
            with GzipFile(fileobj=raw) as file:
                yield cast("BinaryIO", file)
        except (EOFError, BadGzipFile, zlib.error) as error:
            raise _damaged(path, raw, error) from error


def read_source(path: Path, most: int) -> bytes:
    """A file of at most so many bytes, unpacked if gzip packed it.

    Raises:
        OSError: It cannot be read, or has more bytes; `strerror` says which.
        SpecError: It is damaged, or of a form that holds no text.
    """
    data = read_limited(path, most)
    _refuse_binary(path, data)
    if not data.startswith(_GZIP):
        return data
    with opened_source(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20:,} MiB unpacked", str(path))
    return data


def _refuse_binary(path: Path, head: bytes) -> None:
    for start, what, hint in _BINARY:
        if head.startswith(start):
            raise SpecError(f"{path}: it is {what}", hint.format(file=shlex.quote(str(path))))


def _damaged(path: Path, raw: BinaryIO, error: Exception) -> SpecError:
    size = os.fstat(raw.fileno()).st_size
    near = f"it ends at byte {size:,}" if isinstance(error, EOFError) else ""
    near = near or f"at or before byte {raw.tell():,} of {size:,}"
    name = shlex.quote(str(path))
    return SpecError(
        f"{path}: the compressed file is damaged: {near} ({error})",
        f"copy it again; or give what is readable: gunzip -c {name} > readable.log",
    )
