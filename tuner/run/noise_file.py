"""Where `tune doctor --noise` keeps what it measured: one file a machine and model.

Beside the runs, so that whoever copies or cleans the results has it too; outside any run, so that
the runs that come later find it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.run.store import write_json

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
        data = json.loads(noise_path(results, fingerprint, model).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and "measured_at" in data else None
