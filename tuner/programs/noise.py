"""`tune doctor --noise`: how well measurements of a model repeat on this machine.

In rounds, as in a confirmation: the current config and a neighbour (another instance count, if the
spec has one) are each measured near their capacity on a fresh server under the same arrivals; the
next round has other arrivals, the one after it the first ones again. How the ratio of the two
varies is the noise that a confirmation has to see through: two configs meet different parts of the
same arrivals. The current config is also measured at one load in every round, and twice on the
first servers, which shows the noise within a server and between servers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path

from tuner.bench.protocol import Bench
from tuner.bench.timebook import TimeBook
from tuner.confirm.repeatability import (
    Advice,
    Settings,
    Spread,
    advice,
    spread,
)
from tuner.confirm.rounds import (
    SPREAD,
    Contender,
    Entrant,
    Round,
    measure_fixed_round,
    search_round,
)
from tuner.errors import EnvironmentNotReadyError, TrialError
from tuner.facts import Facts
from tuner.load import seeds
from tuner.machine.private import private_directory
from tuner.run.manifest import sha256_of_configs
from tuner.score.judge import tightest_latency, value_of
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.digits import digits
from tuner.spec.paths import is_instance_count
from tuner.steps.events import Events
from tuner.steps.job import Job, Request, prepare
from tuner.steps.known_noise import ratio_deviation
from tuner.steps.lengths import refuse_too_slow
from tuner.steps.looking import highest_that_holds, rough_capacity
from tuner.steps.neighbours import among_neighbours
from tuner.steps.rig import set_up_bench
from tuner.steps.serving import serving
from tuner.steps.stop import Stop
from tuner.steps.tools import find_programs

#: No further round is begun that would not be done within this time ...
BUDGET_S = 160.0
#: ... but a spread of fewer than this many says nothing, and more than this many little more.
LEAST_ROUNDS, MOST_ROUNDS = 3, 6
#: Servers on which the same load is put twice; then that is known, and time is short.
REPEATED_ON = 2
#: Configs of a space that are looked at for a neighbour.
_LOOKED_AT = 2000

#: Nothing was repeated.
UNKNOWN = Spread(None, 0)


@dataclass(frozen=True)
class Noise(Facts):
    """How measurements of one model repeat on one machine.

    Attributes:
        level: Load of the repeats, requests per second or concurrency.
        servers: Fresh ones of the current config: rounds.
        capacity: Between fresh servers under the same arrivals, of what a confirmation compares.
        settings: What the spec says now, with the window really measured.
        disturbances: What else went on meanwhile; the noise then is not the machine's own.
        neighbour: The config that the current one was compared with, in words; empty without one.
        comparison: From round to round, of the ratio of the two: a confirmation's noise.
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
    neighbour: str = ""
    comparison: Spread = UNKNOWN


@dataclass(frozen=True)
class _Repeat:
    """A round: one load, once or twice, on a fresh server; what it sustained; the neighbour."""

    seed: int
    points: tuple[Point, ...]
    round: Round


def measure_noise(spec_path: Path, environment: Mapping[str, str], events: Events) -> Noise:
    """Measures for about `BUDGET_S` (longer where the SLOs ask for long windows).

    Raises:
        TunerError: The spec is wrong, a program is missing, or nothing could be measured.
    """
    stop = Stop(events.note)
    job, book = prepare(Request(spec=spec_path)), TimeBook()
    with (
        stop.listening(),
        among_neighbours("doctor", "--noise", job, events.note) as neighbours,
        find_programs(job, environment) as programs,
    ):

        def looking() -> None:
            neighbours.look()
            stop.checkpoint()

        if not programs.launcher.restartable:
            raise EnvironmentNotReadyError(
                "a remote server cannot be started afresh, so its noise cannot be measured",
                "measure where tune may start servers (server.mode local or docker)",
            )
        with (
            private_directory() as logs,
            serving(job, programs, logs, book) as served,
            set_up_bench(served, events, book, looking) as bench,
        ):
            found = noise_on(bench, served.job, programs.fingerprint(), events)
            return replace(found, disturbances=(*found.disturbances, *neighbours.remarks))


def noise_on(bench: Bench, job: Job, fingerprint: str, events: Events) -> Noise:
    """`measure_noise` on a rig that is there."""
    begin = time.monotonic()
    neighbour = neighbour_of(job)
    other = None if neighbour is None else Contender(Entrant(neighbour, None))
    repeats = _repeats(job, bench, events, begin, other)
    return _noise(job, repeats, other, fingerprint, time.monotonic() - begin)


def _repeats(
    job: Job, bench: Bench, events: Events, begin: float, other: Contender | None
) -> list[_Repeat]:
    """Rounds of the current config, and of the neighbour ``other`` as long as that is served."""
    events.phase("looking for the capacity of the current config")
    bench.deploy(job.space.current)
    expected = _expected_level(job, bench)
    if other is not None:
        other.entrant = replace(other.entrant, level=expected)
    repeats: list[_Repeat] = []
    started = time.monotonic()
    while len(repeats) < MOST_ROUNDS:
        now = time.monotonic()
        if len(repeats) >= LEAST_ROUNDS:
            one_s = (now - started) / len(repeats)
            if now + one_s > begin + BUDGET_S:
                break
        seed = seeds.of_noise(len(repeats))
        events.phase(f"round {len(repeats) + 1}, about {digits(expected, 4)} expected")
        bench.deploy(job.space.current, fresh=True)
        times = 2 if len(repeats) < REPEATED_ON else 1
        repeats.append(_repeat(job, bench, expected, times, seed))
        if other is not None and not other.dropped:
            _measure_other(job, bench, other, seed)
    return repeats


