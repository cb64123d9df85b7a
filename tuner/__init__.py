"""tune: finds, proves and writes the Triton config that meets your latency SLOs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `import tuner` stays light
    from tuner.report.frames import RunFrames

__version__ = "0.1.0"


def read_run(path: Path | str) -> RunFrames:
    """A run's directory as pandas DataFrames, see docs/results.md.

    Raises:
        SpecError: The directory holds no run, or one of another version; `UnreadableFileError`
            where a file of it is not what tune writes.
    """
    from tuner.report import frames

    return frames.read_run(Path(path))
