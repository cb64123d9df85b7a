"""The end of a run in a few lines: the only thing `tune run` prints on stdout."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tuner.cli.terminal import say_json, say_lines
from tuner.confirm.soak import Soak
from tuner.load.measurement import Measurement
from tuner.report.quantities import count_text, metric_text
from tuner.score.judge import value_of
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.digits import digits
from tuner.spec.metrics import Metric
from tuner.spec.objective import Goal, Objective
from tuner.writeback.rollback import is_back

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
        say_json(result)
        return
    for line in lines_of(directory, result):
        say_lines(line)


def lines_of(directory: Path, result: Mapping[str, Any]) -> list[str]:
    """The verdict, its numbers, the diff, and what to do next."""
    color, headline = _HEADLINES[result["status"]]
    lines = ["", click.style(f"{result['model']}: {headline}", fg=color, bold=True)]
    lines += _numbers(result) if result["winner"] else [f"  {r}" for r in result["reasons"]]
    lines += [
        f"  soak      {sentence}" for sentence in _soaks(result["winner"] or result["baseline"])
    ]
    lines += ["", *_colored(result["diff"])] if result["diff"] else []
    lines += _next_steps(directory, result)
    return lines


def _numbers(result: Mapping[str, Any]) -> list[str]:
    winner, baseline = result["winner"], result["baseline"]
    now = Candidate.from_json(winner)
    before = Candidate.from_json(baseline) if baseline else Candidate()
    lines = [f"  config    {changes_text(now, before)}", *_gain(result)]
    for slo in winner["slo"]:
        value = "unknown" if slo["value"] is None else metric_text(slo["metric"], slo["value"])
        soak = " and the soak" if _soak(winner).held else ""
        lines.append(f"  slo       {slo['expression']}: {value}, worst of the rounds{soak}")
    return lines


def _soak(facts: Mapping[str, Any] | None) -> Soak:
    """The long loads on a config, lowered until one held."""
    found = None if facts is None else facts.get("soak")
    return Soak() if found is None else Soak.from_json(found)


def _soaks(facts: Mapping[str, Any] | None) -> list[str]:
    soak = _soak(facts)
    return [*(s.sentence for s in soak.tried), *([soak.reason] if soak.reason else [])]


def _gain(result: Mapping[str, Any]) -> list[str]:
    """What was optimised, of the winner and of the current config, and the ratio of the proof."""
    winner, baseline = result["winner"], result["baseline"]
    metric = Objective.parse(result.get("objective") or Goal.MAXIMIZE_GOODPUT.value).metric
    if metric is None:
        held, worst = _soak(winner).held, winner.get("worst_round_infer_per_s")
        long = held is not None and worst is not None and winner["goodput_infer_per_s"] > worst
        each = " in every round" if len(winner["measurements"]) > 1 and not long else ""
        before = _goodput(baseline)
        lines = [f"  goodput   {_goodput(winner)}{each}; the current config: {before}"]
    else:
        now, before = _worst(winner, metric), _worst(baseline, metric)
        lines = [f"  {metric.name}  {now}, worst of the rounds; the current config: {before}"]
    gain = result["improvement"]
    if gain is not None:
        lines += _means(gain) if metric is None else []
        ratio, compared = gain["goodput_ratio"], gain.get("compared")
        of = "better" if metric else f"the current config's {compared or 'goodput'}"
        interval = (
            f"{gain['confidence']:.0%} interval {digits(ratio['low'])} to {digits(ratio['high'])}"
        )
        lines.append(f"  gain      {digits(ratio['estimate'])} times {of} ({interval})")
    return lines


def _goodput(facts: Mapping[str, Any] | None) -> str:
    """What a config stood in every round, that is the worst of them; told where not in every."""
    if facts is None:
        return "unknown"
    if facts["goodput_infer_per_s"] is None:
        return "none within the SLOs"
    if _soak(facts).held:  # for long: that is what it is credited with
        return f"{digits(facts['goodput_infer_per_s'], 4)}/s"
    met, rounds = facts.get("rounds_met"), len(facts["measurements"])
    if met is None or facts.get("worst_round_infer_per_s") is None:
        return f"{digits(facts['goodput_infer_per_s'], 4)}/s"
    some = f" in {met} of {rounds} rounds" if met < rounds else ""
    return f"{digits(facts['worst_round_infer_per_s'], 4)}/s{some}"


def _means(gain: Mapping[str, Any]) -> list[str]:
    """What the ratio is of."""
    means, compared = gain.get("means"), gain.get("compared")
    if means is None or compared is None:
        return []
    now, before = f"{digits(means['winner'], 4)}/s", f"{digits(means['current'], 4)}/s"
    rounds = gain.get("rounds")
    if rounds is not None and rounds["current"] < rounds["winner"]:
        before += f" in {count_text(rounds['current'], 'round')}"
    return [f"  {compared:<9} {now}, mean of the rounds; the current config: {before}"]


def _worst(facts: Mapping[str, Any] | None, metric: Metric) -> str:
    """The highest reading of a metric that is minimised."""
    measurements = [] if facts is None else facts["measurements"]
    readings = [value_of(metric, Measurement.from_json(m)) for m in measurements]
    known = [value for value in readings if value is not None]
    return metric_text(metric.name, max(known)) if known else "unknown"


def _next_steps(directory: Path, result: Mapping[str, Any]) -> list[str]:
    lines = ["", f"  report    {directory / 'report.html'}"]
    written = result["written"]
    back = written is not None and _is_back(written)
    if written is not None:
        lines.append(f"  written   {written['path']}{', and taken back since' if back else ''}")
    if written is not None and not back:
        repository = Path(written["path"]).parent.parent
        undo = ["tune", "rollback", result["model"], "--repository", str(repository)]
        lines.append(f"  undo      {shlex.join(undo)}")
    elif result["winner"] is not None:
        lines.append(f"  write it  {shlex.join(['tune', 'apply', str(directory)])}")
    if result["server_args"]:
        lines.append(f"  start tritonserver with  {shlex.join(result['server_args'])}")
    return lines


def _is_back(written: Mapping[str, Any]) -> bool:
    return is_back(Path(written["path"]), written["sha256_before"], written["sha256_after"])


def _colored(diff: str) -> list[str]:
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return [f"  {click.style(line, fg=colors.get(line[:1]))}" for line in diff.splitlines()]
