"""Screening: the throughput of saturated configs, before any is measured to its capacity.

No config sustains more than it answers when saturated. So looks rank the first configs of a search,
and a config that answers less than the load to beat has lost without a measurement. Where
measurements are as short as looks, there are no looks.
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
from tuner.score.saturation import FAR, FEWEST, Saturated, shortest_bound_s
from tuner.score.trial import STEEPNESS, TrialState
from tuner.search.estimate import CLIMB, MOST_LOOK_S, RACES, length_s
from tuner.search.first_load import ENOUGH_AT_ONCE, FIRST_SHARE, at_once
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.units import digits

#: A look lasts as long as this many requests one after another, but at most `MOST_LOOK_S`.
REQUESTS = 60
#: A look that must give a bound lasts as long as one instance takes for this many answers, and for
#: this many times the requests in flight: in each third of a load, perf_analyzer needs an answer to
#: a request of that third.
ENOUGH, PASSES = 1.2 * FEWEST, 3.2
#: Configs that answer at least this share of the highest throughput count as equal in ranking.
ALIKE = 0.9


@dataclass(frozen=True)
class KnownLooks:
    """The results of looks, for another bench.

    Attributes:
        applies: Looks give bounds in this run.
        in_flight: Requests in flight in each look; 0 before the first look.
        look_s: The length of each look, in seconds.
        alone_s: Seconds of a single request.
        seen: The result of each look, by the candidate's key.
    """

    applies: bool
    in_flight: int
    look_s: float
    alone_s: float
    seen: Mapping[str, Saturated]


class Screening:
    """Takes looks at deployed configs, and keeps the results.

    Attributes:
        seen: The result of each look, by the candidate's key.
    """

    def __init__(self, session: Session, known: KnownLooks | None = None) -> None:
        spec = session.spec
        self._session = session
        self._seed = seeds.of_search(spec.search.seed)
        # In a closed loop the streams of a mix have other shares: a look gives no bound.
        self._applies = session.plan.searches_rates and len(spec.streams) == 1
        self._in_flight, self._look_s, self._alone_s = 0, QUICK_LOOK.duration_s, 0.0
        self.seen: dict[str, Saturated] = {}
        if known is not None:
            self.learn(known)

    @property
    def looks(self) -> KnownLooks:
        """The results of the looks so far."""
        pace = self._in_flight, self._look_s, self._alone_s
        return KnownLooks(self._applies, *pace, dict(self.seen))

    def learn(self, known: KnownLooks) -> None:
        """Adds the results of another bench's looks; the first settings of looks are kept."""
        self.seen = {**known.seen, **self.seen}
        if not self._in_flight:
            self._in_flight, self._look_s = known.in_flight, known.look_s
            self._alone_s = known.alone_s
            self._applies &= known.applies

    def ranked(self, leads: Sequence[Candidate]) -> Sequence[Candidate]:
        """Ranks ``leads`` by looks, the highest throughput first, unless looks take too long."""
        screened = [c for c in leads if self._is_useful(c)]
        begin_s = self._session.book.wall_s
        for number, candidate in enumerate(screened if len(screened) > 1 else ()):
            try:
                self._session.bench.deploy(candidate)
                self.look(candidate)
            except TrialError as error:
                self._session.bench.lost(error.reason)
            look_s = self._session.book.wall_s - begin_s
            first_s = self._measurement_s(FIRST_SHARE * self._answered(candidate))
            if not number and CLIMB * first_s < look_s * (len(screened) - 1):
                return leads
            self._note_look(f"{number + 1}/{len(screened)}", candidate)
        most = max(map(self._answered, leads), default=0.0)
        alike = [c for c in leads if self._answered(c) >= ALIKE * most]
        rest = [c for c in leads if c not in alike]
        return [*alike, *sorted(rest, key=self._answered, reverse=True)]

    def look(self, candidate: Candidate, to_beat: float = math.inf) -> None:
        """Takes a look at the deployed ``candidate``, unless there is one, or the race is as short.

        Raises:
            ModelFailsError: The model fails requests.
            ServerGoneError: The server died.
        """
        if not self._is_useful(candidate) or candidate.key in self.seen:
            return
        if to_beat < math.inf and self._measurement_s(to_beat) < RACES * self._look_s:
            return
        self._look(candidate)

    def bound(self, candidate: Candidate, to_beat: float) -> None:
        """Takes a look that shows whether the deployed ``candidate`` is far behind ``to_beat``.

        The look is long enough for a bound. It has as many requests in flight as an SLO allows a
        config whose capacity is ``to_beat``, in requests per second, divided by `FAR` (Little's
        law).

        Raises what `look` does.
        """
        seen, slos = self.seen.get(candidate.key), self._session.spec.slos
        if not self._is_useful(candidate) or (seen is not None and seen.at_most_per_s is not None):
            return
        enough = max(ENOUGH_AT_ONCE, to_beat / FAR * shortest_bound_s(slos))
        self._look(candidate, most_in_flight=enough, bounds=True)

    def _look(
        self, candidate: Candidate, *, most_in_flight: float = math.inf, bounds: bool = False
    ) -> None:
        bench, spec = self._session.bench, self._session.spec
        try:
            if not self._in_flight:
                self._learn_pace()
            if self._applies:
                in_flight = math.ceil(min(self._in_flight, most_in_flight))
                answers = max(ENOUGH, PASSES * in_flight) if bounds else 0.0
                look_s = max(self._look_s, answers * self._alone_s)
                look = bench.saturate(in_flight, self._seed, look_s)
                self.seen[candidate.key] = Saturated.of(look, spec.slos)
        except ModelFailsError:
            raise
        except (LoadFailedError, ClientLimitError) as error:
            self._session.events.note(f"no look at many requests at once: {error.message}")

    def lost(self, candidate: Candidate, to_beat: float) -> Evaluation | None:
        """The evaluation if a look shows a throughput below ``to_beat``, in requests per second."""
        seen = self.seen.get(candidate.key)
        most = None if seen is None else seen.at_most_per_s
        if seen is None or most is None or most >= to_beat:
            return None
        missed = (to_beat / most) ** STEEPNESS - 1.0  # as a race at that load would show
        score = Score(most * seen.batch_size, feasible=False, violation=missed, best_point=None)
        return Evaluation(TrialState.PRUNED, (), score)

    def _learn_pace(self) -> None:
        """Sets the length and the requests in flight of all looks, by the deployed config."""
        spec, alone_s = self._session.spec, self._session.bench.one_at_a_time(self._seed)
        bound = tightest_latency(spec.slos)
        if bound is not None and 1e6 * alone_s.get(bound.stream, 0.0) > bound.bound:
            self._applies = False  # every load misses the SLO, so looks decide nothing
        self._in_flight = max(at_once(alone_s[""]), ENOUGH_AT_ONCE)
        self._alone_s = alone_s[""]
        self._look_s = min(max(REQUESTS * alone_s[""], QUICK_LOOK.duration_s), MOST_LOOK_S)

    def _measurement_s(self, level: float) -> float:
        return length_s(self._session.spec, self._session.plan, level) if level else 0.0

    def _is_useful(self, candidate: Candidate) -> bool:
        """Whether a look at the candidate is useful: looks apply, and no other server is needed."""
        return self._applies and candidate.start == self._session.current.start

    def _answered(self, candidate: Candidate) -> float:
        seen = self.seen.get(candidate.key)
        return 0.0 if seen is None else seen.answered_per_s

    def _note_look(self, number: str, candidate: Candidate) -> None:
        seen, session = self.seen.get(candidate.key), self._session
        result = "no result"
        if seen is not None:
            result = f"{digits(seen.answered_per_s, 4)}/s with {seen.in_flight} in flight"
        name = changes_text(candidate, session.current)
        session.events.note(f"screening {number}  {name}  ->  {result}")
