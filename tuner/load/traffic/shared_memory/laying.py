"""Lays the inputs of requests into memory that the server shares."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tuner.errors import LoadFailedError
from tuner.server.server import Endpoints
from tuner.server.shared_memory import REGION_BYTES, SharedRegion

#: Inputs begin at multiples of this, as tensors that a backend makes do.
_ALIGNED = 64


class Laying:
    """Lays contents one after another, equal ones once; see `tuner.load.traffic.encoding.Lay`.

    Raises:
        LoadFailedError: There is no room for more.
    """

    def __init__(self, region: SharedRegion) -> None:
        self._region = region
        self._places: dict[bytes, int] = {}
        self._end = 0

    def __call__(self, raw: bytes) -> Mapping[str, str | int]:
        content = hashlib.sha256(raw).digest()
        if content not in self._places:
            self._lay(raw)
            self._places[content] = self._end
            self._end += -(-len(raw) // _ALIGNED) * _ALIGNED
        return {
            "shared_memory_region": self._region.name,
            "shared_memory_byte_size": len(raw),
            "shared_memory_offset": self._places[content],
        }

    def _lay(self, raw: bytes) -> None:
        fewer = "ask for fewer unique inputs, or a smaller batch_size"
        if self._end + len(raw) > REGION_BYTES:
            most = f"the inputs of one measurement take more than {REGION_BYTES >> 20} MiB"
            raise LoadFailedError(most, fewer)
        try:
            self._region.write(self._end, raw)
        except OSError as error:
            raise LoadFailedError(
                f"inputs do not fit into /dev/shm, beside {self._end >> 20} MiB of others: "
                f"{error.strerror}",
                f"{fewer}; or make /dev/shm larger",
            ) from error


@contextmanager
def laying(endpoints: Endpoints) -> Iterator[Laying | None]:
    """None where the server shares no memory; what was laid is gone afterwards."""
    if endpoints.shared is None:
        yield None
        return
    try:
        yield Laying(endpoints.shared)
    finally:
        endpoints.shared.clear()
