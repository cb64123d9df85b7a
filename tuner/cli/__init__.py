"""The command line: wiring only. Nothing below it prints, exits or reads the environment."""

from __future__ import annotations

import sys

try:
    import logging
    from pathlib import Path

    import click
    from click.shell_completion import CompletionItem

    from tuner import __version__
    from tuner.cli.boundary import exit_codes_table, guarded
    from tuner.cli.terminal import LoggedWarnings, open_standard_streams, say, say_json, say_lines
    from tuner.errors import EnvironmentNotReadyError
except KeyboardInterrupt:  # Ctrl-C during the imports
    sys.stderr.write("stopped before anything started\n")
    sys.exit(130)

#: Each command with its help. Modules are imported when a command needs them: `--help` is quick.
COMMANDS = {
    "init": "draft a spec for a model, with bounds from the model and this machine",
    "models": "list a repository's models, and what of each can be tuned",
    "doctor": "check programs, ports, GPU and permissions, and say how to fix each problem",
    "plan": "show what a run would do, without a server",
    "record": "make a recording of requests from a trace, a log or inputs",
    "run": "search, prove and write the best config: the main job",
    "check": "measure the config in the repository against its SLOs and the last accepted result",
    "report": "render a run's reports again, or list all runs",
    "compare": "show two runs side by side",
    "size": "compute how many replicas a rate needs, with a threshold for autoscalers",
    "apply": "write a run's winner into the model repository",
    "rollback": "restore the config from before the last write",
    "lint": "list what is wrong or risky in a model repository",
    "schema": "print the JSON Schema of specs, for editors",
    "completion": "print what bash, zsh or fish needs to complete commands",
}


#: The examples at the end of each command's `--help`.
EXAMPLES = {
    "init": (
        "tune init tiny-bert --slo 'p99_latency <= 50ms'",
        "tune init model_repository --all --output specs",
    ),
    "models": (
        "tune models model_repository",
        "tune models model_repository --format json",
    ),
    "doctor": ("tune doctor", "tune doctor search_spaces/quickstart.yaml"),
    "plan": (
        "tune plan search_spaces/quickstart.yaml",
        "tune plan my-model.yaml --set budget.trials=8",
    ),
    "record": (
        "tune record access.csv --from log --time time --shape ids=tokens",
        "tune record trace.json --from triton-trace --output requests.jsonl",
    ),
    "run": (
        "tune run search_spaces/quickstart.yaml",
        "tune run tiny-bert --slo 'p99_latency <= 50ms' --no-write",
    ),
    "check": (
        "tune check my-model.yaml",
        "tune check my-model.yaml --update-baseline",
    ),
    "report": ("tune report", "tune report RUN --why"),
    "compare": ("tune compare RUN OTHER", "tune compare RUN OTHER --format md"),
    "size": (
        "tune size RUN --rate 5000/s",
        "tune size RUN --rate 5000/s --headroom 30% --price 2.5/h",
    ),
    "apply": ("tune apply RUN", "tune apply RUN my-model.yaml"),
    "rollback": ("tune rollback tiny-bert", "tune rollback RUN"),
    "lint": (
        "tune lint model_repository",
        "tune lint model_repository --format json",
    ),
    "schema": ("tune schema > tune.schema.json", "tune schema | head"),
    "completion": (
        'eval "$(tune completion bash)"',
        "tune completion fish > ~/.config/fish/completions/tune.fish",
    ),
}


#: Modules of the commands that share one; otherwise a module has the name of its command.
_MODULES = {
    **dict.fromkeys(("models", "doctor", "plan", "lint"), "inspect_commands"),
    **dict.fromkeys(("report", "compare", "size"), "report_commands"),
    **dict.fromkeys(("apply", "rollback"), "write_commands"),
}
#: Names that other tools use for a command and whose spelling does not suggest the right one.
_MEANT = {
    **dict.fromkeys(("list", "ls", "status", "runs", "show"), "report"),
    **dict.fromkeys(("optimize", "search", "profile", "analyze", "tune", "start"), "run"),
    **dict.fromkeys(("benchmark", "bench", "measure", "perf"), "check"),
    **dict.fromkeys(("replicas", "capacity", "cost"), "size"),
    **dict.fromkeys(("undo", "restore", "revert"), "rollback"),
    **dict.fromkeys(("draft", "create", "new"), "init"),
    **dict.fromkeys(("preview", "dry-run", "validate"), "plan"),
    "worker": "run --on ray",
}


