"""How well the twin predicts configs and loads it was not fitted to, from recorded measurements.

    python benchmarks/twin_accuracy.py [--points]

The first six configs of each recording (``twin_record.py``) are fitted, all others predicted.
Open-loop throughput below saturation is the offered load, which is no feat: throughput is given
for closed loops, where it is what the config can do, and over all points.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from tuner.load.measurement import Measurement
from tuner.modelconfig.message import parse
from tuner.run.trial import Trial, TrialState
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.twin.costs import Figure
from tuner.twin.fit import Prediction, Twin, fit
from tuner.twin.model import Unmodelled
from tuner.twin.observation import Setting

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "cases" / "recorded"
MODELS = ("emulated-accelerator", "tiny-bert")
FITTED = 6


@dataclass(frozen=True)
class Accuracy:
    """Median absolute errors as shares; ``inside`` is how often an interval held the p99."""

    throughput: float
    closed_throughput: float
    p50: float
    p99: float
    spearman: float
    inside: float


def read(model: str) -> list[Trial]:
    """The recording as finished trials."""
    path = RECORDED / f"twin-{model}.jsonl.gz"
    trials = []
    with gzip.open(path, "rt") as file:
        for number, line in enumerate(map(json.loads, file)):
            points = tuple(Point(Measurement.from_json(p), (), None) for p in line["points"])
            candidate = Candidate.from_json(line["fields"])
            trials.append(Trial(number, candidate, TrialState.MEASURED, points))
    return trials


def setting(model: str) -> Setting:
    path = ROOT / "model_repository" / model / "config.pbtxt"
    return Setting(parse(path.read_text(), str(path)))


def compare(
    twin: Twin, trials: Sequence[Trial], show: bool = False
) -> tuple[Accuracy, list[tuple[Measurement, Prediction]]]:
    pairs: list[tuple[Measurement, Prediction]] = []
    closed: list[tuple[float, float]] = []
    for trial in trials:
        scheduler = twin.setting.scheduler(trial.candidate)
        assert not isinstance(scheduler, Unmodelled)
        if show:
            print(dict(trial.candidate.fields))
        for point in trial.points:
            m = point.measurement
            traffic = twin.setting.traffic(m.load, m.duration_s, m.seed)
            p = twin.predict_traffic(scheduler, traffic, m.seed)
            pairs.append((m, p))
            if show:
                print(
                    f"   {m.load!s:>16} {m.throughput_infer_per_s:6.0f}/s"
                    f" {p.throughput_infer_per_s.value:6.0f}"
                    f"  p50 {m.p50_latency_us / 1e3:6.1f} {p.p50_latency_us.value / 1e3:6.1f}"
                    f"  p99 {m.p99_latency_us / 1e3:6.1f} {p.p99_latency_us.value / 1e3:6.1f}"
                    f" [{p.p99_latency_us.low / 1e3:.1f}, {p.p99_latency_us.high / 1e3:.1f}]"
                )
            if not m.load.arrivals.open_loop:
                closed.append((m.throughput_infer_per_s, p.throughput_infer_per_s.value))

    def off(figure: Figure, only_closed: bool = False) -> float:
        chosen = [(m, p) for m, p in pairs if not (only_closed and m.load.arrivals.open_loop)]
        errors = [
            abs(getattr(p, figure.value).value / getattr(m, figure.value) - 1.0) for m, p in chosen
        ]
        return float(np.median(errors))

    inside = [p.p99_latency_us.low <= m.p99_latency_us <= p.p99_latency_us.high for m, p in pairs]
    order = spearmanr(*np.array(closed).T).statistic
    return (
        Accuracy(
            throughput=off(Figure.THROUGHPUT),
            closed_throughput=off(Figure.THROUGHPUT, only_closed=True),
            p50=off(Figure.P50),
            p99=off(Figure.P99),
            spearman=float(order),
            inside=float(np.mean(inside)),
        ),
        pairs,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", action="store_true", help="show every point")
    parser.add_argument("--model", choices=MODELS, action="append")
    args = parser.parse_args()
    for model in args.model or MODELS:
        trials = read(model)
        begin = time.perf_counter()
        twin = fit(trials[:FITTED], setting(model))
        assert isinstance(twin, Twin), twin
        seconds = time.perf_counter() - begin
        print(f"{model}: fitted to {FITTED} configs in {seconds:.1f} s")
        print("  ", twin.costs.service)
        print("  ", twin.costs.way)
        print(
            "   fit off:",
            {f.name: round(v, 3) for f, v in twin.fitness.off.items()},
            twin.fitness.reason,
        )
        if args.points:
            print("fitted:")
            compare(twin, trials[:FITTED], show=True)
            print("predicted:")
        accuracy, pairs = compare(twin, trials[FITTED:], args.points)
        print(f"   {len(pairs)} points of {len(trials) - FITTED} configs predicted:")
        print(
            f"   throughput {accuracy.throughput:.1%} off in the median"
            f" (closed loops {accuracy.closed_throughput:.1%})"
        )
        print(
            f"   p50 {accuracy.p50:.1%}, p99 {accuracy.p99:.1%} off in the median;"
            f" {accuracy.inside:.0%} of p99 inside their interval"
        )
        print(f"   Spearman of configs by what they can do: {accuracy.spearman:.3f}")


if __name__ == "__main__":
    main()
