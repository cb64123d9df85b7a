"""Files of checks: `check.json`, the last accepted result, and the history of later checks.

Readers of `check.json` must ignore unknown keys: version 1 may gain keys.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from tuner.errors import SpecError
from tuner.facts import Facts, is_empty, is_none
from tuner.machine.cpus import Cores
from tuner.reason import Fact, Reason, ReasonKind
from tuner.record.confirmation import Soak
from tuner.record.earlier import result_of_earlier
from tuner.record.identity import mix_in
from tuner.record.manifest import Manifest
from tuner.record.proved import ProvedConfig
from tuner.record.reading import UnreadableFileError, read_as, read_bytes, read_json
from tuner.record.responses import ResponseFacts
from tuner.record.result_schema import Count, NotNegative, ResultPart, Sha256, published
from tuner.record.shapes import ShapeFacts
from tuner.record.status import CheckStatus
from tuner.record.store import RunStore, find_newest
from tuner.score.judge import SloResult
from tuner.score.ratio import Ratio
from tuner.spec.model import Spec
from tuner.spec.server import given_check
from tuner.writing import explained, open_run_file, write_json

DIRECTORY, HISTORY = "baselines", ".history.jsonl"
#: `check.json` in the directory of a check.
CHECK = "check.json"
SCHEMA_VERSION: Final = 1

#: Server settings that may change a capacity and are not in the machine's fingerprint.
_SERVER = ("mode", "image", "args", "environment", "gpus")


def question_of(spec: Spec) -> dict[str, str]:
    """A hash for each part of the spec that a result depends on; files count by their content."""
    plain = spec.plain("python")
    workload = {k: v for k, v in plain["workload"].items() if k != "perf_analyzer"}
    parts: dict[str, Any] = {
        "workload": workload,
        "slo": [str(slo) for slo in spec.slos],
        "objective": str(spec.objective),
        "server": {name: plain["server"][name] for name in _SERVER},
    }
    if check := given_check(spec.server.environment):  # the spec hides the values themselves
        parts["server"] |= {"environment_check": check}
    if mix := mix_in(plain):
        parts["mix"] = mix
    return {name: _hash(part) for name, part in parts.items()}


@dataclass(frozen=True)
class Key:
    """What results must have in common to be compared: machine, version and `question_of`."""

    model: str
    machine: str
    perf_analyzer: str
    question: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        return _hash([self.machine, self.perf_analyzer, dict(self.question)])


@dataclass(frozen=True)
class Baseline(Facts):
    """An accepted result, and later checks of the same config.

    Attributes:
        machine: The machine in words.
        compared: The quantity in ``values``: capacity, throughput, or the minimized metric.
        values: One per round, in inferences per second or the metric's base unit.
        level: The load at which every SLO was met in every round.
        expected: The load at which a round starts its search for the capacity.
        arrivals: Seed of the first round's arrivals; each later round takes the next seed. Rounds
            under the same arrivals are compared as pairs.
        client: The load generator that measured, see `tuner.record.manifest.comparable`.
        credited: The load that the config was credited with; None: unknown.
        cores: The CPUs of server and load generator; None: unknown.
        later: Ratio of a later check to this result, by day; only checks without a change.
    """

    key: Key
    run_id: str
    accepted_at: str
    machine: str
    config_sha256: str
    compared: str
    values: tuple[float, ...]
    level: float
    expected: float
    arrivals: int
    client: str | None = None
    credited: float | None = None
    later: Mapping[str, Annotated[float, Field(gt=0)]] = field(default_factory=dict)
    cores: Annotated[Cores | None, Field(exclude_if=is_none)] = None
    schema_version: Literal[1] = SCHEMA_VERSION

    @property
    def ratios(self) -> tuple[float, ...]:
        """The result of each night divided by the first night's."""
        return (1.0, *self.later.values())


def baseline_path(results: Path, key: Key) -> Path:
    return results / DIRECTORY / f"{key.model}-{key.fingerprint}.json"


def write_baseline(results: Path, baseline: Baseline) -> Path:
    path = baseline_path(results, baseline.key)
    _make_directory(path.parent)
    write_json(path, baseline.to_json())
    return path


