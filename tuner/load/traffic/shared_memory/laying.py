"""Puts tensors of requests into memory that the server shares."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tuner.errors import LoadFailedError
from tuner.load.traffic.wire import Place, RequestForm
from tuner.server.server import Endpoints
from tuner.server.shared_memory import REGION_BYTES, SharedRegion

#: Requests whose outputs have a place of their own; later ones use the places again.
PLACES = 64
#: Alignment of tensors, as of those that a backend allocates.
_ALIGNED = 64
_WITHOUT = "leave out workload.shared_outputs"


class Laying:
    """Places contents one after another, equal ones once; see `tuner.load.traffic.wire.Lay`.

    Outputs come first, at the same place in every measurement: a server that answers late, after
    the end of one, writes over no input of the next.

    Args:
        region: The shared memory.
        forms: Forms of the requests whose outputs are there too.

    Raises:
        LoadFailedError: There is no room left, or an output is of no fixed size.
    """

    def __init__(self, region: SharedRegion, forms: Sequence[RequestForm] = ()) -> None:
        self.places = 1
        self._region = region
        self._inputs: dict[bytes, int] = {}
        self._outputs: dict[tuple[str, int], int] = {}
        self._end = 0
        if forms:
            self._reserve({_key(form): place_bytes(form.outputs) for form in forms})

    def __call__(self, raw: bytes) -> Place:
        content = hashlib.sha256(raw).digest()
        if content not in self._inputs:
            self._lay(raw)
            self._inputs[content] = self._end
            self._end += aligned(len(raw))
        return self._place(self._inputs[content], len(raw))

    def outputs(self, form: RequestForm, number: int) -> Mapping[str, Place]:
        if _key(form) not in self._outputs:
            return {}
        offset = self._outputs[_key(form)] + number % self.places * place_bytes(form.outputs)
        places = dict[str, Place]()
        for name, size in form.outputs.items():
            places[name] = self._place(offset, size) if size else {}
            offset += aligned(size)
        return places

    def _place(self, offset: int, size: int) -> Place:
        return {
            "shared_memory_region": self._region.name,
            "shared_memory_byte_size": size,
            "shared_memory_offset": offset,
        }

    def _reserve(self, sizes: Mapping[tuple[str, int], int]) -> None:
        """Divides the begin of the region among the outputs of requests; ``sizes``: of one each."""
        for (model, _), size in sizes.items():
            if not size:
                raise LoadFailedError(f"{model} has no output of a fixed size", _WITHOUT)
        most = REGION_BYTES // 2
        self.places = min(PLACES, most // sum(sizes.values()))
        if not self.places:
            raise LoadFailedError(f"the outputs of one request exceed {most >> 20} MiB", _WITHOUT)
        for key, size in sizes.items():
            self._outputs[key] = self._end
            self._end += self.places * size
        try:
            self._region.reserve(self._end)
        except OSError as error:
            raise LoadFailedError(
                f"{self._end >> 20} MiB of outputs do not fit into /dev/shm: {error.strerror}",
                f"{_WITHOUT}; or make /dev/shm larger",
            ) from error

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


def aligned(size: int) -> int:
    """Bytes from one tensor to the next."""
    return -(-size // _ALIGNED) * _ALIGNED


def place_bytes(outputs: Mapping[str, int]) -> int:
    """Bytes that the outputs of one request take; ``outputs``: the size of each, by name."""
    return sum(map(aligned, outputs.values()))


def _key(form: RequestForm) -> tuple[str, int]:
    return form.model, form.batch_size


@contextmanager
def laying(endpoints: Endpoints, forms: Sequence[RequestForm] = ()) -> Iterator[Laying | None]:
    """The shared region; None if the server shares no memory. It is cleared afterwards."""
    if endpoints.shared is None:
        yield None
        return
    try:
        yield Laying(endpoints.shared, forms)
    finally:
        endpoints.shared.clear()
