"""Screening: what configs answer when they are saturated, before any is measured to its capacity.

No config sustains more than that: looks rank those that a search begins with, and a config that
answers less than the load to beat has lost without a measurement. Where measurements are as short
as looks, nobody is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.load import seeds
from tuner.meter.bench import QUICK_LOOK
from tuner.meter.evaluate import Evaluation
from tuner.meter.session import Session
from tuner.score.judge import tightest_latency
from tuner.score.point import Score
from tuner.score.saturation import Saturated
from tuner.score.trial import STEEPNESS, TrialState
from tuner.search.estimate import MOST_LOOK_S, RACES, length_s
from tuner.search.first_load import ENOUGH_AT_ONCE, FIRST_SHARE, at_once
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.units import digits

#: A look lasts as long as so many requests one after another, but not longer than `MOST_LOOK_S`.
REQUESTS = 60
#: A capacity takes about so many measurements.
MEASUREMENTS = 4
#: Configs that answer this share of the most are alike: how late they answer decides.
ALIKE = 0.9


@dataclass(frozen=True)
class KnownLooks:
    """What looks have shown, for another bench.

    Attributes:
        applies: A look bounds what a config of this run sustains.
        in_flight: Requests of each look; 0 before the first.
        look_s: How long each lasts.
        seen: By the candidate's key.
    """

    applies: bool
    in_flight: int
    look_s: float
    seen: Mapping[str, Saturated]


class Screening:
    """Looks at deployed configs, each once, and knows what they answered.

    Attributes:
        seen: By the candidate's key.
    """

    def __init__(self, session: Session, known: KnownLooks | None = None) -> None:
        spec = session.spec
        self._session = session
        self._seed = seeds.of_search(spec.search.seed)
        # A mix has other shares in a closed loop, and no look bounds what it sustains.
        self._applies = session.plan.searches_rates and len(spec.streams) == 1
        self._in_flight, self._look_s = 0, QUICK_LOOK.duration_s
        self.seen: dict[str, Saturated] = {}
        if known is not None:
            self.learn(known)

    @property
    def looks(self) -> KnownLooks:
        """What the looks so far have shown."""
        return KnownLooks(self._applies, self._in_flight, self._look_s, dict(self.seen))

    def learn(self, known: KnownLooks) -> None:
        """Takes over what another bench's looks have shown; the first pace is kept."""
        self.seen = {**known.seen, **self.seen}
        if not self._in_flight:
            self._in_flight, self._look_s = known.in_flight, known.look_s
            self._applies &= known.applies

    def ranked(self, leads: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those that answer most first, unless a capacity takes no longer than a look."""
        screened = [c for c in leads if self._asks(c)]
        begin_s = self._session.book.wall_s
        for number, candidate in enumerate(screened if len(screened) > 1 else ()):
            try:
                self._session.bench.deploy(candidate)
                self.look(candidate)
            except TrialError as error:
                self._session.bench.lost(error.reason)
            look_s = self._session.book.wall_s - begin_s
            first_s = self._measurement_s(FIRST_SHARE * self._answered(candidate))
            if not number and MEASUREMENTS * first_s < look_s * (len(screened) - 1):
                return leads
            self._tell(f"{number + 1}/{len(screened)}", candidate)
        most = max(map(self._answered, leads), default=0.0)
        alike = [c for c in leads if self._answered(c) >= ALIKE * most]
        rest = [c for c in leads if c not in alike]
        return [*alike, *sorted(rest, key=self._answered, reverse=True)]

    def look(self, candidate: Candidate, to_beat: float = math.inf) -> None:
        """At the deployed ``candidate``, unless it is known, or the race takes no longer.

        Raises:
            ModelFailsError: It answers no requests.
            ServerGoneError: The server died.
        """
        if not self._asks(candidate) or candidate.key in self.seen:
            return
        if to_beat < math.inf and self._measurement_s(to_beat) < RACES * self._look_s:
            return
        bench, spec = self._session.bench, self._session.spec
        try:
            if not self._in_flight:
                self._learn_pace()
            if self._applies:
                look = bench.saturate(self._in_flight, self._seed, self._look_s)
                self.seen[candidate.key] = Saturated.of(look, spec.slos)
        except ModelFailsError:
            raise
        except (LoadFailedError, ClientLimitError) as error:
            self._session.events.note(f"no look at many requests at once: {error.message}")

    def lost(self, candidate: Candidate, to_beat: float) -> Evaluation | None:
        """Its end where a look has shown that it does not sustain ``to_beat`` requests a second."""
        seen = self.seen.get(candidate.key)
        most = None if seen is None else seen.at_most_per_s
        if seen is None or most is None or most >= to_beat:
            return None
        missed = (to_beat / most) ** STEEPNESS - 1.0  # as a race there would have shown
        score = Score(most * seen.batch_size, feasible=False, violation=missed, best_point=None)
        return Evaluation(TrialState.PRUNED, (), score)

    def _learn_pace(self) -> None:
        """The first config that is looked at says how: all looks are alike."""
        spec, alone_s = self._session.spec, self._session.bench.one_at_a_time(self._seed)
        bound = tightest_latency(spec.slos)
        if bound is not None and 1e6 * alone_s.get(bound.stream, 0.0) > bound.bound:
            self._applies = False  # no load is low enough, so that high ones tell nothing
        self._in_flight = max(at_once(alone_s[""]), ENOUGH_AT_ONCE)
        self._look_s = min(max(REQUESTS * alone_s[""], QUICK_LOOK.duration_s), MOST_LOOK_S)

    def _measurement_s(self, level: float) -> float:
        return length_s(self._session.spec, self._session.plan, level) if level else 0.0

    def _asks(self, candidate: Candidate) -> bool:
        """Another start takes long; and a cache answers more than the model does."""
        return self._applies and candidate.start == self._session.current.start

    def _answered(self, candidate: Candidate) -> float:
        seen = self.seen.get(candidate.key)
        return 0.0 if seen is None else seen.answered_per_s

    def _tell(self, number: str, candidate: Candidate) -> None:
        seen, session = self.seen.get(candidate.key), self._session
        result = "no result"
        if seen is not None:
            result = f"{digits(seen.answered_per_s, 4)}/s with {seen.in_flight} in flight"
        name = changes_text(candidate, session.current)
        session.events.note(f"screening {number}  {name}  ->  {result}")
