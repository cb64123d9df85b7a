"""tune: finds, proves and writes the Triton config that meets your latency SLOs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.version import VERSION

if TYPE_CHECKING:  # `import tuner` stays light
    from tuner.report.frames import RunFrames
    from tuner.starting import start_run

    __all__ = ["read_run", "start_run"]

__version__ = VERSION


def read_run(path: Path | str) -> RunFrames:
    """A run's directory as pandas DataFrames, see docs/results.md.

    Raises:
        SpecError: The directory holds no run, or one of another version; `UnreadableFileError`
            where a file of it is not what tune writes.
    """
    from tuner.report import frames

    return frames.read_run(Path(path))


if not TYPE_CHECKING:  # which would take any name for one of the package

    def __getattr__(name: str) -> object:
        if name == "start_run":
            from tuner.starting import start_run

            return start_run
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
