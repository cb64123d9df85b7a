"""The end of a run: writes the winner, and stores result and report, even after an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.errors import (
    EnvironmentNotReadyError,
    InterruptedRunError,
    TooManyFailedTrialsError,
    TunerError,
    reason_from,
)
from tuner.machine.stop import Stop
from tuner.machine.uninterrupted import uninterrupted
from tuner.modelconfig.encoding import encode
from tuner.prepare.job import Job, Request, draw_up, with_proposal
from tuner.prepare.timebook import Phase, TimeBook
from tuner.progress.events import Events
from tuner.record.manifest import Manifest, resume_command, run_command
from tuner.record.noise import count_of_full_rounds, noise_of
from tuner.record.outcome import result_of
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Change, Result, RunDecision
from tuner.record.status import Status
from tuner.record.store import MANIFEST, SERVER_LOG, RunStore
from tuner.run.open_run import OpenRun
from tuner.score.trial import trial_of
from tuner.space.candidate import Candidate
from tuner.space.environment import assignments, needed_variables
from tuner.spec.mistakes import listed
from tuner.spec.units import count_text
from tuner.writeback.apply import apply
from tuner.writeback.plan import WritePlan, file_plans
from tuner.writeback.target import Written


@dataclass(frozen=True)
class Finished:
    """A complete run; ``result``: the content of `result.json`."""

    directory: Path
    result: Result


@dataclass(frozen=True)
class Ending:
    """Ends a run that has a directory.

    As a context manager, it stores the partial result of a run that ends with an error.

    Attributes:
        report: Renders the reports into the directory of a run.
    """

    request: Request
    store: RunStore
    book: TimeBook
    events: Events
    report: Callable[[Path], object]
    stop: Stop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            if not os.path.lexists(self.store.directory / MANIFEST):
                raise EnvironmentNotReadyError(
                    f"the run's directory {self.store.directory} was removed or moved while it was "
                    "being written; nothing was written to the repository",
                    "run again, and leave the directory alone until the run has ended",
                ) from error
            explained = self.stop.explain(error, self.store.directory)
            self._fail(explained)
            code = getattr(explained, "exit_code", TunerError.exit_code)
            status = _status_after(explained).value
            self.events.ended(self.store.directory, status, code, str(explained))

    def finish(self, job: Job, opened: OpenRun, verdict: RunDecision) -> Finished:
        """Makes the new configs, writes them, and stores how the run ended.

        Signals are delayed between the write to the repository and the record of that write.

        Args:
            job: The job over the configs as the server completes them.
        """
        change: Change | None = None
        store, duplicates = self.store, opened.searcher.duplicates
        with self.book.phase(Phase.WRITING):
            if verdict.winner is not None:
                winner = verdict.winner.candidate
                change = draw_up(job, winner)
                if verdict.warm_up is not None:
                    change = with_proposal(job, change, verdict.warm_up)
                needed = needed_variables(winner, job.space.current)
                store.write_best(best_configs(job, change), winner.server_args, assignments(needed))
            with uninterrupted():
                written = self._write(opened, verdict, change)
                self._record(verdict, change, written, duplicates)
            for note in written.all_notes if written else ():
                self.events.note(note)
            self.report(store.directory)
            result = self._record(verdict, change, written, duplicates)  # reporting took time
        return Finished(store.directory, result)

    def _write(
        self, opened: OpenRun, verdict: RunDecision, change: Change | None
    ) -> Written | None:
        """Writes the winner into the repository; stores the result even if that fails."""
        if verdict.winner is None or change is None or not self.request.write:
            return None
        try:
            return write_back(opened.manifest, verdict.winner.candidate, change)
        except TunerError:
            self._record(verdict, change, None, opened.searcher.duplicates)
            raise

    def _fail(self, error: Exception) -> None:
        """Stores the partial result, with the reason of the early end."""
        store = self.store
        try:
            stored = store.result()
            if stored is not None and stored.winner is not None:
                # All was measured: only the write to the repository or the report failed.
                if stored.written is not None:
                    files = listed(file.path for file in stored.written.files)
                    self.events.note(f"the winner is written: {files}")
                self.report(store.directory)
                if isinstance(error, InterruptedRunError):
                    error.hint = f"the run was complete and its result is kept: {store.directory}"
                return
            baseline = ProvedConfig.of_trial(trial_of(store.manifest().current, store.trials()))
            verdict = RunDecision.of(_status_after(error), (reason_from(error),), baseline)
            with self.book.phase(Phase.WRITING):
                self._record(verdict, None, None)
                self.report(store.directory)
                self._record(verdict, None, None)
        except (OSError, TunerError) as second:
            why = getattr(second, "strerror", None) or str(second)
            self.events.note(f"cannot store how the run ended: {why}")
            return
        if isinstance(error, InterruptedRunError):
            error.hint = how_to_go_on(self.store)
        elif isinstance(error, TunerError):
            where = [f"the report: {store.directory / 'report.html'}"]
            log = store.logs / SERVER_LOG
            if isinstance(error, TooManyFailedTrialsError) and log.exists():
                where.append(f"the server's log: {log}")
            error.hint = "; ".join(filter(None, (error.hint, *where)))

    def _record(
        self,
        verdict: RunDecision,
        change: Change | None,
        written: Written | None,
        duplicates: int = 0,
    ) -> Result:
        """Writes `result.json`."""
        store = self.store
        result = result_of(
            manifest=store.manifest(),
            verdict=verdict,
            trials=store.trials(),
            rejected=store.rejected(),
            duplicates=duplicates,
            time=self.book.to_json(),
            change=change,
            written=None if written is None else written.facts,
            noise=noise_of(store.confirmation()),
        )
        store.write_result(result)
        return result


def _status_after(error: Exception) -> Status:
    return Status.INTERRUPTED if isinstance(error, InterruptedRunError) else Status.FAILED


def how_to_go_on(store: RunStore) -> str:
    """What an interrupted run keeps, and the command that resumes it."""
    number, rows = len(store.trials()), count_of_full_rounds(store.confirmation())
    rounds = f" and {count_text(rows, 'measurement')} of its proof" if rows else ""
    kept = f"nothing was written; {count_text(number, 'trial')}{rounds} kept"
    manifest = store.manifest()
    if manifest.is_edited:
        again = run_command([manifest.spec_path], manifest.choices)
        return f"{kept}; a config was edited meanwhile, so run again: {again}"
    command = resume_command(store.directory, [manifest.spec_path], manifest.choices)
    return f"{kept}; go on with: {command}"


def best_configs(job: Job, change: Change) -> dict[str, bytes]:
    """The new content of each changed file, by label; of all files if none changed."""
    changed = {
        la: config for la, config in change.configs.items()
        if config.config_after != config.config_before
    }  # fmt: skip
    return {
        label: encode(config.config_after, job.served.models[label].files.encoding)
        for label, config in (changed or change.configs).items()
    }


def write_back(manifest: Manifest, winner: Candidate, change: Change) -> Written:
    """Replaces the configs in the repository, all or none.

    Raises:
        StalePlanError: A file changed since the run read it.
        EnvironmentNotReadyError: A file cannot be written, or is outside the repository.
    """
    kept = manifest.models
    files = [f for la, c in change.configs.items() for f in file_plans(kept[la], c.config_after)]
    needed = needed_variables(winner, manifest.current)
    return apply(WritePlan(tuple(files), manifest.run_id, winner.server_args, needed))
