"""Rounds on several benches: one bench measures a whole round, so all its configs share one device.

Rounds up to the next look are measured at the same time. Each of them starts from the rounds before
the last look, so a resumed proof measures the same loads, whatever the number of benches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.meter.benches import Benches, WorkDone
from tuner.meter.session import Session
from tuner.prepare.timebook import Phase
from tuner.proof.contender import Contender
from tuner.proof.decide import look_after
from tuner.proof.entrants import ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import RoundSide, add_round
from tuner.record.confirmation import Repeat


@dataclass(frozen=True)
class RoundWork:
    """One round of all configs, for any bench.

    Attributes:
        number: The round's number, from 0.
        sides: The configs in the order of measurement, with their rounds up to the last look.
        stored: The measurements of this round that an earlier part of the run stored.
    """

    number: int
    sides: tuple[RoundSide, ...]
    rules: ProofRules
    stored: tuple[Repeat, ...]

    def __call__(self, session: Session) -> tuple[Sequence[Contender], Sequence[Repeat]]:
        """Measures the round: the configs with this round added, and the measurements."""
        rows = list[Repeat]()
        measured = MeasuredOnce(session.bench, rows.append, self.stored, session.events.note)
        after = [replace(c, rounds=[*c.rounds]) for c, _ in self.sides]
        for contender, (_, role) in zip(after, self.sides, strict=True):
            add_round(measured, contender, self.rules, self.number, role, lambda *_: None)
        return after, rows


class RoundsBeside:
    """Measures rounds on the benches of a run; a `MakesRound` for `run_rounds`.

    Args:
        finalists: The number of finalists at the first round.
        stored: The measurements of the proof that an earlier part of the run stored.
        round_over: Receives the round's name and the config, after each round of a config.
    """

    def __init__(
        self,
        session: Session,
        benches: Benches,
        rules: ProofRules,
        finalists: int,
        stored: Sequence[Repeat],
        round_over: Callable[[str, Contender], None],
    ) -> None:
        self._session, self._benches, self._rules = session, benches, rules
        self._finalists, self._stored, self._round_over = finalists, stored, round_over
        self._begun = 0
        self._done: dict[int, WorkDone] = {}

    def __call__(self, number: int, sides: Callable[[int], Sequence[RoundSide]]) -> None:
        """Adds round ``number`` to each config.

        ``sides``: gives the configs of a round, in the order of measurement, by its number.

        Raises:
            TrialError: The current config cannot be measured.
        """
        if number >= self._begun:
            self._begun = self._last(number) + 1
            for ahead in range(number, self._begun):
                self._benches.hand_out(self._work(ahead, sides(ahead)))
        with self._session.book.phase(Phase.MEASURING):
            while number not in self._done:
                done = self._benches.next_done()
                if isinstance(done.work, RoundWork):
                    self._done[done.work.number] = done
                elif done.error is not None:
                    raise done.error
        done = self._done.pop(number)
        if done.error is not None:
            self._session.checkpoint()
            raise done.error
        after, rows = done.value
        for row in rows:
            self._session.record(row)
        for (side, _), now in zip(sides(number), after, strict=True):
            side.left, side.unmeasured = now.left, now.unmeasured
            if now.left is None:
                side.rounds.append(now.rounds[-1])
                self._round_over(f"round {number + 1}", side)

    def _last(self, number: int) -> int:
        """The number of the last round that is measured at the same time as round ``number``."""
        at_most = int(self._rules.confirm.rounds)
        if number >= at_most:  # a proof that the user continued
            return number + self._benches.count - 1
        looked = (n for n in range(number, at_most) if look_after(n + 1, at_most, self._finalists))
        return next(looked, at_most - 1)

    def _work(self, number: int, sides: Sequence[RoundSide]) -> RoundWork:
        known = tuple(RoundSide(replace(c, rounds=[*c.rounds]), role) for c, role in sides)
        stored = tuple(r for r in self._stored if r.round == number and not r.alone)
        return RoundWork(number, known, self._rules, stored)


def rounds_beside(
    session: Session,
    rules: ProofRules,
    finalists: int,
    stored: Sequence[Repeat],
    round_over: Callable[[str, Contender], None],
) -> RoundsBeside | None:
    """A `RoundsBeside` where the run has several benches; None where it has one."""
    benches = session.benches
    if benches is None or benches.count < 2:
        return None
    return RoundsBeside(session, benches, rules, finalists, stored, round_over)
