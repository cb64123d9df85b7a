"""How well the twin predicts configs and loads it was not fitted to, from recorded measurements.

    python benchmarks/twin_accuracy.py [--points]

The twin is fitted to the first six configs of each recording (``twin_record.py``) as measured in
the first round. All others are predicted and compared with the mean of all rounds. Open-loop
throughput below saturation is just the offered load and trivial to predict. So throughput is given
separately for closed loops, where it is what the config can do, and over all points.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from tuner.measurement.measurement import Measurement
from tuner.modelconfig.served import read_served
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.twin.costs import Figure, figures_of
from tuner.twin.fitting import Z90, Twin, fit
from tuner.twin.model import Unmodelled
from tuner.twin.observation import Setting
from tuner.twin.system import Network, Traffic

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "cases" / "recorded"
MODELS = ("emulated-accelerator", "tiny-bert")
FITTED = 6
#: Cores of the machine that both were recorded on, shared by server and client.
CORES = 2


@dataclass(frozen=True)
class Accuracy:
    """Median absolute errors as shares, and the order of the configs.

    ``inside``: how often an interval held a round's p99; None where there are none.
    """

    throughput: float
    closed_throughput: float
    p50: float
    p99: float
    spearman: float
    inside: float | None = None


@dataclass(frozen=True)
class Range:
    """A prediction with its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    throughput_infer_per_s: Range
    p50_latency_us: Range
    p90_latency_us: Range
    p95_latency_us: Range
    p99_latency_us: Range


@dataclass(frozen=True)
class Compared:
    """One load of one config, measured in every round and predicted for each round's arrivals."""

    measured: tuple[Measurement, ...]
    predicted: tuple[Prediction, ...]

    @property
    def closed(self) -> bool:
        return not self.measured[0].load.arrivals.open_loop

    def middle(self, figure: Figure) -> tuple[float, float]:
        """Predicted and measured, each the geometric mean of the rounds."""
        return (
            _middle([getattr(p, figure.value).value for p in self.predicted]),
            _middle([getattr(m, figure.value) for m in self.measured]),
        )

    def split(self, figure: Figure) -> list[tuple[float, float]]:
        """Each round, and the geometric mean of the others."""
        values = [getattr(m, figure.value) for m in self.measured]
        return [(v, _middle([*values[:n], *values[n + 1 :]])) for n, v in enumerate(values)]

    def held(self) -> list[bool]:
        """Whether a round's p99 was inside its interval."""
        return [
            p.p99_latency_us.low <= m.p99_latency_us <= p.p99_latency_us.high
            for m, p in zip(self.measured, self.predicted, strict=True)
        ]


