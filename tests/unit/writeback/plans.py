"""Makes a model directory and a plan to write to it."""

from __future__ import annotations

from pathlib import Path

from tuner.writeback.plan import WritePlan, sha256_of

BEFORE = 'name: "m"\r\n# a comment: é\nmax_batch_size: 8\n'
AFTER = 'name: "m"\r\n# a comment: é\nmax_batch_size: 16\n'


def make_plan(repository: Path, before: str | None = BEFORE, after: str = AFTER) -> WritePlan:
    path = repository / "m" / "config.pbtxt"
    (path.parent / "1").mkdir(parents=True, exist_ok=True)
    if before is not None:
        path.write_bytes(before.encode())
    return WritePlan(
        model="m",
        path=path,
        sha256_before=None if before is None else sha256_of(before),
        text_before=before,
        text_after=after,
        server_args=(),
        run_id="r1",
    )
