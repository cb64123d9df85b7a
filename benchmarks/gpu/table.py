"""The tables of a GPU run: configs side by side, and the seeds' claims beside what was measured.

    python benchmarks/gpu/table.py DIR > table.md

DIR holds the unpacked results of the stages of `run.py`. What is missing is marked as missing;
nothing is guessed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

MIB = 1 << 20
NOTHING = "not measured"
#: Mean latency times throughput is the number in flight; rows that are further off are listed.
LITTLE = 0.10
NO_GPU = (
    "**No GPU.** This only tried the path, with small models on a CPU: nothing here says anything "
    "about a GPU."
)
BERT, HEAVY = "bert-base", "bert-heavy"
UNBATCHED, RECOMMENDED = "unbatched", "recommended"
OURS, DEFAULT, MODEL_ANALYZER = "bert-100ms", "bert-default", "bert-model-analyzer"
#: The largest shares of the GPU's memory that the seeds allow to be used.
FORMULA_SHARE, HEADROOM_SHARE = 0.85, 0.80

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One `tune run`: its result, its manifest, its trials."""

    result: Facts
    manifest: Facts
    trials: tuple[Facts, ...]

    @property
    def name(self) -> str:
        return Path(self.manifest["spec_path"]).stem

    @property
    def outside_measuring(self) -> float:
        """Share of the total time in which nothing was measured."""
        time = self.result["time"]
        return 1.0 - float(time["measuring_s"]) / float(time["wall_s"])


@dataclass(frozen=True)
class Figures:
    """Everything that was measured: runs by the name of their spec, lines of the sweeps."""

    runs: Mapping[str, Run]
    rows: tuple[Facts, ...]

    @classmethod
    def read(cls, directory: Path) -> Figures:
        """The newest run of each spec, and all lines of all sweeps."""
        runs = {}
        for path in sorted(directory.rglob("result.json"), key=lambda p: p.parent.name):
            run = Run(
                json.loads(path.read_text()),
                json.loads(path.with_name("manifest.json").read_text()),
                tuple(_lines(path.with_name("trials.jsonl"))),
            )
            runs[run.name] = run
        files = [directory.rglob(f"{name}.jsonl") for name in ("loads", "memory", "transports")]
        return cls(runs, tuple(row for paths in files for f in sorted(paths) for row in _lines(f)))

    @property
    def gpus(self) -> list[str]:
        """Names of all GPUs in the runs and sweeps."""
        tuned = (gpu["name"] for run in self.runs.values() for gpu in run.manifest["gpus"])
        swept = (name for row in self.rows if row["kind"] == "machine" for name in row["gpus"])
        return sorted({*tuned, *swept})

    def loads(self, config: str, most: float = math.inf) -> list[Facts]:
        """Closed loops of one config with at most so many in flight."""
        rows = [r for r in self.rows if r["kind"] == "load" and r["name"] == config]
        return [r for r in rows if r["concurrency"] <= most]

    def memory(self, model: str) -> dict[int, float]:
        """MiB in use by instances; 0 is the server with nothing loaded."""
        rows = [r for r in self.rows if r["kind"] == "memory" and r["model"] == model]
        return {r["instances"]: r["used_mib"] for r in rows if "used_mib" in r}

    def total_mib(self) -> float | None:
        return next((r["total_mib"] for r in self.rows if "total_mib" in r), None)

    def refused(self, model: str) -> Facts | None:
        rows = (r for r in self.rows if r["kind"] == "memory" and r["model"] == model)
        return next((r for r in rows if "refused" in r), None)


def _lines(path: Path) -> Iterator[Facts]:
    if path.exists():
        yield from (json.loads(line) for line in path.read_text().splitlines() if line.strip())


