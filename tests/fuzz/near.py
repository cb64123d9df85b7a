"""What a reader of files is tried with: texts near to good ones, in a place of their own."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch

import pytest
from builders.runs import Toy, make_run
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tuner.cli import cli
from tuner.cli.boundary import guarded

ROOT = Path(__file__).parents[2]
SEEDS = Path(__file__).parent / "seeds"
CONFIG = (SEEDS / "config" / "good").read_bytes()
MODEL_PY = (ROOT / "model_repository" / "tokenizer" / "1" / "model.py").read_bytes()
#: A text grown beyond this says nothing that a smaller one does not.
LARGEST = 1 << 20
#: What gives way: a value, a number, a word, a line or a character.
_PIECES = [
    re.compile(piece + rb"|\Z", re.DOTALL)
    for piece in (
        rb'(?:(?<=: )|(?<=":))[^,\n\]}]+',
        *(rb"\b\d[\d.]*", rb'"?(?<![\w.-])[\w.-]+"?', rb"[^\n]*\n?", rb"."),
    )
]
_WORDS = (
    *rb"""0 -1 1e999 nan inf 0.1 1_0 +8 0x1p3 18446744073709551616 true null " ' \ } ] [ { , : # //
    < > /dev/zero ~nosuchuser/x ../../x ${X} ::error::""".split(),
    *(b"", b"\x00", b"\xff", b"\xef\xbb\xbf", "\u00a0".encode(), "\u202e".encode(), b"\x1b[2J"),
    *(b"\r", b"\t", b"\n\n", b": ", b"- 1"),
    *(b"9" * 30, b"9" * 5000, b"[" * 900, b"{" * 900, b"x" * 300),
)


@st.composite
def near(draw: st.DrawFn, seeds: Sequence[bytes], words: Sequence[bytes] = _WORDS) -> bytes:
    """One of the seeds after a change, or up to eight."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.sampled_from((1, 1, 1, 1, 2, 8)))):
        text = _changed(draw, text, words)
    return text


def _changed(draw: st.DrawFn, text: bytes, words: Sequence[bytes]) -> bytes:
    """Puts a word, itself many times over, or a piece from elsewhere in a piece's place."""
    piece = draw(st.sampled_from(_PIECES))
    places = st.integers(0, len(text)).map(lambda at: piece.search(text, at))
    old, other = (cast("re.Match[bytes]", draw(places)) for _ in range(2))
    put = st.sampled_from(_WORDS) | st.sampled_from(words) | st.binary(max_size=8)
    times = st.sampled_from((2, 30, 1000, 20_000))
    put |= st.just(other[0]) | times.map(lambda times: old[0][:200] * times)
    return (text[: old.start()] + draw(put) + text[old.end() :])[:LARGEST]


def seeds(target: str) -> list[bytes]:
    """Good texts for a target, and what has broken something once."""
    return [path.read_bytes() for path in sorted((SEEDS / target).glob("*")) if path.is_file()]


def cases(pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "tests" / "cases").glob(pattern))]


def fuzzed(
    *inputs: st.SearchStrategy[Any], also: Sequence[Any] = (), percent: int = 100
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Tries a test with inputs, ``percent`` of the profile's number, and with those in ``also``."""

    def tried(test: Callable[..., None]) -> Callable[..., None]:
        test = given(*inputs)(test)
        for one in also:
            test = example(*(one if isinstance(one, tuple) else (one,)))(test)
        test = settings(
            max_examples=percent * settings.default.max_examples // 100,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(test)
        # as an error it would hide what was seeds
        return pytest.mark.filterwarnings("ignore:Generating overly large repr")(test)

    return tried


@contextmanager
def place(longest_s: int = 5) -> Iterator[Path]:
    """An empty directory to be in, outside of which nothing appears, for so long on a processor."""
    harm = AssertionError("starts a process, or connects")
    with TemporaryDirectory() as top:
        inner = Path(top, "outer", "inner")
        inner.mkdir(parents=True)
        with (
            chdir(inner),
            _at_most(longest_s, signal.ITIMER_PROF, signal.SIGPROF),
            # Whoever waits for a pipe uses no processor.
            _at_most(60, signal.ITIMER_REAL, signal.SIGALRM),
            patch("subprocess.Popen", side_effect=harm),
            patch("socket.socket.connect", side_effect=harm),
        ):
            yield inner
        assert [*Path(top).iterdir(), *inner.parent.iterdir()] == [inner.parent, inner]


@contextmanager
def _at_most(seconds: int, timer: int, ended: signal.Signals) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"takes longer than {seconds} s")

    handler, before = signal.signal(ended, stop), signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, *before)
        signal.signal(ended, handler)


def lay_out(model: Path, config: bytes = CONFIG, code: bytes = MODEL_PY) -> None:
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_bytes(config)
    (model / "1" / "model.py").write_bytes(code)


@cache
def finished() -> Mapping[str, bytes]:
    """The files of a finished run, by name."""
    with TemporaryDirectory() as parent:
        return files_of(make_run(Path(parent), Toy(trials=5), "improved"))


def files_of(run: Path) -> Mapping[str, bytes]:
    kept = sorted(path for path in run.iterdir() if path.suffix in (".json", ".jsonl"))
    return {path.name: path.read_bytes() for path in kept}


def lay_out_run(here: Path, files: Mapping[str, bytes]) -> Path:
    run = here / "results" / "run"
    run.mkdir(parents=True)
    for name, content in files.items():
        (run / name).write_bytes(content)
    return run


def command(
    *arguments: str, out: io.StringIO | None = None, err: io.StringIO | None = None
) -> None:
    """`tune ARGUMENTS`; exit code 1 is for defects only."""
    out, err = out or io.StringIO(), err or io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = guarded(cli, arguments)
    assert code != 1, err.getvalue()[-4000:]
    assert "Traceback" not in err.getvalue()
