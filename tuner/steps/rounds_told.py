"""Tells each round of a confirmation, so that whoever watches sees that it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tuner.confirm.confirm import Row
from tuner.confirm.rounds import Round
from tuner.space.candidate import Candidate
from tuner.steps.events import Events


@contextmanager
def rounds_told(
    record: Callable[[Row], None], events: Events, name: Callable[[Candidate], str]
) -> Iterator[Callable[[Row], None]]:
    """Gives a function that passes each row on to ``record``.

    A round of a config is told when the next one has begun, or the context is left.

    Args:
        record: Stores a measurement.
        events: Whom to tell.
        name: What to call a config.
    """
    rows: list[Row] = []

    def over() -> None:
        if rows:
            what = f"round {rows[0].round + 1}, {name(rows[0].candidate)}"
            events.round_over(what, Round(tuple(r.point for r in rows)).stood)
            rows.clear()

    def told(row: Row) -> None:
        record(row)
        if rows and (rows[0].round, rows[0].candidate) != (row.round, row.candidate):
            over()
        rows.append(row)

    try:
        yield told
    finally:
        over()
