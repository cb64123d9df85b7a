"""Proofs over an emulated bench in which something is in the way: what is said at their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from builders import overloading as probing
from builders.candidates import candidate_of, fields_of
from builders.emulated import a_session, saying
from builders.events import Watching
from builders.measurements import synthetic_measurement
from builders.overloading import WINNER, Probed, side, step, verdict
from builders.proving import (
    COUNT,
    CURRENT,
    OTHER,
    THIRD,
    ProvingBench,
    prove,
    searched,
    spec_of,
    trial,
)
from builders.racing import a_race, rules
from builders.reasons import said, texts
from builders.refusals import Case

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError
from tuner.load.probes.answers import ConfigAnswers
from tuner.machine.cpus import Cores
from tuner.measurement.measurement import Measurement
from tuner.proof.entrants import at_low_loads
from tuner.proof.overload import probe_overload
from tuner.proof.verdict import why
from tuner.reason import Reason
from tuner.record.remedies import remedies
from tuner.record.result_schema import RunDecision
from tuner.record.status import Status
from tuner.score.point import Point, judge_point
from tuner.score.ratio import Ratio
from tuner.score.trial import Trial
from tuner.sentences import sentence
from tuner.space.candidate import Candidate
from tuner.spec.paths import DELAY

SLOW = candidate_of({COUNT: 1, DELAY: 1_000_000})
QUICK = candidate_of({COUNT: 1, DELAY: 0})
FASTER_SLOW = candidate_of({COUNT: 2, DELAY: 1_000_000})
FASTER = candidate_of({COUNT: 2, DELAY: 0})
STOLEN = "The hypervisor gave 12.0% of the machine's CPU to other guests meanwhile."


class Waiting(ProvingBench):
    """A lone request waits for all its queue delay; at a high load a batch is full before."""

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        delay_us = fields_of(self.candidate)[DELAY]
        return {"": 0.002 + int(delay_us or 0) / 1e6}  # type: ignore[call-overload]


class Jittery(ProvingBench):
    """The config with two instances is late where less than half of its capacity is asked."""

    def reading(self, level: float, seed: int) -> Measurement:
        late = self.candidate == FASTER and level < 0.5 * self.serves
        return super().reading(1.2 * self.serves if late else level, seed)


class Mute(ProvingBench):
    """The current config dies when it is asked for answers."""

    def answers(self) -> Mapping[str, ConfigAnswers]:
        if self.candidate == CURRENT:
            raise LoadFailedError("no answer in 60 s")
        return {"": saying(1.0)}


class Late(ProvingBench):
    """No config lasts."""

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        measurement = super().soak(level, seed, least_s).measurement
        return judge_point(self.slos, replace(measurement, p99_latency_us=4e6))


class Robbed(ProvingBench):
    """Others have the machine during every soak, which is late."""

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        point = super().soak(level, seed, least_s)
        missed = replace(
            point.measurement, p99_latency_us=41e3, disturbances=(Reason.of_text(STOLEN),)
        )
        return judge_point(self.slos, missed)


TWO = {CURRENT: 500.0, OTHER: 1000.0}


def bench_of(
    current: float | None, other: float, third: float | None = None, **more: Any
) -> ProvingBench:
    """Of the capacities of the current config and one or two others; None: it is refused."""
    capacities = {CURRENT: current, OTHER: other, THIRD: third}
    spec = more.pop("spec", None) or spec_of(**more.pop("changes", {}))
    return ProvingBench(spec, {c: v for c, v in capacities.items() if v is not None}, **more)


def trials_of(bench: ProvingBench, *candidates: Candidate) -> list[Trial]:
    trials = [
        trial(bench, n, c, 0.98 * bench.capacity[c], 1.1 * bench.capacity[c])  # type: ignore[index]
        for n, c in enumerate(candidates)
    ]
    bench.serves = 0.0
    return trials


def proved(bench: ProvingBench, *candidates: Candidate, current: Candidate) -> RunDecision:
    return prove(bench, *trials_of(bench, *candidates), current=current)


def hindered() -> dict[str, Case]:
    """By what is in the way of a winner, or of any answer."""

    def ended(
        bench: ProvingBench,
        trials: Callable[[ProvingBench], Sequence[Trial]] = lambda _: (),
        **more: Any,
    ) -> Case:
        def case(_: object) -> list[str]:
            return lines(prove(bench, *trials(bench), **more))

        return case

    def alone(bench: ProvingBench, *candidates: Candidate) -> Case:
        """The first of the candidates is the current config."""
        return lambda _: lines(proved(bench, *candidates, current=candidates[0]))

    def lines(verdict: RunDecision) -> list[str]:
        cures = (f"next: {cure}" for cure in remedies(verdict.why))
        return [verdict.status.value, *texts(verdict.why), *cures]

    def limited(bench: ProvingBench) -> Sequence[Trial]:
        first = replace(trial(bench, 1, OTHER, 980), limit=said("the first limit"))
        return [
            *searched(bench, CURRENT),
            first,
            replace(trial(bench, 2, THIRD, 880), limit=said("the second limit")),
        ]

    refused = ProvingBench(spec_of(), {CURRENT: 100.0})
    rare = spec_of(workload={"max_window": "10.5s", "window": "3s"})
    two_slos = spec_of(slo=["p99_latency <= 40ms", "p50_latency <= 60ms"])
    changing = bench_of(500.0, 1000.0)
    changing.answer = {OTHER: 2.0}
    starved = ClientLimitError("the load generator could not keep up")
    broken = ModelFailsError("the model failed 3 of 9000 requests: out of handles")
    return {
        "the winner changes answers": ended(changing),
        "the current config dies when it is asked for answers": ended(Mute(spec_of(), TWO)),
        "every other config failed": ended(refused),
        "no other config was tried": ended(refused, lambda bench: searched(bench, CURRENT)),
        "the current config misses, and every other one failed": ended(
            refused, lambda bench: [trial(bench, 0, CURRENT, 200), trial(bench, 1, OTHER, 98)]
        ),
        "nothing gave a measurement": ended(refused, lambda bench: [trial(bench, 1, OTHER)]),
        "the load generator was the limit of two trials": ended(
            bench_of(500.0, 1000.0, 900.0), limited
        ),
        "all miss at the lowest rate that can be judged": ended(
            bench_of(0.5, 0.5, spec=rare),
            lambda bench: [trial(bench, 0, CURRENT, 1.0), trial(bench, 1, OTHER, 1.0)],
        ),
        "all miss, one by little": ended(
            bench_of(100.0, 100.0, spec=two_slos),
            lambda bench: [
                trial(bench, 0, CURRENT, 130),
                trial(bench, 1, OTHER, 120, 108),
                trial(bench, 2, THIRD, 98),
            ],
        ),
        "both sustain all that can be sent": ended(
            bench_of(3000.0, 4000.0, sends=1500.0, noise=0.01),
            lambda bench: [trial(bench, 0, CURRENT, 1200), trial(bench, 1, OTHER, 1350)],
        ),
        "the winner lasts at no load": ended(Late(spec_of(), TWO)),
        "no soak could be judged": ended(Robbed(spec_of(), TWO)),
        "no soak could be judged, which is accepted": ended(
            Robbed(spec_of(), TWO), accept_unsoaked=True
        ),
        "the winner starves its client": ended(ProvingBench(spec_of(), TWO, trouble=starved)),
        "the model fails in the soak": ended(ProvingBench(spec_of(), TWO, trouble=broken)),
        "the server had fewer CPUs than in production": ended(
            ProvingBench(spec_of(), TWO), cores=Cores((0, 1, 2), (3,), of=4)
        ),
        "the current config misses for a lone request": alone(
            Waiting(spec_of(), {SLOW: 1000.0, QUICK: 900.0}), SLOW, QUICK
        ),
        "all miss for a lone request": alone(
            Waiting(spec_of(), {SLOW: 500.0, FASTER_SLOW: 1000.0}), SLOW, FASTER_SLOW
        ),
        "the winner misses for a lone request": alone(
            Waiting(spec_of(), {QUICK: 500.0, FASTER_SLOW: 1000.0, FASTER: 700.0}),
            QUICK, FASTER_SLOW,
        ),
        "the winner misses at a tenth of its load": alone(
            Jittery(spec_of(), {QUICK: 500.0, FASTER: 1000.0}), QUICK, FASTER
        ),
        "a simpler file would make a lone request wait": alone(
            Waiting(
                spec_of(), {SLOW: 500.0, QUICK: 500.0, FASTER: 1000.0, FASTER_SLOW: 1000.0}
            ),
            SLOW, FASTER,
        ),
    }  # fmt: skip


class Unread(ProvingBench):
    """The memory of the second config's GPU is not read in the last rounds."""

    def reading(self, level: float, seed: int) -> Measurement:
        unread = self.candidate == OTHER and seed % 1000 == 2  # in the third round
        return synthetic_measurement(level, gpu_memory=None if unread else int(self.serves))