def _middle(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def read(model: str) -> list[list[Trial]]:
    """The recording as finished trials, a list for each round; configs in the same order in all."""
    path = RECORDED / f"twin-{model}.jsonl.gz"
    rounds: dict[int, dict[str, tuple[Candidate, tuple[Point, ...]]]] = {}
    with gzip.open(path, "rt") as file:
        for line in map(json.loads, file):
            points = tuple(Point(Measurement.from_json(p), (), None) for p in line["points"])
            own = rounds.setdefault(line.get("round", 0), {})
            own[line["candidate"]] = Candidate.from_json(line["fields"]), points
    first, *_ = rounds.values()
    return [
        [Trial(n, own[key][0], TrialState.MEASURED, own[key][1]) for n, key in enumerate(first)]
        for own in rounds.values()
    ]


def setting(model: str) -> Setting:
    return Setting(read_served(ROOT / "model_repository", {"": model}), cores=CORES)


def compare(twin: Twin, rounds: Sequence[Sequence[Trial]]) -> list[Compared]:
    """Every load of every config."""
    return [
        Compared(
            tuple(t.points[load].measurement for t in trials),
            tuple(_predict(twin, t, load) for t in trials),
        )
        for trials in zip(*rounds, strict=True)
        for load in range(len(trials[0].points))
    ]


def _predict(twin: Twin, trial: Trial, load: int) -> Prediction:
    m = trial.points[load].measurement
    network = twin.setting.network(trial.candidate)
    assert not isinstance(network, Unmodelled)
    return predict(twin, network, twin.setting.traffics(m.load, m.duration_s, m.seed), m.seed)


def predict(twin: Twin, network: Network, traffics: Sequence[Traffic], seed: int) -> Prediction:
    """What a measurement would show, with the spread of resampled fits and unexplained noise."""
    best = figures_of(twin.costs.simulate(network, traffics, seed))
    others = [figures_of(c.simulate(network, traffics, seed)) for c in twin.refits]
    ranges = {
        figure.value: _range(best[figure], [o[figure] for o in others], twin.noise[figure])
        for figure in Figure
    }
    return Prediction(**ranges)


def _range(value: float, others: Sequence[float], noise: float) -> Range:
    if not value > 0.0:
        return Range(value, 0.0, float("inf"))
    logs = np.log(np.maximum([*others, value], 1e-9) / value)
    width = float(np.exp(Z90 * np.hypot(noise, np.sqrt(np.mean(logs**2)))))
    return Range(value, value / width, value * width)


#: An estimate of one number of a load, and the value to compare it with.
Told = Callable[[Compared, Figure], tuple[float, float]]


def accuracy_of(pairs: Sequence[Compared]) -> Accuracy:
    """How well the twin predicts the mean of the rounds."""
    inside = float(np.mean([held for pair in pairs for held in pair.held()]))
    return replace(_errors(pairs, [Compared.middle]), inside=inside)


def repeatability(pairs: Sequence[Compared]) -> Accuracy | None:
    """How well each round predicts the mean of the others, which is hard to beat.

    None where there is one round only.
    """
    rounds = len(pairs[0].measured)
    if rounds == 1:
        return None
    return _errors(pairs, [lambda pair, f, n=n: pair.split(f)[n] for n in range(rounds)])


def _errors(pairs: Sequence[Compared], tellers: Sequence[Told]) -> Accuracy:
    """Over all tellers together; the order is the mean of theirs."""
    closed = [pair for pair in pairs if pair.closed]

    def off(figure: Figure, chosen: Sequence[Compared] = pairs) -> float:
        told = [tell(pair, figure) for pair in chosen for tell in tellers]
        return float(np.median([abs(said / true - 1.0) for said, true in told]))

    def order(tell: Told) -> float:
        told = np.array([tell(pair, Figure.THROUGHPUT) for pair in closed])
        return float(spearmanr(*told.T).statistic)

    return Accuracy(
        throughput=off(Figure.THROUGHPUT),
        closed_throughput=off(Figure.THROUGHPUT, closed),
        p50=off(Figure.P50),
        p99=off(Figure.P99),
        spearman=float(np.mean([order(tell) for tell in tellers])),
    )


def _show(pairs: Sequence[Compared]) -> None:
    for pair in pairs:
        m, p = pair.measured[0], pair.predicted[0]
        throughput, p50, p99 = map(pair.middle, (Figure.THROUGHPUT, Figure.P50, Figure.P99))
        print(
            f"   {m.load!s:>16} {throughput[1]:6.0f}/s {throughput[0]:6.0f}"
            f"  p50 {p50[1] / 1e3:6.1f} {p50[0] / 1e3:6.1f}"
            f"  p99 {p99[1] / 1e3:6.1f} {p99[0] / 1e3:6.1f}"
            f" [{p.p99_latency_us.low / 1e3:.1f}, {p.p99_latency_us.high / 1e3:.1f}]"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", action="store_true", help="show every point")
    parser.add_argument("--model", choices=MODELS, action="append")
    args = parser.parse_args()
    for model in args.model or MODELS:
        rounds = read(model)
        begin = time.perf_counter()
        twin = fit(rounds[0][:FITTED], setting(model))
        assert isinstance(twin, Twin), twin
        seconds = time.perf_counter() - begin
        print(f"{model}: fitted to {FITTED} configs in {seconds:.1f} s")
        print("  ", *twin.costs.services)
        print("  ", twin.costs.way)
        print(
            "   fit off:",
            {f.name: round(v, 3) for f, v in twin.fitness.off.items()},
            twin.fitness.reason,
        )
        if args.points:
            print("fitted:")
            _show(compare(twin, [own[:FITTED] for own in rounds]))
            print("predicted:")
        pairs = compare(twin, [own[FITTED:] for own in rounds])
        if args.points:
            _show(pairs)
        print(f"   {len(pairs)} points of {len(rounds[0]) - FITTED} configs predicted:")
        _print(accuracy_of(pairs))
        floor = repeatability(pairs)
        if floor is not None:
            print("   one round against the mean of the others:")
            _print(floor)


def _print(found: Accuracy) -> None:
    print(
        f"   throughput {found.throughput:.1%} off in the median"
        f" (closed loops {found.closed_throughput:.1%});"
        f" p50 {found.p50:.1%}, p99 {found.p99:.1%};"
        f" Spearman of configs by what they can do {found.spearman:.3f}"
    )
    if found.inside is not None:
        print(f"   {found.inside:.0%} of p99 inside their interval")


if __name__ == "__main__":
    main()
