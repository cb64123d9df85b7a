"""The least that a run's manifest may say."""

from __future__ import annotations

from tuner.run.manifest import KeptConfig, Manifest
from tuner.space.candidate import Candidate


def a_manifest(**changes: object) -> Manifest:
    facts: dict[str, object] = {
        "run_id": "r",
        "created_at": "now",
        "spec_path": "s.yaml",
        "spec_text": "model: m",
        "spec_sha256": "1",
        "spec": {"model": "m"},
        "name": "m",
        "seed": 0,
        "models": {"": KeptConfig("m", "m/config.pbtxt", "", None)},
        "versions": {"tune": "0"},
        "host": {"cpu": "x"},
        "gpus": [],
        "fingerprint": "f",
        "current": Candidate.of_models({"": {}}),
        "arrivals": 1,
        "streams": {"": ""},
    }
    return Manifest(**{**facts, **changes})  # type: ignore[arg-type]
