"""What a run that ends after some trials of a replayed search would write: its confirmation."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.run.trial import Trial
from tuner.space.candidate import Candidate
from tuner.steps.proving import Proof, that_hold
from tuner.steps.searching import Search


def written_after(search: Search, history: Sequence[Trial]) -> Candidate:
    """The best finalist that holds on the recorded bench; the current config where none does."""
    proof = Proof(
        spec=search.spec,
        plan=search.plan,
        bench=search.bench,
        record=lambda _: None,
        events=search.events,
        current=search.current,
        allowed=lambda _: True,
    )
    best = next(iter(that_hold(proof, history)), None)
    return search.current if best is None else best.candidate
