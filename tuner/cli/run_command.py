"""`tune run`: the main job."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options
from tuner.cli.boundary import show_failure
from tuner.cli.terminal import append_summary, say, say_json, say_report
from tuner.cli.ui import Ui, choose_ui, progress_option, refuse_two_answers
from tuner.hiding import hidden_command

if TYPE_CHECKING:
    from tuner.prepare.job import Request
    from tuner.progress.events import Events


@dataclass(frozen=True)
class RunOptions:
    """The options of `tune run`, as click parses them; None: not given."""

    specs: tuple[Path, ...]
    slos: tuple[str, ...]
    trials: int | None
    time_budget: float | None
    seed: int | None
    output: Path
    resume: Path | None
    more: float | None
    no_write: bool
    accept_unsoaked: bool
    on: str | None
    benches: int | None
    progress: str
    verbose: int
    quiet: int
    overrides: tuple[str, ...]
    output_format: str

    @property
    def verbosity(self) -> int:
        return self.verbose - self.quiet

    @property
    def begins(self) -> tuple[Path, ...]:
        """The files or directories that the command reads first."""
        return self.specs if self.resume is None else (self.resume,)

    def refuse_contradictions(self) -> None:
        """Usage error if options contradict each other, whatever the specs."""
        refuse_two_answers(self.progress, self.output_format)
        if self.slos and (self.resume is not None or len(self.specs) != 1):
            raise click.UsageError(
                "--slo drafts the spec of one MODEL: name one model, without --resume"
            )
        if self.more is not None and self.resume is None:
            raise click.UsageError("--more continues a run: add --resume RUN")
        if not self.specs and self.resume is None:
            raise click.UsageError("name a SPEC, or a run to resume: --resume RUN")

    def refuse_misfits_of(self, paths: Sequence[Path]) -> bool:
        """Usage error if an option does not fit the specs; returns whether several runs start."""
        from tuner.record.series import SERIES

        several = len(paths) > 1
        if self.resume is not None:
            several = os.path.lexists(self.resume / SERIES)
            if len(paths) > 1 and not several:
                raise click.UsageError("--resume RUN continues one run, which has one SPEC")
        if self.benches is not None and (several or (self.on is None and self.resume is None)):
            raise click.UsageError("--benches N measures one SPEC on N benches: add --on ray")
        return several


@click.command("run")
@click.argument(
    "specs",
    nargs=-1,
    metavar="[SPEC]...",
    type=click.Path(path_type=Path),
    shell_complete=options.complete_spec,
)
@click.option(
    "--slo",
    "slos",
    multiple=True,
    help="SPEC is a model: draft its spec as `tune init` does, with this SLO; may be repeated. The "
    "draft is kept in the run's directory.",
)
@click.option("--trials", type=options.Integer(1), help="Maximum number of configs to measure.")
@click.option(
    "--time-budget",
    metavar="TIME",
    type=options.Quantity("Seconds"),
    help="Time for the search, such as 30m; a bare number is in seconds.",
)
@click.option("--seed", type=options.Integer(0), help="Seed of the search.")
@options.results_option
@click.option(
    "--resume",
    metavar="RUN",
    type=options.RunOrSeries(),
    help="Resume an interrupted run or series with its options; give --set again. SPEC is optional "
    "if you started the run here, as this user.",
)
@click.option(
    "--more",
    metavar="TIME",
    type=options.Quantity("Seconds"),
    help="With --resume: time for further rounds of an inconclusive proof, such as 5m.",
)
@click.option("--no-write", is_flag=True, help="Do not change the model repository.")
@click.option(
    "--accept-unsoaked",
    is_flag=True,
    help="Write the winner even if its soak was inconclusive.",
)
@click.option("--storage", hidden=True, expose_value=False, callback=options.refuse_storage)
@click.option(
    "--on",
    type=click.Choice(["ray"]),
    help="Measure in parallel on GPUs and CPUs of this machine, or of the Ray cluster that "
    "$RAY_ADDRESS names: several SPECs, each with separate GPUs, or several configs of one SPEC, "
    "one on each GPU.",
)
@click.option(
    "--benches",
    type=options.Integer(1),
    metavar="N",
    help="With --on and one SPEC: measure at most N configs in parallel.  [default: one for each "
    "GPU, or for each machine without GPUs]",
)
@progress_option
@options.verbose_option
@options.quiet_option
@options.overrides_option
@options.output_format
def command(**given: Any) -> int:
    """Search, prove and write the best config for SPEC.

    Measures the current config and the configs that the search proposes, each on a real
    tritonserver under load. Then measures the best ones again beside the current config. Writes a
    winner that proves better into the repository, and keeps the old file as a backup. The run also
    stores its proposal as best/proposal.patch and best/pull_request.md.

    With --slo, SPEC may be a model: `tune run MODEL --slo 'p99_latency <= 50ms'`.

    Several SPECs, or a pattern in quotes such as 'specs/*.yaml', run one after the other, or in
    parallel with --on, each with the same options. All are checked first. A run that fails does not
    stop the others; the exit code is the most severe one (order: 130, 1, 4, 2, 3, 5, 13, 10, 11,
    0).
    """
    options = RunOptions(**given)
    options.refuse_contradictions()
    ui = choose_ui(options.progress, options.verbosity, *options.begins)
    if not options.slos:
        return _run(options, options.specs, "", ui)
    with drafted_run(options.specs[0], options.slos, options.output) as (run_id, draft):
        return _run(options, (draft,), run_id, ui)


def _run(options: RunOptions, specs: Sequence[Path], run_id: str, ui: Ui) -> int:
    refuse_no_spec(specs)
    paths = expanded(specs)
    several = options.refuse_misfits_of(paths)
    request = request_of(options, paths, run_id, several=several)
    final_output = "none" if ui.prints_json else options.output_format
    if several:
        return _run_several(paths, request, ui, final_output, options.quiet)
    return _run_one(request, ui, final_output)


def request_of(
    options: RunOptions, paths: Sequence[Path], run_id: str, *, several: bool
) -> Request:
    """The request of a run; ``paths``: its specs, empty if it is resumed without a spec."""
    from tuner.prepare.job import Request
    from tuner.run.trust import BegunRuns, spec_of, state_directory

    state = state_directory(os.environ)
    spec = paths[0] if paths else Path()
    if options.resume is not None and not paths and not several:
        spec = spec_of(options.resume, BegunRuns(state))
    return Request(
        spec=spec,
        output=options.output,
        resume=options.resume,
        run_id=run_id,
        trials=options.trials,
        time_budget_s=options.time_budget,
        seed=options.seed,
        write=not options.no_write,
        accept_unsoaked=options.accept_unsoaked,
        more_s=options.more,
        overrides=options.overrides,
        environment=dict(os.environ),
        command=hidden_command(("tune", *sys.argv[1:])),
        state=state,
        on=options.on,
        benches=options.benches,
        ray=address_of(os.environ),
    )


@contextmanager
def displayed_run(ui: Ui) -> Iterator[Events]:
    """Shows the progress of a run, also as a live page."""
    from tuner.progress.events import Tee
    from tuner.report.live_page import LivePage

    with ui.run() as events:
        yield Tee(events, LivePage(events.note))


@contextmanager
def drafted_run(model: Path, slos: Sequence[str], output: Path) -> Iterator[tuple[str, Path]]:
    """Drafts a spec into the directory of a new run; yields the run's id and the spec's path.

    A run that does not begin leaves nothing behind, unless an error names lines of the draft.

    Args:
        model: Name of the model in the default repository, or path of its directory.
        output: Directory that runs are stored in.
    """
    from tuner.cli.drafting import drafted_spec
    from tuner.record.store import MANIFEST, new_run_id
    from tuner.spec.mistakes import SpecMistakesError
    from tuner.writing import write_text

    if model.is_file():
        raise click.UsageError(
            f"--slo drafts a spec for a model, and {model} is a file: to change the SLOs of a "
            f"spec, use --set 'slo=[{', '.join(slos)}]'"
        )
    run_id = new_run_id(model.resolve().name if model.is_dir() else model.name)
    text = drafted_spec(model, slos, (output / run_id).absolute())
    draft = output / run_id / "spec.yaml"
    named = False
    try:
        write_text(draft, text)
        say(f"drafted {draft}", err=True)
        yield run_id, draft
    except SpecMistakesError as error:
        named = any(mistake.file == str(draft) for mistake in error.mistakes)
        raise
    finally:
        if not named and not os.path.lexists(draft.parent / MANIFEST):
            with suppress(OSError):
                draft.unlink(missing_ok=True)
                draft.parent.rmdir()
                say(f"removed {draft}, since the run did not begin", err=True)


def refuse_no_spec(specs: Sequence[Path]) -> None:
    """Usage error if a SPEC is a directory, such as that of a model."""
    for spec in (spec for spec in specs if spec.is_dir()):
        raise click.UsageError(
            f"{spec} is a directory, not a spec file; to tune a model: "
            f"tune run {shlex.quote(str(spec))} --slo 'p99_latency <= 50ms'"
        )


def address_of(environment: Mapping[str, str]) -> str | None:
    """The address of the Ray cluster, from $RAY_ADDRESS; None: `tune` starts Ray itself."""
    address = environment.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address


def expanded(specs: Sequence[Path]) -> list[Path]:
    """The specs, with each pattern replaced by the files that match it.

    A name with the characters of a pattern is a file if such a file exists.
    """
    paths = list[Path]()
    for spec in specs:
        if spec.exists() or not has_magic(str(spec)):
            paths.append(spec)
            continue
        matching = sorted(glob(str(spec), recursive=True))  # noqa: PTH207 - absolute patterns too
        if not matching:
            raise click.UsageError(f"no file matches {str(spec)!r}")
        paths += map(Path, matching)
    return paths


def _run_one(request: Request, ui: Ui, output_format: str) -> int:
    with displayed_run(ui) as events:
        from tuner.report.data import load
        from tuner.report.render import report_run
        from tuner.report.run_document import document
        from tuner.run.run import run

        finished = run(request, events, report_run)
    append_summary(finished.directory / "report.md")
    if output_format == "json":
        say_json(finished.result.to_json())
    elif output_format == "text":
        say_report(finished.directory, document(load(finished.directory)))
    return finished.result.status.exit_code


def _run_several(
    specs: Sequence[Path], request: Request, ui: Ui, output_format: str, quiet: int
) -> int:
    from tuner.record.series import Member
    from tuner.report.listing import ListedRun, document, render_series, summary
    from tuner.report.render import report_run
    from tuner.run.series import Show, run_series

    def note(text: str) -> None:
        if quiet < 2:
            say(text, err=True)

    known = dict[Member, ListedRun]()  # each run that has ended is read once
    summarize = partial(render_series, known=known)
    show = Show(partial(displayed_run, ui), ui.runs, note, show_failure, report_run, summarize)
    directory, series = run_series(specs, request, show)
    append_summary(directory / "report.md")
    if output_format == "json":
        say_json(summary(directory, known))
    elif output_format == "text":
        say_report(directory, document(directory, known))
    return series.exit_code
