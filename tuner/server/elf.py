"""Reads the program headers of a 64-bit ELF file; see elf(5)."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

_PT_INTERP = 3


def has_dynamic_linker(binary: Path) -> bool:
    """Whether a file names a dynamic linker: PT_INTERP is among its program headers."""
    with suppress(OSError), binary.open("rb") as file:  # some programs can be executed, not read
        header = file.read(64)
        if len(header) < 64 or not header.startswith(b"\x7fELF\x02"):
            return False
        offset, size, count = struct.unpack_from("<Q8x4x2xHH", header, 32)
        file.seek(offset)
        table = file.read(size * count)
        kinds = [
            int.from_bytes(table[i : i + 4], "little") for i in range(0, len(table), size or 1)
        ]
        return _PT_INTERP in kinds
    return False
