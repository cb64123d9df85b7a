"""What probes of a config find, in words: made-up answers, overloads, first calls and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from builders.candidates import candidate_of
from builders.emulated import FreshBench, an_overload, saying
from builders.measurements import latency_slo, synthetic_measurement
from builders.refusals import Case

from tuner.load.client.job import Outcome
from tuner.load.probes.answers import Answer, ConfigAnswers, differences
from tuner.load.probes.lone import LoneRequests
from tuner.load.probes.preparing import Filling
from tuner.load.probes.warming import CallTimes, FirstCalls
from tuner.load.probes.warmup import WarmUp, propose
from tuner.load.traffic.decoupled.responses import warnings_of
from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.inputs import DrawnInputs
from tuner.load.validity import client_cost, ended_early, refuse_failures, warnings_about
from tuner.measurement.measurement import Arrivals, FailureReason, Failures, LoadPoint
from tuner.measurement.window import Window
from tuner.proof.answers import same_answers
from tuner.reason import Reason
from tuner.sentences import sentence
from tuner.server.control import StatisticsSnapshot
from tuner.space.candidate import Candidate
from tuner.spec.workload import RandomInputs

TOLERANCE = 1e-3
CURRENT = candidate_of({"instance_group.count": 1})
WINNER = candidate_of({"instance_group.count": 2})


def answer(*values: Any, dtype: str = "f4") -> Answer:
    return Answer({"y": np.array(values, dtype=dtype)})


def compared(one: Answer, other: Answer, tolerance: float = TOLERANCE) -> list[str]:
    return differences(ConfigAnswers(alone=(one,)), ConfigAnswers(alone=(other,)), tolerance)


class Speaking(FreshBench):
    """Each candidate has its answers by stream, one deployment after another."""

    def __init__(
        self, answers: Mapping[Candidate, Sequence[ConfigAnswers | Mapping[str, ConfigAnswers]]]
    ) -> None:
        super().__init__(lambda _: 100.0)
        self._answers = {candidate: iter(given) for candidate, given in answers.items()}

    def answers(self) -> Mapping[str, ConfigAnswers]:
        probed = next(self._answers[self.candidate])
        return {"": probed} if isinstance(probed, ConfigAnswers) else probed


Streams = ConfigAnswers | Mapping[str, ConfigAnswers]


def compare(current: list[Streams], winner: Streams) -> tuple[Reason, list[Candidate]]:
    """Messages about the winner's answers, and what was deployed for them."""
    bench = Speaking({CURRENT: current, WINNER: [winner]})
    return same_answers(bench, CURRENT, WINNER, TOLERANCE), [c for c, _ in bench.deployed]


def several(*values: float) -> ConfigAnswers:
    return ConfigAnswers(alone=tuple(saying(value).alone[0] for value in values))


DECOUPLED = ConfigAnswers(none_because="it is decoupled")
STREAMS = {"text": saying(1.0), "head": saying(1.0), "chat": DECOUPLED}


def answers() -> dict[str, Case]:
    """How the winner's answers differ from the current config's."""

    def one(was: Answer, now: Answer) -> Case:
        return lambda _: compared(was, now)

    def config(current: list[Streams], winner: Streams) -> Case:
        return lambda _: sentence(compare(current, winner)[0])

    def in_batches(_: object) -> list[str]:
        right, wrong = answer(1.0), answer(0.0)
        was = ConfigAnswers((right, right), (right,) * 4)
        now = ConfigAnswers((right, right), (right, wrong, right, wrong))
        return differences(was, now, TOLERANCE)

    three = several(1.0, 2.0, 3.0)
    return {
        "another number": one(answer(1.0, 2.0), answer(1.0, 2.5)),
        "no number": one(answer(1.0), answer(np.nan)),
        "another infinity": one(answer(np.inf), answer(-np.inf)),
        "another integer": one(answer(1000, 3, dtype="i8"), answer(1001, 3, dtype="i8")),
        "another truth": one(answer(True, dtype="?"), answer(False, dtype="?")),
        "another text": one(answer(b"a", dtype="O"), answer(b"b", dtype="O")),
        "another shape": one(answer(1.0), answer(1.0, 1.0)),
        "another type": one(answer(1.0), answer(1.0, dtype="f8")),
        "an output less": one(answer(1.0), Answer({})),
        "an output more": one(Answer({}), answer(1.0)),
        "a failure": one(answer(1.0), Answer({}, "out of memory")),
        "another number in batches only": in_batches,
        "the same answers": config([saying(1.0)], saying(1.0001)),
        "other answers": config([saying(1.0), saying(1.0)], saying(2.0)),
        "two other answers": config([three, three], several(1.0, 5.0, 6.0)),
        "the current config's own differ": config([saying(1.0), saying(3.0)], saying(2.0)),
        "it cannot be asked": config([DECOUPLED], saying(2.0)),
        "the same in all streams that can be asked": config([STREAMS], STREAMS),
        "other answers of one stream": config([STREAMS, STREAMS], {**STREAMS, "head": saying(2.0)}),
    }