def configs(figures: Figures) -> Iterator[str]:
    """The config of each run, current and best, grouped by objective."""
    yield "| within | config | goodput /s | p99 ms | mean batch | GPU memory | GPU busy | minutes |"
    yield "|---|---|---|---|---|---|---|---|"
    ours = figures.runs.get(OURS)
    if ours:
        yield _config("100 ms: unbatched", ours.result["baseline"], None)
    sides = [
        (DEFAULT, "100 ms: Triton's default dynamic batching"),
        (MODEL_ANALYZER, "100 ms: Model Analyzer's search"),
        (OURS, "100 ms: ours"),
    ]
    for name, label in sides:
        if name in figures.runs:
            yield _config(label, figures.runs[name].result["winner"], figures.runs[name])
    for name, run in figures.runs.items():
        if name not in (OURS, DEFAULT, MODEL_ANALYZER):
            yield _config(f"{name}: unbatched", run.result["baseline"], None)
            yield _config(f"{name}: ours", run.result["winner"], run)


def _config(label: str, side: Facts | None, run: Run | None) -> str:
    minutes = "-" if run is None else f"{run.result['time']['wall_s'] / 60:.1f}"
    if side is None:
        status = run.result["status"] if run else NOTHING
        return f"| {label} | none: {status} | - | - | - | - | - | {minutes} |"
    measured = [point["measurement"] for point in side["rounds"]]
    memory = _known(measured, "host", "gpu_memory_used_bytes")
    busy = _known(measured, "host", "gpu_utilization")
    sizes = [
        m["server"]["inference_count"] / m["server"]["execution_count"]
        for m in measured
        if m["server"] and m["server"]["execution_count"]
    ]
    cells = [
        label,
        _fields(side),
        _goodput(side),
        _number(side["p99_latency_us"], 1e3),
        _number(median(sizes) if sizes else None),
        f"{max(memory) / MIB:.0f} MiB" if memory else NOTHING,
        f"{100 * median(busy):.0f} %" if busy else NOTHING,
        minutes,
    ]
    return f"| {' | '.join(cells)} |"


def _goodput(side: Facts) -> str:
    """What it is credited with, or the most that a saturated server answered."""
    if side["credited_infer_per_s"] is None and side["at_most_infer_per_s"] is not None:
        return f"at most {_number(side['at_most_infer_per_s'])}"
    return _number(side["credited_infer_per_s"])


def _known(measured: Sequence[Facts], part: str, name: str) -> list[float]:
    return [m[part][name] for m in measured if m[part].get(name) is not None]


def _fields(side: Facts) -> Facts:
    """The fields of the one model."""
    return next(iter(side["candidate"]["models"].values()), {})


def _fields(side: Facts) -> str:
    """Only what is set: ``instances 2, max batch 32``."""
    short = {k.rpartition(".")[2]: v for k, v in _fields(side).items() if v not in (None, False)}
    changes = [*(f"{k} {v}" for k, v in short.items()), *side["candidate"]["server_args"]]
    return ", ".join(changes) or "as it was"


def _number(value: float | None, unit: float = 1.0) -> str:
    return NOTHING if value is None else f"{value / unit:.4g}"


def how_runs_went(figures: Figures) -> Iterator[str]:
    yield (
        "| run | status | gain over unbatched (95 %) | trials, of them failed | out of memory "
        "| outside measuring |"
    )
    yield "|---|---|---|---|---|---|"
    for name, run in figures.runs.items():
        counts = run.result["trials"]
        memory = sum("out of memory" in json.dumps(t["reason"]).lower() for t in run.trials)
        cells = [
            name,
            run.result["status"],
            _gain(run) or "-",
            f"{counts['asked']}, {counts['failed']}",
            str(memory),
            f"{100 * run.outside_measuring:.0f} %",
        ]
        yield f"| {' | '.join(cells)} |"


def _gain(run: Run | None) -> str | None:
    if run is None or run.result["gain"] is None or run.result["winner"] is None:
        return None
    gain = run.result["gain"]
    ratio = gain["ratio"]
    if gain["at_least"]:
        return f"at least {ratio['low']:.1f} times"
    return f"{ratio['estimate']:.1f} times ({ratio['low']:.1f} to {ratio['high']:.1f})"


