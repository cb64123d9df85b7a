"""The profile export: when each request was sent and answered.

It holds every request's tensors too and may be large, so it is not parsed: the file is mapped
and searched for the time stamps. Quotes inside strings are escaped in JSON, so the patterns
cannot match within a tensor's contents.
"""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError

_SENT = re.compile(rb'\{"timestamp":(\d+),"')
_ANSWERED = re.compile(rb'"response_timestamps":\[([\d,]+)\]')
_BOUNDARIES = re.compile(rb'"window_boundaries":\[([\d,]+)\]')
_END = re.compile(rb'\],"version":"[^"]*"[^\[\]{}]*\}\s*$')
_TAIL_BYTES = 512


@dataclass(frozen=True)
class Requests:
    """Every request that was answered during a run, in the order of sending.

    Attributes:
        answered_ns: When its last response came.
        end_ns: End of the run: what was answered later is not known.
    """

    sent_ns: npt.NDArray[np.int64]
    answered_ns: npt.NDArray[np.int64]
    end_ns: int


def is_complete(path: Path) -> bool:
    """Whether perf_analyzer has finished writing the file."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return _END.search(file.read()) is not None
    except FileNotFoundError:
        return False


def read(path: Path) -> Requests:
    """Reads the time stamps.

    Raises:
        LoadFailedError: There are none, or not in pairs.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            # Texts first: a match, also one in a traceback, keeps the map from being closed.
            sent_texts = [m[1] for m in _SENT.finditer(data)]
            answer_texts = [m[1].rpartition(b",")[2] for m in _ANSWERED.finditer(data)]
            boundary_texts = [n for m in _BOUNDARIES.finditer(data) for n in m[1].split(b",")]
        sent = np.array([int(n) for n in sent_texts], dtype=np.int64)
        answered = np.array([int(n) for n in answer_texts], dtype=np.int64)
        boundaries = [int(n) for n in boundary_texts]
    except OSError as error:
        raise LoadFailedError("perf_analyzer wrote no export") from error
    except (ValueError, OverflowError) as error:  # empty, or a time stamp that is none
        raise LoadFailedError(f"perf_analyzer's export cannot be read: {error}") from error
    if sent.size == 0 or sent.size != answered.size or not boundaries:
        raise LoadFailedError(
            f"perf_analyzer's export cannot be read: {sent.size} requests, {answered.size} "
            f"answers, {len(boundaries)} window boundaries"
        )
    order = np.argsort(sent, kind="stable")
    return Requests(sent[order], answered[order], max(boundaries))
