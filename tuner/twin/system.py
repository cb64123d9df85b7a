"""What is simulated: the scheduler's settings, what batches cost, the way of a request, the load.

Times are in seconds, sizes in inferences. Nothing here knows where the values come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # numpy takes a tenth of a second to import
    import numpy as np
    import numpy.typing as npt

#: Most of each that the simulator's memory has room for; a config with more is not simulated.
MAX_INSTANCES, MAX_BATCH, MAX_LEVELS, MAX_STEPS = 64, 1024, 16, 31


@dataclass(frozen=True)
class QueuePolicy:
    """``ModelQueuePolicy``: 0 is no limit. An expired request is refused, or put behind others."""

    max_queue_size: int = 0
    timeout_s: float = 0.0
    delays_expired: bool = False


@dataclass(frozen=True)
class Scheduler:
    """What a model's config says about scheduling, for all devices together.

    Attributes:
        instances: Of all devices.
        max_batch_size: At least 1.
        placed: Device of each instance; empty: instance i runs on device ``i % devices``.
        batching: Has a dynamic batcher; without one each request runs alone.
        preferred_batch_sizes: Empty stands for ``(max_batch_size,)``, as in Triton.
        policies: One for each priority level, highest priority first.
        prefetches: Batches are prepared for busy instances too. Any limit, timeout or priority
            switches that off (``support_prefetching_`` in Triton's scheduler_utils.cc).
        cache_entries: Responses the cache holds; 0 is no cache.
    """

    instances: int = 1
    max_batch_size: int = 1
    devices: int = 1
    batching: bool = True
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_s: float = 0.0
    policies: tuple[QueuePolicy, ...] = (QueuePolicy(),)
    prefetches: bool = True
    cache_entries: int = 0
    placed: tuple[int, ...] = ()

    @property
    def device_of(self) -> tuple[int, ...]:
        """Device of each instance."""
        return self.placed or tuple(i % self.devices for i in range(self.instances))


@dataclass(frozen=True)
class Step:
    """A request to a model, sent when steps ``needs`` (by their place in the route) have ended."""

    node: int
    needs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Network:
    """Models on one host, and the way of each stream's requests through them.

    Attributes:
        nodes: The models. Instances of different ones on a device of the same number share it.
        routes: Of each stream: one step to a model, or the steps of an ensemble.
    """

    nodes: tuple[Scheduler, ...]
    routes: tuple[tuple[Step, ...], ...] = ((Step(0),),)


class Lock(Enum):
    """Which other batches a batch waits for before the device's part of its work."""

    DEVICE = "device"  # all that are on the device, of whichever model
    MODEL = "model"  # those of its model there
    NONE = "none"  # nobody: the instance waits for something of its own


@dataclass(frozen=True)
class Service:
    """What a batch of n inferences costs, n rounded up to a multiple of ``pad_to``.

    First the host's part, in parallel with other instances as long as there are cores; then the
    device's part, one batch at a time on each device; then the responses, one after the other,
    during which the instance is still busy.

    Attributes:
        overlap_base_s: The host's part of any batch.
        overlap_item_s: And of each inference of it.
        exclusive_base_s: The device's part.
        exclusive_item_s: And of each inference.
        response_s: The host's work for each response.
        release_s: And for each request given back afterwards, when all answers are on their way;
            Triton does not count it as compute time.
        pad_to: The device computes whole multiples of this.
        spread: Coefficient of variation of the first two parts.
        lock: Of the device's part.
    """

    overlap_base_s: float = 0.0
    overlap_item_s: float = 0.0
    exclusive_base_s: float = 0.0
    exclusive_item_s: float = 0.0
    response_s: float = 0.0
    release_s: float = 0.0
    pad_to: int = 1
    spread: float = 0.0
    lock: Lock = Lock.DEVICE


@dataclass(frozen=True)
class Way:
    """What a request meets outside queue and model: client, network, server's front.

    Attributes:
        base_s: The least, there and back.
        spread_s: Mean of what comes on top, exponential, half of it each way.
        front_s: Work of the host for each request and each way (receiving, sending).
        front_more: Share of that work for a request that finds the front at work on many others.
        slept_s: Work of the host beside that of a batch, when its instance slept: threads of
            server and model are woken, their caches are cold.
        cores: Of the host: tasks (of models and of the front) that run at once; others wait.
            Infinite where nothing is known of the host.
        handoff_s: From a batch being ready to an idle instance taking it; it grows meanwhile.
        hit_s: Instead of queue and model, for a response found in the cache.
    """

    base_s: float = 0.0
    spread_s: float = 0.0
    front_s: float = 0.0
    front_more: float = 1.0
    slept_s: float = 0.0
    cores: float = math.inf
    handoff_s: float = 0.0
    hit_s: float = 0.0


@dataclass(frozen=True)
class Traffic:
    """The load: moments at which requests are due, or clients that wait for answers.

    Attributes:
        due_s: Open loop, ascending; empty for a closed loop.
        concurrency: Requests always outstanding in a closed loop.
        window_s: Start and end of what is measured.
        end_s: No request is sent later.
        request_size: Inferences in a request.
        keys: What each request asks for, by number from 0 on; empty without a cache.
        warm_keys: Asked for beforehand, so that the cache is full.
        levels: Priority level of each request from 0 on; empty for all the same.
        stream: Name, where there are several.
        background: Not of the mix whose level is searched.
    """

    window_s: tuple[float, float]
    end_s: float
    due_s: npt.NDArray[np.float64] | None = None
    concurrency: int = 0
    request_size: int = 1
    keys: npt.NDArray[np.int64] | None = field(default=None)
    warm_keys: npt.NDArray[np.int64] | None = None
    levels: npt.NDArray[np.int64] | None = None
    stream: str = ""
    background: bool = False
