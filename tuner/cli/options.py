"""Options that several commands share, how RUN is resolved, and shell completion."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click
from click.shell_completion import CompletionItem

from tuner.errors import EnvironmentNotReadyError
from tuner.regular import read_regular
from tuner.spec.mistakes import path_meant
from tuner.spec.paths import REPOSITORY, SEVERAL_REPOSITORIES

F = TypeVar("F", bound=Callable[..., Any])


#: Text that a spec contains; completion leaves other YAML files out.
_SPEC_MARK = b"\nslo:"
#: Completion reads at most this much of a file.
_SPEC_BYTES = 64 * 1024


class RunDirectory(click.ParamType):  # type: ignore[type-arg]
    """A run, by its directory or by its id below --output.

    Attributes:
        marks: Names of files; a directory that contains one of them is a run.
        checks: Whether it may be a check.
    """

    name = "run"
    marks: ClassVar[tuple[str, ...]] = ("manifest.json",)
    checks: ClassVar[bool] = False

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        output = _output(ctx)
        named, stored = Path(value), output / value
        is_file = os.access(named, os.F_OK) and not os.access(f"{named}/", os.F_OK)
        if is_file and os.access(named.parent / "manifest.json", os.F_OK):
            return named.parent  # a file of the run, such as its report
        directory = next((p for p in (named, stored) if os.access(f"{p}/", os.F_OK)), None)
        if is_file and named.suffix in (".csv", ".tsv"):
            text = (
                f"{str(value)!r} is a table, not a run: it has no load that is proved to meet the "
                "SLOs; `tune run SPEC` or `tune check SPEC` measures one"
            )
            self.fail(text, param, ctx)
        if directory is None:
            runs = [run.name for run in self._kept(output)]
            near = difflib.get_close_matches(named.name, runs, n=1, cutoff=0.4)
            guess = f"did you mean {near[0]}?" if near else "`tune report` lists all runs"
            if not os.path.lexists(output):
                guess = path_meant(stored) or path_meant(output) or guess
            text = f"there is no run {str(value)!r}, and no {str(stored)!r}; {guess}"
            self.fail(text, param, ctx)
        if not self._takes(directory):
            self.fail(f"{str(value)!r} is a check: name a run of `tune run`", param, ctx)
        return directory

    def _takes(self, directory: Path) -> bool:
        check, run = (
            os.access(directory / name, os.F_OK) for name in ("check.json", "result.json")
        )
        return self.checks or run or not check

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The runs below --output, the newest first."""
        runs = sorted(self._kept(_output(ctx)), reverse=True)
        offered = [str(run) for run in runs if str(run).startswith(incomplete)]
        offered += [run.name for run in runs if incomplete and run.name.startswith(incomplete)]
        return [CompletionItem(name) for name in offered]

    def _kept(self, output: Path) -> list[Path]:
        there = (path.parent for mark in self.marks for path in output.glob(f"*/{mark}"))
        return [directory for directory in there if self._takes(directory)]


class RunOrSeries(RunDirectory):
    """A run or a series, by its directory or by its id below --output."""

    marks = ("manifest.json", "series.json")


class RunSeriesOrCheck(RunOrSeries):
    """A run, a series or a check, by its directory or by its id below --output."""

    checks = True


