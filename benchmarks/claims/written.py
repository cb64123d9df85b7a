"""Which configs a proof writes, rounds and soaks together: SIMULATED queues, the real code.

No server is started (`queues.py`). The other config has the capacity of the current one times a
ratio; their queues may be of different kinds.

    python benchmarks/claims/written.py --runs 100
    python benchmarks/claims/written.py --runs 60 --ratio 1.1

Each config has a noise of 3% from one start of its server to the next. The candidate's answers and
simpler configs are left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from adverse import BATCHES, LONE, AdverseBench, slowdown
from proof import entrant, rules_of
from queues import CURRENT, OTHER, SERVERS, Server, true_capacity

from tuner.proof.measured import MeasuredOnce
from tuner.proof.proof import _Proof
from tuner.proof.rounds import RoundsResult, run_rounds
from tuner.proof.simplest import Simplest
from tuner.record.status import Status

NOISE, ANY_TIME_S = 0.03, 1e9
SLOW_BOUND = replace(LONE, p99_s=1.0)
UNBATCHED = SERVERS["unbatched 6.5 ms, p99 <= 40 ms"]
TO_8 = SERVERS["batches to 8 of 20 + 5n ms, p99 <= 200 ms"]
FOUR = SERVERS["4 x 5 ms (800/s), p99 <= 1 s"]
#: The current and the other config, under the SLO of both.
PAIRS: dict[str, tuple[Server, Server]] = {
    "unbatched, the same; p99 <= 40 ms": (UNBATCHED, UNBATCHED),
    "unbatched, the same; p99 <= 100 ms": (LONE, LONE),
    "batches to 8, the same; p99 <= 200 ms": (TO_8, TO_8),
    "batches to 8, unbatched; p99 <= 100 ms": (BATCHES, LONE),
    "unbatched, batches to 8; p99 <= 100 ms": (LONE, BATCHES),
    "one instance, four; p99 <= 1 s": (SLOW_BOUND, FOUR),
    "four instances, one; p99 <= 1 s": (FOUR, SLOW_BOUND),
}


class SoakedProof(_Proof):
    """What follows the rounds, on a simulated bench."""

    def __init__(self, bench: AdverseBench, measured: MeasuredOnce, rules: Any) -> None:
        self._session: Any = SimpleNamespace(
            bench=bench,
            events=SimpleNamespace(note=lambda _: None, phase=lambda _: None),
            current=CURRENT,
            accept_unsoaked=False,
            spec=SimpleNamespace(confirm=rules.confirm, slos=rules.slos, objective=rules.objective),
            plan=rules.plan,
        )
        self._measured, self._rules = measured, rules
        self._begun = time.monotonic()
        self._for_rounds_s, self._until = ANY_TIME_S, self._begun + ANY_TIME_S
        self._enough = 1.0 + float(rules.confirm.min_gain)
        self._reasons, self._left_out, self._trials = [], (), []

    def writes(self, race: RoundsResult) -> bool:
        return self._take_best(race, race.current.proved()).status is Status.IMPROVED

    def _simplest(self, race: Any, winner: Any, level: float) -> Simplest:
        return Simplest(winner.candidate, winner.candidate, ())

    def _check_answers(self, candidate: Any, level: float) -> None: ...

    def _begin(self, *_: Any) -> None: ...


def proved(current: Server, other: Server, ratio: float, run: int) -> tuple[RoundsResult, bool]:
    """The rounds, and whether the other config is written after its soaks."""
    rules, rng = rules_of(current, run)
    aim = ratio * true_capacity(current)
    same = other == current and ratio == 1.0
    slower = {OTHER: 1.0 if same else slowdown(other, aim)}
    bench = AdverseBench(current, run, slower, NOISE, servers={CURRENT: current, OTHER: other})
    now, finalist = (entrant(current, candidate, 1.0, rng) for candidate in (CURRENT, OTHER))
    finalist = replace(finalist, level=ratio * finalist.level, at_most=ratio * finalist.at_most)
    measured = MeasuredOnce(bench)  # type: ignore[arg-type]
    race = run_rounds(measured, now, [finalist], rules, lambda: False, lambda *_: None)
    written = bool(race.better) and SoakedProof(bench, measured, rules).writes(race)
    return race, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--ratio", type=float, default=1.0)
    parser.add_argument("--only", choices=PAIRS)
    options = parser.parse_args()
    print(
        "| current, other | ratio | called better | kept | written | ratio, median | rounds, mean |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, (current, other) in PAIRS.items():
        if options.only not in (None, name):
            continue
        runs = [proved(current, other, options.ratio, run) for run in range(options.runs)]
        better, kept = sum(bool(r.better) for r, _ in runs), sum(r.no_gain for r, _ in runs)
        written = sum(w for _, w in runs)
        estimates = [r.ratios[OTHER].estimate for r, _ in runs if OTHER in r.ratios]
        seen = f"{median(estimates):.3f}" if estimates else "-"
        counts = f"{better} of {options.runs} | {kept} | {written}"
        rounds = fmean(len(r.current.rounds) for r, _ in runs)
        print(f"| {name} | {options.ratio:g} | {counts} | {seen} | {rounds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
