"""Writes every form of a run's report beside its data, and the proposal for reviewers.

A run with a winner gets a diff for `git apply` and the text of a pull request, in `best/`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.errors import SpecError
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.files import directory_of
from tuner.record.manifest import run_command
from tuner.record.store import BEST, RunStore
from tuner.report import html, markdown
from tuner.report.blocks import Code, Document, Fold, Sentence, Table, filled
from tuner.report.data import ReportData, load
from tuner.report.frames import trials_csv
from tuner.report.headline import claim, gain_sentence
from tuner.report.markdown import escaped, joined, parts
from tuner.report.run_document import document, junit_of, numbers, overload, proof, request_time
from tuner.report.tables import change, machine_text
from tuner.report.trust import trust
from tuner.space.environment import places
from tuner.writeback.plan import FilePlan, plan_from_run
from tuner.writing import run_subdirectory, write_bytes, write_text

#: GitHub refuses a pull request's text above 65,536 characters; a template needs some of them.
LIMIT = 60_000


def report_run(directory: Path) -> list[Path]:
    """Renders a stored run, finished or not; each file is the old one or the complete new one.

    Raises:
        SpecError: The directory is not a run.
        TunerError: A file of the run cannot be read.
    """
    data = load(directory)
    written = write_report(directory, document(data), junit_of(data))
    table = directory / "trials.csv"
    write_text(table, trials_csv(data))
    return [*written, table, *write_proposal(data)]


def write_report(directory: Path, content: Document, junit_xml: str) -> list[Path]:
    """Writes a report in all of its forms; each file is the old one or the complete new one."""
    files = {
        "report.html": html.render(content),
        "report.md": markdown.render(content),
        "junit.xml": junit_xml,
    }
    for name, text in files.items():
        write_text(directory / name, text)
    return [directory / name for name in files]


def write_proposal(data: ReportData) -> list[Path]:
    """Writes both files of a proposal; none if there is nothing to propose."""
    if data.result.winner is None:
        return []
    plan = plan_from_run(data.manifest, data.result)
    patch = b"".join(
        header.encode() + lines.encode(file.encoding)
        for file, (header, lines) in ((file, _patch(file)) for file in plan.files)
    )
    contents = {"proposal.patch": patch, "pull_request.md": pull_request_of(data).encode()}
    best = run_subdirectory(data.directory, BEST)
    for name, content in contents.items():
        write_bytes(best / name, content)
    return [best / name for name in contents]


def patch_of(directory: Path) -> str:
    """The change as a diff from the root of the Git checkout that contains the configs.

    Outside of a checkout, the path starts with the model's name, for `patch -p1` in the repository.

    Raises:
        SpecError: The directory is not a run, or the run has no winner.
    """
    store = RunStore.open(directory)
    plan = plan_from_run(store.manifest(), store.result())
    return "".join(part for file in plan.files for part in _patch(file))


def pull_request_of(data: ReportData, limit: int = LIMIT) -> str:
    """The text of a pull request in Markdown, with a title in its first line.

    Args:
        limit: Largest number of characters.

    Raises:
        SpecError: The run has no winner.
    """
    if not (data.result.diff or data.result.server_args or data.result.environment):
        raise SpecError(
            f"run {data.run_id} has no winner to propose: it ended as {data.status.value}",
            f"`tune report {data.run_id}` says why",
        )
    manifest = data.manifest
    machine = ("machine", machine_text(manifest))
    where = Table(("", ""), (machine, *manifest.versions.items(), ("run", data.run_id)))
    # The same search, wherever the repository is checked out.
    spec, seed = Path(manifest.spec_path or "SPEC").name, ("--seed", str(manifest.seed))
    again = run_command([spec], replace(manifest.choices, write=False), *seed)
    folds = [section(data) for section in (proof, numbers, request_time, overload)]
    blocks = filled(
        Sentence(f"{claim(data)}."),
        Sentence(gain_sentence(data)),
        change(data),
        trust(data),
        Code("Server flags it needs", "\n".join(data.result.server_args)),
        Code("Server environment it needs", "\n".join(places(data.result.environment))),
        *folds,
        Fold("environment", "Measured on", (where,)),
        Code("How to repeat it", again, "sh"),
        Code("The change as a diff", data.result.diff or "", "diff"),
    )
    return capped([f"## {escaped(data.model)}: a better config", *parts(blocks)], limit)


def capped(paragraphs: Sequence[str], limit: int) -> str:
    """Joins the first parts that fit completely; a note says if some are left out."""
    text = joined(paragraphs) + "\n"
    kept = list(paragraphs)
    note = "*Cut here: a pull request's text cannot be longer. The run's report has the rest.*"
    while len(text) > limit and kept:
        kept.pop()
        while kept and kept[-1].startswith("###"):
            kept.pop()  # a heading without text
        text = joined([*kept, note]) + "\n"
    return text[:limit]


def _patch(file: FilePlan) -> tuple[str, str]:
    """The lines with the file's name, and the lines of the change."""
    path = Path(os.path.realpath(file.path))  # resolves loops of links too
    checkouts = (p for p in path.parents if os.access(p / ".git", os.F_OK))
    root = next(checkouts, directory_of(path).parent)
    name = path.relative_to(root).as_posix()
    lines = unified_diff(file.text_before or "", file.text_after, name).splitlines(keepends=True)
    if not lines:
        return "", ""
    tab = "\t" if " " in name else ""  # otherwise Git cuts the name short
    old, mode = f"--- a/{name}{tab}\n", ""
    if file.text_before is None:
        old, mode = "--- /dev/null\n", "new file mode 100644\n"
    header = f"diff --git a/{name} b/{name}\n{mode}{old}+++ b/{name}{tab}\n"
    return header, "".join(lines[2:])
