"""`tune worker`: a run's helper on another GPU or machine."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

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
from tuner.score.trial import Trial, TrialState

if TYPE_CHECKING:
    from tuner.spec.fields import Gpus

#: Words for the last line.
_ENDS = {
    TrialState.MEASURED: "measured in full",
    TrialState.PRUNED: "stopped early",
    TrialState.FAILED: "failed",
}


class _RunOrStudy(RunDirectory):
    """Completes like a run, and takes any name."""

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        del param, ctx
        return Path(value)


def gpu_list(ctx: click.Context, param: click.Parameter, value: str | None) -> Gpus | None:
    """Callback of --gpus: all, none, or numbers with commas."""
    if value is None or value in {"all", "none"}:
        return value  # type: ignore[return-value]  # a literal by now
    numbers = value.split(",")
    if not all(n.isdecimal() for n in numbers):
        raise click.BadParameter(f"{value!r} is not all, none or numbers such as 0,1", ctx, param)
    return tuple(int(n) for n in numbers)


@click.command("worker")
@click.argument("run", type=_RunOrStudy(), metavar="RUN-OR-STUDY")
@click.option(
    "--storage",
    metavar="URL",
    help="Optuna storage that `tune run` was given; by default, the file of RUN. If the URL has a "
    f"password, put it into ${VARIABLE}, or into a file that ${FILE_VARIABLE} names.",
)
@click.option(
    "--repository",
    type=options.EXISTING_DIRECTORY,
    help="This machine's copy of the model repository, if it is not at the run's path.",
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
@click.option(
    "--trust",
    is_flag=True,
    help="Start what the run's spec names (programs, arguments, environment, image, mounts), and "
    "search fields that may say what code a model runs. "
    "Anyone who can write to the storage could have put them there.",
)
@options.results_option
@options.verbose_option
@options.quiet_option
def command(
    run: Path,
    storage: str | None,
    repository: Path | None,
    gpus: Gpus | None,
    logs: Path | None,
    trust: bool,
    output: Path,
    verbose: int,
    quiet: int,
) -> int:
    """Measure for a run from another GPU or machine.

    RUN-OR-STUDY is the directory or id of a run, or the name of its study, which is its model's
    name. The worker starts a server of its own, measures the configs that the run's search
    proposes, and hands the trials to the run. Only the run confirms, writes and reports. The worker
    ends when the run's search ends; Ctrl-C frees the candidate it was measuring.
    """
    from tuner.workers.worker import JoinRequest, join

    name, own = _found(run, output)
    url = storage or own or storage_of(None, os.environ)
    if url is None:
        raise click.UsageError(
            f"there is no run {name!r} here; for a study elsewhere, name the storage that "
            f"`tune run` was given: --storage URL or ${VARIABLE}"
        )
    events = PlainEvents(verbose - quiet)
    warn_of_password(storage, events.note)
    request = JoinRequest(name, url, repository, gpus, logs, children_environment(), trust)
    with events:
        joined = join(request, events)
    say(summary(joined.run, joined.trials))
    return 0


def summary(run: str, trials: Sequence[Trial]) -> str:
    """What a worker measured, in a line."""
    ends = Counter(trial.state for trial in trials)
    parts = [f"{ends[state]} {text}" for state, text in _ENDS.items() if ends[state]]
    some = f": {', '.join(parts)}" if parts else ""
    return f"{len(trials)} trial{'' if len(trials) == 1 else 's'} for {run}{some}"


def _found(run: Path, output: Path) -> tuple[str, str | None]:
    """The name of a run or study, and the URL of the run's own study where it has one."""
    from tuner.record.store import MANIFEST, STUDY

    for directory in (run, output / run):
        if (directory / MANIFEST).is_file():
            study = directory.absolute() / STUDY
            return directory.absolute().name, f"sqlite:///{study}" if study.is_file() else None
    return str(run), None
