"""Synthetic runs: made up by a formula, nothing here was measured.

A toy accelerator serves batches; latency rises as the load nears its capacity. Enough to give
every part of a report something to show: failures, pruned trials, a cache, a GPU.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders.candidates import candidate_of, fields_of, the_one
from builders.reasons import said

from tuner.load.probes.overload import Overload
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, ServerStatistics, Slice
from tuner.reason import Reason
from tuner.record.confirmation import Repeat, Role
from tuner.record.manifest import KeptConfig, Manifest
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import RejectedFacts
from tuner.record.store import RunStore
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Predicted, Trial, TrialState, TrialTime
from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.slo import Objective, Slo
from tuner.writeback.plan import FilePlan, sha256_of, text_with

RUNS = Path(__file__).parents[1] / "runs"


#: What runs tell of a load generator at its limit.
BUSY = Reason.of_text("the load generator used 1.9 of 2 cores")


def stored_run(parent: Path, name: str = "ensemble") -> Path:
    """A copy of a run of `tests/runs`, to be changed."""
    run_id = json.loads((RUNS / name / "manifest.json").read_text())["run_id"]
    return Path(shutil.copytree(RUNS / name, parent / run_id))


COUNT, BATCH = "instance_group.count", "max_batch_size"
PREFERRED = "dynamic_batching.preferred_batch_size"
DELAY = "dynamic_batching.max_queue_delay_microseconds"

CONFIG = 'name: "toy"\nbackend: "python"\n\n# one at a time\nmax_batch_size: 1\n'
REFUSED = (
    "load failed for model 'toy': version 1 is at UNAVAILABLE state: Internal: "
    "failed to allocate <pinned> memory & gave up: out of memory"
)


def measure(candidate: Candidate, rate: float, seed: int, *, gpu: bool = False) -> Measurement:
    """What the toy would show at ``rate`` requests per second."""
    noise = random.Random(f"{candidate.key}{rate}{seed}")
    delay = number(fields_of(candidate).get(DELAY))
    batch = batch_size(candidate, rate)
    instances = number(fields_of(candidate).get(COUNT))
    service_us = 4000 + 120 * batch + 500 * (instances - 2) ** 2
    capacity = 0.97e6 * batch / service_us
    busy = min(rate / capacity, 0.995)
    queue_us = (0.5 * delay + service_us * busy / (2 * (1 - busy))) * noise.uniform(0.95, 1.05)
    served = min(rate, capacity) * noise.uniform(0.985, 1.0)
    average = 350 + queue_us + service_us
    hits = int(served * 3 * 0.4) if candidate.cache_bytes else 0
    completed = int(served * 3)
    executed = max(int((completed - hits) / batch), 1)
    counted = ServerStatistics(
        success_count=completed,
        fail_count=0,
        inference_count=completed - hits,
        execution_count=executed,
        queue_us=queue_us,
        compute_input_us=service_us * 0.05,
        compute_infer_us=service_us * 0.9,
        compute_output_us=service_us * 0.05,
        cache_hit_count=hits,
        cache_miss_count=completed - hits if hits else 0,
        batch_stats=batches(batch, executed, service_us),
    )
    return Measurement(
        load=LoadPoint(Arrivals.POISSON, rate),
        seed=seed,
        duration_s=3.0,
        completed_count=completed,
        failed_count=0,
        throughput_infer_per_s=served,
        avg_latency_us=average,
        p50_latency_us=average * 0.93,
        p90_latency_us=average * 1.4,
        p95_latency_us=average * 1.6,
        p99_latency_us=average * noise.uniform(1.7, 1.9),
        sent_per_s=rate,
        late_sends=0.001,
        client_send_us=40.0,
        client_recv_us=30.0,
        network_us=250.0,
        server=counted,
        models={"toy": counted},
        host=HostUse(
            cpu_percent=62.0,
            pending_requests_max=round(rate * queue_us / 1e6 + 1),
            gpu_memory_used_bytes=int(2e9 + 4e8 * instances) if gpu else None,
            gpu_utilization=busy if gpu else None,
            gpu_power_w=90 + 200 * busy if gpu else None,
        ),
        wall_s=4.1,
        warnings=(BUSY,) if rate > 1800 else (),
        command=("/opt/bin/perf_analyzer", "-m", "toy", "--request-intervals", "it's <a> file"),
    )


def batch_size(candidate: Candidate, rate: float) -> int:
    largest = int(number(fields_of(candidate).get(BATCH)))
    preferred = fields_of(candidate).get(PREFERRED)
    wanted = int(max(preferred)) if isinstance(preferred, tuple) else largest  # type: ignore[call-overload]
    gathered = 1 + rate * (number(fields_of(candidate).get(DELAY)) + 4000) / 1e6
    return int(max(1, min(largest, wanted, gathered)))


def batches(batch: int, executions: int, service_us: float) -> tuple[tuple[int, int, int], ...]:
    sizes = sorted({max(1, batch // 4), max(1, batch // 2), batch})
    shares = [0.1, 0.2, 0.7][-len(sizes) :]
    return tuple(
        (size, max(1, int(executions * share)), int(executions * share * service_us * 1000))
        for size, share in zip(sizes, shares, strict=True)
    )


def number(value: FieldValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


@dataclasses.dataclass(frozen=True)
class Toy:
    """How a synthetic run is made."""

    trials: int = 40
    seed: int = 0
    slo: tuple[str, ...] = ("p99_latency <= 40ms", "error_rate <= 0%")
    objective: str = "maximize goodput"
    gpu: bool = False
    predicts: bool = False
    model: str = "toy"

    @property
    def slos(self) -> tuple[Slo, ...]:
        return tuple(Slo.parse(text) for text in self.slo)

    @property
    def current(self) -> Candidate:
        fields = {COUNT: 1, BATCH: 1, PREFERRED: None, DELAY: None}
        return candidate_of(fields, model=self.model)


CURRENT = Toy().current


def make_trials(toy: Toy) -> list[Trial]:
    draw = random.Random(toy.seed)
    candidates = [toy.current]
    while len(candidates) < toy.trials:
        largest = draw.choice([4, 8, 16, 32])
        fields: dict[str, FieldValue] = {
            COUNT: draw.randint(1, 4),
            BATCH: largest,
            PREFERRED: draw.choice([None, (4,), (4, 8)]) if largest >= 8 else None,
            DELAY: draw.choice([0, int(math.exp(draw.uniform(4, 9)))]),
        }
        cache_bytes = 64 << 20 if draw.random() < 0.3 else None
        candidate = candidate_of(fields, cache_bytes, toy.model)
        if candidate not in candidates:
            candidates.append(candidate)
    return [make_trial(toy, number, c) for number, c in enumerate(candidates)]


def make_trial(toy: Toy, number_: int, candidate: Candidate) -> Trial:
    started = f"2025-03-01T10:{number_ // 4 % 60:02}:{number_ % 4 * 15:02}+00:00"
    common: dict[str, Any] = {"number": number_, "candidate": candidate, "started_at": started}
    if number_ % 13 == 5:
        time = TrialTime(0.02, 1.9, 0.0, 0.1)
        return Trial(**common, state=TrialState.FAILED, reason=said(REFUSED), attempts=2, time=time)
    scale = random.Random(candidate.key).uniform(0.9, 1.1)
    levels = [float(f"{scale * level:.4g}") for level in (110, 300, 700, 1200, 1600, 2000, 2500)]
    points: list[Point] = []
    for level in levels:
        seed = toy.seed + number_
        points.append(judge_point(toy.slos, measure(candidate, level, seed, gpu=toy.gpu)))
        if not points[-1].passed:
            break
    pruned = number_ % 7 == 3
    score = score_points(Objective.parse(toy.objective), points)
    return Trial(
        **common,
        predicted=prediction(number_, score.value) if toy.predicts else None,
        state=TrialState.PRUNED if pruned else TrialState.MEASURED,
        points=tuple(points),
        score=score,
        reason=said("misses an SLO at the load the best config so far stands") if pruned else None,
        deployment="restart" if candidate.cache_bytes else "reload",
        time=TrialTime(0.03, 1.7, 4.1 * len(points), 0.05),
    )


def prediction(number_: int, measured: float) -> Predicted | None:
    """5 % above what will be found, sure of 10 %; each fifth is twice of it, each sixth missing."""
    value = measured * (2.0 if number_ % 5 == 0 else 1.05)
    return None if number_ % 6 == 0 else Predicted(value, value * 0.9, value * 1.1)


def best_of(toy: Toy, trials: Sequence[Trial]) -> Trial:
    scored = [t for t in trials[1:] if t.state is TrialState.MEASURED and t.score]
    return min(scored, key=lambda t: t.order(Objective.parse(toy.objective).goal))


def manifest_of(toy: Toy, run_id: str) -> Manifest:
    spec = {"model": toy.model, "slo": list(toy.slo), "objective": toy.objective, "space": {}}
    spec["confirm"] = {"rounds": 10}
    kept = KeptConfig(toy.model, f"/models/{toy.model}/config.pbtxt", CONFIG, sha256_of(CONFIG))
    return Manifest(
        run_id=run_id,
        created_at="2025-03-01T10:00:00+00:00",
        spec_path="search_spaces/toy.yaml",
        spec_text=f"model: {toy.model}\n",
        spec_sha256=sha256_of(f"model: {toy.model}\n"),
        spec=spec,
        name=toy.model,
        seed=toy.seed,
        models={toy.model: kept},
        versions={"tune": "0.1.0", "tritonserver": "2.51.0", "perf_analyzer": "2.51.0"},
        host={"cpu": "Toy CPU @ 2.0 GHz", "cores": 2, "memory_bytes": 8 << 30, "governor": None},
        gpus=({"name": "Toy GPU", "driver": "550.54", "memory_bytes": 16 << 30},)
        if toy.gpu
        else (),
        fingerprint="0123456789abcdef",
        current=toy.current,
        arrivals=1,
        streams={toy.model: toy.model},
        command=("tune", "run", "search_spaces/toy.yaml", "--seed", str(toy.seed)),
    )


#: That of a run of the toy.
MANIFEST = manifest_of(Toy(), "r")


def edit_config(run: Path, **changes: object) -> None:
    """Another fact of the config of the run's model, in its manifest."""
    path = run / "manifest.json"
    data = json.loads(path.read_text())
    the_one(data["models"]).update(changes)
    path.write_text(json.dumps(data))


