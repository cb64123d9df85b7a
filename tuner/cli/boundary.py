"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

import click

from tuner.cli.terminal import annotation, say_annotations, say_lines
from tuner.errors import ENDINGS, InterruptedRunError, SpecError, TunerError, shortened
from tuner.extras import explain_import
from tuner.machine.uninterrupted import signals_to


def guarded(command: click.Command, arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit code; prints errors to stderr."""
    debug = "--debug" in arguments or bool(os.environ.get("TUNE_DEBUG"))
    color = wanted_color(arguments, os.environ)
    with _interruptions() as heard, click.Context(command, color=color).scope():
        return _run(command, arguments, color, heard, debug=debug)


@contextmanager
def _interruptions() -> Iterator[Sequence[int]]:
    """SIGTERM ends a command as Ctrl-C does, so that it removes its temporary files.

    Yields:
        The signals so far: code in C, such as an import of NumPy, makes an unrelated error of one.
    """
    heard: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        ending = len(heard) > 0 and sys.exc_info()[1] is not None
        heard.append(number)
        if not ending:
            signal.default_int_handler(number, frame)

    with signals_to(interrupt, instead_of=(signal.SIG_DFL, signal.default_int_handler)):
        yield heard


def wanted_color(arguments: Sequence[str], environment: Mapping[str, str]) -> bool | None:
    """Whether to print in colors; None: on a terminal only.

    ``--color`` decides; without it, NO_COLOR (https://no-color.org) and TERM=dumb turn colors off.
    """
    option = re.search(r"(?:^|\0)--color[=\0](always|never)(?:\0|$)", "\0".join(arguments))
    if option:
        return option[1] == "always"
    dumb = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return False if dumb else None


def _run(
    command: click.Command,
    arguments: Sequence[str],
    color: bool | None,
    heard: Sequence[int],
    *,
    debug: bool,
) -> int:
    try:
        result = command.main(
            args=list(arguments), prog_name="tune", standalone_mode=False, color=color
        )
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        advice = f"{context.command_path} --help" if context else ""
        if isinstance(error, click.NoSuchOption) and not error.possibilities:
            advice = _OF_OTHERS.get(error.option_name, advice)
        show_error(SpecError(error.format_message(), advice))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _stopped(arguments)
    except Exception as error:
        return _stopped(arguments) if heard else show_failure(error, debug=debug)


#: Options of other commands and tools, and what to do instead.
_OF_OTHERS = {
    "--dry-run": "tune plan SPEC shows what a run would do",
    "--latency-budget": "write it as an SLO: --slo 'p99_latency <= 50ms'",
    "--repository": "name a model with its repository, DIRECTORY/MODEL; a spec has repository",
}


def _stopped(arguments: Sequence[str]) -> int:
    """Says that a signal ended the command; returns the exit code."""
    module = sys.modules.get("tuner.machine.stop")
    begun = module is not None and module.Stop.begun
    nothing = not begun and {*arguments[:1]} & {"run", "check"}
    say_lines("stopped before anything started" if nothing else "stopped", err=True)
    return InterruptedRunError.exit_code


def show_failure(error: Exception, *, debug: bool = False) -> int:
    """Prints the error of a command, or of one of several runs; returns the exit code."""
    if isinstance(error, TunerError):
        show_error(error)
        if debug:
            say_lines(traceback.format_exc(), err=True)
        return error.exit_code
    if lacking := explain_import(error):
        return show_failure(lacking, debug=debug)
    say_lines(traceback.format_exc(), err=True)  # a defect of tune
    say_lines(
        f"\ntune: this is a defect in tune ({type(error).__name__}); the lines above and the "
        "run's logs/ help to fix it",
        err=True,
    )
    return TunerError.exit_code


def show_error(error: TunerError) -> None:
    """Prints what happened, then what to do next; on GitHub also as annotations."""
    if isinstance(error, InterruptedRunError):  # the user asked for it
        say_lines(click.style(error.message, fg="yellow", bold=True), err=True)
    else:
        say_lines(f"{click.style('error:', fg='red', bold=True)} {error.message}", err=True)
    if error.hint:
        say_lines(f"{click.style('next:', fg='cyan', bold=True)}  {error.hint}", err=True)
    say_annotations(ci_annotations(error))


def ci_annotations(error: TunerError) -> Iterator[str]:
    """GitHub workflow commands: one for each mistake, at its position, or one for the error."""
    mistakes = getattr(error, "mistakes", ())
    for m in mistakes:
        yield annotation("error", shortened(m.message), file=m.file, line=m.line, column=m.column)
    if not mistakes:
        yield annotation("error", error.message, title="tune")


def exit_codes_table() -> str:
    """The table of `tune --help`, from the error classes."""
    errors: list[type[TunerError]] = [TunerError, *TunerError.__subclasses__()]
    rows = sorted({*ENDINGS.items(), *((e.exit_code, e.meaning) for e in errors)})
    return "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {text}" for code, text in rows)
