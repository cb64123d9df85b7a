"""tune: finds, proves and writes the Triton config that meets your latency SLOs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.version import VERSION

if TYPE_CHECKING:  # `import tuner` stays light
    from tuner.report.frames import RunFrames
    from tuner.starting import StartedRun

__version__ = VERSION


def read_run(path: Path | str) -> RunFrames:
    """A run's directory as pandas DataFrames, see docs/results.md.

    Raises:
        SpecError: The directory holds no run, or one of another version; `UnreadableFileError`
            where a file of it is not what tune writes.
    """
    from tuner.report import frames

    return frames.read_run(Path(path))


def start_run(
    spec: Path | str,
    *,
    output: Path | str = "results",
    trials: int | None = None,
    time_budget_s: float | None = None,
    seed: int | None = None,
    write: bool = True,
    overrides: Sequence[str] = (),
    resume: Path | str | None = None,
) -> StartedRun:
    """Starts what `tune run SPEC` does, in a thread; iterate over it for its events.

    Needs the extra `run`, and `local` for a server on this machine. See docs/python.md.

    Args:
        spec: File of the spec.
        output: Directory that runs are stored in.
        trials: Most configs to measure; None: as the spec says.
        time_budget_s: Most seconds of the search.
        seed: Of the search.
        write: Write a winner that proved better into the model repository.
        overrides: Values of the spec, such as ``budget.trials=3``.
        resume: Directory of an interrupted run to go on with.
    """
    from tuner import starting

    return starting.start_run(
        spec,
        output=output,
        trials=trials,
        time_budget_s=time_budget_s,
        seed=seed,
        write=write,
        overrides=overrides,
        resume=resume,
    )
