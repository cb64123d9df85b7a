"""The content of the response cache before a measurement: warm from the same traffic, or empty.

Triton's cache survives a reload of the model, so each config that uses the cache gets a new server.
A warm cache is filled once per server; an empty one needs a new server for every measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.load import seeds
from tuner.meter.protocol import LoadClient
from tuner.modelconfig.served import Served, ServedModel
from tuner.space.candidate import Candidate, split_args
from tuner.spec.paths import CACHE_ENABLE
from tuner.spec.workload import CacheState


@dataclass(frozen=True)
class ResponseCache:
    """The response cache of a deployed config; ``size``: in bytes, None where not known."""

    size: int | None


@dataclass(frozen=True)
class CacheRules:
    """How a run treats caches; by default, no config has one.

    Attributes:
        state: The state of the cache before each measurement.
        of: The cache that a candidate uses; None without one.
        note: Receives a sentence about each filling.
    """

    state: CacheState = CacheState.WARM
    of: Callable[[Candidate], ResponseCache | None] = lambda _: None
    note: Callable[[str], None] = lambda _: None

    def fill(self, generator: LoadClient, cache: ResponseCache) -> None:
        """Fills the empty cache of a new server, where measurements need a warm one."""
        if self.state is CacheState.WARM:
            self.note(generator.fill(seeds.CACHE_FILL, cache.size).sentence)


def cache_of(
    served: Served, server_args: Sequence[str], candidate: Candidate, *, remote: bool
) -> ResponseCache | None:
    """The cache that a candidate uses, whether its size is searched or in the server's arguments.

    Args:
        served: The models, whose configs give the fields that the candidate does not.
        server_args: The server's arguments, which give the size if the candidate does not.
        candidate: Any candidate of the space.
        remote: The server's arguments are not known, so a config that enables a cache may have one.
    """
    if not any(_uses_cache(model, candidate) for model in served.models.values()):
        return None
    if candidate.cache_bytes is not None:
        return ResponseCache(candidate.cache_bytes)
    try:
        _, size = split_args(server_args)
    except ValueError:  # redis, or a local one without a size
        return ResponseCache(None)
    return ResponseCache(size) if remote or size is not None else None


def _uses_cache(model: ServedModel, candidate: Candidate) -> bool:
    configured = model.base.completed.response_cache.enable
    return bool(candidate.of(model.name).get(CACHE_ENABLE, configured))