def make_run(parent: Path, toy: Toy | None = None, status: str = "improved") -> Path:
    """A run directory; ``status`` as in result.json, or ``killed`` for one without a result."""
    toy = toy or Toy()
    store = RunStore.create(parent, f"20250301-100000-{toy.model.replace('/', '_')}-{status}")
    store.write_manifest(manifest_of(toy, store.run_id).to_json())
    trials = make_trials(toy)
    for trial in trials:
        with (store.directory / "trials.jsonl").open("a") as file:  # unsynced: 200 of them
            file.write(json.dumps(trial.to_json()) + "\n")
    if status == "killed":
        return store.directory
    best = best_of(toy, trials) if len(trials) > 1 else None
    repeats: list[Repeat] = []
    if best is not None and status in ("improved", "not known"):
        repeats = repeats_of(toy, trials[0], best)
    for repeat in repeats:
        store.append_confirmation(repeat)
    ended = result_of(toy, store.run_id, status, trials, repeats)
    (store.directory / "result.json").write_text(json.dumps(ended))
    return store.directory


def repeats_of(toy: Toy, current: Trial, winner: Trial) -> list[Repeat]:
    """Three rounds, both at the highest load that each stood in the search."""
    repeats = []
    for round_ in range(3):
        for order, (role, trial) in enumerate(((Role.CURRENT, current), (Role.CANDIDATE, winner))):
            stood = (p.measurement.load.level for p in trial.points if p.passed)
            level = max(stood, default=120.0)
            measured = measure(trial.candidate, level, 1000 + round_, gpu=toy.gpu)
            point = judge_point(toy.slos, measured)
            repeats.append(Repeat(round_, order, role, trial.candidate.key, point))
    return repeats