def find_baseline(results: Path, key: Key, *, any_machine: bool = False) -> Baseline | Reason:
    """The accepted result for this machine and spec, or the reason why there is none.

    Args:
        any_machine: Take the newest result of another machine if this machine has none.

    Raises:
        UnreadableFileError: There is a result, but the file cannot be read.
    """
    path = baseline_path(results, key)
    if os.path.lexists(path):
        return _read(path)
    pattern = f"{glob.escape(key.model)}-{'[0-9a-f]' * 16}.json"
    others = [_read(p) for p in sorted((results / DIRECTORY).glob(pattern))]
    newest = sorted((b for b in others if b.key.model == key.model), key=lambda b: b.accepted_at)
    elsewhere = [b for b in newest if b.key.question == key.question]
    if elsewhere and any_machine:
        return elsewhere[-1]
    if not newest:
        return Reason(ReasonKind.NO_ACCEPTED_RESULT)
    other = (elsewhere or newest)[-1]
    facts: dict[str, Fact] = {"accepted_on": other.accepted_at[:10]}
    if elsewhere:
        what = "machine" if other.key.machine != key.machine else "perf_analyzer"
        facts |= {"what": what, "machine": other.machine}
        return Reason(ReasonKind.ACCEPTED_ELSEWHERE, facts=facts)
    changed = [n for n, value in key.question.items() if other.key.question.get(n) != value]
    facts["changed"] = " and ".join(filter(None, [", ".join(changed[:-1]), *changed[-1:]]))
    return Reason(ReasonKind.ACCEPTED_OTHERWISE, facts=facts)


def append_history(results: Path, key: Key, row: HistoryRow) -> None:
    """Appends one line with a single write, so that lines of two checks never mix.

    Raises:
        EnvironmentNotReadyError: The file cannot be written.
    """
    path = baseline_path(results, key).with_suffix(HISTORY)
    _make_directory(path.parent)
    line = row.model_dump_json() + "\n"
    with open_run_file(path) as file, explained(path):
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        torn = file.read(1) not in (b"", b"\n")  # a kill cut the last write short
        file.write(("\n" * torn + line).encode())
        file.flush()
        os.fsync(file.fileno())


def _make_directory(baselines: Path) -> None:
    """Makes the directory; keeps a link to one, since baselines often lie outside a checkout."""
    with explained(baselines):
        baselines.mkdir(parents=True, exist_ok=True)


def history(results: Path, key: Key, last: int) -> list[HistoryRow]:
    """The last checks, oldest first; skips incomplete lines and lines that tune did not write.

    Raises:
        UnreadableFileError: It is not a regular file.
    """
    rows = []
    for line in (read_bytes(baseline_path(results, key).with_suffix(HISTORY)) or b"").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            rows.append(HistoryRow.model_validate_json(line))
    return rows[-last:]


def _read(path: Path) -> Baseline:
    try:
        data = read_json(path, dict) or {}
        return read_as(str(path), data, Baseline.from_json)
    except UnreadableFileError as error:
        next_step = "remove it, then accept a new one with `tune check --update-baseline`"
        raise UnreadableFileError(error.message, next_step) from error


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """A value that JSON cannot represent: of a file, the hash of its content, not its path."""
    if isinstance(value, Path):
        return hashlib.sha256(value.read_bytes()).hexdigest() if value.is_file() else value.name
    return value.value if isinstance(value, Enum) else str(value)


def credited_level(results: Path, now: Manifest) -> float | None:
    """The load that a run credited the current config with; None without such a run."""
    config = credited_config(results, now)
    return None if config is None or config.soak is None else config.soak.credited_level


def credited_config(results: Path, now: Manifest) -> ProvedConfig | None:
    """The current config with its proof, from the newest run of this question and machine."""
    in_place = {served.sha256 for served in now.models.values()}
    wanted = (now.fingerprint, now.identity.question)

    def credited(store: RunStore) -> ProvedConfig | None:
        then, result = store.manifest(), store.result()
        if result is None:
            return None
        config, there = result.baseline, then.config_sha256 == now.config_sha256
        if result.written is not None:
            there = {written.sha256_after for written in result.written.files} <= in_place
            config = result.winner
        there = there and (then.fingerprint, then.identity.question) == wanted
        return config if there and config and config.soak else None

    return find_newest(results, now.name, credited)