def _show_help(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        say_lines(ctx.get_help())
        ctx.exit()


def _help_option() -> click.Option:
    """Prints with `say_lines`: click's option fails if the reader is gone or the disk is full."""
    return click.Option(
        ["-h", "--help"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_help,
        help="Show this message and exit.",
    )


class LazyGroup(click.Group):
    """A group that imports a command on first use, and adds examples to its help."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        cmd.add_help_option = False
        cmd.params.append(_help_option())
        if lines := EXAMPLES.get(name or cmd.name or ""):
            cmd.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
        super().add_command(cmd, name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands or cmd_name not in COMMANDS:
            return self.commands.get(cmd_name)
        import importlib

        name = _MODULES.get(cmd_name, f"{cmd_name}_command")
        members = vars(importlib.import_module(f"tuner.cli.{name}")).values()
        self.add_command(next(c for c in members if getattr(c, "name", "") == cmd_name))
        return self.commands[cmd_name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands or args[0] in COMMANDS or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        from tuner.spec.mistakes import did_you_mean

        meant = _MEANT.get(args[0].lower())
        guess = f"did you mean {meant}?" if meant else did_you_mean(args[0], COMMANDS, most=1)
        message = f"there is no command {args[0]!r}"
        raise click.UsageError(f"{message}; {guess}" if guess else message, ctx)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        _say_versions()
        ctx.exit()


def _say_versions() -> None:
    import os
    import platform

    from tuner.server import binaries

    say(f"tune, version {__version__}")
    host, libc = os.uname(), " ".join(platform.libc_ver())
    say(f"Python {platform.python_version()}, {host.sysname} {host.machine}, {libc}")
    for name, find in (
        ("tritonserver", binaries.tritonserver),
        ("perf_analyzer", binaries.perf_analyzer),
    ):
        try:
            with find(None, os.environ) as program:
                say(f"{name} {program.version}, {program.binary}")
        except EnvironmentNotReadyError as error:
            say(f"{name}: {error.message}")


@click.group(
    cls=LazyGroup,
    epilog=exit_codes_table(),
    context_settings={"max_content_width": 100},
    invoke_without_command=True,
    add_help_option=False,
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions of tune, Python, the platform, tritonserver and perf_analyzer.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    expose_value=False,
    help="Print in colors; auto: on a terminal, unless $NO_COLOR is set.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Finds, proves and writes the Triton config that meets your latency SLOs.

    Start with `tune init MODEL`, preview with `tune plan SPEC`, then start `tune run SPEC`.
    """
    try:
        Path.cwd()
    except OSError as error:
        raise EnvironmentNotReadyError(
            "the working directory no longer exists", "change to another directory"
        ) from error
    if ctx.invoked_subcommand is None:
        say_lines(ctx.get_help())


cli.params.append(_help_option())


class _CommandName(click.ParamType):  # type: ignore[type-arg]
    """The name of a command, for completion; `resolve_command` reports an unknown one."""

    name = "command"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]


@cli.command("help")
@click.argument("command", required=False, type=_CommandName())
@click.pass_context
def help_command(ctx: click.Context, command: str | None) -> None:
    """Show the help of tune, or of COMMAND."""
    above = ctx.find_root()
    if command is None:
        say_lines(above.get_help())
        return
    _, subcommand, _ = cli.resolve_command(above, [command])
    assert subcommand is not None
    with click.Context(subcommand, info_name=command, parent=above) as inner:
        say_lines(inner.get_help())


@cli.command("version")
def version_command() -> None:
    """Show the versions of tune, Python, the platform, tritonserver and perf_analyzer."""
    _say_versions()


@cli.command()
def schema() -> None:
    """Print the JSON Schema of specs, for editors and validators.

    The first line of a spec names it: # yaml-language-server: $schema=tune.schema.json
    """
    from tuner.spec.reference import json_schema

    say_json(json_schema())


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL, for its start-up file."""
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    say_lines(script(ctx.find_root().command, {}, "tune", "_TUNE_COMPLETE").source())


def main() -> None:
    """Entry point: the exit code says how the command ended."""
    open_standard_streams()
    logging.basicConfig(handlers=[LoggedWarnings()])
    sys.exit(guarded(cli, sys.argv[1:]))