def _measure_other(job: Job, bench: Bench, other: Contender, seed: int) -> None:
    """A round of the neighbour; without it, only the current config's noise is reported."""
    try:
        bench.deploy(other.candidate, fresh=True)
        expected = other.expected_level()
        other.rounds.append(_round(job, lambda at: bench.measure(at, seed), expected))
    except TrialError as error:
        other.dropped = error.message


def neighbour_of(job: Job) -> Candidate | None:
    """The current config with another instance count, or the closest one in the space."""
    current = job.space.current
    every = [c for c in islice(job.space.enumerate(), _LOOKED_AT) if c != current]
    for candidate in every:
        counts = {k: v for k, v in candidate.fields.items() if is_instance_count(k.path)}
        other = Candidate({**current.values, **counts})
        if other != current and not job.space.violations(other):
            return other
    return min(every, key=lambda c: c.differences(current), default=None)


def _expected_level(job: Job, bench: Bench) -> float:
    """About where the capacity is; where the spec lists loads, the highest that holds."""
    if job.plan.listed is not None:
        return highest_that_holds(bench, job.plan.listed, seeds.of_noise(0))
    bound, refuse = tightest_latency(job.spec.slos), partial(refuse_too_slow, job.spec, job.plan)
    return rough_capacity(bench, job.plan, seeds.of_noise(0), bound, refuse).level


def _repeat(job: Job, bench: Bench, expected: float, times: int, seed: int) -> _Repeat:
    level = expected
    if job.plan.listed is None:
        level = job.plan.levels.nearest(expected * (1.0 - SPREAD))  # where a round begins
    points = tuple(bench.measure(level, seed) for _ in range(times))
    known = {level: points[0]}

    def measure(wanted: float) -> Point:
        return known.pop(wanted, None) or bench.measure(wanted, seed)

    return _Repeat(seed, points, _round(job, measure, expected))


def _round(job: Job, measure: Callable[[float], Point], expected: float) -> Round:
    """As in a confirmation."""
    if job.plan.listed is None:
        return search_round(measure, expected, job.plan.levels, fine=True)
    return measure_fixed_round(measure, expected)


def _compared(job: Job, rounds: Sequence[Round]) -> list[float]:
    """What a confirmation compares, of each round: the metric that is minimised, or capacity."""
    metric = job.spec.objective.metric
    values = [None if metric is None else value_of(metric, r.sustained.measurement) for r in rounds]
    known = [v for v in values if v is not None]
    if len(known) == len(rounds):
        return known
    return Contender(Entrant(job.space.current, None), list(rounds)).capacities()


def _by_arrivals(repeats: Sequence[_Repeat], values: Sequence[float]) -> list[list[float]]:
    """What was found under the same arrivals, together."""
    seeds = dict.fromkeys(r.seed for r in repeats)
    pairs = list(zip(repeats, values, strict=True))
    return [[value for repeat, value in pairs if repeat.seed == seed] for seed in seeds]


def _ratios(job: Job, own: Sequence[float], other: Contender | None) -> list[float]:
    """Of each round that both were measured in."""
    if other is None or not other.rounds:
        return []
    return [a / b for a, b in zip(own, _compared(job, other.rounds), strict=False) if b > 0.0]


def _noise(
    job: Job, repeats: Sequence[_Repeat], other: Contender | None, fingerprint: str, seconds: float
) -> Noise:
    servers = [[p.measurement for p in r.points] for r in repeats]
    first = servers[0][0]
    own = _compared(job, [r.round for r in repeats])
    capacity, comparison = spread(_by_arrivals(repeats, own)), spread([_ratios(job, own, other)])
    confirm = job.spec.confirm
    now = Settings(first.duration_s, confirm.rounds, float(confirm.min_gain))
    max_window_s = float(job.spec.workload.max_window)
    seen = (d for server in servers for m in server for d in m.disturbances)
    known = comparison.cv is not None and other is not None
    return Noise(
        model=job.spec.name,
        fingerprint=fingerprint,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        config_sha256=sha256_of_configs(
            {la: m.files.sha256 for la, m in job.served.models.items()}
        ),
        spec_path=str(job.loaded.path),
        level=first.load.level,
        servers=len(repeats),
        throughput_within=spread([[m.throughput_infer_per_s for m in s] for s in servers]),
        throughput_between=spread(
            _by_arrivals(repeats, [s[0].throughput_infer_per_s for s in servers])
        ),
        p99_within=spread([[m.p99_latency_us for m in s] for s in servers]),
        p99_between=spread(_by_arrivals(repeats, [s[0].p99_latency_us for s in servers])),
        capacity=capacity,
        settings=now,
        advice=advice(ratio_deviation(comparison.cv, capacity.cv) or 0.0, now, max_window_s),
        seconds=seconds,
        disturbances=tuple(dict.fromkeys(seen)),
        neighbour=changes_text(other.candidate, job.space.current) if known and other else "",
        comparison=comparison,
    )
