"""`tune doctor --noise`: how well measurements of a model repeat on this machine.

The current config is measured again and again near its capacity: at the same load on each of
several fresh servers, on the first ones twice, and each time its capacity as the confirmation
would find it, always with the same arrivals. So what differs is noise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner.confirm.looks import LOOKS
from tuner.confirm.repeatability import (
    Advice,
    Settings,
    Spread,
    advice,
    provable_gain,
    rounds_text,
    spread,
)
from tuner.confirm.rounds import (
    SPREAD,
    Contender,
    Entrant,
    Round,
    fixed_round,
    searched_round,
)
from tuner.errors import EnvironmentNotReadyError
from tuner.run.timebook import TimeBook
from tuner.score.judge import value_of
from tuner.score.point import Point
from tuner.search.incumbent import NEAR_MISS
from tuner.spec.digits import digits
from tuner.spec.model import Spec
from tuner.steps.events import Events
from tuner.steps.job import Job, Request, prepare
from tuner.steps.looking import RoundsBench, highest_that_holds, rough_capacity
from tuner.steps.programs import installed
from tuner.steps.rig import Watch, rigged
from tuner.steps.serving import serving
from tuner.steps.stop import Stop
from tuner.triton.private import private_directory

#: No further server is started that would not be done within this time ...
BUDGET_S = 80.0
#: ... but a spread of fewer than this many says nothing, and more than this many little more.
LEAST_SERVERS, MOST_SERVERS = 3, 6
#: Servers on which the same load is put twice; then that is known, and time is short.
REPEATED_ON = 2
#: Arrivals of every measurement, other than those of any run.
SEED = 700_000
#: A p99's noise is taken to be within these limits, as a share, whatever a few repeats said.
LEAST_P99_NOISE, MOST_P99_NOISE = 0.02, 0.25


@dataclass(frozen=True)
class Noise:
    """How measurements of one model repeat on one machine.

    Attributes:
        level: Load of the repeats, requests per second or concurrency.
        capacity: Between fresh servers, of what a confirmation compares.
        settings: What the spec says now, with the window really measured.
        disturbances: What else went on meanwhile; the noise then is not the machine's own.
    """

    model: str
    fingerprint: str
    measured_at: str
    config_sha256: str | None
    spec_path: str
    level: float
    servers: int
    throughput_within: Spread
    throughput_between: Spread
    p99_within: Spread
    p99_between: Spread
    capacity: Spread
    settings: Settings
    advice: Advice
    seconds: float
    disturbances: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Repeat:
    """One fresh server: the same load once or twice, and what it stood."""

    points: tuple[Point, ...]
    round: Round


def measured_noise(spec_path: Path, environment: Mapping[str, str], events: Events) -> Noise:
    """Measures for about `BUDGET_S` (longer where the SLOs ask for long windows).

    Raises:
        TunerError: The spec is wrong, a program is missing, or nothing could be measured.
    """
    stop = Stop(events.note)
    job, book = prepare(Request(spec=spec_path)), TimeBook()
    with stop.listening(), installed(job, environment) as programs:
        if not programs.launcher.restartable:
            raise EnvironmentNotReadyError(
                "a remote server cannot be started afresh, so its noise cannot be measured",
                "measure where tune may start servers (server.mode local or docker)",
            )
        with (
            private_directory() as logs,
            serving(job, programs, logs, book) as served,
            rigged(served, Watch(book, events, stop.checkpoint)) as bench,
        ):
            return noise_on(bench, served.job, programs.fingerprint(), events)


def noise_on(bench: RoundsBench, job: Job, fingerprint: str, events: Events) -> Noise:
    """`measured_noise` on a rig that is there."""
    begin = time.monotonic()
    repeats = _repeats(job, bench, events, begin)
    return _noise(job, repeats, fingerprint, time.monotonic() - begin)


def _repeats(job: Job, bench: RoundsBench, events: Events, begin: float) -> list[_Repeat]:
    events.phase("looking for the capacity of the current config")
    bench.deploy(job.space.current)
    expected = _expected_level(job, bench)
    repeats: list[_Repeat] = []
    started = time.monotonic()
    while len(repeats) < MOST_SERVERS:
        now = time.monotonic()
        if len(repeats) >= LEAST_SERVERS:
            one_s = (now - started) / len(repeats)
            if now + one_s > begin + BUDGET_S:
                break
        events.phase(f"fresh server {len(repeats) + 1}, about {digits(expected, 4)} expected")
        bench.deploy(job.space.current, fresh=True)
        times = 2 if len(repeats) < REPEATED_ON else 1
        repeats.append(_repeat(job, bench, expected, times))
    return repeats


def _expected_level(job: Job, bench: RoundsBench) -> float:
    """Where the capacity about is; the highest listed load that holds where the spec lists them."""
    if job.plan.listed is not None:
        return highest_that_holds(bench, job.plan.listed, SEED)
    return rough_capacity(bench, job.plan, SEED).level


def _repeat(job: Job, bench: RoundsBench, expected: float, times: int) -> _Repeat:
    level = expected
    if job.plan.listed is None:
        level = job.plan.levels.nearest(expected * (1.0 - SPREAD))  # where a round begins
    points = tuple(bench.measure(level, SEED) for _ in range(times))
    known = {level: points[0]}

    def measure(wanted: float) -> Point:
        return known.pop(wanted, None) or bench.measure(wanted, SEED)

    if job.plan.listed is None:
        round_ = searched_round(measure, expected, job.plan.levels)
    else:
        round_ = fixed_round(measure, level)
    return _Repeat(points, round_)


def _compared(job: Job, rounds: Sequence[Round]) -> list[float]:
    """What a confirmation compares, of each round: the metric that is minimised, or capacity."""
    metric = job.spec.objective.metric
    values = [None if metric is None else value_of(metric, r.stood.measurement) for r in rounds]
    known = [v for v in values if v is not None]
    if len(known) == len(rounds):
        return known
    return Contender(Entrant(job.space.current, None), list(rounds)).capacities()


def _noise(job: Job, repeats: Sequence[_Repeat], fingerprint: str, seconds: float) -> Noise:
    servers = [[p.measurement for p in r.points] for r in repeats]
    first = servers[0][0]
    capacity = spread([_compared(job, [r.round for r in repeats])])
    confirm = job.spec.confirm
    now = Settings(first.duration_s, confirm.rounds, float(confirm.min_gain))
    max_window_s = float(job.spec.workload.max_window)
    seen = (d for server in servers for m in server for d in m.disturbances)
    return Noise(
        model=job.spec.model,
        fingerprint=fingerprint,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        config_sha256=job.model.sha256,
        spec_path=str(job.loaded.path),
        level=first.load.level,
        servers=len(repeats),
        throughput_within=spread([[m.throughput_infer_per_s for m in s] for s in servers]),
        throughput_between=spread([[s[0].throughput_infer_per_s for s in servers]]),
        p99_within=spread([[m.p99_latency_us for m in s] for s in servers]),
        p99_between=spread([[s[0].p99_latency_us for s in servers]]),
        capacity=capacity,
        settings=now,
        advice=advice(capacity.cv or 0.0, now, max_window_s, LOOKS),
        seconds=seconds,
        disturbances=tuple(dict.fromkeys(seen)),
    )


def too_fine(recorded: Mapping[str, Any] | None, spec: Spec) -> str:
    """One sentence when the spec asks for a proof that the recorded noise does not allow; or ''."""
    cv = None if recorded is None else recorded["capacity"]["cv"]
    if recorded is None or not cv:
        return ""
    rounds, min_gain = spec.confirm.rounds, float(spec.confirm.min_gain)
    proved = provable_gain(cv, rounds, LOOKS)
    if proved < min_gain:
        return ""
    return (
        f"measured on {recorded['measured_at'][:10]}, the capacity of {recorded['model']} repeats "
        f"within {cv:.1%} on this machine: {rounds_text(rounds, LOOKS)} tell gains above "
        f"{proved:.1%} from noise, not min_gain = {min_gain:.1%}; `tune doctor --noise` recommends "
        "settings"
    )


def near_miss(recorded: Mapping[str, Any] | None) -> float:
    """Stress up to which an SLO may be missed by noise alone: two standard deviations of a p99."""
    cv: float | None = None if recorded is None else recorded.get("p99_between", {}).get("cv")
    if cv is None:
        return NEAR_MISS
    return 1.0 + 2.0 * min(max(cv, LEAST_P99_NOISE), MOST_P99_NOISE)
