"""`tune worker`: a run's helper on another GPU or machine."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from tuner.cli import options
from tuner.cli.console import PlainEvents
from tuner.cli.options import RunDirectory
from tuner.cli.storage import (
    FILE_VARIABLE,
    VARIABLE,
    children_environment,
    storage_of,
    warn_of_password,
)
from tuner.cli.terminal import say
from tuner.plain import plain
from tuner.score.trial import Trial, TrialState
from tuner.spec.units import count_text

if TYPE_CHECKING:
    from tuner.record.manifest import Choices
    from tuner.spec.fields import Gpus

#: Words for the last line.
_ENDS = {
    TrialState.MEASURED: "measured in full",
    TrialState.PRUNED: "stopped early",
    TrialState.FAILED: "failed",
}


class _SpecOrRun(RunDirectory):
    """Completes like both, and takes any path."""

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        del param, ctx
        return Path(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        specs = options.complete_spec(ctx, param, incomplete)
        return [*specs, *super().shell_complete(ctx, param, incomplete)]


def gpu_list(ctx: click.Context, param: click.Parameter, value: str | None) -> Gpus | None:
    """Callback of --gpus: all, none, or numbers with commas."""
    if value is None or value in {"all", "none"}:
        return value  # type: ignore[return-value]  # a literal by now
    numbers = value.split(",")
    if not all(n.isdecimal() for n in numbers):
        raise click.BadParameter(f"{value!r} is not all, none or numbers such as 0,1", ctx, param)
    return tuple(int(n) for n in numbers)


@click.command("worker")
@click.argument("spec_or_run", type=_SpecOrRun(), metavar="SPEC|RUN")
@click.option(
    "--storage",
    metavar="URL",
    help="Optuna storage that `tune run` was given; by default, the file of RUN. If the URL has a "
    f"password, put it into ${VARIABLE}, or into a file that ${FILE_VARIABLE} names.",
)
@click.option(
    "--gpus",
    callback=gpu_list,
    metavar="GPUS",
    help="GPUs the worker's server may see, e.g. 1 or 2,3.  [default: as the spec says]",
)
@click.option(
    "--logs",
    type=options.DIRECTORY,
    help="Directory for the server's log; by default the log is not kept.",
)
@options.overrides_option
@options.results_option
@options.verbose_option
@options.quiet_option
def command(
    spec_or_run: Path,
    storage: str | None,
    gpus: Gpus | None,
    logs: Path | None,
    overrides: tuple[str, ...],
    output: Path,
    verbose: int,
    quiet: int,
) -> int:
    """Measure for a run from another GPU or machine.

    SPEC is the worker's own copy of the run's spec, for the newest run in the storage that searches
    its models. It must say the same as the run's; only repository, programs, CPUs, GPUs, and the
    places of mounts and files may be this machine's own. RUN names a run of this machine by its
    directory or id, and with it the spec that the run was started with.

    The worker starts a server of its own, measures the configs that the run's search proposes, and
    hands the trials to the run. Only the run confirms, writes and reports. The worker ends when the
    run's search ends; Ctrl-C frees the candidate it was measuring.
    """
    from tuner.workers.worker import JoinRequest, join

    run = _run_named(spec_or_run, output)
    url = storage or _own_study(run) or storage_of(None, os.environ)
    if url is None and not os.path.lexists(spec_or_run):
        raise click.UsageError(
            f"there is neither a spec nor a run {str(spec_or_run)!r}, nor a run "
            f"{str(output / spec_or_run)!r}; `tune report` lists all runs"
        )
    if url is None:
        raise click.UsageError(
            f"name the storage that `tune run` was given: --storage URL or ${VARIABLE}; or name "
            "a run of this machine in place of its spec"
        )
    spec = spec_or_run
    if run is not None:
        from tuner.run.trust import BegunRuns, spec_of, state_directory

        spec = spec_of(run, BegunRuns(state_directory(os.environ)), _join_command)
    events = PlainEvents(verbose - quiet)
    warn_of_password(storage, events.note)
    name = None if run is None else run.name
    request = JoinRequest(spec, url, name, gpus, logs, overrides, children_environment())
    with events:
        joined = join(request, events)
    say(summary(joined.run, joined.trials))
    return 0


def summary(run: str, trials: Sequence[Trial]) -> str:
    """What a worker measured, in a line."""
    ends = Counter(trial.state for trial in trials)
    parts = [f"{ends[state]} {text}" for state, text in _ENDS.items() if ends[state]]
    some = f": {', '.join(parts)}" if parts else ""
    return f"{count_text(len(trials), 'trial')} for {run}{some}"


def _run_named(name: Path, output: Path) -> Path | None:
    """The directory of the run that is meant; None where it is a spec."""
    from tuner.record.store import MANIFEST

    found = (d.absolute() for d in (name, output / name) if (d / MANIFEST).is_file())
    return next(found, None)


def _own_study(run: Path | None) -> str | None:
    """The URL of the study that a run keeps itself."""
    from tuner.record.store import STUDY

    return f"sqlite:///{run / STUDY}" if run is not None and (run / STUDY).is_file() else None


def _join_command(run: Path, specs: Sequence[str], choices: Choices) -> str:
    """The command that joins a run, with what only its user may name."""
    kept = None if choices.lacks_a_password else choices.storage
    url = kept or _own_study(run.absolute()) or "URL"
    given = [f"--storage={url}", *(f"--set={override}" for override in choices.overrides)]
    return plain(shlex.join(["tune", "worker", *specs, *given]))
