"""How long do whole runs load a slow model? SIMULATED queues on a virtual clock, the real code.

No server is started. Search, confirmation, simplification, soak and overload are those of `tune
run`, on the real bench and with the real early end of windows; only the answers come from the
queues of `claims.py`. The proposals are scripted, as a search with designs makes them: a lead that
batches, the current config which does not, two designs that lose by far, and four candidates that
lose their race, by 5 % up to half.

    python benchmarks/claims/slow_runs.py --runs 12

Prints for each model the minutes of load by step (means of the runs) and in all, and how true what
the runs credited is: relative to the true capacity in the median, and how many claims are false
(more requests late in the long run than the SLO allows).
"""

from __future__ import annotations

import argparse
import operator
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any

import numpy as np
from claims import ALLOWED, TRUTHS, Server, long_run_late, true_capacity

from tuner.bench.bench import BenchRules, TritonBench
from tuner.bench.timebook import TimeBook
from tuner.load.latency import Requests, measurement_of, observe_open
from tuner.load.probes.answers import Answer, Answers
from tuner.load.traffic.arrivals import arrivals_of
from tuner.load.watch.early_end import Hopeless, check_decided, truncate
from tuner.measurement.measurement import LoadPoint, Measurement, Stage
from tuner.measurement.window import Window
from tuner.programs.run.overloading import probe_overload
from tuner.programs.run.prove import prove
from tuner.run.status import Status
from tuner.score.next_load import load_plan
from tuner.score.trial import Trial
from tuner.search.strategy import Proposal
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.steps.events import Silent
from tuner.steps.job import Job
from tuner.steps.searching import search
from tuner.steps.session import Session, soak_of, window_of
from tuner.triton.deploy import DeploymentKind

#: What a request takes alone, and the bound of its p99, in seconds.
MODELS = {"1 s, p99 <= 6 s": (1.0, 6.0), "250 ms, p99 <= 2 s": (0.25, 2.0)}
_FIELDS = ("instance_group.count", "max_batch_size")
#: How often the early end looks at the server's counter.
_LOOK_S = 0.2


def config(instances: int, most: int) -> Candidate:
    return Candidate.of_models({"m": dict(zip(_FIELDS, (instances, most), strict=True))})


CURRENT = config(1, 1)
#: In the order of a search, and how much slower those that batch are than the lead.
PROPOSED = [config(2, 8), CURRENT, config(3, 1), config(4, 1), *(config(n, 8) for n in range(3, 7))]
SLOWER = {1: 1.0, 2: 1.0, 3: 1.05, 4: 1.12, 5: 1.3, 6: 2.0}


def server_of(candidate: Candidate, service_s: float, bound_s: float) -> Server:
    instances, most = (int(str(candidate.of("m")[name])) for name in _FIELDS)
    if most == 1:
        return Server(service_s, instances=min(instances, 2), p99_s=bound_s)
    whole_s = SLOWER[instances] * service_s
    return Server(0.85 * whole_s, 0.05 * whole_s, most=most, p99_s=bound_s)


@dataclass
class Served:
    """The deployer and the load generator of a bench; ``now_s`` is the time spent under load."""

    service_s: float
    bound_s: float
    luck: int
    now_s: float = 0.0
    deployed: int = 0
    server: Server = field(default=Server(1.0))

    def fresh(self) -> None:
        pass

    def deploy(self, candidate: Candidate) -> Any:
        self.server = server_of(candidate, self.service_s, self.bound_s)
        self.deployed += 1
        return SimpleNamespace(kind=DeploymentKind.RELOAD, endpoints=Endpoints("h", "g", None))

    def await_first_answers(self, patience_s: float, note: Any) -> Sequence[str]:
        return ()

    def seconds_for(self, count: int, patience_s: float) -> float:
        took_s = float(self.server.answered_s(np.zeros(count), self._rng(count)).max())
        self.now_s += took_s
        return took_s

    def seconds_alone(self, patience_s: float) -> Any:
        return {"": self.seconds_for(1, patience_s)}

    def answers(self) -> Any:
        return {"": Answers(alone=(Answer({"y": np.array([1.0])}),))}

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        due_s = arrivals_of(load, (window.warmup_s, window.duration_s, window.tail_s + 2.0), seed)
        answered_s = self.server.answered_s(due_s, self._rng(seed))
        stopped_s = _stopped_s(due_s, answered_s, window)
        self.now_s += stopped_s
        in_time = answered_s < stopped_s
        requests = Requests(_ns(due_s[in_time]), _ns(answered_s[in_time]), int(_ns(stopped_s)))
        measured = window
        if stopped_s < window.total_s:
            measured = truncate(window, 0, requests.end_ns)
        observed = observe_open(requests, due_s, measured)
        check_decided({"": observed.latencies_us}, {"": due_s}, measured, window)
        return measurement_of(observed, load, seed, bounds=window.bounds)

    def _rng(self, seed: int) -> np.random.Generator:
        return np.random.default_rng((self.luck, self.deployed, seed))


