"""How a check ended, as `check.json` says it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from pydantic import ValidationError

from tuner.bench.timebook import TimeBook
from tuner.confirm.regression import ENOUGH, Change, Held, change_of, loss_found
from tuner.programs.check.rounds import Checked
from tuner.run.checks import (
    CHECK,
    Baseline,
    CheckFacts,
    Found,
    HistoryRow,
    Key,
    SloRounds,
    Then,
    credited_level,
    history,
)
from tuner.run.confirmation import Soak
from tuner.run.manifest import Manifest
from tuner.run.status import CheckStatus
from tuner.run.store import RunStore
from tuner.run.writing import write_json
from tuner.score.judge import severity
from tuner.score.point import Point
from tuner.score.ratio import CONFIDENCE
from tuner.spec.model import Check
from tuner.steps.job import Job
from tuner.steps.machine_lock import Neighbours

#: Checks shown as a trend, this one included.
TREND = 10
_OF_CHANGE = {
    Change.FINE: CheckStatus.FINE,
    Change.WORSE: CheckStatus.WORSE,
    Change.REGRESSION: CheckStatus.REGRESSION,
    Change.INCONCLUSIVE: CheckStatus.INCONCLUSIVE,
}


@dataclass(frozen=True)
class CheckVerdict:
    """``reasons``: why, one sentence each."""

    status: CheckStatus
    reasons: tuple[str, ...]


def verdict_of(found: Checked, limits: Check, not_compared: str, *, accept: bool) -> CheckVerdict:
    """The SLOs first, then the comparison; what was not compared did not pass.

    ``not_compared``: why there is nothing to compare with; empty where there is. A result that is
    to be the next baseline may be worse, but not miss an SLO.
    """
    load, rounds = found.held[0].measurement.load, len(found.held)
    where = "at any load tried" if found.any_load else f"at {load}"
    slos = found.slos
    if slos is Held.MISSED:
        return CheckVerdict(CheckStatus.MISSED, (f"{_missed(found.held)} {where}, every time.",))
    if slos is Held.UNCLEAR:
        return CheckVerdict(CheckStatus.INCONCLUSIVE, (_unclear(found.held, where),))
    if found.ratio is None:
        if not found.values:
            reason = f"{found.compared} was not measured in every round."
            return CheckVerdict(CheckStatus.INCONCLUSIVE, (reason,))
        if accept:
            reason = f"Every SLO was met in each of {rounds} rounds."
            return CheckVerdict(CheckStatus.ACCEPTED, (reason, *_limited(found)))
        reason = not_compared or "The accepted result was measured at another load: not compared."
        return CheckVerdict(CheckStatus.INCONCLUSIVE, (reason,))
    change = change_of(found.ratio, limits.warn, limits.fail)
    if found.client_limit and change is not Change.FINE and not accept:
        reason = "What the model can do was not found, so a loss is neither shown nor ruled out."
        return CheckVerdict(CheckStatus.INCONCLUSIVE, (*_limited(found), reason))
    status = CheckStatus.ACCEPTED if accept else _OF_CHANGE[change]
    return CheckVerdict(status, (*_compared(found, limits, change), *_limited(found)))


def with_credited(verdict: CheckVerdict, soak: Soak | None) -> CheckVerdict:
    """The verdict with what the soak of the credited load adds: a miss is a regression."""
    if soak is None:
        return verdict
    load = "The load that the config is credited with"
    if soak.held is None and not soak.reason:
        reason = f"{load} does not hold any more: {'; '.join(soak.failures)}."
        return CheckVerdict(CheckStatus.REGRESSION, (reason, *verdict.reasons))
    unclear = f"was not judged, which decides nothing: {soak.reason}."
    told = unclear if soak.held is None else f"still holds: {soak.held.sentence}."
    return CheckVerdict(verdict.status, (*verdict.reasons, f"{load} {told}"))


@dataclass(frozen=True)
class OpenCheck:
    """A check that has a directory.

    Attributes:
        machine: In words.
        compared_with: The accepted result, of this machine or of another.
        report: Makes the reports in the directory of a check.
        accept: The result is to be the next baseline.
    """

    job: Job
    store: RunStore
    manifest: Manifest
    key: Key
    machine: str
    compared_with: Found
    neighbours: Neighbours
    report: Callable[[Path], object]
    book: TimeBook = field(default_factory=TimeBook)
    accept: bool = False

    @property
    def results(self) -> Path:
        return self.store.directory.parent

    @property
    def accepted(self) -> Baseline | None:
        """The accepted result, if it is of this config on this machine."""
        then, now = self.compared_with.baseline, (self.key, self.manifest.config_sha256)
        return then if then is not None and (then.key, then.config_sha256) == now else None

    @property
    def credited(self) -> float | None:
        """The load that the config is credited with: by the last run, or when it was accepted."""
        level, then = credited_level(self.results, self.manifest), self.accepted
        return then.credited if level is None and then is not None else level

    def store_facts(
        self, verdict: CheckVerdict, found: Checked | None = None, accepted: Path | None = None
    ) -> CheckFacts:
        """Writes `check.json`, and the reports made of it; ``found``: None when it broke off."""
        facts = self._facts(verdict, found, accepted)
        write_json(self.store.directory / CHECK, facts.to_json())
        self.report(self.store.directory)
        return facts

    def _facts(
        self, verdict: CheckVerdict, found: Checked | None, accepted: Path | None
    ) -> CheckFacts:
        manifest, limits, baseline = self.manifest, self.job.spec.check, self.compared_with.baseline
        held = () if found is None else found.held
        facts = CheckFacts(
            schema_version=1,
            kind="check",
            run_id=manifest.run_id,
            model=manifest.name,
            checked_at=manifest.created_at,
            status=verdict.status,
            exit_code=verdict.status.exit_code,
            reasons=list(verdict.reasons),
            spec_path=manifest.spec_path,
            spec_sha256=manifest.spec_sha256,
            config_sha256=manifest.config_sha256,
            fingerprint=self.key.fingerprint,
            machine=self.machine,
            objective=str(manifest.spec["objective"]),
            rounds=len(held),
            load=f"{'about ' * found.any_load}{held[0].measurement.load}" if found else None,
            level=None if found is None else found.level,
            compared="nothing" if found is None else found.compared,
            values=[] if found is None else list(found.values),
            slo=[
                SloRounds(worst=min(results, key=severity), values=[r.value for r in results])
                for results in zip(*(p.slo for p in held), strict=True)
            ],
            warn=float(limits.warn),
            fail=float(limits.fail),
            ratio=None if found is None else found.ratio,
            nights=0 if found is None else found.nights,
            credited=None if found is None else found.credited,
            confidence=CONFIDENCE,
            baseline=None if baseline is None else _then(baseline, self.key),
            accepted=None if accepted is None else str(accepted),
            history=[*_earlier(history(self.results, self.key, TREND - 1))],
            seconds=round(self.book.to_json()["wall_s"], 3),
        )
        own = [] if found is None else [history_row(facts)]
        return facts.model_copy(update={"history": [*facts.history, *own]})


def history_row(facts: CheckFacts) -> HistoryRow:
    """The part of a check that goes into the history."""
    positive = bool(facts.values) and min(facts.values) > 0.0
    return HistoryRow(
        run_id=facts.run_id,
        checked_at=facts.checked_at,
        status=facts.status,
        value=geometric_mean(facts.values) if positive else None,
        ratio=facts.ratio,
        config_sha256=facts.config_sha256,
    )


def _earlier(rows: Iterable[Mapping[str, Any]]) -> Iterator[HistoryRow]:
    """Entries that tune did not write are skipped, as torn lines are."""
    for row in rows:
        with contextlib.suppress(ValidationError):
            yield HistoryRow.model_validate(row)


def _then(baseline: Baseline, key: Key) -> Then:
    return Then(
        run_id=baseline.run_id,
        accepted_at=baseline.accepted_at,
        machine=baseline.machine,
        same_machine=baseline.key.fingerprint == key.fingerprint,
        config_sha256=baseline.config_sha256,
        values=list(baseline.values),
        level=baseline.level,
    )


def _missed(points: Sequence[Point]) -> str:
    """`p99_latency <= 40ms was missed`, of all SLOs that were missed in some round."""
    wrong = [s for p in points for s in p.slo if s.verdict.missed]
    names = dict.fromkeys(s.expression for s in wrong)
    return f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} missed"


def _unclear(points: Sequence[Point], where: str) -> str:
    missed = sum(any(s.verdict.missed for s in p.slo) for p in points)
    if missed:
        return f"{_missed(points)} {where} in {missed} of {len(points)} rounds: at the very edge."
    few = f"Too few requests were answered {where} to judge a percentile"
    return f"{few}: raise workload.max_window."


def _limited(found: Checked) -> tuple[str, ...]:
    if found.client_limit is None:
        return ()
    return (f"The load generator was the limit, not the model: {found.client_limit}.",)


def _compared(found: Checked, limits: Check, change: Change) -> list[str]:
    ratio = found.ratio
    assert ratio is not None
    nights = f"{found.nights} night{'s' * (found.nights > 1)}"
    interval = f"{CONFIDENCE:.0%} interval {ratio.low:.3f} to {ratio.high:.3f}, from {nights}"
    warn, fail = limits.warn, limits.fail
    meaning = {
        Change.FINE: f"a loss of {fail} is ruled out",
        Change.WORSE: f"a loss above {warn}, but not of the {fail} that fail",
        Change.REGRESSION: f"a loss above {warn} is certain, and it looks like more than {fail}",
        Change.INCONCLUSIVE: f"a loss of {fail} and one below {warn} are both possible",
    }[change]
    times = f"{found.compared.capitalize()} is {ratio.estimate:.3f} times the accepted result's"
    told = [f"{times} ({interval}): {meaning}."]
    if change is Change.INCONCLUSIVE:
        loss = loss_found(ratio, float(warn))
        told.append(f"A loss of {loss:.0%} would be found in four nights of five on this machine.")
    if found.nights < ENOUGH:
        told.append(f"The interval is wide until {ENOUGH} nights are known.")
    return told
