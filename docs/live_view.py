"""A made-up run on the live view of `tune run`: nothing in it is measured.

python docs/live_view.py                  watch it, on a terminal
python docs/live_view.py --svg FILE.svg   its last screen as a picture
"""

from __future__ import annotations

import argparse
import io
import json
import re
import time
from pathlib import Path

from rich.console import Console

from tuner.cli.live import LiveEvents
from tuner.measurement.measurement import Arrivals, LatencySource, LoadPoint, Measurement
from tuner.score.judge import passes
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.slo import Objective, Slo
from tuner.steps.events import Events

SLOS = (Slo.parse("p99_latency <= 40ms"), Slo.parse("error_rate <= 0%"))
COUNT, BATCH = "instance_group.count", "max_batch_size"
PREFERRED = "dynamic_batching.preferred_batch_size"
DELAY = "dynamic_batching.max_queue_delay_microseconds"
CURRENT = Candidate.of_models({"": {COUNT: 1, BATCH: 8, PREFERRED: None, DELAY: None}})
#: Config, and the load it sustains; None: Triton refuses it.
TRIALS: tuple[tuple[Candidate, float | None], ...] = (
    (CURRENT, 121.0),
    (Candidate.of_models({"": {COUNT: 2, BATCH: 16, PREFERRED: None, DELAY: 0}}), 1410.0),
    (Candidate.of_models({"": {COUNT: 4, BATCH: 32, PREFERRED: (16,), DELAY: 8000}}), 1380.0),
    (Candidate.of_models({"": {COUNT: 3, BATCH: 32, PREFERRED: (8, 16), DELAY: 5200}}), None),
    (Candidate.of_models({"": {COUNT: 2, BATCH: 32, PREFERRED: (4,), DELAY: 951}}), 2290.0),
    (Candidate.of_models({"": {COUNT: 2, BATCH: 32, PREFERRED: (8,), DELAY: 1210}}), 2120.0),
)
REFUSED = "load failed: failed to allocate pinned memory for 3 instances"
#: A real trial takes longer than all of these, so the view has more to do here.
DEPLOY_S, MEASURE_S = 0.4, 1.0


def tell(events: Events, seconds: float) -> None:
    """A search of ``seconds``: trials of one deployment and up to three measurements each."""
    until = time.monotonic() + seconds
    best: Trial | None = None
    events.started(Path("results/20250301-100000-emulated-accelerator"), 24, 284_484)
    events.phase("searching")
    number = 0
    while time.monotonic() < until:
        candidate, capacity = TRIALS[number % len(TRIALS)]
        events.trial_started(number, candidate, CURRENT)
        time.sleep(DEPLOY_S)
        trial = _trial(events, number, candidate, capacity, until)
        best = _better(best, trial)
        events.trial_finished(trial, best)
        number += 1
    events.trial_started(number, Candidate.of_models({"": {**CURRENT.of(""), DELAY: 700}}), CURRENT)


def _trial(
    events: Events, number: int, candidate: Candidate, capacity: float | None, until: float
) -> Trial:
    if capacity is None:
        return Trial(number, candidate, TrialState.FAILED, reason=REFUSED, refused=True)
    points: list[Point] = []
    for share in (0.8, 1.1, 1.0):
        time.sleep(min(MEASURE_S, max(until - time.monotonic(), 0.0)))
        points.append(judge_point(SLOS, _measurement(share * capacity, share)))
        events.measured(points[-1])
    score = score_points(Objective.goodput(), points)
    return Trial(number, candidate, TrialState.MEASURED, points=tuple(points), score=score)


def _better(best: Trial | None, trial: Trial) -> Trial | None:
    if trial.score is None or not passes(trial.points[-1].slo):
        return best
    if best is None or best.score is None or trial.score.value > best.score.value:
        return trial
    return best


def _measurement(rate: float, share: float) -> Measurement:
    """At a ``share`` of the load that the config sustains."""
    p99_us = 37_000.0 * share**4
    return Measurement(
        load=LoadPoint(Arrivals.POISSON, rate),
        seed=1,
        duration_s=5.0,
        completed_count=int(5.0 * rate),
        failed_count=0,
        throughput_infer_per_s=rate,
        avg_latency_us=p99_us / 3,
        p50_latency_us=p99_us / 3,
        p90_latency_us=p99_us / 2,
        p95_latency_us=p99_us * 0.7,
        p99_latency_us=p99_us,
        source=LatencySource.REQUESTS,
    )


def picture(path: Path, seconds: float) -> None:
    """The screen at the end of the run, without the external fonts that rich refers to."""
    console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True)
    with LiveEvents(Console(file=io.StringIO(), width=100)) as events:
        tell(events, seconds)
        console.print(events.view())
    svg = console.export_svg(title="tune run")
    path.write_text(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--svg", type=Path, help="write the last screen there")
    parser.add_argument("--usage", action="store_true", help="print what it cost, as JSON")
    given = parser.parse_args()
    if given.svg is not None:
        picture(given.svg, given.seconds)
        return
    with LiveEvents() as events:
        cpu_s, wall_s = time.process_time(), time.monotonic()
        tell(events, given.seconds)
        cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
    if given.usage:
        print(json.dumps({"cpu_s": cpu_s, "wall_s": wall_s}))


if __name__ == "__main__":
    main()
