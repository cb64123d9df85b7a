"""Directories of runs with one file damaged, for whoever reads or resumes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from builders.candidates import candidate_of
from builders.jobs import SPEC, a_job, opened
from builders.runs import CONFIG, COUNT, Toy, make_trials
from fuzz.near import (
    SEEDS,
    command,
    files_of,
    finished,
    fuzzed,
    lay_out,
    lay_out_run,
    near,
    place,
    seeds,
)
from hypothesis import strategies as st

from tuner.errors import TunerError
from tuner.prepare.job import Job, Request
from tuner.run.resume import restore_choices
from tuner.run.trust import BegunRuns, spec_of

_WORDS = (b"null", b"[]", b"{}", b'"x"', b"-1", b"1.5", b"[" * 2000)
_FILES = [(path.parent.name, path.read_bytes()) for path in sorted((SEEDS / "run").glob("*/*"))]


@cache
def _stopped() -> tuple[Job, Mapping[str, bytes]]:
    """A job, and a run of it that was stopped after some trials."""
    with TemporaryDirectory() as parent:
        job = a_job(Path(parent), SPEC + "search: {{strategy: tpe}}\n")
        with opened(job, Request(job.loaded.path, output=Path(parent) / "results")) as new:
            store = new.store
        for trial, count in zip(make_trials(Toy(trials=3)), (1, 2, 3), strict=True):
            candidate = candidate_of({COUNT: count}, model=job.spec.name)
            store.append_trial(replace(trial, candidate=candidate))
        return job, files_of(store.directory)


@st.composite
def _damaged(draw: st.DrawFn, files: Callable[[], Mapping[str, bytes]]) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(files())))
    return name, draw(near([files()[name], *seeds(f"run/{name}")], _WORDS))


@fuzzed(_damaged(finished), also=[(one,) for one in _FILES], percent=80)
def test_a_damaged_run_is_read_and_applied_or_refused(damaged: tuple[str, bytes]) -> None:
    with place(longest_s=20) as here:
        lay_out(here / "models" / "toy", CONFIG.encode())
        run = str(lay_out_run(here, dict([*finished().items(), damaged])))
        command("report", run)
        command("report", "--output", str(here / "results"))
        command("apply", run, "--dry-run", "--repository", str(here / "models"))


@fuzzed(_damaged(lambda: _stopped()[1]), percent=40)
def test_a_damaged_run_is_resumed_or_refused(damaged: tuple[str, bytes]) -> None:
    """What `tune run --resume` does until it measures."""
    job, files = _stopped()
    with place() as here, suppress(TunerError):
        run = lay_out_run(here, dict([*files.items(), damaged]))
        with suppress(TunerError):
            spec_of(run, BegunRuns(here / "state"))
        with opened(job, restore_choices(Request(job.loaded.path, resume=run))) as again:
            again.searcher.next()
