"""What a run that ends after some trials of a replayed search would write: its confirmation."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.score.trial import Trial
from tuner.space.candidate import Candidate
from tuner.steps.proving import find_confirmed
from tuner.steps.session import Session


def written_after(session: Session, history: Sequence[Trial]) -> Candidate:
    """The best finalist that holds on the recorded bench; the current config where none does."""
    best = next(iter(find_confirmed(session, history)), None)
    return session.current if best is None else best.candidate
