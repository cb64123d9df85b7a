"""Makes model directories and plans to write to them."""

from __future__ import annotations

from pathlib import Path

from tuner.writeback.plan import FilePlan, WritePlan, sha256_of
from tuner.writeback.written import Written, WrittenFile

BEFORE = 'name: "m"\r\n# a comment: é\nmax_batch_size: 8\n'
AFTER = 'name: "m"\r\n# a comment: é\nmax_batch_size: 16\n'


class OneFile(WritePlan):
    """A plan of one file, with the file's facts at hand."""

    @property
    def path(self) -> Path:
        return self.files[0].path

    @property
    def sha256_before(self) -> str | None:
        return self.files[0].sha256_before

    @property
    def sha256_after(self) -> str:
        return self.files[0].sha256_after


def make_plan(repository: Path, before: str | None = BEFORE, after: str = AFTER) -> OneFile:
    return OneFile((make_file(repository, "m", before, after),), "r1")


def make_file(
    repository: Path, model: str, before: str | None = BEFORE, after: str = AFTER
) -> FilePlan:
    """A model's directory, and the plan to replace its config."""
    path = repository / model / "config.pbtxt"
    (path.parent / "1").mkdir(parents=True, exist_ok=True)
    if before is not None:
        path.write_bytes(before.encode())
    sha256 = None if before is None else sha256_of(before)
    return FilePlan(model, path, sha256, before, after)


def only(written: Written) -> WrittenFile:
    """What became of the one file of a plan."""
    (file,) = written.files
    return file
