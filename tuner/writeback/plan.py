"""What is to be written, and over what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.diff import unified_diff
from tuner.run.manifest import Manifest
from tuner.writeback.files import sha256_of_bytes


def sha256_of(text: str) -> str:
    """SHA-256 of a config's text as it lies on disk (UTF-8), in hex."""
    return sha256_of_bytes(text.encode("utf-8"))


@dataclass(frozen=True)
class WritePlan:
    """One replacement of one config.pbtxt, fit to be stored and carried out later.

    Attributes:
        model: The model's name.
        path: The config.pbtxt to replace; it may be a symbolic link.
        sha256_before: Of the file the run read; ``None`` when there was none (auto-complete).
        text_before: That file's text; ``None`` when there was none.
        text_after: The winner's text.
        server_args: Server arguments the winner needs; they cannot be written to the file.
        run_id: The run that found it.
    """

    model: str
    path: Path
    sha256_before: str | None
    text_before: str | None
    text_after: str
    server_args: tuple[str, ...]
    run_id: str

    @property
    def sha256_after(self) -> str:
        return sha256_of(self.text_after)

    def diff(self) -> str:
        """The change as a unified diff; empty when there is none."""
        name = f"{self.model}/config.pbtxt"
        return unified_diff(self.text_before or "", self.text_after, name)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path), "server_args": list(self.server_args)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WritePlan:
        values = dict(data)
        return cls(
            **{
                **values,
                "path": Path(values["path"]),
                "server_args": tuple(values["server_args"]),
            }
        )


def plan_from_run(
    manifest: Manifest, result: Mapping[str, Any], path: Path | None = None
) -> WritePlan:
    """The plan to write a run's winner.

    Args:
        manifest: The run's manifest; says which file the run read.
        result: The run's `result.json`; its ``config_after`` is written.
        path: Another config.pbtxt than the one the run read, e.g. of a repository that moved.

    Raises:
        SpecError: The run has no config to write.
    """
    text_after = result.get("config_after")
    if not isinstance(text_after, str) or result.get("winner") is None:
        raise SpecError(
            f"run {manifest.run_id} has no config to write: it ended as {result.get('status')}",
            "its report says why; only a run with a winner can be applied",
        )
    return WritePlan(
        model=manifest.model,
        path=path or Path(manifest.config_path),
        sha256_before=manifest.config_sha256,
        text_before=None if manifest.config_sha256 is None else manifest.config_text,
        text_after=text_after,
        server_args=tuple(result.get("server_args") or ()),
        run_id=manifest.run_id,
    )
