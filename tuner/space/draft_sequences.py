"""What `tune init` drafts for a model that takes sequences: the load, and how they are batched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.space.draft_queue import delays
from tuner.space.draft_text import DraftEntry, Remark, flow
from tuner.space.sequences import EXAMPLE
from tuner.spec.paths import CANDIDATE_SEQUENCES, OLDEST, OLDEST_DELAY
from tuner.spec.slo import Slo


def sequence_arrivals_lines(*, of_file: bool) -> Iterator[DraftEntry | Remark]:
    """The lines of the workload; ``of_file``: a file says how many requests a sequence has."""
    if of_file:
        yield DraftEntry("arrivals", "{kind: sequences, interval: 100ms}")
        yield Remark("guessed: how long after one request of a sequence the next comes.")
    else:
        yield DraftEntry("arrivals", EXAMPLE)
        yield Remark(
            "guessed: how many requests a sequence has, and how long after one the next comes"
        )
    yield Remark(
        "count_output: OUTPUT checks their order, where the model counts them from 1 in it"
    )


def sequence_space_lines(config: Any, largest: int, slo: Slo) -> Iterator[DraftEntry | Remark]:
    """The lines of the space, and what they mean."""
    today = config.sequence_batching.oldest.max_candidate_sequences
    sizes = sorted({largest, 4 * largest, 16 * largest} | ({today} if today else set()))
    yield Remark("off is the direct strategy: each sequence has a fixed slot in the batches of one")
    yield Remark(
        "instance, used or not, so instances times max_batch_size sequences run at once. oldest"
    )
    yield Remark("batches whichever have a request.")
    yield DraftEntry(OLDEST, "{choice: [off, on]}")
    now = f"{today} in config.pbtxt" if today else ""
    yield DraftEntry(CANDIDATE_SEQUENCES, flow({"choice": sizes}), now)
    yield delays(OLDEST_DELAY, slo)
