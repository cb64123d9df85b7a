"""`tune check`: the config in the repository against its SLOs and the last accepted result.

    prepare ─> find_programs ─> manifest ─> serving ─> open_session ─> check_rounds
            ─> soak_credited ─> verdict_of ─> check.json and reports

Whatever goes wrong once the check has a directory, its `check.json` and reports are written before
the error goes on; the exit code is read from what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

from tuner.confirm.regression import MOST, Held, shows_no_change
from tuner.errors import DeployRefusedError, InterruptedRunError, TrialError, TunerError
from tuner.load.generators import GeneratorKind
from tuner.measurement.measurement import Stage
from tuner.programs.check.outcome import (
    CheckVerdict,
    OpenCheck,
    history_row,
    verdict_of,
    with_credited,
)
from tuner.programs.check.rounds import Checked
from tuner.programs.check.rounds import check as check_rounds
from tuner.run.checks import (
    CHECK,
    Baseline,
    CheckFacts,
    Key,
    append_history,
    find_baseline,
    question_of,
    write_baseline,
)
from tuner.run.manifest import comparable
from tuner.run.status import CheckStatus
from tuner.run.store import RunStore, new_run_id
from tuner.spec.load import load_spec
from tuner.steps.events import Events
from tuner.steps.job import Request, prepare
from tuner.steps.machine_lock import among_neighbours, only_one_on
from tuner.steps.manifest import manifest_of, with_completed
from tuner.steps.serving import ModelNotServedError, serving
from tuner.steps.session import open_session
from tuner.steps.soaking import soak_credited
from tuner.steps.stop import Stop
from tuner.steps.tools import Programs, client_notes, client_of, find_programs
from tuner.writeback.rollback import half_written

_WITHOUT_BASELINE = "This check can find an SLO missed (exit code 10), but not pass (11)."


@dataclass(frozen=True)
class CheckFinished:
    """A check that came to a verdict; ``facts`` is what `check.json` holds."""

    directory: Path
    facts: CheckFacts


def check(
    request: Request,
    events: Events,
    report: Callable[[Path], object],
    *,
    accept: bool = False,
    any_machine: bool = False,
) -> CheckFinished:
    """Measures the config in the repository, compares, and keeps what was found.

    ``report`` makes the reports in the directory of a check. With ``accept`` the result is to be
    the next baseline. ``any_machine``: compare with another machine's where this one has none.

    Raises:
        TunerError: With the exit code of its class. Once the check has a directory, that holds
            a `check.json` all the same.
    """
    stop = Stop(events.note)
    with stop.listening():
        loaded = load_spec(request.spec, request.overrides)
        for half in half_written(loaded.spec.repository).values():
            raise half
        job = prepare(request, loaded)
        run_id = new_run_id(f"{job.spec.name}-check")
        with (
            only_one_on(job, reading=True),
            among_neighbours("check", run_id, job, events.note) as neighbours,
            find_programs(job, request.environment) as programs,
        ):
            generator, question = programs.versions()["perf_analyzer"], question_of(job.spec)
            key = Key(job.spec.name, programs.fingerprint(), generator, question)
            found = find_baseline(request.output, key, any_machine=any_machine)
            store = RunStore.create(request.output, run_id)
            manifest = manifest_of(job, programs, request, store.run_id)
            store.write_manifest(manifest.to_json())
            machine = _machine(programs)
            opened = OpenCheck(
                job, store, manifest, key, machine, found, neighbours, report, accept=accept
            )
            events.note(f"check {store.directory}")
            if found.baseline is None and not accept:
                events.note(f"{found.reason} {_WITHOUT_BASELINE}")
            try:
                return _end(opened, _measure(opened, programs, events, stop.checkpoint))
            except Exception as error:
                _end_early(opened, error)
                raise


def _machine(programs: Programs) -> str:
    host, versions = programs.host, programs.versions()
    gpus = [f"{gpu.name}, driver {gpu.driver}" for gpu in host.gpus]
    parts = [f"{host.cpu}, {host.cores} cores", *gpus, f"tritonserver {versions['tritonserver']}"]
    return "; ".join(parts)


def _measure(
    opened: OpenCheck, programs: Programs, events: Events, checkpoint: Callable[[], None]
) -> Checked | CheckVerdict:
    """What the rounds gave; the verdict alone where the config could not be measured at all."""
    job, store = opened.job, opened.store

    def looking() -> None:
        opened.neighbours.look()
        checkpoint()

    try:
        with (
            store.locked(),
            serving(job, programs, store.logs, opened.book) as served,
            open_session(
                served, events, opened.book, looking, manifest=opened.manifest, store=store
            ) as measuring,
        ):
            store.write_manifest(with_completed(opened.manifest, served.job).to_json())
            for told in client_notes(served.job):
                events.note(told)
            baseline = opened.compared_with.baseline
            if reason := _otherwise_measured(baseline, client_of(served.job).kind):
                if not opened.accept:
                    return CheckVerdict(CheckStatus.INCONCLUSIVE, (reason,))
                baseline = None
            measuring.bench.enter(Stage.CONFIRMATION)
            found = check_rounds(measuring, baseline, accept=opened.accept)
            level = opened.credited if job.spec.check.at is None else None
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


def _end(opened: OpenCheck, found: Checked | CheckVerdict) -> CheckFinished:
    """Accepts the result if requested, and stores how the check ended."""
    if isinstance(found, CheckVerdict):
        return CheckFinished(opened.store.directory, opened.store_facts(found))
    limits, reason = opened.job.spec.check, opened.compared_with.reason
    verdict = verdict_of(found, limits, reason, accept=opened.accept)
    verdict = with_credited(verdict, found.credited)
    verdict = replace(verdict, reasons=(*verdict.reasons, *_remarks(opened, found)))
    accepted = None
    if verdict.status is CheckStatus.ACCEPTED:
        accepted = write_baseline(opened.results, _baseline(opened, found))
    elif verdict.status is not CheckStatus.REGRESSION and (joined := _joined(opened, found)):
        write_baseline(opened.results, joined)
    facts = opened.store_facts(verdict, found, accepted)
    append_history(opened.results, opened.key, history_row(facts).model_dump(mode="json"))
    return CheckFinished(opened.store.directory, facts)


def _remarks(opened: OpenCheck, found: Checked) -> list[str]:
    baseline = opened.compared_with.baseline
    remarks = [f"Disturbed: {text}" for text in found.disturbances]
    remarks += opened.neighbours.remarks
    if baseline is not None and baseline.key.fingerprint != opened.key.fingerprint:
        remarks.append(f"Compared with a result of another machine ({baseline.machine}).")
    return remarks


def _baseline(opened: OpenCheck, found: Checked) -> Baseline:
    levels = [p.level for p in found.held]
    return Baseline(
        key=opened.key,
        run_id=opened.store.run_id,
        accepted_at=opened.manifest.created_at,
        machine=opened.machine,
        config_sha256=opened.manifest.config_sha256,
        compared=found.compared,
        values=found.values,
        level=min(levels) if found.level is None else found.level,
        expected=found.expected,
        arrivals=found.arrivals,
        client=opened.store.manifest().client,
        credited=opened.credited,
    )


def _joined(opened: OpenCheck, found: Checked) -> Baseline | None:
    """The accepted result with this night, if it is another one that showed no change."""
    then, ratio, day = opened.accepted, found.ratio, opened.manifest.created_at[:10]
    if then is None or ratio is None or found.slos is not Held.MET or found.client_limit:
        return None
    known = day in (then.accepted_at[:10], *then.later) or len(then.ratios) >= MOST
    if known or not shows_no_change(ratio, float(opened.job.spec.check.warn)):
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


def _end_early(opened: OpenCheck, error: Exception) -> None:
    """What is known, with the reason why there is no verdict."""
    if (opened.store.directory / CHECK).is_file():
        return  # the verdict was written; only what comes after it failed
    status = CheckStatus.FAILED
    if isinstance(error, InterruptedRunError):
        status = CheckStatus.INTERRUPTED
        error.hint = f"start again: tune check {opened.job.loaded.path}"
    message = error.message if isinstance(error, TunerError) else f"a defect of tune: {error!r}"
    opened.store_facts(CheckVerdict(status, (message,)))
