"""What is to be written, and over what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.encoding import UTF_8, encode
from tuner.modelconfig.files import CONFIG_NAME
from tuner.modelconfig.message import Mistake, try_parse
from tuner.run.manifest import Manifest
from tuner.writeback.files import sha256_of_bytes
from tuner.writeback.target import is_config_of


def sha256_of(text: str, encoding: str = UTF_8) -> str:
    """SHA-256 of a config's text as it lies on disk, in hex."""
    return sha256_of_bytes(encode(text, encoding))


@dataclass(frozen=True)
class WritePlan:
    """One replacement of one config.pbtxt.

    Attributes:
        model: The model's name.
        path: The config.pbtxt to replace; it may be a symbolic link.
        sha256_before: Of the file the run read; ``None`` when there was none (auto-complete).
        text_before: That file's text; ``None`` when there was none.
        text_after: The winner's text.
        server_args: Server arguments the winner needs; they cannot be written to the file.
        run_id: The run that found it.
        encoding: Of both texts in the file, as `tuner.modelconfig.encoding` tells them apart.
    """

    model: str
    path: Path
    sha256_before: str | None
    text_before: str | None
    text_after: str
    server_args: tuple[str, ...]
    run_id: str
    encoding: str = UTF_8

    @property
    def content_after(self) -> bytes:
        """What the file will hold."""
        return encode(self.text_after, self.encoding)

    @property
    def sha256_after(self) -> str:
        return sha256_of_bytes(self.content_after)

    def diff(self, found: str | None = None) -> str:
        """The change as a unified diff; empty when there is none.

        Args:
            found: The text it is a change of; what the run read, where it is not given.
        """
        before = (self.text_before or "") if found is None else found
        return unified_diff(before, self.text_after, f"{self.model}/{CONFIG_NAME}")


def plan_from_run(
    manifest: Manifest, result: Mapping[str, Any], path: Path | None = None
) -> WritePlan:
    """The plan to write a run's winner.

    Args:
        manifest: The run's manifest; says which file the run read.
        result: The run's `result.json`; its ``config_after`` is written.
        path: Another config.pbtxt than the one the run read, e.g. of a repository that moved.

    Raises:
        SpecError: The run has no config to write, or contradicts itself.
    """
    text_after = result.get("config_after")
    if not isinstance(text_after, str) or result.get("winner") is None:
        raise SpecError(
            f"run {manifest.run_id} has no config to write: it ended as {result.get('status')}",
            "its report says why; only a run with a winner can be applied",
        )
    config = manifest.models[""]
    path = path or Path(config.path)
    if wrong := next(_mistakes(manifest, result, path, text_after), None):
        raise SpecError(
            f"run {manifest.run_id} cannot be applied: {wrong}",
            "it was edited, or damaged: apply it as its tune left it, or run `tune run` again",
        )
    return WritePlan(
        model=config.name,
        path=path,
        sha256_before=config.sha256,
        text_before=None if config.sha256 is None else config.text,
        text_after=text_after,
        server_args=tuple(result.get("server_args") or ()),
        run_id=manifest.run_id,
        encoding=config.encoding,
    )


def _mistakes(
    manifest: Manifest, result: Mapping[str, Any], path: Path, text_after: str
) -> Iterator[str]:
    """Where a run contradicts itself; somebody else may have made it, to have a file written."""
    config = manifest.models[""]
    if not is_config_of(path, config.name):
        yield f"{path} is not the {CONFIG_NAME} of a model {config.name!r}"
    if result.get("model", manifest.name) != manifest.name:
        yield f"its result is about the model {result['model']!r}, not {manifest.name!r}"
    texts = {"the config it read": config.text, "its winner's config": text_after}
    for what, text in texts.items():
        if (mistake := _mistake(text, config.encoding)) is not None:
            yield f"{what} is none: {mistake}"
    stated = {
        "the config it read": (config.text, config.sha256),
        "its winner's config": (text_after, (result.get("written") or {}).get("sha256_after")),
    }
    for what, (text, sha256) in stated.items():
        if sha256 is not None and sha256_of(text, config.encoding) != sha256:
            yield f"{what} is not the one whose hash it states"
    if config.sha256 is None and config.text:
        yield "it holds the text of a config that it says was not there"


def _mistake(text: str, encoding: str) -> str | None:
    """Why it is no config."""
    try:
        encode(text, encoding)
    except SpecError as error:
        return error.message
    except UnicodeEncodeError:
        return "it is no Unicode text"
    config = try_parse(text)
    return f"line {config.line}: {config.message}" if isinstance(config, Mistake) else None
