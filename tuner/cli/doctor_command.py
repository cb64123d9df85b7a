"""`tune doctor`: whether this machine is ready, and how well its measurements repeat."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.storage import children_environment
from tuner.cli.terminal import say, say_json, say_lines
from tuner.errors import EnvironmentNotReadyError
from tuner.spec.digits import digits

if TYPE_CHECKING:
    from tuner.confirm.repeatability import Spread
    from tuner.programs.noise import Noise

#: In a checkout, and in the container image: a model that runs anywhere.
_SHIPPED_SPEC = Path("search_spaces/quickstart.yaml")


@click.command("doctor")
@options.optional_spec_argument
@click.option(
    "--noise",
    is_flag=True,
    help="Measure how well measurements of SPEC's current config repeat here (60 to 90 s), and "
    "recommend workload.window, confirm.rounds and confirm.min_gain.",
)
@click.option(
    "--output",
    type=options.DIRECTORY,
    default=Path("results"),
    show_default=True,
    help="Directory that runs are stored in; the measured noise is kept there.",
)
@options.output_format
def command(spec: Path | None, noise: bool, output: Path, output_format: str) -> int:
    """Check programs (by running them), ports, GPU and permissions; say how to fix each problem.

    With SPEC, checks what that spec needs; otherwise, what the local mode needs. Exit code 4 if
    something is missing.

    With --noise, measures how well measurements repeat on this machine instead: SPEC's current
    config (by default, the shipped quickstart's) is measured repeatedly on fresh servers near its
    capacity. Later runs record the result.
    """
    return _noise(spec, output, output_format) if noise else _checks(spec, output, output_format)


def _checks(spec: Path | None, output: Path, output_format: str) -> int:
    from tuner.spec.load import load_spec
    from tuner.steps.job import models_of
    from tuner.triton.doctor import run_checks

    wanted = None if spec is None else load_spec(spec).spec
    checks = run_checks(
        children_environment(),
        server=None if wanted is None else wanted.server,
        models=lambda: () if wanted is None else models_of(wanted).models.values(),
        perf_analyzer=None if wanted is None else wanted.workload.perf_analyzer,
        repository=None if wanted is None else wanted.repository,
        results=output,
    )
    if output_format == "json":
        say_json([asdict(c) for c in checks])
    else:
        for check in checks:
            mark = click.style("ok  ", fg="green") if check.ok else click.style("FIX ", fg="red")
            say(f"{mark}  {check.label}: {check.found}")
            if check.mend:
                say(f"        {check.mend}")
    return 0 if all(c.ok for c in checks) else EnvironmentNotReadyError.exit_code


def _noise(spec: Path | None, output: Path, output_format: str) -> int:
    from tuner.cli.console import PlainEvents
    from tuner.programs.noise import measure_noise
    from tuner.run.noise_file import write_noise

    if spec is None and not _SHIPPED_SPEC.is_file():
        raise EnvironmentNotReadyError(
            "there is no spec to measure the noise with",
            "tune doctor --noise SPEC; `tune init MODEL` drafts a spec",
        )
    found = measure_noise(spec or _SHIPPED_SPEC, children_environment(), PlainEvents(verbosity=1))
    kept = write_noise(output, found.to_json())
    if output_format == "json":
        say_json(found.to_json())
    else:
        for line in noise_lines(found):
            say(line)
    say_lines(f"\nkept in {kept}: later runs of {found.model} record it", err=True)
    return 0


def noise_lines(noise: Noise) -> list[str]:
    """What was measured, what to set, and why."""
    now, advised = noise.settings, noise.advice.settings
    unsure = 1.0 / math.sqrt(2.0 * (noise.servers - 1))  # of a standard deviation, normal noise
    where = f"{noise.model} at {digits(noise.level, 4)}, {noise.servers} rounds on fresh servers"
    beside = f" beside {noise.neighbour}" if noise.neighbour else ""
    return [
        "",
        f"{where}{beside} ({noise.seconds:.0f} s)",
        "coefficient of variation    within one server    between servers",
        _row("throughput", noise.throughput_within, noise.throughput_between),
        _row("p99 latency", noise.p99_within, noise.p99_between),
        _row("capacity", None, noise.capacity),
        *([_row("ratio of the two", None, noise.comparison)] if noise.neighbour else []),
        "",
        *noise.advice.reasons,
        f"A spread of {noise.servers} rounds is itself uncertain by about {unsure:.0%}.",
        *(f"DISTURBED: {d} Measure again when the machine is quiet." for d in noise.disturbances),
        "",
        f"workload.window   {advised.window_s:.1f}s{_was(now.window_s, advised.window_s, '.1f')}",
        f"confirm.rounds    {advised.rounds}{_was(now.rounds, advised.rounds, 'd')}",
        f"confirm.min_gain  {advised.min_gain:.1%}{_was(now.min_gain, advised.min_gain, '.1%')}",
    ]


def _row(name: str, within: Spread | None, between: Spread) -> str:
    cells = ["" if s is None or s.cv is None else f"{s.cv:.2%}" for s in (within, between)]
    return f"  {name:<24}{cells[0]:>19}{cells[1]:>19}"


def _was(now: float, advised: float, form: str) -> str:
    return "  (as now)" if now == advised else f"  (now {now:{form}})"