def overloads() -> dict[str, Case]:
    """What 120% of what it sustained did to a config."""
    some = replace(an_overload(1000.0), served_per_s=1000.0, p99_latency_us=4e5, late_share=0.83)
    within = replace(some, served_per_s=1200.0, p99_latency_us=9e3, late_share=0.0)
    timed_out = {FailureReason.TIMED_OUT: Failures(600, 21e3, 300e3)}
    refusing = replace(
        within, rejected_share=0.2, late_share=0.2, recovered_after_s=1.0, failures=timed_out
    )
    lone = LoneRequests(30, 28, 12e3)
    overloads_ = {
        "it stayed within the SLO": replace(within, recovered_after_s=0.0),
        "it was late, and no longer than the overload": replace(some, recovered_after_s=0.0),
        "it was late for a while": replace(some, recovered_after_s=2.0),
        "it was late for as long as it was watched": replace(some, recovered_after_s=None),
        "requests timed out in the queue": refusing,
        "those answered were late too, and lone ones were refused": replace(
            refusing, p99_latency_us=41e3, lone=lone
        ),
        "no lone request was served": replace(refusing, lone=LoneRequests(30, 0)),
    }
    return {name: lambda _, o=overload: o.sentence for name, overload in overloads_.items()}


BEFORE = StatisticsSnapshot(success_count=100, fail_count=2)


def first_calls() -> dict[str, Case]:
    """Messages about a model before its load: slow first calls, a warm-up, a cache to fill."""
    slow = {size: CallTimes(0.7, 0.004) for size in range(1, 17)}
    some = {1: CallTimes(9.0, 0.5), 2: CallTimes(9.0, 0.5)}
    helps = WarmUp("m", (1, 2), "model_warmup [\n]\n", 0.72, 0.005, 1.3, 0.006, 5.1)
    refused = replace(helps, first_warm_s=None, load_warm_s=None, refused="bad zeros")
    said: dict[str, Callable[[], str]] = {
        "sizes that are slow at first": lambda: FirstCalls("m", slow).slow,
        "two sizes that are slow at first": lambda: FirstCalls("m", some).slow,
        "sizes without a warm-up": lambda: FirstCalls("m", {}, (6, 7)).remarks[0],
        "a warm-up that helps": lambda: helps.sentence,
        "a warm-up that does not help": lambda: replace(helps, first_warm_s=0.5).sentence,
        "a warm-up that a config is given as a comment": lambda: propose('name: "m"\n', helps),
        "a warm-up that is refused": lambda: refused.sentence,
        "a cache that was filled": lambda: Filling(5, 7, 1.0, short=False).sentence,
        "a cache that was filled as far as there was time": lambda: (
            Filling(100, 1000, 20.0, short=True).sentence
        ),
        "a cache whose inputs do not come back": lambda: Filling(0, 0, 0.0, short=False).sentence,
    }
    return {name: lambda _, tell=tell: tell() for name, tell in said.items()}


def failures() -> dict[str, Case]:
    """Loads that a model failed, or that the load generator itself spoilt."""

    def failing(ok: int, failed: int, *reasons: str, dropped: bool = False) -> Case:
        after = StatisticsSnapshot(success_count=ok, fail_count=failed)
        return lambda _: refuse_failures(BEFORE, after, reasons, str, dropped=dropped)

    def costly(request_s: float, share: float, cores: int) -> Case:
        bounds = (latency_slo(0.99, 0.5), latency_slo(0.95, 0.010))
        return lambda _: [*client_cost(request_s, share, cores, bounds)]

    broken = [Outcome.ANSWERED, Outcome.INCOMPLETE, Outcome.DOUBLED, Outcome.INCOMPLETE]

    def few_values(_: Path) -> tuple[str, ...]:
        spec = RandomInputs(kind="random", unique=50, int_range=(1, 10))
        return DrawnInputs(spec, [TensorShape("x", "INT32", (1,))]).of_run(1, 100).warnings

    def warned(_: object) -> Iterator[str]:
        load = LoadPoint(Arrivals.RECORDING, 100.0)
        measurement = replace(synthetic_measurement(50.0, 100.0), load=load, late_sends=0.0012)
        hot = replace(measurement.host, gpu_throttled=True, gpu_clock_mhz=1200.0)
        return iter(warnings_about(replace(measurement, host=hot)))

    return {
        "the model failed": failing(104, 68, "AssertionError: one at a time"),
        "the model failed without a reason": failing(104, 68),
        "the model failed once": failing(900, 3, "out of memory"),
        "the model answered with errors": failing(300, 2, "out of paper", "out of ink"),
        "a queue was full": failing(300, 2, "Exceeds maximum queue size"),
        "the model failed beside what a killed client left": failing(
            900, 206, "out of memory", dropped=True
        ),
        "a request takes the client much of the SLO": costly(0.0018, 0.09, 1),
        "the client takes much of two cores": costly(0.0009, 0.45, 2),
        "the client takes much of both": costly(0.0018, 0.45, 1),
        "recorded requests were late, and a GPU was hot": warned,
        "a load was stopped once it was lost": lambda _: ended_early(
            Window(1.2, 0.5, 30.0), Window(3.0, 0.5, 30.0)
        ),
        "answers were broken": lambda _: [*warnings_of(broken)],
        "few values exist": few_values,
    }