def _best(rows: Sequence[Facts]) -> Facts | None:
    return max(rows, key=lambda r: float(r["throughput_infer_per_s"]), default=None)


def _per_s(row: Facts | None) -> str | None:
    return (
        None
        if row is None
        else f"{row['throughput_infer_per_s']:.0f}/s with {row['concurrency']} in flight"
    )


def _p95(rows: Sequence[Facts], levels: Sequence[int]) -> str | None:
    in_range = [r for r in rows if r["concurrency"] in levels]
    said = [f"{r['p95_latency_us'] / 1e3:.1f} ms with {r['concurrency']}" for r in in_range]
    return ", ".join(said) or None


def _recommended_ratio(figures: Figures) -> str | None:
    one, many = _best(figures.loads(UNBATCHED, 16)), _best(figures.loads(RECOMMENDED, 32))
    if one is None or many is None:
        return None
    return f"{many['throughput_infer_per_s'] / one['throughput_infer_per_s']:.1f} times"


def _enough(figures: Figures) -> str | None:
    """The fewest in flight that give 95 % of the best throughput."""
    rows = figures.loads(RECOMMENDED)
    best = _best(rows)
    if best is None:
        return None
    good = 0.95 * best["throughput_infer_per_s"]
    least = min(r["concurrency"] for r in rows if r["throughput_infer_per_s"] >= good)
    most = max(r["concurrency"] for r in rows)
    return f"{least} in flight give 95 % of the most that up to {most} gave"


def per_instance_mib(used: Mapping[int, float]) -> float | None:
    """Memory of each further instance; the first may include what all share."""
    counts = [n for n in used if n > 0]
    if len(counts) < 2:
        return None
    return (used[max(counts)] - used[min(counts)]) / (max(counts) - min(counts))


def _memory_text(figures: Figures) -> str | None:
    used = figures.memory(BERT)
    each = per_instance_mib(used)
    if each is None:
        return None
    first = f"{used[1] - used[0]:.0f} MiB the first, " if {0, 1} <= set(used) else ""
    return f"{first}{each:.0f} MiB each further one"


def _count_text(figures: Figures) -> str | None:
    run, total = figures.runs.get(OURS), figures.total_mib()
    each = per_instance_mib(figures.memory(BERT))
    if run is None or run.result["winner"] is None:
        return None
    count = _fields(run.result["winner"]).get("instance_group.count")
    best = f"best: {'1, as it was' if count is None else count}"
    if not each or not total:
        return best
    share = total * FORMULA_SHARE / each
    return f"{best}; the formula gives {math.ceil(share)} (rounded down {math.floor(share)})"


def _busy_text(figures: Figures) -> str | None:
    said = []
    for config in (UNBATCHED, RECOMMENDED):
        best = _best(figures.loads(config))
        if best and best["gpu_utilization"] is not None:
            said.append(f"{config} {100 * best['gpu_utilization']:.0f} % at {_per_s(best)}")
    return "; ".join(said) or None


def _heavy_text(figures: Figures) -> str | None:
    each, refused = per_instance_mib(figures.memory(HEAVY)), figures.refused(HEAVY)
    if each is None:
        return None
    end = f"; {refused['instances']} refused: {refused['refused'][:80]}" if refused else ""
    return f"{each:.0f} MiB each further instance{end}"


def _headroom_text(figures: Figures) -> str | None:
    used, total = figures.memory(HEAVY), figures.total_mib()
    each = per_instance_mib(used)
    if not each or not total:
        return None
    return f"{max(used)} loaded; the rule allows {math.floor(HEADROOM_SHARE * total / each)}"


@dataclass(frozen=True)
class Claim:
    """One number from the seeds, and how to get ours."""

    number: str
    said: str
    measured: Callable[[Figures], str | None]


