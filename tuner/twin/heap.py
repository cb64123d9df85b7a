"""A binary heap of `tuner.twin.state.ENTRY`s: the number with the least key first."""

from __future__ import annotations

from typing import Any

from tuner.twin.jit import compiled


@compiled
def heap_push(heap: Any, length: int, at: float, number: int) -> None:
    """Adds to a heap of ``length`` entries; the caller counts."""
    place = length
    while place > 0:
        parent = (place - 1) >> 1
        if heap[parent].at <= at:
            break
        heap[place].at = heap[parent].at
        heap[place].number = heap[parent].number
        place = parent
    heap[place].at = at
    heap[place].number = number


@compiled
def heap_pop(heap: Any, length: int) -> int:
    """Takes the first of ``length`` entries; the caller counts."""
    first: int = heap[0].number
    last = length - 1
    at, number = heap[last].at, heap[last].number
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and heap[child + 1].at < heap[child].at:
            child += 1
        if heap[child].at >= at:
            break
        heap[place].at = heap[child].at
        heap[place].number = heap[child].number
        place = child
    heap[place].at = at
    heap[place].number = number
    return first
