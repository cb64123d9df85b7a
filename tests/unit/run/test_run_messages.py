"""What a run tells while it runs and stores when it ends, on an emulated bench."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.events import Watching
from builders.messages_endings import twice_measured
from builders.reasons import said
from builders.workplace import MODEL, Workplace, best_of, interrupt

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, TunerError
from tuner.measurement.measurement import Stage
from tuner.prepare.job import Request
from tuner.prepare.serving import Serving
from tuner.record.result_schema import RunDecision
from tuner.record.status import Status
from tuner.report import render
from tuner.run import ending, ready
from tuner.run import run as pipeline
from tuner.score.trial import Trial


def run(workplace: Workplace, **more: Any) -> tuple[pipeline.Finished, Watching]:
    watching = Watching()
    request = Request(workplace.spec, workplace.results, **more)
    return pipeline.run(request, watching, render.report_run), watching


def test_progress_covers_a_run_from_start_to_end(workplace: Workplace) -> None:
    done, watching = run(workplace)
    assert watching.begun == [(done.directory, 40, 4)]
    assert watching.phases == [f"serving {MODEL}", "searching"]
    assert done.result.status is Status.IMPROVED
    stored = json.loads((done.directory / "result.json").read_text())
    assert stored == done.result.to_json()


def test_a_result_counts_trials_and_knows_the_noise_of_its_proof(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "prove", twice_measured)
    done, _ = run(workplace)
    assert done.result.trials.asked == 4 + done.result.trials.duplicates
    assert done.result.noise is not None
    assert done.result.objective == "maximize goodput"
    manifest = workplace.store.manifest()
    assert done.result.spec_sha256 == manifest.spec_sha256
    assert (done.result.run_id, done.result.model) == (manifest.run_id, MODEL)
    assert (done.result.diff or "").startswith("--- ")
    assert done.result.time.by_phase()["writing_s"] > 0.0


def test_an_interrupted_run_has_counted_what_it_measured(workplace: Workplace) -> None:
    workplace.bench.then = {2: interrupt}
    with pytest.raises(InterruptedRunError) as stopped:
        run(workplace)
    assert stopped.value.__cause__ is None
    trials = workplace.result["trials"]
    assert (trials["asked"], trials["duplicates"]) == (len(workplace.store.trials()), 0)
    first = workplace.store.trials()[0].candidate
    assert workplace.result["baseline"]["candidate"]["models"] == first.models
    assert workplace.result["status"] == "interrupted"
    assert "its proof" not in stopped.value.hint
    assert (workplace.store.directory / "report.html").is_file()


def test_a_confirmation_that_was_begun_is_gone_on_with(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "prove", twice_measured)
    workplace.overloading = interrupt
    with pytest.raises(InterruptedRunError) as stopped:
        run(workplace)
    assert f"tune run '{workplace.spec}' --resume " in stopped.value.hint


def test_a_defect_is_called_one_in_the_result_and_raised_as_it_is(workplace: Workplace) -> None:
    def breaks() -> None:
        raise ZeroDivisionError("oops")

    workplace.overloading = breaks
    with pytest.raises(ZeroDivisionError):
        run(workplace)
    assert workplace.result["status"] == "failed"
    assert "ZeroDivisionError('oops')" in workplace.result["reasons"][0]


def test_cause_of_a_full_disk_is_kept_and_that_of_a_stop_is_not(
    workplace: Workplace,
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "study.db")

    def fills_the_disk() -> None:
        raise full

    def stops() -> None:
        try:
            interrupt()
        except InterruptedRunError as error:
            raise RuntimeError("a commit failed") from error

    workplace.overloading = fills_the_disk
    with pytest.raises(EnvironmentNotReadyError, match=r"study\.db") as ended:
        run(workplace)
    assert ended.value.__cause__ is full
    workplace.overloading = stops
    with pytest.raises(InterruptedRunError) as stopped:
        run(workplace)
    assert stopped.value.__cause__ is None


def test_a_run_whose_directory_was_removed_says_so_and_nothing_else(workplace: Workplace) -> None:
    before = workplace.config.read_bytes()

    def removed() -> None:
        shutil.rmtree(workplace.store.directory)

    workplace.bench.then[2] = removed
    with pytest.raises(EnvironmentNotReadyError, match=str(workplace.results)):
        run(workplace)
    assert workplace.config.read_bytes() == before


def test_error_names_the_report_after_its_hint(workplace: Workplace) -> None:
    hints = iter(["mend it", ""])

    def breaks() -> None:
        raise TunerError("broken", next(hints))

    workplace.overloading = breaks
    report = f"the report: {workplace.results}"
    for hint in ("mend it; ", ""):
        with pytest.raises(TunerError) as ended:
            run(workplace)
        assert ended.value.hint.startswith(hint + report)


def test_a_signal_after_the_result_is_stored_says_that_it_is_kept(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_: object) -> None:
        raise InterruptedRunError("interrupted")

    real, calls = render.report_run, list[Path]()

    def once(directory: Path) -> None:
        calls.append(directory)
        if len(calls) == 1:
            stopped(directory)
        real(directory)

    monkeypatch.setattr(render, "report_run", once)
    with pytest.raises(InterruptedRunError) as ended:
        run(workplace)
    directory = workplace.store.directory
    assert ended.value.hint.endswith(f" {directory}")
    assert workplace.result["status"] == "improved"
    assert (directory / "report.html").is_file()


def test_bench_enters_the_confirmation_before_the_proof(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[Stage] = []
    workplace.bench.enter = entered.append  # type: ignore[method-assign,assignment]

    def prove(session: Any, trials: Sequence[Trial], _: object) -> RunDecision:
        assert entered == [Stage.CONFIRMATION]
        return best_of(trials)

    monkeypatch.setattr(pipeline, "prove", prove)
    assert run(workplace)[0].result.status.exit_code == 0


def test_notes_appear_before_the_search(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready, "sentences", lambda *_: ["large"])
    monkeypatch.setattr(ready, "write_notes", lambda _: ("a link",))
    monkeypatch.setattr(Serving, "completed", "the server completes it")
    _, watching = run(workplace, write=False)
    assert "a link" not in watching.notes
    _, watching = run(workplace)
    notes = ["the server completes it", "large", "a link"]
    assert [n for n in watching.notes if n in notes] == notes


def test_notes_about_the_write_are_reported(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ending.write_back
    lost = "its extended attributes are lost"
    monkeypatch.setattr(ending, "write_back", lambda *a: replace(real(*a), notes=(lost,)))
    _, watching = run(workplace)
    assert lost in watching.notes


def test_a_kept_config_is_neither_drawn_up_nor_written(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = workplace.config.read_bytes()
    monkeypatch.setattr(
        pipeline, "prove", lambda *_: RunDecision.of(Status.KEPT, (said("no gain"),))
    )
    done, _ = run(workplace)
    assert (done.result.diff, done.result.written) == (None, None)
    assert not [*(done.directory / "best").glob("*/config.pbtxt")]
    assert workplace.config.read_bytes() == before
