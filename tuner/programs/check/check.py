"""`tune check`: the config in the repository against its SLOs and the last accepted result.

    prepare ─> find_programs ─> manifest ─> serving ─> open_session ─> check_rounds
            ─> soak_credited ─> verdict_of ─> check.json and reports

Whatever goes wrong once the check has a directory, its `check.json` and reports are written before
the error goes on; the exit code is read from what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean

from tuner.bench.timebook import TimeBook
from tuner.confirm.regression import MOST, Held, shows_no_change
from tuner.errors import DeployRefusedError, InterruptedRunError, TrialError, TunerError
from tuner.load.generators import GeneratorKind
from tuner.measurement.measurement import Stage
from tuner.programs.check.outcome import (
    CheckVerdict,
    check_facts,
    history_row,
    verdict_of,
    with_credited,
)
from tuner.programs.check.rounds import Checked
from tuner.programs.check.rounds import check as check_rounds
from tuner.run.baseline import (
    CHECK,
    Baseline,
    Found,
    Key,
    append_history,
    credited_level,
    find_baseline,
    history,
    question_of,
    write_baseline,
)
from tuner.run.check_schema import CheckFacts
from tuner.run.manifest import Manifest, comparable
from tuner.run.status import CheckStatus
from tuner.run.store import RunStore, new_run_id
from tuner.run.writing import write_json
from tuner.spec.load import load_spec
from tuner.steps.events import Events
from tuner.steps.job import Job, Request, prepare
from tuner.steps.machine_lock import Neighbours, among_neighbours, only_one_on
from tuner.steps.manifest import manifest_of, with_completed
from tuner.steps.serving import ModelNotServedError, serving
from tuner.steps.session import open_session
from tuner.steps.soaking import soak_credited
from tuner.steps.stop import Stop
from tuner.steps.tools import Programs, client_notes, client_of, find_programs
from tuner.writeback.rollback import half_written

#: Checks shown as a trend, this one included.
TREND = 10
_WITHOUT_BASELINE = "This check can find an SLO missed (exit code 10), but not pass (11)."


@dataclass(frozen=True)
class CheckRequest:
    """What the user asked for.

    Attributes:
        job: Spec, output directory, environment.
        accept: The result is to be the next baseline.
        any_machine: Compare with another machine's where this one has none.
    """

    job: Request
    accept: bool = False
    any_machine: bool = False


@dataclass(frozen=True)
class CheckFinished:
    """A check that came to a verdict; ``facts`` is what `check.json` holds."""

    directory: Path
    facts: CheckFacts


def check(request: CheckRequest, events: Events, report: Callable[[Path], object]) -> CheckFinished:
    """Measures the config in the repository, compares, and keeps what was found.

    ``report``: makes the reports in the directory of a check.

    Raises:
        TunerError: With the exit code of its class. Once the check has a directory, that holds
            a `check.json` all the same.
    """
    stop = Stop(events.note)
    with stop.listening():
        loaded = load_spec(request.job.spec, request.job.overrides)
        for half in half_written(loaded.spec.repository).values():
            raise half
        job = prepare(request.job, loaded)
        run_id = new_run_id(f"{job.spec.name}-check")
        with (
            only_one_on(job, reading=True),
            among_neighbours("check", run_id, job, events.note) as neighbours,
            find_programs(job, request.job.environment) as programs,
        ):
            session = _open(request, job, programs, run_id, neighbours, report)
            events.note(f"check {session.store.directory}")
            if session.compared_with.baseline is None and not request.accept:
                events.note(f"{session.compared_with.reason} {_WITHOUT_BASELINE}")
            try:
                return _end(session, _measure(session, programs, events, stop.checkpoint))
            except Exception as error:
                _end_early(session, error)
                raise


@dataclass(frozen=True)
class _Session:
    """What the steps of one check share."""

    request: CheckRequest
    job: Job
    store: RunStore
    manifest: Manifest
    key: Key
    machine: str
    compared_with: Found
    neighbours: Neighbours
    report: Callable[[Path], object]
    book: TimeBook = field(default_factory=TimeBook)

    @property
    def results(self) -> Path:
        return self.request.job.output

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
        self, verdict: CheckVerdict, found: Checked | None, accepted: Path | None
    ) -> CheckFacts:
        """`check.json` and the reports made of it."""
        facts = check_facts(
            manifest=self.manifest,
            key=self.key,
            machine=self.machine,
            verdict=verdict,
            found=found,
            limits=self.job.spec.check,
            baseline=self.compared_with.baseline,
            accepted=accepted,
            history=history(self.results, self.key, TREND - 1),
            seconds=self.book.to_json()["wall_s"],
        )
        write_json(self.store.directory / CHECK, facts.to_json())
        self.report(self.store.directory)
        return facts


def _open(
    request: CheckRequest,
    job: Job,
    programs: Programs,
    run_id: str,
    neighbours: Neighbours,
    report: Callable[[Path], object],
) -> _Session:
    versions = programs.versions()
    question = question_of(job.spec)
    key = Key(job.spec.name, programs.fingerprint(), versions["perf_analyzer"], question)
    results = request.job.output
    found = find_baseline(results, key, any_machine=request.any_machine)
    store = RunStore.create(results, run_id)
    manifest = manifest_of(job, programs, request.job, store.run_id)
    store.write_manifest(manifest.to_json())
    return _Session(
        request, job, store, manifest, key, _machine(programs), found, neighbours, report
    )


def _machine(programs: Programs) -> str:
    host, versions = programs.host, programs.versions()
    gpus = [f"{gpu.name}, driver {gpu.driver}" for gpu in host.gpus]
    parts = [f"{host.cpu}, {host.cores} cores", *gpus, f"tritonserver {versions['tritonserver']}"]
    return "; ".join(parts)


def _measure(
    session: _Session, programs: Programs, events: Events, checkpoint: Callable[[], None]
) -> Checked | CheckVerdict:
    """What the rounds gave; the verdict alone where the config could not be measured at all."""
    job, store = session.job, session.store

    def looking() -> None:
        session.neighbours.look()
        checkpoint()

    try:
        with (
            serving(job, programs, store.logs, session.book) as served,
            open_session(
                served, events, session.book, looking, manifest=session.manifest, store=store
            ) as measuring,
        ):
            store.write_manifest(with_completed(session.manifest, served.job).to_json())
            for told in client_notes(served.job):
                events.note(told)
            baseline = session.compared_with.baseline
            if reason := _otherwise_measured(baseline, client_of(served.job).kind):
                if not session.request.accept:
                    return CheckVerdict(CheckStatus.INCONCLUSIVE, (reason,))
                baseline = None
            measuring.bench.enter(Stage.CONFIRMATION)
            found = check_rounds(measuring, baseline, accept=session.request.accept)
            level = session.credited if job.spec.check.at is None else None
            if level is None or found.slos is not Held.MET:
                return found
            return replace(found, credited=soak_credited(measuring, level, found.held))
    except ModelNotServedError as error:
        status = CheckStatus.MISSED if error.refused else CheckStatus.INCONCLUSIVE
        return CheckVerdict(status, (error.message,))
    except DeployRefusedError as error:
        reason = f"Triton refuses the config in the repository: {error.message}"
        return CheckVerdict(CheckStatus.MISSED, (reason,))
    except TrialError as error:
        reason = f"The config in the repository could not be measured: {error.message}"
        return CheckVerdict(CheckStatus.INCONCLUSIVE, (reason,))


def _end(session: _Session, found: Checked | CheckVerdict) -> CheckFinished:
    """Accepts the result if requested, and stores how the check ended."""
    if isinstance(found, CheckVerdict):
        facts = session.store_facts(found, None, None)
        return CheckFinished(session.store.directory, facts)
    request = session.request
    limits, reason = session.job.spec.check, session.compared_with.reason
    verdict = verdict_of(found, limits, reason, accept=request.accept)
    verdict = with_credited(verdict, found.credited)
    verdict = replace(verdict, reasons=(*verdict.reasons, *_remarks(session, found)))
    accepted: Path | None = None
    if verdict.status is CheckStatus.ACCEPTED:
        accepted = write_baseline(session.results, _baseline(session, found))
    elif verdict.status is not CheckStatus.REGRESSION and (joined := _joined(session, found)):
        write_baseline(session.results, joined)
    facts = session.store_facts(verdict, found, accepted)
    append_history(session.results, session.key, history_row(facts).model_dump(mode="json"))
    return CheckFinished(session.store.directory, facts)


def _remarks(session: _Session, found: Checked) -> list[str]:
    baseline = session.compared_with.baseline
    remarks = [f"Disturbed: {text}" for text in found.disturbances]
    remarks += session.neighbours.remarks
    if baseline is not None and baseline.key.fingerprint != session.key.fingerprint:
        remarks.append(f"Compared with a result of another machine ({baseline.machine}).")
    return remarks


def _baseline(session: _Session, found: Checked) -> Baseline:
    levels = [p.level for p in found.held]
    return Baseline(
        key=session.key,
        run_id=session.store.run_id,
        accepted_at=session.manifest.created_at,
        machine=session.machine,
        config_sha256=session.manifest.config_sha256,
        compared=found.compared,
        values=found.values,
        level=min(levels) if found.level is None else found.level,
        expected=found.expected,
        arrivals=found.arrivals,
        client=session.store.manifest().client,
        credited=session.credited,
    )


def _joined(session: _Session, found: Checked) -> Baseline | None:
    """The accepted result with this night, if it is another one that showed no change."""
    then, ratio, day = session.accepted, found.ratio, session.manifest.created_at[:10]
    if then is None or ratio is None or found.slos is not Held.MET or found.client_limit:
        return None
    known = day in (then.accepted_at[:10], *then.later) or len(then.ratios) >= MOST
    if known or not shows_no_change(ratio, float(session.job.spec.check.warn)):
        return None
    to_first = ratio.estimate * geometric_mean(then.ratios)
    return replace(then, later={**then.later, day: to_first})


def _otherwise_measured(baseline: Baseline | None, client: GeneratorKind) -> str:
    """Why the accepted result differs in kind from what this check would measure; else empty."""
    if baseline is None or comparable(baseline.client, client.name):
        return ""
    return (
        f"The accepted result's latencies were not measured by {client.title}, as they are now: "
        "the two cannot be compared. Accept a new one with --update-baseline."
    )


def _end_early(session: _Session, error: Exception) -> None:
    """What is known, with the reason why there is no verdict."""
    if (session.store.directory / CHECK).is_file():
        return  # the verdict was written; only what comes after it failed
    interrupted = isinstance(error, InterruptedRunError)
    if isinstance(error, InterruptedRunError):
        error.hint = f"start again: tune check {session.request.job.spec}"
    message = error.message if isinstance(error, TunerError) else f"a defect of tune: {error!r}"
    status = CheckStatus.INTERRUPTED if interrupted else CheckStatus.FAILED
    session.store_facts(CheckVerdict(status, (message,)), None, None)
