"""Odd things where a file or a directory is expected, and outputs that take no more."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from builders.runs import CONFIG
from fuzz.near import SEEDS, command, finished, fuzzed, lay_out, lay_out_run, place
from hypothesis import strategies as st

from tuner.errors import TunerError
from tuner.lint.repository import faults_of
from tuner.triton.doctor import _directories
from tuner.triton.local import mirror_of

_RUN = "results/run"
_PLACES = (".", "models", "models/m", "models/m/1", "models/toy", "models/toy/1")
_PLACES += ("results", _RUN, f"{_RUN}/best")
_NAMES = (
    *("config.pbtxt", ".tune.journal", ".config.pbtxt.tune.tmp", "labels.txt"),
    *("1", "2", "01", "9" * 20, "model.py", ".#model.py", "x.py", "__pycache__", "model.onnx"),
    *("m", "toy", "other", "models", "results", "run", "best", "charts", "logs", "inputs.json"),
    *("spec.yaml", "manifest.json", "result.json", "trials.jsonl", "check.json"),
    *("confirmation.jsonl", "rejected.jsonl", "report.md", "report.html", "proposal.patch"),
    *("n" * 255, "\u00e9" * 127, "\udcff.py", "\udcff", "a\nb", "\x1b[2J", "*", "-", "::error::"),
)
#: What is laid out, all of which is read.
_READ = (
    *("spec.yaml", "inputs.json", "models", "models/m", "models/m/config.pbtxt", "models/m/1"),
    *("models/m/1/model.py", "models/toy", "models/toy/config.pbtxt", "results", _RUN),
    *(f"{_RUN}/{name}" for name in ("manifest.json", "result.json")),
    *(f"{_RUN}/{name}" for name in ("trials.jsonl", "confirmation.jsonl")),
)
_KINDS: Mapping[str, Callable[[Path], Any]] = {
    "nothing": lambda _: None,
    "link to nothing": lambda path: path.symlink_to("me@host.1"),
    "loop": lambda path: path.symlink_to(path.name),
    "link to its directory": lambda path: path.symlink_to("."),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "empty": lambda path: path.write_bytes(b""),
    "long": lambda path: path.write_bytes(b"x = [1, 2]\n" * ((5 << 20) // 11)),
    "long line": lambda path: path.write_bytes(b"x" * (5 << 20)),
    "no text": lambda path: path.write_bytes(b"\xff\x00\n" * 9),
    # Root may enter nevertheless: setpriv --bounding-set -dac_override,-dac_read_search
    "closed": lambda path: _close(path, 0),
    "closed but for its names": lambda path: _close(path, 0o400),
}
_INIT = "init m --repository models --output out.yaml --force"
_APPLY = f"apply {_RUN} --repository models"
_COMMANDS = (
    *("lint models", "lint models --model m", "models models", "plan spec.yaml", "report"),
    *(_INIT, "init m --repository models --output -", "rollback toy --repository models"),
    *(f"report {_RUN}", f"report {_RUN} --format patch", f"compare {_RUN} {_RUN}"),
    *(_APPLY, f"{_APPLY} --dry-run", "doctor", "copy"),
)
_WHERE = st.sampled_from(_READ) | st.builds(
    lambda place, name: f"{place}/{name}", st.sampled_from(_PLACES), st.sampled_from(_NAMES)
)
_OUTPUTS = st.sampled_from((0, 0, 0, errno.ENOSPC, errno.EPIPE))
_ODD = st.lists(st.tuples(_WHERE, st.sampled_from(sorted(_KINDS))), min_size=1, max_size=4)
_SEEDS = (
    (_APPLY, 0, 0, [("results", "closed")]),
    (_INIT, 0, 0, [("models/m/1/x.py", "directory")]),
    ("plan spec.yaml", errno.ENOSPC, 0, []),
    ("plan spec.yaml", 0, 0, [("models/m/1/.#model.py", "link to nothing")]),
    (_APPLY, errno.EPIPE, errno.EPIPE, []),
    ("lint models", 0, 0, [("models/m/1/x.py", "pipe")]),
    ("plan spec.yaml", 0, 0, [("inputs.json", "pipe")]),
)


class _Output(io.StringIO):
    """What a command prints; or a stream that takes no more, and why."""

    def __init__(self, why: int) -> None:
        super().__init__()
        self._why = why

    def write(self, text: str, /) -> int:
        if self._why:
            raise OSError(self._why, os.strerror(self._why))
        return super().write(text)


@fuzzed(*(st.sampled_from(_COMMANDS), _OUTPUTS, _OUTPUTS, _ODD), also=_SEEDS, percent=25)
def test_a_command_ends_whatever_lies_where_it_reads(
    line: str, out: int, err: int, odd: list[tuple[str, str]]
) -> None:
    with place(longest_s=20) as here, suppress(TunerError):
        _lay_out(here)
        for where, kind in odd:
            with suppress(OSError):  # its place is no directory any more
                _make(here / where, kind, here)
        if line == "doctor":  # less the programs that it starts
            list(_directories(Path("models"), Path(f"{_RUN}/x")))
        elif line == "copy":  # what a run does before it starts a server
            faults_of(Path("models"), "m")
            with mirror_of(Path("models")):
                pass
        else:
            command(*line.split(), out=_Output(out), err=_Output(err))


def _lay_out(here: Path) -> None:
    lay_out(here / "models" / "m")
    lay_out(here / "models" / "toy", CONFIG.encode())
    (lay_out_run(here, finished()) / "best").mkdir()
    spec = (SEEDS / "spec" / "good").read_bytes()
    spec = spec.replace(b"kind: random, unique: 2000", b"kind: file, file: inputs.json")
    # Programs that `tune plan` does not start.
    (here / "spec.yaml").write_bytes(spec + b"server: {binary: /bin/false}\n")
    (here / "inputs.json").write_text('{"data": [{"x": [1, 2, 3, 4]}]}')


def _make(path: Path, kind: str, here: Path) -> None:
    """Nothing outside of ``here`` is changed, wherever a link that was made before leads."""
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(here)):
        return
    if not kind.startswith("closed") or path.is_symlink():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    _KINDS[kind](path)


def _close(path: Path, mode: int) -> None:
    if not os.path.lexists(path):
        path.mkdir()
    path.chmod(mode)
