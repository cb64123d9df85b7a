"""From the trials of a search to an answer: a better config, none, or not known. Read this first.

    entrants ─> rounds ─> (decide) ─> simplest ─> low loads ─> answers ─> soak

The current config and the finalists are measured again in rounds. The best finalist that proves
better is made as simple as possible, must give the same answers as the current config, and is
measured under one long load. `docs/internals/measuring-policy.md` says why.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from tuner.errors import TrialError
from tuner.meter.session import Session
from tuner.proof.answers import same_answers
from tuner.proof.beside import rounds_beside
from tuner.proof.contender import Contender
from tuner.proof.entrants import (
    LowLoads,
    ProofRules,
    at_low_loads,
    entrant_of,
    entrant_of_current,
    far_behind,
    finalists_of,
    looks_of,
    nearest_of,
    slo_missed_at_low_load,
)
from tuner.proof.measured import MeasuredOnce
from tuner.proof.next_soak import likely_capacity
from tuner.proof.rounds import RoundsResult, add_round, leave_unless_met, run_rounds
from tuner.proof.simplest import Simplest, simplest
from tuner.proof.soak import (
    MOST_SOAKS,
    OF_MEAN,
    first_level,
    least_gain_level,
    soak,
    surely_less,
)
from tuner.proof.verdict import (
    best_other,
    credited_gain,
    failures,
    gain_of,
    limits,
    nearest_miss,
    none_near,
    refuse_without_alternative,
    to_know,
    too_few,
    why,
)
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Repeat, Role, Soak
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import RunDecision
from tuner.record.status import Status
from tuner.score.judge import SloOutcome
from tuner.score.trial import Trial, trial_of
from tuner.search.budget import lone_miss
from tuner.search.estimate import rounds_at_most_s, spent_s
from tuner.search.incumbent import leaders
from tuner.search.outlook import Ahead, outlook_of
from tuner.search.strategies.batch_rates import outdone_by
from tuner.sentences import failed
from tuner.space.candidate import Candidate, list_sizes
from tuner.space.words import changes_text

#: Soaked throughputs are equal if their ratio is at least this: windows vary a little by chance.
NEARLY = 0.99


def prove(session: Session, trials: Sequence[Trial], stored: Sequence[Repeat] = ()) -> RunDecision:
    """Whether a config of the search is better than the current one, and which load it sustains.

    ``stored``: the measurements of the proof that an earlier part of the run stored.

    Raises:
        InterruptedRunError: The user stopped it.
        TooManyFailedTrialsError: Every config but the current one failed.
        NothingToSearchError: No other config was measured within the budget.
    """
    return _Proof(session, trials, stored).run()


class _Proof:
    def __init__(self, session: Session, trials: Sequence[Trial], stored: Sequence[Repeat]) -> None:
        spec = session.spec
        self._session = session
        self._measured = MeasuredOnce(session.bench, session.record, stored, session.events.note)
        plan = session.plan
        seed, more = session.first_seed, session.more_s is not None
        self._rules = ProofRules(
            spec.objective, spec.slos, plan, spec.confirm, seed, more, session.cores.fewer
        )
        self._hopeless = lone_miss(trials, spec.slos, session.job.space)
        if self._hopeless is not None:
            self._low = LowLoads([*trials], [], [self._hopeless])
        else:
            self._low = at_low_loads(session, trials)
        self._trials = self._low.trials
        self._begun = time.monotonic()
        self._for_rounds_s = session.more_s or rounds_at_most_s(spec, spent_s(trials))
        self._until = self._begun + self._for_rounds_s
        self._enough = spec.confirm.least_ratio
        self._reasons: list[Reason] = []
        self._left_out: tuple[Reason, ...] = ()

    def run(self) -> RunDecision:
        session, trials, plan = self._session, self._trials, self._rules.plan
        current_trial = trial_of(session.current, trials)
        baseline = ProvedConfig.of_trial(current_trial)
        if baseline is not None and session.current in self._low.missed:  # no load is sustained
            baseline = replace(baseline, at_most_infer_per_s=None)
        failed = failures(session.current, trials)
        if not leaders(trials, session.spec.objective.goal, session.current):
            few = too_few(trials)
            status = Status.NOT_KNOWN if few else Status.INFEASIBLE
            reasons = self._low.reasons or ([] if few else [nearest_miss(trials, plan)])
            return RunDecision.of(status, (*few, *reasons, *failed, *limits(trials)), baseline)
        refuse_without_alternative(session.current, trials)
        finalists = finalists_of(trials, session.spec, session.current, session.near_miss)
        verdict = self._compare(current_trial, finalists, baseline)
        all_reasons = (
            *self._low.reasons,
            *verdict.why,
            *limits(finalists),
            *failed,
            *self._left_out,
        )
        if session.cores.fewer:
            all_reasons = (*all_reasons, session.cores.shortage)
        return verdict.model_copy(update={"why": all_reasons})

    def _compare(
        self, current_trial: Trial | None, finalists: Sequence[Trial], baseline: ProvedConfig | None
    ) -> RunDecision:
        session, rules = self._session, self._rules
        entrants = [entrant_of(t, rules) for t in finalists]
        if not entrants:
            why_kept = (Reason(ReasonKind.NO_OTHER_MEETS),)
            return RunDecision.of(Status.KEPT, why_kept, baseline)
        nearest = nearest_of(self._trials, session.current, rules)
        current = entrant_of_current(current_trial, session.current, entrants[0], rules, self._low)
        if (
            current_trial is not None
            and current_trial.outcome is SloOutcome.MET
            and far_behind(nearest, current)
        ):
            name = self._name(nearest.candidate)
            none = none_near(name, nearest, current, rules)
            return none.model_copy(update={"baseline": baseline})
        names = " | ".join(self._name(e.candidate) for e in entrants)
        session.events.phase(f"confirming: {names}")
        if far_behind(current, entrants[0]):
            others = tuple(map(Contender, entrants))
            race = RoundsResult(Contender(current), others, {}, better=others)
            return self._take_best(race, baseline)
        looks = looks_of(session.spec, rules.plan, [current, *entrants])
        self._rules = rules = replace(rules, looks=looks)
        if looks is not None:
            session.events.note(
                f"rounds compare what {looks.in_flight} requests in flight get: "
                "the soaks judge the percentiles"
            )
        stored = self._measured.stored
        try:
            race = run_rounds(
                *(self._measured, current, entrants, rules, self._is_late, self._round_over),
                rounds_beside(session, rules, len(entrants), stored, self._round_over),
            )
        except TrialError as error:
            reason = Reason(ReasonKind.NOT_COMPARED, causes=(error.reason,))
            return RunDecision.of(Status.NOT_KNOWN, (reason,), baseline)
        if race.current.looked_at:  # a look judges no SLO
            return self._take_best(race, baseline)
        return self._take_best(race, race.current.proved())

    def _take_best(self, race: RoundsResult, baseline: ProvedConfig | None) -> RunDecision:
        """The verdict for the best finalist that is better, gives the same answers and lasts."""
        rules = self._rules
        proved = (self._prove(race, winner, baseline) for winner in race.better)
        verdict = next((v for v in proved if v is not None), None)
        measured = (f for f in race.finalists if f.rounds or f.left)
        reasons_ = [why(race, f, rules).of(self._name(f.candidate)) for f in measured]
        reasons = (*reasons_, *self._reasons)
        if verdict is not None:
            return verdict.model_copy(update={"why": reasons})
        status = Status.KEPT if race.no_gain else Status.NOT_KNOWN
        best = best_other(race)
        if best is None:
            return RunDecision.of(status, reasons, baseline)
        round_s = (time.monotonic() - self._begun) / max(len(race.current.rounds), 1)
        return RunDecision.of(
            status,
            reasons,
            baseline,
            best=best.proved(),
            gain=gain_of(race, best, rules),
            to_know=None if race.no_gain else to_know(race, best, rules, round_s),
        )

    def _prove(
        self, race: RoundsResult, winner: Contender, baseline: ProvedConfig | None
    ) -> RunDecision | None:
        """The verdict with the winner; None where the winner is refused, with the reason stored."""
        if not winner.rounds:  # without a comparison only the winner needs a round
            add_round(self._measured, winner, self._rules, 0, Role.CANDIDATE, self._round_over)
            if winner.left is None:
                leave_unless_met(winner)
        if winner.left is not None:
            return None
        level = first_level(winner, self._rules)
        simplest = self._simplest(race, winner, level)
        for candidate in dict.fromkeys((simplest.candidate, simplest.winner)):
            if candidate != simplest.candidate:
                undone = tuple(replace(change, kept=True) for change in simplest.undone)
                simplest = Simplest(candidate, candidate, undone)
                self._add_reason(candidate, Reason(ReasonKind.SIMPLER_FAILS))
            try:
                self._check_answers(candidate, level)
                soaked = self._soak(race, winner, simplest, level)
                proved = winner.proved(candidate, soaked)
                beside = self._current_beside(race, winner, baseline, proved, level)
                simplified = not all(change.kept for change in simplest.undone)
                gain = credited_gain(race, winner, proved, self._rules, level, beside, simplified)
            except TrialError as error:
                self._add_reason(candidate, error.reason)
                continue
            return RunDecision.of(
                Status.IMPROVED,
                (),
                baseline if beside is None or baseline is None else baseline.soaked(beside),
                winner=proved,
                gain=gain,
                simplification=simplest.undone or None,
            )
        return None

    def _simplest(self, race: RoundsResult, winner: Contender, level: float) -> Simplest:
        spec, space = self._session.spec, self._session.job.space
        ratio = race.ratios.get(winner.candidate)
        small = ratio is not None and ratio.low * OF_MEAN <= 1.0
        less = {t.candidate for t in self._trials if t.answered_less_than(level)}
        outdone = outdone_by(space, spec, self._trials, winner.candidate)
        self._begin("looking for the simplest config that is as good", Ahead.UNDOING)
        return simplest(
            *(self._measured, winner, space.current, level, self._rules, space),
            sizes=list_sizes(spec),
            leave_out=lambda: small or self._is_too_late_to_undo(),
            loses=lambda candidate: candidate in less or outdone(candidate),
        )

    def _is_too_late_to_undo(self) -> bool:
        if late := self._is_late():
            self._left_out = (Reason(ReasonKind.LEFT_OUT, facts={"what": "undoing changes"}),)
        return late

    def _check_answers(self, candidate: Candidate, level: float) -> None:
        """Tests the config at low loads, and compares its answers with the current config's.

        Raises:
            TrialError: The config misses an SLO at low loads, or its answers differ.
        """
        session = self._session
        if idle := slo_missed_at_low_load(session, candidate, level):
            raise failed(TrialError, idle)
        session.events.phase("comparing answers")
        confirm = session.spec.confirm
        within = (confirm.tolerance, confirm.tolerances)
        answers = same_answers(session.bench, session.current, candidate, *within)
        if answers.kind is ReasonKind.ANSWERS_CHANGED:
            raise failed(TrialError, answers)
        self._add_reason(candidate, answers)

    def _soak(
        self, race: RoundsResult, winner: Contender, left: Simplest, level: float
    ) -> Soak | None:
        """The soak of the config; None where the spec turns soaks off.

        A simplified config is not soaked at lower loads: the winner may sustain the first one.

        Raises:
            TrialError: No load that is a gain is sustained, or it is not known whether one is.
        """
        if not self._soaks:
            return None
        candidate = left.candidate
        self._begin("soaking the winner", Ahead.SOAK)
        until = time.monotonic() + self._for_rounds_s
        result = soak(
            self._measured,
            candidate,
            winner,
            level,
            self._rules,
            self._note_soak,
            at_most=MOST_SOAKS if candidate == left.winner else 1,
            least=least_gain_level(race, winner, self._rules),
            is_late=lambda: time.monotonic() > until,
        )
        if result.sustained is None:
            if result.why_unknown is None:
                lost = Reason(ReasonKind.SOAK_NOT_SUSTAINED, causes=result.failures)
                raise failed(TrialError, lost)
            unknown = Reason(ReasonKind.SOAK_UNKNOWN, causes=(result.why_unknown,))
            if not self._session.accept_unsoaked:
                raise failed(TrialError, unknown)
            self._add_reason(candidate, unknown)
        elif result.failures:
            lowered = (*result.failures, result.sustained.reason)
            self._add_reason(candidate, Reason(ReasonKind.SOAK_LOWERED, causes=lowered))
        for trend in () if result.sustained is None else result.sustained.trends:
            self._add_reason(candidate, trend)
        return result

    def _current_beside(
        self,
        race: RoundsResult,
        winner: Contender,
        baseline: ProvedConfig | None,
        proved: ProvedConfig,
        level: float,
    ) -> Soak | None:
        """Soaks the current config at the load that leaves no gain worth a change.

        Where the rounds compared the two, that is a part of the winner's likely capacity: its
        credit leaves out more, and so does the figure of the current config. Else it is a part of
        the credited load.

        None where search and rounds show that the current config sustains less. ``level``: the load
        of the winner's first soak.

        Raises:
            TrialError: The current config sustains the load, or it is not known whether it does.
        """
        if surely_less(race, winner, baseline, proved, self._rules, level):
            return None
        plan, current = self._rules.plan, race.current
        open_loop, left_out = plan.arrivals.open_loop, 0.0
        load = proved.credited_level / self._enough if open_loop else current.entrant.level
        if plan.listed is not None:
            load = min(listed for listed in plan.listed if listed >= load)
        elif self._rules.compares_capacities and winner.candidate in race.ratios:
            likely = likely_capacity(proved.soak, winner) or proved.credited_level
            left_out = max(1.0 - proved.credited_level / likely, 0.0)
            load = likely / self._enough
        self._session.events.phase("soaking the current config at the winner's load")
        config, note = self._session.current, self._note_soak
        result = soak(self._measured, config, current, load, self._rules, note, at_most=1)
        if result.why_unknown is not None:
            unknown = Reason(ReasonKind.CURRENT_SOAK_UNKNOWN, causes=(result.why_unknown,))
            raise failed(TrialError, unknown)
        if result.sustained is None:
            return replace(result, headroom=left_out)
        enough = result.sustained.throughput_infer_per_s * self._enough
        if enough >= NEARLY * (proved.credited_infer_per_s or 0.0):
            raise failed(
                TrialError, Reason(ReasonKind.NO_LASTING_GAIN, causes=(result.sustained.reason,))
            )
        return result

    @property
    def _soaks(self) -> bool:
        return float(self._session.spec.confirm.soak) > 0.0

    def _begin(self, phase: str, ahead: Ahead) -> None:
        self._session.events.phase(phase)
        self._session.events.outlook(outlook_of(self._session.job, self._trials, ahead=ahead))

    def _name(self, candidate: Candidate) -> str:
        return changes_text(candidate, self._session.current)

    def _add_reason(self, candidate: Candidate, reason: Reason) -> None:
        self._reasons.append(reason.of(self._name(candidate)))

    def _note_soak(self, text: str) -> None:
        self._session.events.note(f"soak: {text}")

    def _round_over(self, what: str, side: Contender) -> None:
        sustained = side.rounds[-1].sustained
        self._session.events.round_over(f"{what}, {self._name(side.candidate)}", sustained)

    def _is_late(self) -> bool:
        return time.monotonic() >= self._until
