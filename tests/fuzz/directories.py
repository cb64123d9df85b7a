"""Odd things where a file or a directory is expected, and outputs that take no more."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.watch import BadBehaviourError
from hypothesis import strategies as st

#: Seconds on the clock: whoever waits for a pipe uses no processor time.
_HANGS_S = 60
_PLACES = (".", "models", "models/m", "models/m/1", "models/toy", "models/toy/1")
_PLACES += ("results", "results/run", "results/run/best")
_NAMES = (
    *("config.pbtxt", ".tune.journal", ".config.pbtxt.tune.tmp", "labels.txt"),
    *("1", "2", "01", "9" * 20, "model.py", ".#model.py", "x.py", "__pycache__", "model.onnx"),
    *("m", "toy", "other", "models", "results", "run", "best", "charts", "logs", "inputs.json"),
    *("spec.yaml", "manifest.json", "result.json", "trials.jsonl", "check.json"),
    *("confirmation.jsonl", "rejected.jsonl", "report.md", "report.html", "proposal.patch"),
    *("n" * 255, "\u00e9" * 127, "\udcff.py", "\udcff", "a\nb", "\x1b[2J", "*", "-", "::error::"),
)
#: What `_lay_out` puts there, all of which is read.
_LAID_OUT = (
    *((".", "spec.yaml"), (".", "inputs.json"), ("models", "m"), ("models", "toy")),
    *(("models/m", "config.pbtxt"), ("models/m", "1"), ("models/m/1", "model.py")),
    *(("models/toy", "config.pbtxt"), (".", "models"), (".", "results"), ("results", "run")),
    *(("results/run", f"{name}.json") for name in ("manifest", "result")),
    *(("results/run", f"{name}.jsonl") for name in ("trials", "confirmation")),
)
_MIB = 1 << 20
_KINDS: Mapping[str, Callable[[Path], Any]] = {
    "nothing": lambda _: None,
    "link to nothing": lambda path: path.symlink_to("me@host.1"),
    "loop": lambda path: path.symlink_to(path.name),
    "link to its directory": lambda path: path.symlink_to("."),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "empty": lambda path: path.write_bytes(b""),
    "long": lambda path: path.write_bytes(b"x = [1, 2]\n" * (5 * _MIB // 11)),
    "long line": lambda path: path.write_bytes(b"x" * (5 * _MIB)),
    "no text": lambda path: path.write_bytes(b"\xff\x00\n" * 9),
    # Root may enter nevertheless: setpriv --bounding-set -dac_override,-dac_read_search
    "closed": lambda path: _close(path, 0),
    "closed but for its names": lambda path: _close(path, 0o400),
}
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "lint": ("lint", "models"),
    "lint one": ("lint", "models", "--model", "m"),
    "models": ("models", "models"),
    "init": ("init", "m", "--repository", "models", "--output", "out.yaml", "--force"),
    "init to stdout": ("init", "m", "--repository", "models", "--output", "-"),
    "plan": ("plan", "spec.yaml"),
    "report": ("report", "results/run"),
    "patch": ("report", "results/run", "--format", "patch"),
    "list": ("report",),
    "compare": ("compare", "results/run", "results/run"),
    "dry run": ("apply", "results/run", "--repository", "models", "--dry-run"),
    "apply": ("apply", "results/run", "--repository", "models"),
    "rollback": ("rollback", "toy", "--repository", "models"),
    "doctor": (),
    "copy": (),
}
_OUTPUTS: Mapping[str, int] = {"": 0, "full": errno.ENOSPC, "closed": errno.EPIPE}
#: The programs of a spec are not started by `tune plan`.
_PROGRAMS = b"server: {binary: /bin/false}\n"


class _Output(io.StringIO):
    """What a command prints; or a stream that takes no more, and why."""

    def __init__(self, why: int) -> None:
        super().__init__()
        self._why = why

    def write(self, text: str, /) -> int:
        if self._why:
            raise OSError(self._why, os.strerror(self._why))
        return super().write(text)


def inputs() -> st.SearchStrategy[bytes]:
    """A command, what its outputs take, and what is odd: place, name and kind, as JSON."""
    where = st.sampled_from(_LAID_OUT) | st.tuples(*map(st.sampled_from, (_PLACES, _NAMES)))
    odd = st.lists(st.tuples(where, st.sampled_from(sorted(_KINDS))), min_size=1, max_size=4)
    outputs = st.sampled_from(("", "", *_OUTPUTS))
    drawn = st.tuples(st.sampled_from(sorted(_COMMANDS)), outputs, outputs, odd)
    return drawn.map(lambda tried: json.dumps(tried).encode())


def prepare(tried: bytes, directory: Path) -> None:
    """A repository, a spec and a run; then what is odd about them."""
    _warm()
    _lay_out(directory)
    for (place, name), kind in json.loads(tried)[3]:
        with suppress(OSError):  # its place is no directory any more
            _make(directory / place / name, kind, directory)


def run(tried: bytes, directory: Path) -> None:
    """Raises:
    BadBehaviourError: The command ended with a traceback, or not at all.
    """
    command, out, err, _odd = json.loads(tried)
    try:
        with chdir(directory), _no_longer_than(_HANGS_S):
            _run(command, _Output(_OUTPUTS[out]), _Output(_OUTPUTS[err]))
    finally:
        _open_up(directory)


def _run(command: str, out: _Output, err: _Output) -> None:
    from tuner.cli import cli
    from tuner.cli.boundary import guarded
    from tuner.lint.repository import errors_of
    from tuner.triton.doctor import _directories
    from tuner.triton.local import mirror_of

    if command == "doctor":  # less the programs that it starts
        list(_directories(Path("models"), Path("results/run/x")))
    elif command == "copy":  # what a run does before it starts a server
        errors_of(Path("models"), "m")
        with _temporary(Path("tmp")), mirror_of(Path("models")):
            pass
    else:
        with redirect_stdout(out), redirect_stderr(err):
            code = guarded(cli, _COMMANDS[command])
        if code == 1 or "Traceback" in err.getvalue():
            raise BadBehaviourError(f"tune {command}: exit {code}\n{err.getvalue()[-4000:]}")


@cache
def _warm() -> None:
    """What is imported takes seconds, once."""
    with tempfile.TemporaryDirectory() as place:
        _lay_out(Path(place))
        for command in _COMMANDS:
            with chdir(place):
                _run(command, _Output(0), _Output(0))


def _lay_out(directory: Path) -> None:
    from builders.runs import CONFIG
    from fuzz import targets

    for name, config in (("m", targets.CONFIG), ("toy", CONFIG.encode())):
        targets._lay_out(directory / "models" / name, config)
    run = directory / "results" / "run"
    (run / "best").mkdir(parents=True)
    (directory / "tmp").mkdir()
    for name, content in targets._run_folder().items():
        (run / name).write_bytes(content)
    text = targets.SPEC.replace(b"kind: random, unique: 2000", b"kind: file, file: inputs.json")
    (directory / "spec.yaml").write_bytes(text + _PROGRAMS)
    (directory / "inputs.json").write_text('{"data": [{"x": [1, 2, 3, 4]}]}')


def _make(path: Path, kind: str, directory: Path) -> None:
    """Nothing outside of ``directory`` is changed, wherever a link that was made before leads."""
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(directory)):
        return
    closes = kind.startswith("closed") and not path.is_symlink()
    if path.is_dir() and not path.is_symlink():
        if not closes:
            shutil.rmtree(path)
    elif not closes:
        path.unlink(missing_ok=True)
    _KINDS[kind](path)


def _close(path: Path, mode: int) -> None:
    if not os.path.lexists(path):
        path.mkdir()
    if not path.is_symlink():  # a mode is that of what the link leads to
        path.chmod(mode)


def _open_up(directory: Path) -> None:
    """What was closed can be removed again."""
    for place, directories, _ in os.walk(directory):
        for name in directories:
            if not (path := Path(place, name)).is_symlink():
                path.chmod(0o700)


@contextmanager
def _temporary(directory: Path) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(directory.absolute())
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise BadBehaviourError(f"waits for longer than {seconds} s")

    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
