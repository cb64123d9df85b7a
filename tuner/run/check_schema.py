"""`check.json`, version 1, as models: published as a JSON Schema, read here.

Readers must ignore keys they do not know, so that keys may be added within version 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tuner.errors import SpecError
from tuner.run.baseline import CHECK
from tuner.run.confirmation import Soak
from tuner.run.reading import read_as, read_json
from tuner.run.result_schema import Count, NotNegative, Part, Sha256
from tuner.run.status import CheckStatus
from tuner.score.judge import SloResult
from tuner.score.ratio import Ratio


class SloRounds(Part):
    """One SLO at the load that must be sustained: the worst of the rounds, and each."""

    worst: SloResult
    values: list[float | None] = Field(description="one per round, in the base unit")


class Then(Part):
    """The accepted result that this one was compared with."""

    run_id: str
    accepted_at: str
    machine: str = Field(description="in words")
    same_machine: bool = Field(description="false only with --any-machine")
    config_sha256: str
    values: list[float] = Field(description="one per round, like those of this check")
    level: float = Field(description="load at which every SLO was met in every round")


class HistoryRow(Part):
    """One earlier check of the same question on the same machine; this one comes last."""

    run_id: str
    checked_at: str
    status: CheckStatus
    value: float | None = Field(description="geometric mean of the rounds")
    ratio: Ratio | None
    config_sha256: str


class CheckFacts(Part):
    """What `tune check` found. Readers ignore keys they do not know."""

    schema_version: Literal[1]
    kind: Literal["check"]
    run_id: str
    model: str
    checked_at: str
    status: CheckStatus
    exit_code: int
    reasons: list[str] = Field(description="why, one sentence each")
    spec_path: str
    spec_sha256: Sha256
    config_sha256: Sha256
    fingerprint: str = Field(description="of what may be compared; in the baseline's file name")
    machine: str = Field(description="in words")
    objective: str
    rounds: Count
    load: str | None = Field(description="that had to be sustained, in words; null: not measured")
    level: float | None = Field(
        description="highest load at which every SLO was met in every round; null: none"
    )
    compared: str = Field(description="what values are: capacity, throughput, or a metric")
    values: list[float] = Field(description="one per round: infer/s, or the metric's base unit")
    slo: list[SloRounds]
    warn: float = Field(description="loss above which it is reported, as a share")
    fail: float = Field(description="loss above which it is a regression, as a share")
    ratio: Ratio | None = Field(
        description="now over the accepted result, above 1 is better; null: not compared"
    )
    nights: Count = Field(0, description="behind the accepted result; 0: not compared")
    credited: Soak | None = Field(None, description="of the load it is credited with; null: none")
    confidence: float = Field(gt=0, lt=1, description="of the interval")
    baseline: Then | None = Field(description="null: not compared, see reasons")
    accepted: str | None = Field(description="file this result was accepted into")
    history: list[HistoryRow] = Field(description="the last checks, oldest first")
    seconds: NotNegative

    def to_json(self) -> dict[str, Any]:
        """The content of `check.json`."""
        return self.model_dump(mode="json", by_alias=True)


def read_check(directory: Path) -> CheckFacts:
    """The `check.json` of a check's directory.

    Raises:
        SpecError: There is none.
        UnreadableFileError: It cannot be read.
    """
    path = directory / CHECK
    data = read_json(path, dict)
    if data is None:
        raise SpecError(f"{directory} is not a check: it has no {CHECK}")
    return read_as(str(path), data, CheckFacts.model_validate)


def json_schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12), kept in docs/schemas/check.schema.json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **CheckFacts.model_json_schema(by_alias=True),
        "title": "check.json of triton-tune, version 1",
    }