def facts_of(trial: Trial, proofs: Sequence[Point]) -> dict[str, Any] | None:
    proved = ProvedConfig.of(trial.candidate, proofs) if proofs else ProvedConfig.of_trial(trial)
    return None if proved is None else proved.to_json()


def overloads(current: Trial, winner: Trial | None) -> dict[str, Any]:
    """The current config does not recover; the winner does, after a second."""
    by_config = {
        name: None if trial is None else dataclasses.asdict(overload(level, back_after_s))
        for name, trial, level, back_after_s in (
            ("current", current, 110.0, None),
            ("winner", winner, 2050.0, 1.0),
        )
    }
    return {**by_config, "reasons": [] if winner else ["a reason, <in> one sentence"]}


def overload(capacity: float, back_after_s: float | None) -> Overload:
    """Latency rises through an overload of 2 s, and falls back to calm ``back_after_s`` later."""
    ends = 6.0 if back_after_s is None else 2.0 + back_after_s
    slices = []
    for k in range(-4, 24):
        start, high = k / 4, 0.0
        if start >= 0:
            high = start / 2 if start < 2.0 or back_after_s is None else max(ends - start, 0.0)
        p99_us = 22e3 + 400e3 * high
        rate = capacity * (1.2 if 0.0 <= start < 2.0 else 0.8)
        slices.append(Slice(start, rate, min(rate, capacity), p99_us))
    return Overload(
        capacity_per_s=capacity,
        asked_per_s=1.2 * capacity,
        overload_s=2.0,
        watched_s=4.0,
        slo="p99_latency <= 40ms",
        bound_us=40e3,
        served_per_s=capacity,
        p99_latency_us=380e3,
        late_share=0.875,
        rejected_share=0.0,
        recovered_after_s=back_after_s,
        slices=tuple(slices),
    )