CLAIMS = (
    Claim("H1", "10 times the throughput by batching", lambda f: _gain(f.runs.get(OURS))),
    Claim("H2", "45/s without, 1 to 16 in flight", lambda f: _per_s(_best(f.loads(UNBATCHED, 16)))),
    Claim("H3", "480/s with, up to 32", lambda f: _per_s(_best(f.loads(RECOMMENDED, 32)))),
    Claim("H4", "8 to 15 times on an A100", _recommended_ratio),
    Claim("H5", "best with 16 to 32 in flight", _enough),
    Claim("H6", "p95 8 to 12 ms, one instance", lambda f: _p95(f.loads(UNBATCHED), (1,))),
    Claim("H7", "p95 15 to 25 ms, 16 to 32", lambda f: _p95(f.loads(RECOMMENDED), (16, 32))),
    Claim("H10", "about 400 MB each instance", _memory_text),
    Claim("H11", "4 to 6 instances; memory x 0.85 / each, rounded up", _count_text),
    Claim("H12", "larger batches until the GPU is 85 % busy", _busy_text),
    Claim("H24", "4 instances of 4 GB take 16 GB", _heavy_text),
    Claim("H26", "20 % of the memory must stay free", _headroom_text),
)


def claims(figures: Figures) -> Iterator[str]:
    """The seeds' claims beside a GPU's results; those of a CPU have no place there."""
    if not figures.gpus:
        yield "Not measured: no GPU."
        return
    yield "| | the seeds say | measured here |\n|---|---|---|"
    for claim in CLAIMS:
        yield f"| {claim.number} | {claim.said} | {claim.measured(figures) or NOTHING} |"
    yield ""
    low, high = (1e3 * level / 480 for level in (16, 32))
    yield (
        f"H3 and H7 cannot both be true: 480/s with 16 to 32 in flight is {low:.0f} to "
        f"{high:.0f} ms on average (Little's law)."
    )


def littles_law(figures: Figures) -> Iterator[str]:
    """Whether number in flight = throughput x mean latency in every closed loop."""
    rows = [r for r in figures.rows if r["kind"] in ("load", "transport") and "failed" not in r]
    if not rows:
        yield f"Little's law: {NOTHING}."
        return
    off = [(r, in_flight(r)) for r in rows if abs(in_flight(r) / r["concurrency"] - 1) > LITTLE]
    right = len(rows) - len(off)
    yield f"Little's law holds within {100 * LITTLE:.0f} % in {right} of {len(rows)}."
    for row, error in off:
        name = row.get("name") or f"{row['model']}, {row['protocol']}, {row['shared_memory']}"
        yield f"- {name}: {row['concurrency']} in flight, {error:.1f} by throughput and latency"


def in_flight(row: Facts) -> float:
    return float(row["throughput_infer_per_s"] * row["avg_latency_us"] / 1e6)


def transports(figures: Figures) -> Iterator[str]:
    yield "| model | inputs | protocol | shared memory | in flight | infer/s | p50 ms | p99 ms |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in (r for r in figures.rows if r["kind"] == "transport"):
        cells = [row["model"], row["inputs"], row["protocol"], row["shared_memory"]]
        cells.append(str(row["concurrency"]))
        if "failed" in row:
            cells += [f"failed: {' '.join(row['failed'])[:60]}", "-", "-"]
        else:
            cells += [_number(row["throughput_infer_per_s"]), _number(row["p50_latency_us"], 1e3)]
            cells.append(_number(row["p99_latency_us"], 1e3))
        yield f"| {' | '.join(cells)} |"


def page(figures: Figures) -> Iterator[str]:
    """The whole Markdown."""
    gpus = ", ".join(figures.gpus)
    yield f"On {gpus}." if gpus else NO_GPU
    parts = {
        "Configs": configs,
        "Runs": how_runs_went,
        "The seeds' claims": claims,
        "gRPC, HTTP and shared memory": transports,
    }
    for title, part in parts.items():
        yield f"\n## {title}\n"
        yield from part(figures)
    yield ""
    yield from littles_law(figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    print("\n".join(page(Figures.read(parser.parse_args().directory))))


if __name__ == "__main__":
    main()
