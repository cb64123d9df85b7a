"""Whether a server has come to rest after a load that was cut off."""

from __future__ import annotations

import time

from tuner.errors import TunerError
from tuner.load.generator import Target
from tuner.load.watch.sampler import Scrape
from tuner.triton import health

#: It is given this long.
REST_S = 1.0
_POLL_S = 0.01


def becomes_idle(scrape: Scrape, target: Target) -> bool:
    """Waits until nothing waits for the model.

    False says that the server is still busy, gone, or does not tell: it is better left behind.
    """
    give_up = time.monotonic() + REST_S
    try:
        while (waiting := _waiting(scrape, target)) and any(waiting):
            if time.monotonic() > give_up:
                return False
            time.sleep(_POLL_S)
        return bool(waiting) and health.live(target.endpoints)
    except TunerError:
        return False


def _waiting(scrape: Scrape, target: Target) -> list[float]:
    """Requests in the queue of each version; empty when the server does not tell."""
    metrics = scrape()
    if metrics is None:
        return []
    return metrics.values("nv_inference_pending_request_count", model=target.model)
