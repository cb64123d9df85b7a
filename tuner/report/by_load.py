"""The best config for each part of the load that a run proved, from its measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.reason import ReasonKind
from tuner.record.status import Status
from tuner.report import sentence
from tuner.report.blocks import Table
from tuner.report.data import ReportData
from tuner.report.quantities import NOTHING, latency_text, load_text
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.server.memory import MACHINE, is_of_gpu
from tuner.space.candidate import Candidate
from tuner.spec.units import bytes_text

#: Parts of the proved load that get a config.
SHARES = (0.2, 0.5, 1.0)
#: Two configs whose memory differs by less than this share count as equal.
ALIKE = 0.05


@dataclass(frozen=True)
class LoadConfig:
    """A config for a part of the proved load.

    Attributes:
        share: Share of the proved load, 0..1.
        level: The load, in requests per second or clients.
        point: Its measurement at the lowest load that is at least ``level`` and met every SLO.
        memory_bytes: Memory of its models, on the fullest GPU, or else of the machine; None if
            unknown.
    """

    share: float
    level: float
    candidate: Candidate
    point: Point
    memory_bytes: int | None = None

    @property
    def name(self) -> str:
        """Name of the config's file in `configs/`."""
        return f"load-{self.share * 100:.0f}"


def by_load(data: ReportData) -> list[LoadConfig]:
    """The best config for each of `SHARES`; empty if the run proved no load.

    For the whole load, it is the proved config. For a part of the load, it is the config with the
    least memory, and among equal ones that with the lowest p99 latency.
    """
    proved = data.reported_config
    answered = data.status in (Status.IMPROVED, Status.KEPT)
    if not answered or proved is None or (top := _proved_point(data)) is None:
        return []
    configs, trials = [], _trials(data, proved.candidate)
    for share in SHARES:
        level = share * top.level
        if share == 1.0:
            trial = data.trial_of(proved)
            memory = None if trial is None else memory_bytes(trial)
            configs.append(LoadConfig(share, level, proved.candidate, top, memory))
            continue
        able = [c for t in trials if (c := _able(t, share, level)) is not None]
        if able:
            least = min(map(_known_bytes, able))
            light = [c for c in able if _known_bytes(c) <= least * (1.0 + ALIKE)]
            configs.append(min(light, key=lambda c: c.point.measurement.p99_latency_us))
    return configs


def _trials(data: ReportData, proved: Candidate) -> list[Trial]:
    """The trials whose configs may be written.

    Where a finalist gave other answers than the current config, that is likely of others too, whose
    answers were not compared: then only the proved config and the current one are left.
    """
    if any(reason.kind is ReasonKind.ANSWERS_CHANGED for reason in data.result.why):
        return [t for t in data.trials if t.candidate in (proved, data.manifest.current)]
    return list(data.trials)


def _known_bytes(config: LoadConfig) -> float:
    return math.inf if config.memory_bytes is None else config.memory_bytes


def _proved_point(data: ReportData) -> Point | None:
    proved = data.reported_config
    if proved is None:
        return None
    if proved.sustained is not None:
        return proved.sustained.point
    passed = [p for p in proved.rounds if p.passed]
    return min(passed, key=lambda p: p.level, default=None)


def _able(trial: Trial, share: float, level: float) -> LoadConfig | None:
    """The trial's measurement that met every SLO at the load or above; None without one."""
    passed = [p for p in trial.points if p.passed and p.level >= level]
    if trial.state is not TrialState.MEASURED or not passed:
        return None
    point = min(passed, key=lambda p: p.level)
    return LoadConfig(share, level, trial.candidate, point, memory_bytes(trial))


def memory_bytes(trial: Trial) -> int | None:
    """Memory of its models, on the fullest GPU, or else of the machine; None if unknown."""
    gpus = [memory.taken_bytes for name, memory in trial.memory.items() if is_of_gpu(name)]
    machine = trial.memory.get(MACHINE)
    return max(gpus) if gpus else None if machine is None else machine.taken_bytes


def table(data: ReportData) -> Table | None:
    """A row for each part of the load; None if one config is the best for all parts."""
    configs = by_load(data)
    if len({config.candidate.key for config in configs}) < 2:
        return None
    heads = ("load", "config", "measured at", "p99 latency", "memory")
    return Table(heads, tuple(_rows(data, configs)), "The best config for a part of the load")


def _rows(data: ReportData, configs: list[LoadConfig]) -> Iterator[tuple[str, ...]]:
    for config in configs:
        memory = NOTHING if config.memory_bytes is None else bytes_text(config.memory_bytes)
        measured = config.point.measurement
        yield (
            f"{config.share:.0%}",
            sentence.change_text(data, config.candidate),
            load_text(measured.load),
            latency_text(measured.p99_latency_us),
            memory,
        )
