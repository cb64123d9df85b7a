"""The bench: deploys a candidate, puts load on it and judges the measurement.

Only this module joins `triton`, `load` and `score`. Search and proof both use it, so both measure
in the same way.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tuner.errors import (
    ClientLimitError,
    InterruptedRunError,
    LoadFailedError,
    ServerGoneError,
    TrialError,
    UndecidedError,
)
from tuner.load.probes.answers import ConfigAnswers
from tuner.load.probes.overload import Overload, overload_of, overload_window
from tuner.load.probes.warmup import WarmUp
from tuner.load.validity import client_behind, client_kept_up
from tuner.load.watch.machine import disturbances
from tuner.machine.cpus import ANY, Cores, left_its_cpus
from tuner.measurement.batch_profile import BatchCall
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, Stage
from tuner.measurement.window import EarlyEnd, Window, lengthen
from tuner.meter.again import (
    PAUSE_S,
    WARMING_UP,
    LastingDisturbance,
    Rejects,
    WindowAt,
    better_of,
    doubt_about,
    idle,
    longer_window,
    missed_by_gaps,
    why_again,
)
from tuner.meter.evaluate import ClientCeiling
from tuner.meter.protocol import LoadClient
from tuner.meter.rates import SLOW_S, Rates, mean_answers_s
from tuner.meter.rules import BenchRules
from tuner.prepare.timebook import Phase, TimeBook
from tuner.reason import Fact, Reason, ReasonKind
from tuner.score.point import Point, judge_point
from tuner.sentences import sentence
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo
from tuner.spec.units import digits
from tuner.spec.workload import CacheState
from tuner.triton.changes import DeploymentKind
from tuner.triton.deploy import Deployer, Deployment

#: The window of a look: long enough to estimate a rate, not to judge an SLO.
QUICK_LOOK = Window(duration_s=0.6, warmup_s=0.3, deadline_s=60.0)
_Result = TypeVar("_Result")


class TritonBench:
    """Measures one deployed candidate at a time; ``generator`` serves the given endpoints."""

    def __init__(
        self,
        deployer: Deployer,
        generator: Callable[[Endpoints], LoadClient],
        rules: BenchRules,
        book: TimeBook,
        cores: Cores = ANY,
    ) -> None:
        self._deployer = deployer
        self._make_generator = generator
        self._rules = rules
        self._book = book
        self._cores, self._cpus = cores, cores.server
        self._rejects = Rejects(rules.rejected)
        self._generator: LoadClient | None = None
        self._endpoints: Endpoints | None = None
        self._candidate: Candidate | None = None
        self._backlog = self._must_be_empty = False
        self._warming = 0  # repetitions because of gaps that are left
        self._slow_calls: Sequence[Reason] = ()  # the first calls of the loaded models
        self._slow_at_first = set[str]()  # candidates, by their keys
        self._lasting = LastingDisturbance()
        self._left_cpus = False  # a note has reported that threads left them
        self._remarked = False  # on the first calls: one note per run
        self._rates_of: defaultdict[str, Rates] = defaultdict(Rates)  # by candidate
        self.sendable = ClientCeiling()
        self.batch_calls: tuple[BatchCall, ...] = ()

    def enter(self, stage: Stage) -> None:
        """Sets the purpose of the following measurements."""
        self._rejects.stage = stage

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Deployment:
        """Deploys the candidate.

        A candidate with a response cache always gets a fresh server, see `tuner.meter.cache`.
        ``in_production``: with the CPUs that a server in production has.
        """
        self._cpus = self._cores.in_production if in_production else self._cores.server
        self._rejects.begin(candidate.key)
        self._warming = WARMING_UP.at_most
        return self._deploy(candidate, fresh=fresh)

    def _deploy(self, candidate: Candidate, *, fresh: bool) -> Deployment:
        self._rules.checkpoint()
        cache = self._rules.cache.of(candidate)
        with self._book.phase(Phase.DEPLOYING):
            if fresh or self._backlog or cache is not None:
                self._deployer.fresh()
            self._backlog = False
            if self._cores.of:
                self._deployer.give(self._cpus)
            deployment = self._deployer.deploy(candidate)
            self._candidate = candidate
            new = deployment.kind is not DeploymentKind.UNCHANGED
            if deployment.endpoints != self._endpoints or self._generator is None:
                new = True  # loaded, but without a request so far
                self._generator = self._make_generator(deployment.endpoints)
                self._endpoints = deployment.endpoints
            if new:
                self._await_first_answers(self._generator, candidate)
        self._must_be_empty = cache is not None and self._rules.cache.state is CacheState.EMPTY
        if cache is not None:
            with self._book.phase(Phase.MEASURING):
                self._rules.cache.fill(self._generator, cache)
        return deployment

    def _await_first_answers(self, generator: LoadClient, candidate: Candidate) -> None:
        self._rules.step("waiting for the first answers")
        try:
            calls_of = generator.await_first_answers(self._rules.first_answer_s, self._rules.note)
            self.batch_calls = calls_of[0].batch_calls if len(calls_of) == 1 else ()
        except LoadFailedError:
            self._backlog = True  # it may still be at work on them
            raise
        remarks = [remark for calls in calls_of for remark in calls.remarks]
        if remarks and not self._remarked:
            self._rules.note(" ".join(map(sentence, remarks)))
            self._remarked = True  # the remarks of other candidates are much the same
        slow = [*filter(None, (calls.slow for calls in calls_of))]
        if slow and not self._slow_at_first:
            self._rules.note(" ".join(map(sentence, slow)))
        if slow:
            self._slow_at_first.add(candidate.key)
        self._slow_calls = slow

    def measure(
        self, level: float, seed: int, least_s: float = 0.0, window_at: WindowAt | None = None
    ) -> Point:
        """Measures the deployed candidate at one level, for at least ``least_s`` seconds.

        An unreliable measurement is repeated, and one with too few answers for a verdict is
        repeated with a longer window: see `tuner.meter.again`. Without ``window_at``, the rules
        give the window.

        Raises:
            ClientLimitError: The client could not keep up.
            LoadFailedError: No usable result.
            ServerGoneError: The server died, or none is deployed.
        """
        load = LoadPoint(self._rules.arrivals, level)
        if window_at is None:

            def window_at(load: LoadPoint, rate: float | None) -> Window:
                return lengthen(self._rules.window(load, rate), least_s)

        window = window_at(load, self._rates.expected(load))
        if self._rejects.stage is Stage.SEARCH:  # a miss is enough; a round needs how far
            window = replace(window, ends_early=EarlyEnd.LATE)
        try:
            point = self._believed(load, window, seed)
            self._rates.seen(point.measurement)
            longer = longer_window(point, window, window_at, self._rates.expected(load))
            if longer is not None:
                self._reject_short(point, window, longer)
                point = self._believed(load, longer, seed)
        except (ServerGoneError, InterruptedRunError) as error:
            self.lost(error.reason)
            raise
        except ClientLimitError as error:
            self.sendable.fell_behind(error, level)
            raise
        self.sendable.kept_up(level)
        self._rejects.keep(point.measurement)
        self._rules.measured(point)
        return point

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        """Like `measure`, for the length of a soak: at least ``least_s`` seconds, if allowed."""
        soak = self._rules.soak
        return self.measure(level, seed, window_at=lambda load, rate: soak(load, rate, least_s))

    def once(self, level: float, seed: int, window: Window) -> Point:
        """One measurement without repetitions.

        Raises:
            ClientLimitError: The client could not keep up.
            LoadFailedError: No usable result.
            ServerGoneError: The server died, or none is deployed.
        """
        measurement = self._put(LoadPoint(self._rules.arrivals, level), window, seed)
        if not client_kept_up(measurement):
            self._rejects.reject(doubt_about(measurement), measurement)
            raise client_behind(measurement)
        self._rejects.keep(measurement)
        return judge_point(self._rules.slos, measurement)

    @property
    def _rates(self) -> Rates:
        return self._rates_of["" if self._candidate is None else self._candidate.key]

    def _believed(self, load: LoadPoint, window: Window, seed: int) -> Point:
        """One measurement or the better of two, after repetitions while the model warms up.

        Raises:
            ClientLimitError: The load generator could not keep up in either.
        """
        counts = self._put(load, window, seed)
        point = judge_point(self._rules.slos, counts)
        while self._warming and missed_by_gaps(self._rules.slos, point):
            self._warming -= 1
            self._rules.note(f"{WARMING_UP.situation}: measured again, it may be warming up")
            self._rejects.reject(Reason(ReasonKind.ONLY_GAPS_MISS), counts)
            counts = self._put(load, window, seed)
            point = judge_point(self._rules.slos, counts)
        if why_again(point, self._lasting) is not None:
            try:
                self._pause(counts)
                second = self._put(load, window, seed)
            except (TrialError, InterruptedRunError) as error:
                if not (isinstance(error, ClientLimitError) and client_kept_up(counts)):
                    self._rejects.reject(doubt_about(counts), counts)
                    raise
                return point
            if lasts := self._lasting.learn(counts, second):
                self._rules.note(lasts)
            first, counts = counts, better_of(counts, second)
            lost = first if counts is second else second
            self._rejects.reject(doubt_about(lost), lost)
        if not client_kept_up(counts):
            self._rejects.reject(doubt_about(counts), counts)
            raise client_behind(counts)
        return judge_point(self._rules.slos, counts)

    def _pause(self, measurement: Measurement) -> None:
        """Waits after a disturbed measurement, so that the disturbance may end."""
        if measurement.disturbances:
            self._rules.disturbed(" ".join(measurement.disturbance_texts), PAUSE_S)
            with self._book.phase(Phase.WAITING):
                idle(PAUSE_S, self._rules.checkpoint)

    def _reject_short(self, point: Point, window: Window, longer: Window) -> None:
        facts: dict[str, Fact] = {
            "answer_count": point.measurement.completed_count,
            "duration_s": float(window.duration_s),
        }
        short = Reason(ReasonKind.WINDOW_TOO_SHORT, facts=facts)
        self._rules.note(f"{sentence(short)}: measured for {digits(longer.duration_s, 3)} s")
        self._rejects.reject(short, point.measurement)

    def lost(self, reason: Reason) -> None:
        """Rejects the measurements of the deployed candidate: its trial has no result."""
        self._rejects.trial_lost(reason)

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        """Mean latency, in seconds, of requests sent one after another.

        By stream, for those with an answer; ``""`` is the mean over all streams. The mean is over
        `LOOK_ANSWERS` calls of each stream, or those answered in `LOOK_S` seconds; for a fast
        model, over the requests that the load generator sends in a look.

        Raises:
            LoadFailedError: No usable result.
            ServerGoneError: The server died, or none is deployed.
        """
        alone_s = mean_answers_s(lambda: self._uncached(lambda load, s: load.seconds_alone(s)))
        if alone_s is None:
            seen = self.saturate(1, seed)
            alone_s = {n: m.avg_latency_us / 1e6 for n, m in {**seen.streams, "": seen}.items()}
        self._rates.alone_s, self._rates.slowest_s = alone_s[""], max(alone_s.values())
        return alone_s

    def _uncached(self, call: Callable[[LoadClient, float], _Result | None]) -> _Result | None:
        """The result of requests of ``call``; None where a response cache may answer them.

        ``call``: receives the generator, and the most seconds to wait for an answer.
        """
        self._rules.checkpoint()
        load = self._load
        if self._candidate is not None and self._rules.cache.of(self._candidate) is not None:
            return None
        try:
            with self._book.phase(Phase.MEASURING):
                return call(load, self._rules.first_answer_s)
        except LoadFailedError:
            self._backlog = True  # it may still be at work on them
            raise

    def many_at_once(self, concurrency: int, seed: int) -> float:
        """Requests per second answered with ``concurrency`` in flight: about the saturation.

        Raises:
            LoadFailedError: No usable result; the model may refuse that many requests.
            ServerGoneError: The server died, or none is deployed.
        """
        if self._rates.slowest_s >= SLOW_S and (
            took_s := self._uncached(lambda load, s: load.seconds_for(concurrency, s))
        ):
            return concurrency / took_s
        return self.saturate(
            concurrency, seed, concurrency * (self._rates.alone_s or 0.0)
        ).requests_per_s

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        """A look of at least ``least_s`` seconds with ``concurrency`` requests in flight.

        Raises what `many_at_once` does.
        """
        load = LoadPoint(Arrivals.CLOSED, concurrency)
        return self._put(load, lengthen(QUICK_LOOK, least_s), seed)

    def overload(self, capacity: float, slo: Slo, seed: int) -> Overload:
        """Overloads the deployed candidate, and measures its recovery.

        ``capacity``: the load that it sustained, in requests per second. ``slo``: the latency SLO
        that it should meet again afterwards.

        Raises:
            LoadFailedError: No usable result.
            ServerGoneError: The server died, or none is deployed.
        """
        window = overload_window(slo)
        measurement = self._put(LoadPoint(Arrivals.STEP, capacity), window, seed)
        try:
            result = overload_of(measurement, window, slo)
        except LoadFailedError as error:
            self._rejects.reject(error.reason, measurement)
            raise
        lone = self._uncached(lambda load, s: load.ask_alone(slo.stream, s))
        return replace(result, lone=lone)

    def answers(self) -> Mapping[str, ConfigAnswers]:
        """The deployed candidate's answers to some inputs of each stream, by stream."""
        self._rules.checkpoint()
        with self._book.phase(Phase.MEASURING):
            return self._load.answers()

    def warm_up(self, candidate: Candidate, texts: Mapping[str, str]) -> WarmUp | None:
        """See `probes.warmup.warm_up`; None where the candidate's first calls were fast."""
        if candidate.key not in self._slow_at_first:
            return None
        self.deploy(candidate)
        self._backlog = True  # from here on no candidate is served
        with self._book.phase(Phase.MEASURING):
            return self._load.warm_up(texts, self._rules.first_answer_s, self._rules.note)

    @property
    def _load(self) -> LoadClient:
        if self._generator is None:
            raise ServerGoneError("no candidate is deployed")
        return self._generator

    def _put(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        while True:
            self._rules.checkpoint()
            if self._backlog and self._candidate is not None:
                self._deploy(self._candidate, fresh=True)
            if self._cpus and (count := self._deployer.put_back()) and not self._left_cpus:
                self._left_cpus = True
                self._rules.note(left_its_cpus(count, self._cpus))
            generator, begin = self._load, time.monotonic()
            self._rules.loading(load, window.total_s)
            try:
                with self._book.phase(Phase.MEASURING):
                    measurement = generator.measure(load, window, seed)
                break
            except TrialError as error:
                self._rejects.failed(error.reason, load.level, time.monotonic() - begin)
                # a dead server is replaced anyway; a running one may still be full of requests
                self._backlog = not isinstance(error, ServerGoneError)
                may_be_complete = window.ends_early is not EarlyEnd.NEVER
                if not (isinstance(error, UndecidedError) and may_be_complete):
                    raise
                window = replace(window, ends_early=EarlyEnd.NEVER)
        self._backlog = measurement.backlog or self._must_be_empty
        return replace(
            measurement,
            disturbances=disturbances(measurement, window.tightest),
            warnings=(*measurement.warnings, *self._slow_calls),
        )