def mean_of(values: Sequence[float]) -> float | None:
    """The geometric mean; None without values, or with a value of 0."""
    return geometric_mean(values) if values and min(values) > 0.0 else None


class SloRounds(ResultPart):
    """One SLO at the load that the config must sustain: the worst round, and all rounds."""

    worst: SloResult
    values: list[float | None] = Field(description="one per round, in the base unit")


class HistoryRow(ResultPart):
    """One earlier check with the same spec on the same machine; this check comes last."""

    run_id: str
    checked_at: str
    status: CheckStatus
    value: float | None = Field(description="geometric mean of the rounds")
    ratio: Ratio | None
    config_sha256: str


class CheckFigures(ResultPart):
    """Results of a check's rounds and of its soak; empty by default."""

    rounds: Count = 0
    load: str | None = Field(
        None, description="the load that the config had to sustain, in words; null: none"
    )
    level: float | None = Field(
        None, description="highest load at which every SLO was met in every round; null: none"
    )
    compared: str = Field(
        "nothing", description="the quantity in values: capacity, throughput, or a metric"
    )
    values: list[float] = Field([], description="one per round: infer/s, or the metric's base unit")
    slo: list[SloRounds] = Field([])
    shapes: list[ShapeFacts] = Field(
        [],
        description="figures by shape, from the round with the highest p99",
        exclude_if=is_empty,
    )
    responses: list[ResponseFacts] = Field(
        [],
        description="figures of decoupled models, from the round with the highest p99",
        exclude_if=is_empty,
    )
    ratio: Ratio | None = Field(
        None, description="this result over the accepted one, above 1 is better; null: not compared"
    )
    nights: Count = Field(
        0, description="nights that the accepted result rests on; 0: not compared"
    )
    credited: Soak | None = Field(None, description="soak of the credited load; null: none")


class CheckFacts(CheckFigures):
    """The result of `tune check`. Readers ignore unknown keys."""

    schema_version: Literal[1]
    kind: Literal["check"]
    run_id: str
    model: str
    checked_at: str
    status: CheckStatus
    exit_code: int
    reasons: list[str] = Field(description="why the check ended so, one sentence each")
    why: list[Reason] = Field([], description="the reasons as data: a kind, its facts, its causes")
    spec_path: str
    options: list[str] = Field(
        [],
        description="options with which `tune check` asks the same question again",
        exclude_if=lambda options: not options,
    )
    spec_sha256: Sha256
    config_sha256: Sha256
    fingerprint: str = Field(description="of what may be compared; part of the baseline's name")
    machine: str = Field(description="in words")
    objective: str
    warn: float = Field(description="loss above which it is reported, as a share")
    fail: float = Field(description="loss above which it is a regression, as a share")
    confidence: float = Field(gt=0, lt=1, description="of the interval")
    baseline: Baseline | None = Field(
        description="the accepted result; with --any-machine perhaps another machine's; null: none"
    )
    accepted: str | None = Field(description="path of the baseline that this result was written to")
    history: list[HistoryRow] = Field(description="the last checks, oldest first")
    seconds: NotNegative

    @property
    def row(self) -> HistoryRow:
        """The check as a row of the history."""
        return HistoryRow.model_validate({**dict(self), "value": mean_of(self.values)})

    def to_json(self) -> dict[str, Any]:
        """The content of `check.json`."""
        return self.model_dump(mode="json", by_alias=True)


def read_check(directory: Path) -> CheckFacts:
    """The `check.json` in a check's directory.

    Raises:
        SpecError: There is no such file.
        UnreadableFileError: The file cannot be read.
    """
    path = directory / CHECK
    data = read_json(path, dict)
    if data is None:
        raise SpecError(
            f"{directory} is not a check: it has no {CHECK}",
            "name a directory that `tune check` made, below results/",
        )
    return read_as(str(path), result_of_earlier(data), CheckFacts.model_validate)


def json_schema() -> dict[str, Any]:
    """The published JSON Schema, kept in docs/schemas/check.schema.json."""
    return published(CheckFacts, "check.json")
