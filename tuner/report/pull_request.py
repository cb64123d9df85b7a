"""A run's proposal for reviewers: a diff for `git apply`, and the text of a pull request.

Both are in `best/` of a run with a winner: `proposal.patch` and `pull_request.md`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from tuner.errors import SpecError
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.files import directory_of
from tuner.report.blocks import Code, Fold, Table, filled
from tuner.report.data import ReportData, load
from tuner.report.markdown import escaped, joined, parts
from tuner.report.run_document import numbers, overload, proof, request_time
from tuner.report.tables import change, machine_text
from tuner.report.tiles import tiles
from tuner.run.store import BEST, RunStore
from tuner.run.writing import own_directory, write_bytes
from tuner.writeback.plan import FilePlan, plan_from_run

#: GitHub refuses a pull request's text above 65,536 characters; some is left to a template.
LIMIT = 60_000
PATCH, BODY = "proposal.patch", "pull_request.md"


def write_proposal(directory: Path) -> list[Path]:
    """Both files of a run with a winner; none if there is nothing to propose.

    Raises:
        SpecError: The directory holds no run.
    """
    result = RunStore.open(directory).result()
    if result is None or result["winner"] is None:
        return []
    plan = plan_from_run(RunStore.open(directory).manifest(), result)
    patch = b"".join(
        header.encode() + lines.encode(file.encoding)
        for file, (header, lines) in ((file, _patch(file)) for file in plan.files)
    )
    contents = {PATCH: patch, BODY: pull_request_of(load(directory)).encode()}
    best = own_directory(directory, BEST)
    for name, content in contents.items():
        write_bytes(best / name, content)
    return [best / name for name in contents]


def patch_of(directory: Path) -> str:
    """The change as a diff from the root of the Git checkout that holds the configs.

    Outside a checkout the path begins with the model's name, for `patch -p1` in the repository.

    Raises:
        SpecError: The directory holds no run, or the run has no winner.
    """
    store = RunStore.open(directory)
    plan = plan_from_run(store.manifest(), store.result() or {})
    return "".join(part for file in plan.files for part in _patch(file))


def pull_request_of(data: ReportData, limit: int = LIMIT) -> str:
    """The text of a pull request in Markdown, its first line a title; ``limit`` in characters.

    Raises:
        SpecError: The run has no winner.
    """
    if not data.result.diff and not data.result.server_args:
        raise SpecError(
            f"run {data.run_id} proposes nothing: it ended as {data.status.value}",
            "its report says why",
        )
    folds = [section(data) for section in (proof, numbers, request_time, overload)]
    blocks = filled(
        tiles(data),
        change(data),
        Code("Server flags it needs", "\n".join(data.result.server_args)),
        *folds,
        Fold("environment", "Measured on", (_environment(data),)),
        Code("How to repeat it", _command(data), "sh"),
        Code("The change as a diff", data.result.diff or "", "diff"),
    )
    return capped([f"## {escaped(data.model)}: a better config", *parts(blocks)], limit)


def capped(found: Sequence[str], limit: int) -> str:
    """Joins the first parts that fit whole; a note says if some are left out."""
    text = joined(found) + "\n"
    kept = list(found)
    note = "*Cut here: a pull request's text cannot be longer. The run's report has the rest.*"
    while len(text) > limit and kept:
        kept.pop()
        while kept and kept[-1].startswith("###"):
            kept.pop()  # a heading without the text below it
        text = joined([*kept, note]) + "\n"
    return text[:limit]


def _patch(file: FilePlan) -> tuple[str, str]:
    """The lines that name the file, and those of the change."""
    path = Path(os.path.realpath(file.path))  # also a loop of links
    checkouts = (p for p in path.parents if os.access(p / ".git", os.F_OK))
    root = next(checkouts, directory_of(path).parent)
    name = path.relative_to(root).as_posix()
    lines = unified_diff(file.text_before or "", file.text_after, name).splitlines(keepends=True)
    if not lines:
        return "", ""
    tab = "\t" if " " in name else ""  # else Git cuts the name short
    old, mode = f"--- a/{name}{tab}\n", ""
    if file.text_before is None:
        old, mode = "--- /dev/null\n", "new file mode 100644\n"
    header = f"diff --git a/{name} b/{name}\n{mode}{old}+++ b/{name}{tab}\n"
    return header, "".join(lines[2:])


def _environment(data: ReportData) -> Table:
    versions = data.manifest.versions.items()
    rows = (("machine", machine_text(data.manifest)), *versions, ("run", data.run_id))
    return Table(("", ""), rows)


def _command(data: ReportData) -> str:
    """The same search, wherever the repository is checked out."""
    spec = shlex.quote(Path(data.manifest.spec_path or "SPEC").name)
    return f"tune run {spec} --no-write --seed {data.manifest.seed}"
