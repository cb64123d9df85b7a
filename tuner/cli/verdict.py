"""The end of a run in a few lines: the only thing `tune run` prints on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tuner.cli.console import value_text
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text

_HEADLINES = {
    "improved": ("green", "improved"),
    "kept": ("cyan", "kept: nothing better than the current config"),
    "infeasible": ("red", "no config meets the SLOs"),
    "unconfirmed": ("yellow", "the winner of the search was not confirmed"),
    "interrupted": ("yellow", "interrupted"),
    "failed": ("red", "failed"),
}


def print_result(directory: Path, result: Mapping[str, Any], output_format: str) -> None:
    if output_format == "json":
        click.echo(json.dumps(result, indent=2))
        return
    for line in lines_of(directory, result):
        click.echo(line)


def lines_of(directory: Path, result: Mapping[str, Any]) -> list[str]:
    """The verdict, its numbers, the diff, and what to do next."""
    color, headline = _HEADLINES[result["status"]]
    lines = ["", click.style(f"{result['model']}: {headline}", fg=color, bold=True)]
    lines += _numbers(result) if result["winner"] else [f"  {r}" for r in result["reasons"]]
    lines += ["", *_colored(result["diff"])] if result["diff"] else []
    lines += _next_steps(directory, result)
    return lines


def _numbers(result: Mapping[str, Any]) -> list[str]:
    winner, baseline = result["winner"], result["baseline"]
    now = Candidate.from_json(winner)
    before = Candidate.from_json(baseline) if baseline else Candidate()
    lines = [f"  config    {changes_text(now, before)}"]
    lines.append(f"  goodput   {_goodput(winner)}, was {_goodput(baseline)}{_ratio(result)}")
    for slo in winner["slo"]:
        value = "unknown" if slo["value"] is None else value_text(slo["metric"], slo["value"])
        lines.append(f"  slo       {slo['expression']}: {value}, worst of the rounds")
    return lines


def _ratio(result: Mapping[str, Any]) -> str:
    if result["improvement"] is None:
        return ""
    ratio = result["improvement"]["goodput_ratio"]
    confidence = result["improvement"]["confidence"]
    return (
        f": {ratio['estimate']:.3g} times "
        f"({confidence:.0%} interval {ratio['low']:.3g} to {ratio['high']:.3g})"
    )


def _goodput(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "unknown"
    goodput = facts["goodput_infer_per_s"]
    return "none within the SLOs" if goodput is None else f"{goodput:.4g}/s"


def _next_steps(directory: Path, result: Mapping[str, Any]) -> list[str]:
    lines = ["", f"  report    {directory / 'report.html'}"]
    if result["written"] is not None:
        lines.append(f"  written   {result['written']['path']}")
        lines.append(f"  undo      tune rollback {result['model']}")
    elif result["winner"] is not None:
        lines.append(f"  write it  tune apply {directory}")
    if result["server_args"]:
        lines.append(f"  start tritonserver with  {' '.join(result['server_args'])}")
    return lines


def _colored(diff: str) -> list[str]:
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return [f"  {click.style(line, fg=colors.get(line[:1]))}" for line in diff.splitlines()]
