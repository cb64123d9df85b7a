"""Every batch size once, before anything is measured.

Many backends do extra work for a shape they have not seen: autotuning of convolutions, TensorRT's
lazy modules, torch.compile. If a batch size first came up under load, this work would take seconds
out of the window, and a config with batching would pay many times what one without pays.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tuner.errors import LoadFailedError, SpecError
from tuner.load.client.channel_options import asking
from tuner.load.traffic.encoding import RequestForm, build
from tuner.load.traffic.inputs import InputFiles

#: After this long the rest is left to the load.
MOST_S = 5.0
#: Requests that are together larger than this are not sent for it.
MOST_BYTES = 64 << 20


def batch_sizes(config: Any, least: int) -> list[int]:
    """Sizes that the dynamic batcher of a ``ModelConfig`` may form: doubled, up to the largest.

    ``least``: Inferences in one request of the workload, which was sent already.
    """
    most = config.max_batch_size
    if not config.HasField("dynamic_batching") or config.response_cache.enable:
        return []  # what is asked here would be in the cache
    sizes = [2**power for power in range(1, most.bit_length()) if 2**power > least]
    return [*sizes, most] if most > max([least, *sizes]) else sizes


def warm_batches(
    address: str, form: RequestForm, inputs: InputFiles, config: Any, instances: int
) -> None:
    """Asks each instance for a batch of each size, as one request; errors are left to the load."""
    begin = time.monotonic()
    with asking(address) as method:
        for size in batch_sizes(config, form.batch_size):
            try:
                (question,) = build(inputs.first(1), replace(form, batch_size=size), 1)
            except (LoadFailedError, SpecError):
                return
            left_s = MOST_S - (time.monotonic() - begin)
            if left_s <= 0.0 or len(question) * instances > MOST_BYTES:
                return
            calls = [method.future(question, timeout=left_s) for _ in range(instances)]
            for call in calls:
                call.exception()
