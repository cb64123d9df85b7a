"""The load that a config was credited with by the run that wrote or kept it."""

from __future__ import annotations

from glob import escape
from pathlib import Path

from tuner.errors import TunerError
from tuner.run.manifest import Manifest
from tuner.run.result_schema import Result
from tuner.run.store import RunStore


def credited_level(results: Path, now: Manifest) -> float | None:
    """By the newest run that asked the same on this machine and credited the config in place.

    Runs that cannot be read are passed over.
    """
    in_place = {served.sha256 for served in now.models.values()}
    asked = (now.fingerprint, now.identity.question)
    for directory in sorted(results.glob(f"*-{escape(now.name)}-*"), reverse=True):
        try:
            store = RunStore.open(directory)
            then, result = store.manifest(), Result.from_json(store.result())
        except (TunerError, OSError, LookupError, TypeError, ValueError):
            continue  # a check, or damaged
        config, there = result.baseline, then.config_sha256 == now.config_sha256
        if result.written is not None:
            there = {written.sha256_after for written in result.written.files} <= in_place
            config = result.winner
        if there and (then.fingerprint, then.identity.question) == asked and config and config.soak:
            return config.soak.credited_level
    return None
