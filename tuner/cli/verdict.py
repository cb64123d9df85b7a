"""The end of a run in a few lines: the only thing `tune run` prints on stdout."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tuner.cli.terminal import say_json, say_lines
from tuner.report.data import is_taken_back
from tuner.report.quantities import count_text, metric_text
from tuner.report.sentence import bottleneck_text
from tuner.run.confirmation import Soak
from tuner.run.result_schema import ConfigFacts, Improvement, Result
from tuner.run.status import Status
from tuner.score.judge import value_of
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.digits import digits
from tuner.spec.metrics import Metric
from tuner.spec.objective import Goal, Objective

_HEADLINES = {
    Status.IMPROVED: ("green", "improved"),
    Status.KEPT: ("cyan", "kept: no config is better than the current one"),
    Status.INFEASIBLE: ("red", "no config meets the SLOs"),
    Status.UNCONFIRMED: ("yellow", "not known: no config was confirmed to be better"),
    Status.INTERRUPTED: ("yellow", "interrupted"),
    Status.FAILED: ("red", "failed"),
}


def print_result(directory: Path, result: Result, output_format: str) -> None:
    if output_format == "json":
        say_json(result.to_json())
        return
    for line in lines_of(directory, result):
        say_lines(line)


def lines_of(directory: Path, result: Result) -> list[str]:
    """The verdict, its numbers, the diff, and what to do next."""
    color, headline = _HEADLINES[result.status]
    lines = ["", click.style(f"{result.model}: {headline}", fg=color, bold=True)]
    winner = result.winner
    lines += _numbers(result, winner) if winner else [f"  {r}" for r in result.reasons]
    shown = winner or result.baseline
    soak = (shown and shown.soak) or Soak()
    lines += [f"  soak      {sentence}" for sentence in soak.sentences]
    lines += _bottleneck(shown)
    lines += ["", *_colored(result.diff)] if result.diff else []
    lines += _next_steps(directory, result)
    return lines


def _numbers(result: Result, winner: ConfigFacts) -> list[str]:
    before = result.baseline.candidate if result.baseline else Candidate()
    lines = [f"  config    {changes_text(winner.candidate, before)}", *_gain(result, winner)]
    soak = " and the soak" if winner.soak and winner.soak.held else ""
    for slo in winner.slo:
        value = "unknown" if slo.value is None else metric_text(slo.metric, slo.value)
        worst = f"worst of the rounds{soak}; a point estimate"
        lines.append(f"  slo       {slo.expression}: {value}, {worst}")
    return lines


def _bottleneck(facts: ConfigFacts | None) -> list[str]:
    found = facts and facts.bottleneck
    return [f"  time      {bottleneck_text(found)}"] if found else []


def _gain(result: Result, winner: ConfigFacts) -> list[str]:
    """The optimised metric of the winner and of the current config, and the proved ratio."""
    baseline, gain = result.baseline, result.improvement
    metric = Objective.parse(result.objective or Goal.MAXIMIZE_GOODPUT.value).metric
    if metric is None:
        soak, worst, most = winner.soak, winner.worst_round_infer_per_s, winner.goodput_infer_per_s
        long = soak and soak.held and worst is not None and most is not None and most > worst
        each = " in every round" if len(winner.measurements) > 1 and not long else ""
        before = _goodput(baseline, gain)
        lines = [f"  goodput   {_goodput(winner)}{each}; the current config: {before}"]
    else:
        now, before = _worst(winner, metric), _worst(baseline, metric)
        lines = [f"  {metric.name}  {now}, worst of the rounds; the current config: {before}"]
    if gain is not None:
        lines += _means(gain) if metric is None else []
        of = "better" if metric else f"the current config's {gain.compared or 'goodput'}"
        lines.append(f"  gain      {gain.times_text} {of} ({gain.confidence_text})")
    return lines


def _goodput(facts: ConfigFacts | None, gain: Improvement | None = None) -> str:
    """What a config sustained in every round, which is the worst one; or in how many it did."""
    if facts is None:
        return "unknown"
    if facts.goodput_infer_per_s is None and gain is not None and gain.at_least:
        return f"less than {digits(gain.means.current, 4)}/s" if gain.means else "far less"
    if facts.goodput_infer_per_s is None:
        return "none within the SLOs"
    least = "at least " if facts.at_least else ""
    met, rounds, worst = facts.rounds_met, len(facts.measurements), facts.worst_round_infer_per_s
    soaked = facts.soak and facts.soak.held  # for long: that is what it is credited with
    if soaked or met is None or worst is None:
        return f"{least}{digits(facts.goodput_infer_per_s, 4)}/s"
    some = f" in {met} of {rounds} rounds" if met < rounds else ""
    return f"{least}{digits(worst, 4)}/s{some}"


def _means(gain: Improvement) -> list[str]:
    """The means whose ratio is the gain."""
    means, compared, rounds = gain.means, gain.compared, gain.rounds
    if means is None or compared is None:
        return []
    now, before = f"{digits(means.winner, 4)}/s", f"{digits(means.current, 4)}/s"
    if gain.at_least:
        before = f"less than {before}"
    elif rounds is not None and rounds.current < rounds.winner:
        before += f" in {count_text(rounds.current, 'round')}"
    return [f"  {compared:<9} {now}, mean of the rounds; the current config: {before}"]


def _worst(facts: ConfigFacts | None, metric: Metric) -> str:
    """The highest reading of a metric that is minimised."""
    readings = [value_of(metric, m) for m in (() if facts is None else facts.measurements)]
    known = [value for value in readings if value is not None]
    return metric_text(metric.name, max(known)) if known else "unknown"


def _next_steps(directory: Path, result: Result) -> list[str]:
    lines = ["", f"  report    {directory / 'report.html'}"]
    written = result.written
    back = is_taken_back(written)
    if written is not None:
        since = ", and taken back since" if back else ""
        lines += [f"  written   {file.path}{since}" for file in written.files]
    if written is not None and not back:
        model = Path(written.path).parent
        undo = ["tune", "rollback", model.name, "--repository", str(model.parent)]
        lines.append(f"  undo      {shlex.join(undo)}")
    elif result.winner is not None:
        lines.append(f"  write it  {shlex.join(['tune', 'apply', str(directory)])}")
    if result.server_args:
        lines.append(f"  start tritonserver with  {shlex.join(result.server_args)}")
    return lines


def _colored(diff: str) -> list[str]:
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return [f"  {click.style(line, fg=colors.get(line[:1]))}" for line in diff.splitlines()]