def complete_spec(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """YAML files that are specs, in the directory typed so far and its direct subdirectories."""
    del ctx, param
    typed = Path(incomplete)
    directory = typed if incomplete.endswith("/") else typed.parent
    files = [*directory.glob("*.y*ml"), *directory.glob("*/*.y*ml")]
    offered = sorted(str(f) for f in files if str(f).startswith(incomplete) and _is_spec(f))
    return [CompletionItem(name) for name in offered]


def complete_model(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Models of the repository that the command line names, or below the path typed so far."""
    del param
    above = incomplete[: incomplete.rfind("/") + 1]
    repository = Path(above or ctx.params.get("repository") or REPOSITORY)
    if not repository.is_dir():
        return []
    names = sorted(p.name for p in repository.iterdir() if p.is_dir() and p.name[0] != ".")
    return [CompletionItem(above + n) for n in names if (above + n).startswith(incomplete)]


def complete_model_or_run(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Models, then runs."""
    runs = RunDirectory().shell_complete(ctx, param, incomplete)
    return [*complete_model(ctx, param, incomplete), *runs]


def complete_directory(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Leaves the listing of directories to the shell."""
    del ctx, param
    return [CompletionItem(incomplete, type="dir")]


def _output(ctx: click.Context | None) -> Path:
    given = None if ctx is None else ctx.params.get("output")
    return Path(given or "results")


def _is_spec(path: Path) -> bool:
    try:
        return _SPEC_MARK in read_regular(path, _SPEC_BYTES)
    except OSError:
        return False


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A quantity with a unit, as a float; ``unit``: name of its class in `tuner.spec.units`."""

    def __init__(self, unit: str) -> None:
        self.name = unit.lower()
        self._unit = unit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from tuner.spec import units

        try:
            return float(getattr(units, self._unit).of_option(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Integer(click.ParamType):  # type: ignore[type-arg]
    """A whole number, at least ``least``."""

    name = "integer"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"a whole number is expected, not {value!r}", param, ctx)
        if number < self._least:
            self.fail(f"must be at least {self._least}, not {number}", param, ctx)
        return number


class ExistingPath(click.Path):
    """A file or directory that must exist; the error suggests a similar path."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            path = Path(os.fsdecode(value))
            kind = Path.is_dir if self.dir_okay else Path.is_file
            near = "" if os.path.lexists(path) else path_meant(path, kind)
            self.fail(
                error.message.rstrip(".") + f"; {near}" if near else error.message, param, ctx
            )


#: Types of paths that need not exist, then of those that must.
FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)
EXISTING_FILE = ExistingPath(exists=True, dir_okay=False, path_type=Path)
EXISTING_DIRECTORY = ExistingPath(exists=True, file_okay=False, path_type=Path)

_spec = partial(  # reading a spec says what a directory is
    click.argument, "spec", type=click.Path(path_type=Path), shell_complete=complete_spec
)
spec_argument = _spec(metavar="SPEC")
optional_spec_argument = _spec(required=False)

repository_argument = click.argument(
    "repository", type=click.Path(path_type=Path), shell_complete=complete_directory
)
run_argument = click.argument("run", type=RunDirectory(), metavar="RUN")


def format_option(*formats: str, help: str = "Output format.") -> Callable[[F], F]:  # noqa: A002
    """`--format`, the first of ``formats`` by default."""
    choice = click.Choice(formats)
    return click.option(
        "--format", "output_format", type=choice, default=formats[0], show_default=True, help=help
    )


output_format = format_option("text", "json")
verbose_option = click.option("-v", "--verbose", count=True, help="Show every measurement.")
quiet_option = click.option("-q", "--quiet", count=True, help="Show less.")

results_option = click.option(
    "--output",
    type=DIRECTORY,
    default=Path("results"),
    show_default=True,
    is_eager=True,  # a RUN may be named by its id in there
    help="Directory that runs are stored in.",
)

overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set a value of the spec, e.g. budget.trials=3 or 'slo=[p99_latency <= 20ms]'; may be "
    "repeated.",
)


def refuse_storage(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Callback of an option that earlier versions had: usage error where it is given."""
    if value is not None:
        raise click.BadParameter(
            "the option was removed: a run keeps study.db in its directory, and --on ray "
            "measures on other GPUs",
            ctx,
            param,
        )


def _only_one(ctx: click.Context, param: click.Parameter, value: tuple[Path, ...]) -> Path | None:
    """Callback of an option that may be given once: click would silently take the last value."""
    if len(value) > 1:
        raise click.BadParameter(f"one is expected; {SEVERAL_REPOSITORIES}", ctx, param)
    return value[0] if value else None


def repository_option(help: str) -> Callable[[F], F]:  # noqa: A002
    return click.option(
        "--repository", type=EXISTING_DIRECTORY, multiple=True, callback=_only_one, help=help
    )


def default_repository(command: str) -> Path:
    """The default model repository, where no option names one.

    Args:
        command: The command that the hint completes with the option.

    Raises:
        EnvironmentNotReadyError: There is no such directory.
    """
    if not os.path.lexists(REPOSITORY):
        near = path_meant(REPOSITORY)
        hint = f"name your model repository: tune {command} --repository DIR"
        raise EnvironmentNotReadyError(
            f"there is no directory {REPOSITORY} here", f"{near} {hint}".strip()
        )
    return REPOSITORY


through_links_option = click.option(
    "--through-links",
    is_flag=True,
    help="Also write a config.pbtxt that links to a file outside the model's directory.",
)
