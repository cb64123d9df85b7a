"""Whether a server has come to rest after a load that was cut off."""

from __future__ import annotations

import time
from collections.abc import Collection

from tuner.errors import TunerError
from tuner.load.watch.sampler import Scrape, pending_requests
from tuner.server import health
from tuner.server.server import Endpoints

#: It is given this long.
REST_S = 1.0
_POLL_S = 0.01


def becomes_idle(scrape: Scrape, models: Collection[str], endpoints: Endpoints) -> bool:
    """Waits until nothing waits for one of the models; an ensemble's requests wait in its steps.

    False means that the server is still busy, gone, or does not report: do not use it any further.
    """
    give_up = time.monotonic() + REST_S
    try:
        while (waiting := _waiting(scrape, models)) and any(waiting):
            if time.monotonic() > give_up:
                return False
            time.sleep(_POLL_S)
        return bool(waiting) and health.live(endpoints)
    except TunerError:
        return False


def _waiting(scrape: Scrape, models: Collection[str]) -> list[float]:
    metrics = scrape()
    return [] if metrics is None else pending_requests(metrics, models)