def result_of(
    toy: Toy, run_id: str, status: str, trials: Sequence[Trial], repeats: Sequence[Repeat]
) -> dict[str, Any]:
    best = best_of(toy, trials) if len(trials) > 1 else None
    winner, other = (best, None) if status == "improved" else (None, best)
    ended = status not in ("interrupted", "failed")
    proofs = {role: [r.point for r in repeats if r.role is role] for role in Role}
    path = Path(f"/models/{toy.model}/config.pbtxt")
    after = better(toy) if winner else None
    plan = FilePlan(toy.model, path, sha256_of(CONFIG), CONFIG, after or "")
    parts = {
        "measuring_s": sum(t.time.measuring_s for t in trials) + 24.6,
        "deploying_s": sum(t.time.deploying_s for t in trials) + 11.0,
        "searching_s": sum(t.time.searching_s for t in trials),
        "starting_s": 2.2,
        "writing_s": 1.4,
    }
    counts = {s.value: sum(t.state is s for t in trials) for s in TrialState}
    gain = winner.score.value / trials[0].score.value if winner else 1.0  # type: ignore[union-attr]
    ratio = {"estimate": gain, "low": gain * 0.97, "high": gain * 1.03}
    metric = Objective.parse(toy.objective).metric
    compared = metric.name if metric else "capacity"
    compared_gain = {"ratio": ratio, "confidence": 0.95, "compared": compared}
    compared_gain["means"] = {"best": 118.0 * gain, "current": 118.0}
    result = {
        "schema_version": 1,
        "run_id": run_id,
        "model": toy.model,
        "status": status,
        "reasons": ["a reason, <in> one sentence"],
        "spec_sha256": sha256_of(f"model: {toy.model}\n"),
        "objective": toy.objective,
        "baseline": facts_of(trials[0], proofs[Role.CURRENT]),
        "winner": None if winner is None else facts_of(winner, proofs[Role.CANDIDATE]),
        "best": None if other is None else facts_of(other, proofs[Role.CANDIDATE]),
        "gain": None if winner is None else compared_gain,
        "trials": {"asked": len(trials), "duplicates": 2, **counts},
        "rejected": RejectedFacts.of([], 0.0).model_dump(),
        "time": {"wall_s": sum(parts.values()), **parts},
        "written": None,
        "server_args": [] if winner is None else list(winner.candidate.server_args),
        "simplification": None,
        "overload": overloads(trials[0], winner) if ended else None,
        "diff": plan.diff() if winner else None,
        "models": {toy.model: {"config_before": CONFIG, "config_after": after}} if after else {},
    }
    if winner is not None:
        result["written"] = {
            "path": str(path),
            "sha256_before": sha256_of(CONFIG),
            "sha256_after": plan.sha256_after,
            "backup": f"/models/{toy.model}/.config.pbtxt.tune.0123.bak",
        }
        result["simplification"] = [
            {"field": field, "with": 2050.0, "without": 2050.0 + d, "difference": d, "kept": d < -9}
            for field, d in ((COUNT, -350.0), (PREFERRED, -6.0))
        ]
    return result


def better(toy: Toy) -> str:
    """The config of its winner."""
    fields = fields_of(best_of(toy, make_trials(toy)).candidate)
    return text_with(the_one(manifest_of(toy, "").models), fields)


#: That of the run with 5 trials.
BETTER = better(Toy(trials=5))


def with_config(run: Path, config: Path, *, before: str | None = CONFIG) -> Path:
    """The run, about a config that lies somewhere else."""
    missing = {"sha256": None, "text": ""} if before is None else {}
    edit_config(run, path=str(config), **missing)
    return run
