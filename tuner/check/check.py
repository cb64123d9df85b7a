"""`tune check`: the config in the repository against its SLOs and the last accepted result.

    prepare ─> find_programs ─> manifest ─> serving ─> open_session ─> rounds, soak ─> verdict
            ─> check.json and reports

Once a check has a directory, its `check.json` and its reports are written even if it fails; the
exit code is that of `check.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean

from tuner.check.nights import MOST, shows_no_change, slo_status
from tuner.check.outcome import CheckVerdict, verdict_of
from tuner.check.rounds import CheckRounds
from tuner.errors import (
    DeployRefusedError,
    InterruptedRunError,
    TrialError,
    TunerError,
    reason_from,
)
from tuner.machine.stop import Stop
from tuner.measurement.measurement import Stage
from tuner.meter.session import open_session
from tuner.prepare.config_watch import ConfigWatch
from tuner.prepare.job import Job, Request, prepare, requested_spec
from tuner.prepare.machine_lock import among_neighbours, only_one_on
from tuner.prepare.manifest import manifest_of, with_completed
from tuner.prepare.serving import ModelNotServedError, serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import Programs, choose_generator, client_notes, find_programs
from tuner.progress.events import Events
from tuner.reason import Fact, Reason, ReasonKind
from tuner.record.checks import (
    CHECK,
    Baseline,
    CheckFacts,
    CheckFigures,
    Key,
    append_history,
    credited_config,
    credited_level,
    find_baseline,
    history,
    question_of,
    write_baseline,
)
from tuner.record.manifest import Manifest, check_command, check_options, comparable
from tuner.record.status import CheckStatus
from tuner.record.store import RunStore, new_run_id
from tuner.score.ratio import CONFIDENCE
from tuner.search.cores import settle_cores
from tuner.sentences import sentence
from tuner.space.environment import assignments
from tuner.spec.units import count_text
from tuner.writeback.repository import half_written
from tuner.writing import write_json

#: What the edit of a config means for the result of a check that read it before.
_AFTER_AN_EDIT = "its result is not about the new file"
#: Number of checks in the trend of a report, including this one.
TREND = 10


def check(
    request: Request,
    events: Events,
    report: Callable[[Path], object],
    *,
    accept: bool = False,
    any_machine: bool = False,
) -> CheckFacts:
    """Measures the config in the repository, compares it with the baseline, and stores the result.

    Args:
        report: Renders the reports into the directory of a check.
        accept: Make the result the next baseline if every SLO is met.
        any_machine: Compare with the baseline of another machine if this one has none.

    Raises:
        TunerError: With the exit code of its class. If the check has a directory by then, the
            directory holds a `check.json` with the reason.
    """
    stop = Stop(events.note)
    with stop.listening():
        loaded = requested_spec(request)
        if (half := half_written(loaded.spec.repository)) is not None:
            raise half
        job = prepare(request, loaded)
        run_id = new_run_id(f"{job.spec.name}-check")
        events.step("looking for tritonserver and perf_analyzer")
        with (
            only_one_on(job, reading=True),
            among_neighbours("check", run_id, job, events.note) as neighbours,
            find_programs(job, request.environment, events.note) as programs,
        ):
            configs = ConfigWatch(job, "check", _AFTER_AN_EDIT, events.note)
            generator, question = programs.versions()["perf_analyzer"], question_of(job.spec)
            key = Key(job.spec.name, programs.fingerprint(), generator, question)
            baseline = find_baseline(request.output, key, any_machine=any_machine)
            store = RunStore.create(request.output, run_id)
            manifest = manifest_of(job, programs, request, store.run_id)
            job = _started_as_proved(job, request.output, manifest, events.note)
            manifest = replace(manifest, current=job.space.current)
            store.write_manifest(manifest.to_json())
            machine = _machine(programs)
            opened = _Open(job, store, manifest, key, machine, baseline, report, accept)
            events.note(f"check {store.directory}")
            if isinstance(baseline, Reason) and not accept:
                text = "This check can find an SLO missed (exit code 10), but not pass (11)."
                events.note(f"{sentence(baseline)} {text}")

            def checkpoint() -> None:
                neighbours.look()
                configs.look()
                stop.checkpoint()

            try:
                facts = opened.end(opened.measure(programs, events, checkpoint))
            except Exception as error:
                explained = stop.explain(error, store.directory)
                status = opened.end_early(explained).value
                code = getattr(explained, "exit_code", TunerError.exit_code)
                events.ended(store.directory, status, code, str(explained))
                if explained is error:
                    raise
                raise explained from error
            events.ended(store.directory, facts.status.value, facts.exit_code)
            return facts


def _started_as_proved(
    job: Job, results: Path, manifest: Manifest, note: Callable[[str], None]
) -> Job:
    """The job with the server's environment variables that the last run proved the config with.

    Variables that the spec sets keep the values of the spec.
    """
    proved = credited_config(results, manifest)
    proved_with = {} if proved is None else proved.candidate.start.environment
    given = {n: c for n, c in proved_with.items() if n not in job.spec.server.environment}
    if variables := assignments(given):
        note(f"the server starts with {' '.join(variables)}, as in the last run's proof")
    return job.started_with(given)


def _machine(programs: Programs) -> str:
    """The machine in words: CPU, cores, GPUs and tritonserver."""
    host, versions = programs.host, programs.versions()
    gpus = [f"{gpu.name}, driver {gpu.driver}" for gpu in host.gpus]
    cpu = f"{host.cpu}, {count_text(host.cores, 'core')}"
    parts = [cpu, *gpus, f"tritonserver {versions['tritonserver']}"]
    return "; ".join(parts)


@dataclass(frozen=True)
class _Open:
    """A check that has a directory.

    Attributes:
        baseline_or_reason: The accepted result to compare with, or why there is none.
        report: Renders the reports into the directory of a check.
        accept: Make the result the next baseline.
    """

    job: Job
    store: RunStore
    manifest: Manifest
    key: Key
    machine: str
    baseline_or_reason: Baseline | Reason
    report: Callable[[Path], object]
    accept: bool
    book: TimeBook = field(default_factory=TimeBook)

    @property
    def results(self) -> Path:
        return self.store.directory.parent

    @property
    def options(self) -> list[str]:
        """Options of the check that another one needs to be compared with it."""
        return check_options(self.manifest.choices, self.results)

    @property
    def again(self) -> str:
        """The command that repeats the check."""
        accept = ["--update-baseline"] if self.accept else []
        return check_command(self.manifest.spec_path, self.options, *accept)

    @property
    def baseline(self) -> Baseline | None:
        return None if isinstance(self.baseline_or_reason, Reason) else self.baseline_or_reason

    @property
    def same_question(self) -> Baseline | None:
        """The accepted result, if it was measured with this config on this machine."""
        then, now = self.baseline, (self.key, self.manifest.config_sha256)
        return then if then is not None and (then.key, then.config_sha256) == now else None

    @property
    def credited(self) -> float | None:
        """The load that the last run credited the config with, or else the accepted result did."""
        level, then = credited_level(self.results, self.manifest), self.same_question
        return then.credited if level is None and then is not None else level

    def measure(
        self, programs: Programs, events: Events, checkpoint: Callable[[], None]
    ) -> CheckRounds | CheckVerdict:
        """The finished rounds, or a verdict where the config could not be measured at all."""
        job, store = self.job, self.store
        events.phase(f"serving {job.spec.name}")
        try:
            with (
                store.locked(),
                serving(job, programs, store.logs, self.book, events.step) as served,
            ):
                for text in client_notes(served.job):
                    events.note(text)
                client, baseline = choose_generator(served.job).kind, self.baseline
                if baseline is not None and not comparable(baseline.client, client.name):
                    facts: dict[str, Fact] = {"generator": client.title}
                    reason = Reason(ReasonKind.OTHER_GENERATOR, facts=facts)
                    if not self.accept:
                        return CheckVerdict(CheckStatus.INCONCLUSIVE, (reason,))
                    baseline = None
                known = None if self.accept or baseline is None else baseline.cores
                cores = settle_cores(served, events, self.book, checkpoint, known)
                manifest = replace(with_completed(self.manifest, served.job), cores=cores)
                store.write_manifest(manifest.to_json())
                with open_session(
                    *(served, events, self.book, checkpoint),
                    manifest=manifest,
                    store=store,
                    cores=cores,
                ) as session:
                    session.bench.enter(Stage.CONFIRMATION)
                    rounds = CheckRounds(session, baseline, accept=self.accept)
                    rounds.measure(self.credited if job.spec.check.at is None else None)
                    return rounds
        except ModelNotServedError as error:
            status = CheckStatus.MISSED if error.refused else CheckStatus.INCONCLUSIVE
            return CheckVerdict(status, (error.reason,))
        except DeployRefusedError as error:
            reason = Reason(ReasonKind.CONFIG_REFUSED, causes=(error.reason,))
            return CheckVerdict(CheckStatus.MISSED, (reason,))
        except TrialError as error:
            reason = Reason(ReasonKind.CONFIG_UNMEASURED, causes=(error.reason,))
            return CheckVerdict(CheckStatus.INCONCLUSIVE, (reason,))

    def end(self, rounds: CheckRounds | CheckVerdict) -> CheckFacts:
        """Stores the result of the check, and makes it the baseline if requested."""
        if isinstance(rounds, CheckVerdict):
            return self.store_facts(rounds)
        not_compared = (
            self.baseline_or_reason if isinstance(self.baseline_or_reason, Reason) else None
        )
        verdict = verdict_of(rounds, self.job.spec.check, not_compared, accept=self.accept)
        remarks = list[Reason]()
        if rounds.disturbances:
            remarks.append(Reason(ReasonKind.DISTURBED_CHECK, causes=rounds.disturbances))
        if self.baseline is not None and self.baseline.key.fingerprint != self.key.fingerprint:
            elsewhere: dict[str, Fact] = {"machine": self.baseline.machine}
            remarks.append(Reason(ReasonKind.COMPARED_ELSEWHERE, facts=elsewhere))
        verdict = CheckVerdict(verdict.status, (*verdict.reasons, *remarks))
        accepted = None
        if verdict.status is CheckStatus.ACCEPTED:
            accepted = write_baseline(self.results, self._as_baseline(rounds))
        elif verdict.status is not CheckStatus.REGRESSION and (joined := self._joined(rounds)):
            write_baseline(self.results, joined)
        facts = self.store_facts(verdict, rounds, accepted)
        append_history(self.results, self.key, facts.row)
        return facts

    def _as_baseline(self, rounds: CheckRounds) -> Baseline:
        return Baseline(
            key=self.key,
            run_id=self.store.run_id,
            accepted_at=self.manifest.created_at,
            machine=self.machine,
            config_sha256=self.manifest.config_sha256,
            compared=rounds.figures.compared,
            values=tuple(rounds.figures.values),
            level=rounds.figures.level or min(p.level for p in rounds.points),
            expected=rounds.expected,
            arrivals=rounds.arrivals,
            client=self.store.manifest().client,
            credited=self.credited,
            cores=self.store.manifest().cores,
        )

    def _joined(self, rounds: CheckRounds) -> Baseline | None:
        """The accepted result with this night added, if it is a new night that shows no change."""
        then, ratio, day = self.same_question, rounds.figures.ratio, self.manifest.created_at[:10]
        if then is None or ratio is None or slo_status(rounds.points) or rounds.client_limit:
            return None
        known = day in (then.accepted_at[:10], *then.later) or len(then.ratios) >= MOST
        if known or not shows_no_change(ratio, float(self.job.spec.check.warn)):
            return None
        to_first = ratio.estimate * geometric_mean(then.ratios)
        return replace(then, later={**then.later, day: to_first})

    def end_early(self, error: Exception) -> CheckStatus:
        """Stores a `check.json` without figures, with the reason why there is no verdict."""
        stopped = isinstance(error, InterruptedRunError)
        status = CheckStatus.INTERRUPTED if stopped else CheckStatus.FAILED
        complete = (self.store.directory / CHECK).is_file()
        if isinstance(error, InterruptedRunError):
            kept = f"the check was complete and its result is kept: {self.store.directory}"
            error.hint = kept if complete else f"start again: {self.again}"
        if complete:
            return status  # the verdict is stored; a later step failed
        self.store_facts(CheckVerdict(status, (reason_from(error),)))
        return status

    def store_facts(
        self, verdict: CheckVerdict, rounds: CheckRounds | None = None, accepted: Path | None = None
    ) -> CheckFacts:
        """Writes `check.json` and the reports; ``rounds``: None if the check ended early."""
        manifest, limits = self.manifest, self.job.spec.check
        facts = CheckFacts(
            **dict(CheckFigures() if rounds is None else rounds.figures),
            schema_version=1,
            kind="check",
            run_id=manifest.run_id,
            model=manifest.name,
            checked_at=manifest.created_at,
            status=verdict.status,
            exit_code=verdict.status.exit_code,
            reasons=list(map(sentence, verdict.reasons)),
            why=list(verdict.reasons),
            spec_path=manifest.spec_path,
            options=self.options,
            spec_sha256=manifest.spec_sha256,
            config_sha256=manifest.config_sha256,
            fingerprint=self.key.fingerprint,
            machine=self.machine,
            objective=manifest.objective,
            warn=float(limits.warn),
            fail=float(limits.fail),
            confidence=CONFIDENCE,
            baseline=self.baseline,
            accepted=None if accepted is None else str(accepted),
            history=history(self.results, self.key, TREND - 1),
            seconds=round(self.book.to_json()["wall_s"], 3),
        )
        if rounds is not None:
            facts = facts.model_copy(update={"history": [*facts.history, facts.row]})
        write_json(self.store.directory / CHECK, facts.to_json())
        self.report(self.store.directory)
        return facts
