"""What to do after a run, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tuner.hiding import hidden_command
from tuner.report.data import ReportData
from tuner.run.manifest import resume_command
from tuner.run.status import Status, remedies


def next_steps(data: ReportData) -> list[tuple[str, str]]:
    """What to do now: (reason, command) pairs; the command may be empty."""
    run = shlex.quote(str(data.directory))
    again = _run_again(data)
    if data.status is Status.IMPROVED:
        flags = [("start the server with the flags below", "")] if data.result.server_args else []
        if data.result.written is not None and not data.taken_back:
            models = [Path(file.path).parent.name for file in data.result.written.files]
            model = shlex.quote(models[0])  # and what was written with it
            url = "localhost:8000/v2/repository/models"
            loads = (f"-X POST {url}/{shlex.quote(name)}/load" for name in models)
            reload = f"curl {' --next '.join(loads)}"
            repository = shlex.quote(str(data.manifest.repository))
            accept = f"tune check {_spec(data)} --update-baseline"
            return [
                ("let a running server read it, or restart the server", reload),
                *flags,
                ("make it the baseline of later checks", accept),
                ("take it back", f"tune rollback {model} --repository {repository}"),
            ]
        return [
            ("look at the change", f"tune apply {run} --dry-run"),
            ("write it again" if data.taken_back else "write it", f"tune apply {run}"),
            *flags,
        ]
    if causes := remedies(data.result.reasons):
        return [*((cause, "") for cause in causes), ("then run again", again)]
    if data.status is Status.KEPT:
        if len(data.trials) == data.manifest.space_size:
            return [("every config of the space was tried: another space may have better ones", "")]
        return [("search further: raise the budget, or widen the space", again)]
    if data.status is Status.INFEASIBLE:
        return [
            ("see above which SLO is out of reach, and by how much", ""),
            ("widen the space, relax that SLO, or use faster hardware", again),
        ]
    if data.status is Status.UNCONFIRMED:
        return [
            ("measure longer (workload.window) or in more rounds (confirm.rounds)", ""),
            ("then run again", again),
        ]
    if data.status is Status.FAILED:
        return [
            ("read the reasons above, those of each trial, and the run's logs/server.log", ""),
            ("check this machine", "tune doctor"),
        ]
    return [("resume it where it stopped", resume_command(data.directory))]


def _run_again(data: ReportData, options: Sequence[str] | None = None) -> str:
    """The command for a new run of the spec; with --no-write if this run had it."""
    if options is None:
        options = [] if data.manifest.choices.write else ["--no-write"]
    return " ".join(["tune run", _spec(data), *map(shlex.quote, options)])


def _spec(data: ReportData) -> str:
    return shlex.quote(data.manifest.spec_path or "SPEC")


def repeat_commands(data: ReportData) -> list[tuple[str, str]]:
    """(what, command line) pairs that repeat what this run did."""
    manifest = data.manifest
    commands = [("the run, as it was started", shlex.join(hidden_command(manifest.command)))]
    same = f"{_run_again(data, manifest.choices.options)} --seed {manifest.seed}"
    commands.append(("the same search, from its seed", same))
    commands.append(("this report", f"tune report {shlex.quote(str(data.directory))}"))
    return commands
