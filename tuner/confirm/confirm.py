"""The winner must prove itself: finalists and the current config measured again, interleaved.

The best of forty noisy scores is too good to be true. docs/internals/measuring-policy.md says what
is shown in which rounds; `tuner.confirm.rounds` measures one config in a round, and
`tuner.confirm.gain` compares two of them and says when that is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import geometric_mean

from tuner.bench.protocol import Bench
from tuner.confirm.gain import (
    LONG_S,
    MOST,
    OUTCLASSED,
    Gain,
    InterimAnalyses,
    gain,
    search_far_behind,
    uneven_text,
)
from tuner.confirm.rounds import (
    Contender,
    Entrant,
    Round,
    Rounds,
    Row,
    disturbed_alike,
    in_order,
    measure_fixed_round,
    search_round,
)
from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.load.watch.machine import OTHER_CPU_PERCENT
from tuner.run.confirmation import Role
from tuner.score.capacity import LevelRange
from tuner.score.point import Point
from tuner.score.ratio import Ratio
from tuner.space.candidate import Candidate
from tuner.spec.slo import Objective
from tuner.spec.units import digits

#: A finalist this far behind (the best finalist, or the current config) after a round is dropped.
BEHIND = 0.90
#: A config expected to sustain this share of the best finalist's load is compared closely.
COMPARABLE = 0.75
#: Where each finalist sustained this many times the load of the current config in the search, a
#: percent in the capacity of a round does not matter.
LARGE = 1.5
_ANOTHER = "another finalist sustains more when measured again"


class Outcome(Enum):
    CONFIRMED = "confirmed"
    NOT_FEASIBLE = "an SLO was missed when measured again"
    NOT_BETTER = "no gain worth a change when measured again"
    UNDECIDED = "a gain worth a change was neither shown nor ruled out"
    NOT_MEASURED = "the load generator gave no result when it was measured again"
    NOT_COMPARED = "there was nothing to compare with when measured again"


@dataclass(frozen=True)
class Confirmation:
    """What was shown about one finalist, ``own``, beside the ``current`` config.

    Attributes:
        gain: None when the current config met the SLOs at no load.
        error: Of the gain's interval: its share of the error that all looks at all finalists share.
    """

    outcome: Outcome
    reason: str
    own: Contender
    current: Contender
    gain: Gain | None
    error: float

    @property
    def candidate(self) -> Candidate:
        return self.own.candidate

    @property
    def ratio(self) -> Ratio | None:
        return None if self.gain is None else self.gain.ratio

    @property
    def level(self) -> float:
        """The load at which it met every SLO in every round; 0 without a round."""
        return self.own.credited_level if self.own.rounds else 0.0

    @property
    def points(self) -> tuple[Point, ...]:
        """The finalist's own measurements, one a round, each at the highest load it sustained."""
        return self.own.points


@dataclass(frozen=True)
class Rules:
    """How to confirm.

    Attributes:
        levels: Loads that may be asked for; None when the spec lists them.
        rounds: At the first look.
        seed: Different from every seed of the search.
        claim_window_s: From the measurements of a config to the window that its claim needs.
        soaked: The confirmed config is put under one long load afterwards.
        late: Whether no rounds are made after the first look.
    """

    objective: Objective
    levels: LevelRange | None
    rounds: int
    min_gain: float
    seed: int
    record: Callable[[Row], None]
    claim_window_s: Callable[[Sequence[Point]], float] = lambda _: 0.0
    soaked: bool = False
    length_s: Callable[[float], float] = lambda _: 0.0
    late: Callable[[], bool] = lambda: False


