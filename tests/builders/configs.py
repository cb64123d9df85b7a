"""The corpus of config files, and short ways to a message."""

from __future__ import annotations

from pathlib import Path

from tuner.modelconfig.encoding import decode
from tuner.modelconfig.message import parse

CASES = Path(__file__).parents[1] / "cases" / "pbtxt"
GOOD = sorted([*CASES.glob("good/*.pbtxt"), *CASES.glob("published/*.pbtxt")])
BAD = sorted(CASES.glob("bad/*.pbtxt"))

PYTHON = """
name: "m" backend: "python" max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


def read(path: Path) -> str:
    return decode(path.read_bytes())[0]


def case(name: str) -> str:
    return read(CASES / f"{name}.pbtxt")


def config(text: str = ""):
    """PYTHON with more fields behind it."""
    return parse(PYTHON + text)