def noted() -> dict[str, Case]:
    """Progress messages of a proof; why a finalist left or nothing was overloaded."""

    def watched(_: object) -> list[str]:
        watching = Watching()
        prove(bench_of(500.0, 1000.0), events=watching)
        return [*watching.phases, *dict.fromkeys(watching.rounds), *watching.notes]

    def without_capacity(_: object) -> list[str]:
        bench = Waiting(spec_of(), {QUICK: 500.0})
        trials, watching = trials_of(bench, QUICK), Watching()
        bench.capacity = {}
        at_low_loads(a_session(bench, bench.spec, QUICK, events=watching), trials)
        return watching.notes

    def reasons(bench: ProvingBench, *trials: Trial) -> Case:
        return lambda _: texts(prove(bench, *trials).why)

    def interval(ratio: Ratio, **confirm: Any) -> Case:
        return lambda _: sentence(why((race := a_race(ratio)), race.finalists[0], rules(**confirm)))

    def overloaded(bench: Probed, decision: RunDecision) -> Case:
        def case(_: object) -> Sequence[str]:
            overload = probe_overload(step(bench), decision).overload
            return ["nothing was overloaded"] if overload is None else overload.reasons

        return case

    def sending(most: float) -> Probed:
        bench = Probed()
        bench.sendable.most = most
        return bench

    late = side(probing.CURRENT, 100.0, p99_us=90e3)
    better = side(WINNER, 110.0)
    as_it_was = searched(bench_of(100.0, 1000.0, 200.0), CURRENT, OTHER, THIRD)
    both = candidate_of({COUNT: 2, "max_batch_size": 8})
    simpler = candidate_of({COUNT: 2, "max_batch_size": None})
    hasty = ProvingBench(
        spec_of(confirm={"time": 0.001}), {CURRENT: 400.0, both: 1000.0, simpler: 1000.0}
    )
    memory = spec_of(objective="minimize gpu_memory at 300/s")
    return {
        "a proof": watched,
        "the current config cannot be asked for a lone request": without_capacity,
        "it had no time to undo changes": reasons(hasty, *searched(hasty, CURRENT, both)),
        "a finalist misses when it is measured again": reasons(
            bench_of(100.0, 0.5, 200.0), *as_it_was
        ),
        "a finalist's memory is not always read": reasons(Unread(memory, TWO, noise=0.03)),
        "a gain of less than 10% is certain": interval(Ratio(1.0, 0.96, 1.06)),
        "a gain of 10% is possible": interval(Ratio(1.1, 0.9, 1.3)),
        "a gain of 40% is not": interval(Ratio(1.1, 0.9, 1.3), min_gain=0.4),
        "the current config met at no load": overloaded(
            Probed(), RunDecision.of(Status.IMPROVED, (), late, better)
        ),
        "its overload is within what the winner sustained": overloaded(
            Probed(), verdict(side(WINNER, 400.0, 121.0))
        ),
        "the winner's overload cannot be sent": overloaded(sending(120.0), verdict(better)),
        "the winner fails in its overload": overloaded(
            Probed(LoadFailedError("late")), verdict(better)
        ),
    }
