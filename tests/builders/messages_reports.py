"""Parts of reports of made-up runs, and what is said where there is nothing to report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from builders.checks import facts, nights
from builders.decoupled_runs import decoupled_run
from builders.golden import visible
from builders.measurements import latency_slo
from builders.pages import page_of, terminal_of, with_configs, with_result
from builders.refusals import Case
from builders.runs import Toy, make_run, with_config
from builders.soaked_runs import soaked_run

import tuner
from tuner.load.probes.lone import LoneRequests
from tuner.load.probes.warmup import WarmUp
from tuner.load.watch.machine import disturbances
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import FailureReason, Failures
from tuner.reason import Reason
from tuner.record.checks import read_check
from tuner.record.confirmation import ChangeUndone, RunNoise, Soak
from tuner.record.manifest import Choices
from tuner.record.proved import ProvedConfig
from tuner.record.responses import responses_of
from tuner.record.status import Status
from tuner.report import check_document, run_document
from tuner.report.blocks import Code, Table
from tuner.report.charts.load import load_charts
from tuner.report.charts.trials import history
from tuner.report.data import ReportData, load
from tuner.report.render import patch_of, pull_request_of
from tuner.report.run_document import failures
from tuner.report.sentence import next_steps, repeat_commands, soak_sentences
from tuner.report.tables import comparison, noise_sentences, simplification
from tuner.report.trust import trust
from tuner.space.words import changes_text

QUIET = {"other_cpu_percent": 1.0, "stalled_percent": 0.0}
SAME = "Answers match the current config's on all 16 sample requests (floats within 0.001)."
CHANGED = "It changes answers: y."


def of_run(tell: Callable[[ReportData], Any], status: str = "improved", **toy: Any) -> Case:
    return lambda here: tell(load(make_run(here, Toy(**toy), status)))


def rows(table: Table | None, word: str = "") -> Iterator[str]:
    """Those that have a word."""
    lines = [] if table is None else [" | ".join(row) for row in table.rows]
    return (row for row in lines if word in row)


def best_of(data: ReportData) -> ProvedConfig:
    assert data.best is not None
    return data.best


def checked_decoupled(here: Path) -> list[str]:
    proved = load(decoupled_run(here)).current
    assert proved is not None
    responses = [asdict(one) for one in responses_of(proved.judged.measurement)]
    printed = terminal_of(check_document.document(facts(responses=responses)))
    return printed[printed.index("  responses;") :].splitlines()[:3]


def beyond_the_bound(data: ReportData) -> list[str]:
    (chart,) = load_charts(data)
    texts = [text for trace in chart.figure["data"] for text in trace["text"] if "missed" in text]
    return [chart.note, *texts[:2]]


def with_warm_up(data: ReportData) -> str:
    warm_up = WarmUp("toy", (1, 2), "model_warmup [\n]\n", 0.7, 0.005, 1.3, 0.006, 5.1)
    printed = visible(page_of(with_result(data, warm_up=warm_up)))
    return "\n".join(
        line for line in printed if "call" in line or "past" in line or "tried" in line
    )


def failing(data: ReportData) -> Iterator[str]:
    timed_out = {FailureReason.TIMED_OUT: Failures(1200, 51e3, 310e3)}
    failed = [
        replace(p, measurement=replace(p.measurement, failures=timed_out))
        for p in best_of(data).rounds
    ]
    changed = with_configs(data, best=ProvedConfig.of(best_of(data).candidate, failed))
    return rows(comparison(changed), "of which")


def unmet(data: ReportData) -> list[str]:
    suite = ET.fromstring(run_document.junit_of(data))
    return [
        f"{one.tag} ({one.get('type', '-')}): {one.get('message')}"
        for one in suite.iter()
        if one.get("message")
    ]


def started_with(data: ReportData) -> list[str]:
    """The commands of a report and of a pull request."""
    choices = Choices(
        trials=14,
        time_budget_s=90.0,
        overrides=("slo=[p99_latency <= 90ms]", "name=a\n```\ntune run other"),
    )
    data = replace(data, manifest=replace(data.manifest, choices=choices))
    kept = with_result(data, status=Status.KEPT)
    proposed = pull_request_of(data).splitlines()
    return [
        *(f"{what}: {command}" for what, command in (*repeat_commands(data), *next_steps(kept))),
        *(f"proposed: {line}" for line in proposed if line.startswith("tune")),
    ]


def history_note(data: ReportData, trial: int | None) -> str:
    current = None if trial is None else ProvedConfig.of_trial(data.trials[trial])
    chart = history(with_configs(data, current=current))
    assert chart is not None
    return chart.note


def parts() -> dict[str, Case]:
    """By what is special about a run, or a check."""
    undone = ChangeUndone("dynamic_batching", 900.0, 0.0, -900.0, kept=True)
    noise = RunNoise(repeats=9, throughput_cv=0.011, p99_cv=None, rounds=6, capacity_cv=0.02)
    soak = Soak(why_unknown=Reason.of_text("Other processes took 74% of the CPU."))
    long = "+ a line of a very long diff\n" * 5000
    trend = check_document.trend_chart(facts(history=nights()))
    assert trend is not None
    traces = [trace["name"] for trace in trend.figure["data"]]
    few = {"trials": 6}
    return {
        "a decoupled model": lambda here: rows(comparison(load(decoupled_run(here))), "response"),
        "a decoupled model, checked": checked_decoupled,
        "loads far beyond the bound": of_run(beyond_the_bound),
        "the current config was the fourth trial": of_run(lambda data: history_note(data, 3)),
        "the current config was no trial": of_run(lambda data: history_note(data, None)),
        "nights of a check": lambda _: traces,
        "a warm-up that helps": of_run(with_warm_up, **few),
        "the search predicted": of_run(
            lambda d: [line for line in visible(page_of(d)) if "predicted" in line][:2],
            predicts=True,
        ),
        "trials failed": of_run(
            lambda d: [f"{c.caption}: {c.text}" for c in failures(d).blocks if isinstance(c, Code)]
        ),
        "an SLO was missed, in JUnit": of_run(unmet, "infeasible", slo=("p99_latency <= 5ms",)),
        "an SLO's metric was not read, in JUnit": of_run(
            unmet, "kept", slo=("gpu_memory <= 1GiB",)
        ),
        "noise": of_run(lambda data: noise_sentences(with_result(data, noise=noise)), **few),
        "a field without which no load was stood": of_run(
            lambda data: rows(simplification(with_result(data, simplification=(undone,)))), **few
        ),
        "requests timed out": of_run(failing, **few),
        "a soak was given up for a sentence": of_run(
            lambda d: soak_sentences(with_configs(d, best=replace(best_of(d), soak=soak))), **few
        ),
        "a run was started with choices": of_run(started_with, **few),
        "a pull request would be too long": of_run(
            lambda d: pull_request_of(with_result(d, diff=long)).splitlines()[-6:], **few
        ),
        "a config was not there": lambda here: patch_of(
            with_config(make_run(here, Toy(**few)), Path("/no/toy/config.pbtxt"), before=None)
        ),
    }


def spoilt(name: str, **changes: object) -> Case:
    """Of a run one of whose files was changed."""

    def read(here: Path) -> object:
        run = make_run(here, Toy(trials=6))
        path = run / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        return load(run)

    return read


def not_reported() -> dict[str, Case]:
    """What is no run, no check, or not as it was written."""

    def half_a_soak(part: str) -> Case:
        def read(here: Path) -> object:
            run, _ = soaked_run(here, 0.9)
            result = json.loads((run / "result.json").read_text())
            del result["winner"]["soak"]["tried"][0][part]
            (run / "result.json").write_text(json.dumps(result))
            return load(run)

        return read

    def check(here: Path) -> object:
        (here / "check.json").write_text('{"status": "good"}')
        return read_check(here)

    def trials(change: Callable[[list[str]], list[str]]) -> Case:
        def read(here: Path) -> object:
            run = make_run(here, Toy(trials=6))
            lines = change((run / "trials.jsonl").read_text().splitlines())
            (run / "trials.jsonl").write_text("".join(f"{line}\n" for line in lines))
            return load(run)

        return read

    def fast(line: str) -> str:
        row = json.loads(line)
        row["points"][0]["measurement"]["p99_latency_us"] = ["fast"]
        return json.dumps(row)

    old = {"models": {}, "server_args": [], "goodput_infer_per_s": 1.0}
    return {
        "no run": load,
        "no run, for a notebook": tuner.read_run,
        "a winner of before the record": spoilt("result.json", winner=old),
        "a status that is none": spoilt("result.json", status="splendid"),
        "an objective that is none": spoilt("result.json", objective="maximize everything"),
        "a trial without its config": trials(lambda lines: ['{"number": 0}', *lines]),
        "half a trial": trials(lambda lines: [*lines[:2], lines[2][:50], *lines[3:]]),
        "a latency that is a word": trials(lambda lines: [lines[0], fast(lines[1])]),
        "a soak without its measurement": half_a_soak("measurement"),
        "a soak without its SLOs": half_a_soak("slo"),
        "no check": read_check,
        "a check that is broken": check,
        "no winner to write": lambda here: patch_of(make_run(here, Toy(trials=6), "kept")),
        "no winner to propose": of_run(pull_request_of, "kept", trials=6),
    }


def with_host(data: ReportData, **host: Any) -> ReportData:
    """As if both configs had been measured on such a machine."""

    def on(config: ProvedConfig) -> ProvedConfig:
        points = [
            replace(p, measurement=replace(p.measurement, host=HostUse(**host)))
            for p in config.rounds
        ]
        return ProvedConfig.of(config.candidate, points, soak=config.soak)

    assert data.current is not None
    return with_configs(data, current=on(data.current), best=on(best_of(data)))


def said_of_it(data: ReportData, *reasons: str) -> ReportData:
    """A report with these reasons about the config of the answer."""
    name = changes_text(best_of(data).candidate, data.manifest.current)
    return with_result(data, reasons=tuple(f"{name}: {text}" for text in reasons))


def lone(data: ReportData, served: int) -> ReportData:
    """As if the winner had served so many of 30 lone requests after an overload."""
    probes = data.result.overload
    assert probes is not None
    assert probes.winner is not None
    winner = replace(probes.winner, lone=LoneRequests(30, served, 12e3))
    return with_result(data, overload=replace(probes, winner=winner))


def one_missed(data: ReportData) -> ReportData:
    first, *rest = best_of(data).rounds
    missed = replace(first, slo=tuple(replace(s, verdict=s.verdict.FAIL) for s in first.slo))
    return with_configs(data, best=ProvedConfig.of(best_of(data).candidate, [missed, *rest]))


def trusted() -> dict[str, Case]:
    """Whether the answer may be trusted, and every check of it."""

    def checks(data: ReportData) -> list[str]:
        table = trust(data)
        return ["no claim"] if table is None else [table.caption, *rows(table)]

    def of(change: Callable[[ReportData], ReportData], status: str = "improved") -> Case:
        return of_run(lambda data: checks(change(data)), status, trials=6)

    def soaked(here: Path) -> list[str]:
        run, soak = soaked_run(here, 0.9)
        data = with_host(said_of_it(load(run), SAME), **QUIET)
        sustained = replace(soak, tried=soak.tried[1:])
        best = best_of(data)
        clean = with_configs(
            data, best=ProvedConfig.of(best.candidate, best.rounds, soak=sustained)
        )
        return [*checks(clean), "", "if the claim had to be lowered:", *checks(data)]

    def stood_still(here: Path) -> list[str]:
        """In a soak that did not hold, beside which nobody is said to have taken nothing."""
        run, soak = soaked_run(here, 0.9)
        data = with_host(load(run), **QUIET)
        lost, sustained = soak.tried
        still = replace(lost.measurement, host=HostUse(other_cpu_percent=0.0, stalled_percent=0.3))
        still = replace(still, disturbances=disturbances(still, latency_slo(0.999, 0.04)))
        soak = replace(soak, tried=(replace(lost, measurement=still), sustained))
        return checks(with_configs(data, best=replace(best_of(data), soak=soak)))

    simpler = f"instances 7: {CHANGED}"
    left_out = "Left out for lack of time: overloading."
    hosts: dict[str, dict[str, Any]] = {
        "others took little": QUIET,
        "others took little of two cores": {**QUIET, "cores": 2},
        "others took next to nothing": {**QUIET, "other_cpu_percent": 0.2},
        "it stood still beside what others took": {**QUIET, "stalled_percent": 0.3},
        "others took a third": {**QUIET, "other_cpu_percent": 34.0},
    }
    return {
        "nothing was at fault": soaked,
        **{name: of(lambda d, h=host: with_host(d, **h)) for name, host in hosts.items()},
        "it stood still in a soak that was lost": stood_still,
        "what others took is not known": of(with_host),
        "a probe was left out": of(lambda d: with_result(d, reasons=(left_out,))),
        "the answers change": of(lambda d: said_of_it(d, CHANGED)),
        "the answers change of a simpler config that did not hold": of(
            lambda d: with_result(d, reasons=(simpler, *said_of_it(d, SAME).result.reasons))
        ),
        "lone requests were served after an overload": of(lambda d: lone(d, 30)),
        "lone requests were refused after an overload": of(lambda d: lone(d, 28)),
        "a round was missed": of(one_missed),
        "the answer is open": of(lambda d: d, "not known"),
        "the run failed": of(lambda d: d, "failed"),
    }