def _stopped_s(due_s: Any, answered_s: Any, window: Window) -> float:
    """When the load ended: with its window, or once an SLO was certainly missed."""
    at, answers = [0.0], np.sort(answered_s)
    hopeless = Hopeless(
        {"": due_s}, window, lambda: int(np.searchsorted(answers, at[0])), lambda: at[0]
    )
    while at[0] < window.total_s:
        if hopeless():
            return at[0]
        at[0] += _LOOK_S
    return window.total_s


def _ns(seconds: Any) -> Any:
    return np.rint(np.asarray(seconds) * 1e9).astype(np.int64)


class Scripted:
    """The searcher: one proposal after the other; the three after the lead are informative."""

    def __init__(self) -> None:
        self.history: list[Trial] = []

    def next(self) -> Proposal | None:
        number = len(self.history)
        if number == len(PROPOSED):
            return None
        return Proposal(PROPOSED[number], informative=1 <= number <= 3)

    def start(self, candidate: Candidate) -> bool:
        return True

    def tell(self, trial: Trial) -> None:
        self.history.append(trial)

    def give_up(self, candidate: Candidate) -> None:
        raise AssertionError("no time is limited")


class Steps(Silent):
    """Adds up the seconds of load of each step."""

    def __init__(self, served: Served) -> None:
        self.served, self.step = served, ""
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        self._since_s = 0.0

    def begin(self, step: str) -> None:
        self.spent_s[self.step] += self.served.now_s - self._since_s
        self.step, self._since_s = step, self.served.now_s

    def trial_started(self, number: int, *_: Any) -> None:
        self.begin(("lead", "current", "designs", "designs", *["lost races"] * 4)[number])

    def phase(self, text: str) -> None:
        words = {"conf": "confirmation", "look": "undoing", "soak": "soak", "over": "overload"}
        self.begin(words.get(text[:4], text.split(":", maxsplit=1)[0]))


@dataclass(frozen=True)
class Run:
    spent_s: dict[str, float]
    credited: float | None
    measurements: int


def run_once(service_s: float, bound_s: float, luck: int) -> Run:
    spec = Spec.model_validate(
        {
            "model": "m",
            "repository": "r",
            "slo": [f"p99_latency <= {bound_s}s"],
            "space": {"instance_group.count": {"int": [1, 6]}},
            "search": {"seed": luck},
        }
    )
    served = Served(service_s, bound_s, luck)
    plan, events = load_plan(spec.workload, spec.objective, spec.slos), Steps(served)
    rules = BenchRules(
        slos=spec.slos,
        arrivals=plan.arrivals,
        window=lambda load, rate: window_of(spec, load, rate),
        checkpoint=lambda: None,
        measured=lambda _: None,
        brief=lambda load, rate: window_of(spec, load, rate, brief=True),
        soak=lambda load, rate, least_s: soak_of(spec, load, rate, least_s),
    )
    bench: Any = TritonBench(served, lambda _: served, rules, TimeBook())  # type: ignore[arg-type,return-value]
    size = SimpleNamespace(count=len(PROPOSED))
    space: Any = SimpleNamespace(
        current=CURRENT, violations=lambda _: (), alike=operator.eq, size=lambda: size
    )
    none: Any = None
    session = Session(Job(none, spec, none, space, plan), bench, events, TimeBook(), lambda: None)
    searcher: Any = Scripted()
    trials, _ = search(session, searcher)
    bench.enter(Stage.CONFIRMATION)
    verdict = probe_overload(session, prove(session, trials))
    events.begin("")
    if verdict.status is not Status.IMPROVED:
        print(f"run {luck}: {verdict.status.value}: {verdict.reasons}", flush=True)
    soaked = None if verdict.winner is None else verdict.winner.soak
    credited = None if soaked is None else soaked.credited_level
    return Run(dict(events.spent_s), credited, sum(len(t.points) for t in trials))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=12)
    options = parser.parse_args()
    for name, (service_s, bound_s) in MODELS.items():
        runs = [run_once(service_s, bound_s, luck) for luck in range(options.runs)]
        best = server_of(PROPOSED[0], service_s, bound_s)
        true, credited = true_capacity(best), [r.credited for r in runs if r.credited]
        late = [
            long_run_late(best, c, [50 * k + i for i in range(TRUTHS)])
            for k, c in enumerate(credited)
        ]
        steps = dict.fromkeys(step for r in runs for step in r.spent_s if step)
        minutes = {s: fmean(r.spent_s.get(s, 0.0) for r in runs) / 60.0 for s in steps}
        told = ", ".join(f"{step} {spent:.1f}" for step, spent in minutes.items())
        totals = [sum(r.spent_s.values()) / 60.0 for r in runs]
        print(
            f"SIMULATED {name}: {len(runs)} runs, minutes of load {median(totals):.1f} in the "
            f"median, {max(totals):.1f} at most\n  {told}\n  credited {len(credited)} times, "
            f"{median(credited) / true:.3f} of {true:.3g}/s in the median, at least "
            f"{min(credited) / true:.3f}; false {np.mean(np.array(late) > ALLOWED):.0%}, late "
            f"{np.mean(late):.2%} in the mean, {max(late):.2%} at most",
            flush=True,
        )


if __name__ == "__main__":
    main()