def confirm(
    bench: Bench, current: Entrant, finalists: Sequence[Entrant], rules: Rules
) -> list[Confirmation]:
    """Measures all of them in rounds and decides about each finalist, in the order given.

    Over a slow current config that is far behind, only until one is confirmed.

    Raises:
        TrialError: The current config, which was measured in the search, cannot be now.
    """
    level, least = current.level or 0.0, min((f.level or 0.0 for f in finalists), default=0.0)
    searched = rules.soaked and rules.levels is not None and len(finalists) > 1
    far = searched and level > 0.0 and least > OUTCLASSED * level
    if far and rules.length_s(level) > LONG_S:  # to choose between them costs minutes a round
        first = confirm(bench, current, finalists[:1], rules)
        held = first[0].outcome is Outcome.CONFIRMED
        return first if held else [*first, *confirm(bench, current, finalists[1:], rules)]
    return _Rotation(bench, current, finalists, rules).run()


class _Rotation:
    """The rounds between the current config and the finalists."""

    def __init__(
        self, bench: Bench, current: Entrant, finalists: Sequence[Entrant], rules: Rules
    ) -> None:
        self._rules = rules
        self._rounds = Rounds(bench, rules.seed, rules.record)
        self._current = Contender(current)
        self._finalists = [Contender(f) for f in finalists]
        level = current.level or 0.0
        self._large = all((f.level or 0.0) > LARGE * level for f in finalists)
        self._far_behind = all((f.level or 0.0) > OUTCLASSED * level for f in finalists)
        self._analyses = InterimAnalyses.of_confirmation(rules.rounds, max(len(finalists), 1))
        self._outcomes: dict[Candidate, Outcome] = {}

    def run(self) -> list[Confirmation]:
        for number in range(MOST * self._rules.rounds):
            if not self._racing() or self._settled(number):
                break
            if number >= self._rules.rounds and self._rules.late():
                break
            self._round(number)
            if self._sustained_in_search and not self._current_sustains:
                break  # on two fresh servers, it met the SLOs at no load
            self._drop_those_behind()
            self._current.outclassed = self._current_is_outclassed()
        return [self._judge(f) for f in self._finalists]

    def _lengthen_windows(self) -> None:
        """Configs compared closely share one window, the longest that any of them needs.

        A config that is far behind has no claim that needs one. Where that is the current config,
        the gain is not in doubt, and the soak tests what is claimed.
        """
        sides = [self._current, *self._racing()]
        best = max((f.entrant.level or 0.0 for f in self._finalists), default=0.0)
        close = [s for s in sides if (s.entrant.level or 0.0) >= COMPARABLE * best]
        if self._current not in close and self._rules.soaked:
            return
        window_s = 0.0
        for side in close:  # the rounds so far may have busy periods that the search missed
            points = [p for r in side.rounds for p in r.points]
            claim_s = max(side.entrant.window_s, self._rules.claim_window_s(points))
            window_s = max(window_s, side.window_s, claim_s)
        for side in close:
            side.window_s = window_s

    def _racing(self) -> list[Contender]:
        return [f for f in self._finalists if not f.dropped]

    def _settled(self, rounds_done: int) -> bool:
        """At a look: one is confirmed, or none can be any more.

        A finalist for which more rounds cannot show a gain is not measured in them. A single one
        over an outclassed config needs no further round: the soak tests what it is credited with.
        """
        if self._current.outclassed and self._rules.soaked and len(self._racing()) == 1:
            return True
        if not self._analyses.due(rounds_done):
            return False
        confirmed = [f for f in self._racing() if self._worth_it(self._ratio(f))]
        for finalist in self._racing():
            if finalist not in confirmed and not self._undecided(finalist):
                outcome, finalist.dropped = self._verdict(finalist, self._ratio(finalist))
                self._outcomes[finalist.candidate] = outcome
        return bool(confirmed) or not self._racing()

    def _undecided(self, finalist: Contender) -> bool:
        """More rounds may show a gain: its estimate is not far below what is worth a change."""
        ratio, least = self._ratio(finalist), self._rules.min_gain
        if ratio is None:
            return False
        return ratio.estimate > 1.0 + least / 2 and ratio.high >= 1.0 + least

    def _worth_it(self, ratio: Ratio | None) -> bool:
        if ratio is None:
            return not self._sustained_in_search
        return ratio.low > 1.0 + self._rules.min_gain

    def _round(self, number: int) -> None:
        self._lengthen_windows()
        compared = self._current_sustains and not self._current.outclassed
        searched = self._rules.levels is not None and self._sustained_in_search
        sides = [*([self._current] if compared else []), *self._racing()]
        for side in in_order(sides, number, self._rules.rounds, self._rules.seed):
            self._add_round(side, number)
            tried_again = searched and side is self._current and not side.rounds[-1].compares
            if tried_again:  # it has sustained a load before: one bad server must not decide
                del side.rounds[-1]
                self._add_round(side, number)
        least = min((s.rounds[-1].taken_percent for s in sides if not s.dropped), default=0.0)
        for side in sides:
            if not side.dropped and side.rounds[-1].taken_percent > least + OTHER_CPU_PERCENT:
                self._add_round(side, number, side.rounds.pop())
        for side in self._racing():
            self._drop_where_missed(side)
        if any(side.dropped for side in sides):
            self._bring_back(number)

    def _drop_where_missed(self, side: Contender) -> None:
        if not side.dropped and not side.rounds[-1].passed:
            side.dropped = "it missed an SLO when measured again on a fresh server"
            self._outcomes[side.candidate] = Outcome.NOT_FEASIBLE

    def _bring_back(self, number: int) -> None:
        """A finalist dropped only beside one that has left takes its place, in all rounds."""
        bar = BEHIND * max((geometric_mean(f.capacities()) for f in self._racing()), default=0.0)
        for finalist in self._finalists:
            if finalist.dropped == _ANOTHER and geometric_mean(finalist.capacities()) >= bar:
                finalist.dropped = ""
            while not finalist.dropped and len(finalist.rounds) <= number:
                self._add_round(finalist, len(finalist.rounds))
                self._drop_where_missed(finalist)

    def _add_round(self, side: Contender, number: int, first: Round | None = None) -> None:
        """``first``: this round as it was before, disturbed; the one disturbed less counts."""
        try:
            found = self._measure(side, number)
        except TrialError as error:
            if side is self._current:
                raise
            # What a load generator cannot do says nothing about the config.
            generator = isinstance(error, (ClientLimitError, LoadFailedError))
            unknown = generator and not isinstance(error, ModelFailsError)
            outcome = Outcome.NOT_MEASURED if unknown else Outcome.NOT_FEASIBLE
            side.dropped, self._outcomes[side.candidate] = error.message, outcome
            return
        kept = first is not None and first.compares and first.taken_percent < found.taken_percent
        side.rounds.append(first if first is not None and kept else found)

    @property
    def _sustained_in_search(self) -> bool:
        return self._current.entrant.sustained and self._current.entrant.level is not None

    @property
    def _current_sustains(self) -> bool:
        """Whether there is a load at which the current config meets the SLOs, as far as known."""
        rounds = self._current.rounds
        if rounds and self._rules.levels is not None:
            return any(r.compares for r in rounds)
        return self._current.entrant.level is not None

    def _measure(self, side: Contender, number: int) -> Round:
        role = Role.CURRENT if side is self._current else Role.CANDIDATE

        def search(measure: Callable[[float], Point]) -> Round:
            levels, expected = self._rules.levels, side.expected_level()
            if levels is None:
                return measure_fixed_round(measure, side.entrant.level or expected)
            sendable = self._rounds.bench.sendable
            levels = levels.below(sendable.most)
            if self._far_behind and side is self._current:
                others = [f.expected_level() for f in self._racing()]
                length_s, sent = self._rules.length_s, sendable.sent
                return search_far_behind(measure, expected, others, levels, length_s, sent)
            return search_round(measure, expected, levels, fine=not self._large, sent=sendable.sent)

        return self._rounds.measure(number, role, side.candidate, search, least_s=side.window_s)

    def _drop_those_behind(self) -> None:
        """A finalist that is clearly worse than another, or than the current config."""
        if self._rules.levels is None:
            return
        racing = self._racing()
        means = {f.candidate: geometric_mean(f.capacities()) for f in racing}
        bar = BEHIND * max(means.values(), default=0.0)
        current = self._current.capacities() if self._current_sustains else []
        now = BEHIND * geometric_mean(current) if current else 0.0
        for finalist in racing:
            if means[finalist.candidate] < now:
                finalist.dropped = "it sustains less than the current config when measured again"
            elif means[finalist.candidate] < bar:
                finalist.dropped = _ANOTHER

    def _current_is_outclassed(self) -> bool:
        racing, searched = self._racing(), self._current.entrant.level
        if self._rules.levels is None or searched is None or not self._current_sustains:
            return False
        if not racing or not all(r.bounded for r in self._current.rounds):
            return False
        now = geometric_mean(self._current.capacities())
        return all(
            disturbed_alike(f.rounds[-1], self._current.rounds[-1])
            and geometric_mean(f.capacities()) >= OUTCLASSED * now
            and geometric_mean(f.levels()) >= OUTCLASSED * searched
            for f in racing
        )

    def _judge(self, finalist: Contender) -> Confirmation:
        found = self._gain(finalist)
        outcome, reason = self._verdict(finalist, None if found is None else found.ratio)
        error = self._analyses.error(len(finalist.rounds))
        return Confirmation(outcome, reason, finalist, self._current, found, error)

    def _verdict(self, finalist: Contender, ratio: Ratio | None) -> tuple[Outcome, str]:
        if finalist.dropped:
            outcome = self._outcomes.get(finalist.candidate, Outcome.NOT_BETTER)
            return outcome, finalist.dropped
        if self._worth_it(ratio):
            return Outcome.CONFIRMED, self._why_confirmed(finalist)
        if ratio is None:
            return Outcome.NOT_COMPARED, (
                "the current config met every SLO in the search, but under no load when measured "
                "again on fresh servers: there is nothing to compare with"
            )
        if ratio.low == 0.0:
            return Outcome.NOT_COMPARED, uneven_text(finalist, self._current)
        ruled_out = ratio.high < 1.0 + self._rules.min_gain and not finalist.limited
        shows = "rules out" if ruled_out else "neither proves nor rules out"
        more = "; it sustains all that the load generator can send" if finalist.limited else ""
        if uneven := uneven_text(finalist, self._current):
            more += f"; {uneven}"
        return Outcome.NOT_BETTER if ruled_out else Outcome.UNDECIDED, (
            f"measured again in {len(finalist.rounds)} rounds, it is {digits(ratio.estimate)} "
            f"times the current config (95% interval {digits(ratio.low)} to "
            f"{digits(ratio.high)}), which {shows} the {self._rules.min_gain:.0%} gain that "
            f"a change must be worth{more}"
        )

    def _why_confirmed(self, finalist: Contender) -> str:
        rounds = len(finalist.rounds)
        sustained = f"every SLO met in {'one round' if rounds == 1 else f'each of {rounds} rounds'}"
        if uneven := uneven_text(finalist, self._current):
            sustained += f"; {uneven}"
        if not self._current.outclassed:
            return sustained
        behind = f"the current config, more than {OUTCLASSED:g} times behind"
        where = f"in {len(self._current.rounds)} of them"
        if self._current.at_most:
            where = "only at a load it does not sustain: lower loads would need long windows"
        return f"{sustained}; {behind}, was measured {where}"

    def _gain(self, finalist: Contender) -> Gain | None:
        """None where there is nothing to compare with."""
        current = self._current if self._current_sustains else None
        error = self._analyses.error(len(finalist.rounds))
        return None if current is None else gain(finalist, current, self._rules.objective, error)

    def _ratio(self, finalist: Contender) -> Ratio | None:
        found = self._gain(finalist)
        return None if found is None else found.ratio
