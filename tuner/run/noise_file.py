"""Where `tune doctor --noise` keeps what it measured: one file per machine and model.

The file is next to the runs, so that it is copied and cleaned with them, and outside any run, so
that later runs find it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.run.reading import UnreadableFileError, read_json
from tuner.run.writing import write_json

DIRECTORY = "noise"


def noise_path(results: Path, fingerprint: str, model: str) -> Path:
    return results / DIRECTORY / f"{fingerprint}-{model}.json"


def write_noise(results: Path, noise: Mapping[str, Any]) -> Path:
    """Replaces what was measured before on the same machine with the same model."""
    path = noise_path(results, noise["fingerprint"], noise["model"])
    write_json(path, noise)
    return path


def read_noise(results: Path, fingerprint: str, model: str) -> dict[str, Any] | None:
    """None when it was never measured; a file that is not ours to read counts as none."""
    try:
        data = read_json(noise_path(results, fingerprint, model), dict)
    except UnreadableFileError:
        return None
    return data if data and is_noise(data) else None


def is_noise(data: Mapping[str, Any]) -> bool:
    """It has what runs and reports need: date, model, spread of the capacity, advice."""
    names = ("capacity", "advice", "p99_between", "comparison")
    capacity, advice, p99, comparison = (data.get(name, {}) for name in names)
    if not all(isinstance(p, dict) for p in (capacity, advice, p99, comparison)) or not capacity:
        return False
    reasons = advice.get("reasons", [])
    return (
        all(isinstance(data.get(name), str) for name in ("measured_at", "model"))
        and isinstance(capacity.get("cv", ""), int | float | None)
        and all(isinstance(part.get("cv"), int | float | None) for part in (p99, comparison))
        and isinstance(reasons, list)
        and all(isinstance(reason, str) for reason in reasons)
    )
