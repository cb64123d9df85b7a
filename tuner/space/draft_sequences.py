"""What `tune init` drafts for a model that takes sequences: the load, and how they are batched."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.space.sequences import EXAMPLE
from tuner.spec.paths import CANDIDATE_SEQUENCES, OLDEST, OLDEST_DELAY


def sequence_arrivals_lines(*, of_file: bool) -> Iterator[str]:
    """The lines of the workload; ``of_file``: a file says how many requests a sequence has."""
    if of_file:
        yield "  arrivals: {kind: sequences, interval: 100ms}"
        yield "  # guessed: how long after one request of a sequence the next comes."
    else:
        yield f"  arrivals: {EXAMPLE}"
        yield "  # guessed: how many requests a sequence has, and how long after one the next comes"
    yield "  # count_output: OUTPUT checks their order, where the model counts them from 1 in it"


def sequence_space_lines(largest: int, longest_delay_us: int) -> Iterator[str]:
    """The lines of the space, and what they mean."""
    sizes = sorted({max(largest, 1), 4 * max(largest, 1), 16 * max(largest, 1)})
    yield "# off is the direct strategy: each sequence has a place of its own in the batches of one"
    yield "# instance, used or not, so instances times max_batch_size sequences run at once. oldest"
    yield "# batches whichever have a request."
    yield f"{OLDEST}: {{choice: [off, on]}}"
    yield f"{CANDIDATE_SEQUENCES}: {{choice: {sizes}}}"
    yield f"{OLDEST_DELAY}: {{int: [50, {longest_delay_us}], log: true, or: 0}}"
