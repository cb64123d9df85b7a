"""What is said of measurements, of the machine they are made on, and of what they are held to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from builders.candidates import candidate_of
from builders.measurements import P99_40MS, latency_slo, synthetic_figures, synthetic_measurement
from builders.reasons import texts
from builders.refusals import Case
from builders.runs import MANIFEST
from builders.spaces import BATCH, INSTANCES

from tuner.load.validity import client_behind, client_limit, warnings_about
from tuner.machine.cpus import Cores, share_cores
from tuner.machine.stop import Stop
from tuner.measurement.measurement import (
    Arrivals,
    LoadPoint,
    Measurement,
    ServerStatistics,
)
from tuner.reason import Reason
from tuner.record.bottleneck import bottleneck_of
from tuner.record.checks import Baseline, Key, find_baseline, write_baseline
from tuner.record.manifest import KeptConfig
from tuner.report.sentence import bottleneck_text
from tuner.score.judge import unsteadiness
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.search.fits import cannot_fit
from tuner.sentences import sentence
from tuner.server.memory import MACHINE, Memory
from tuner.server.shared_memory import SHM
from tuner.spec.slo import Objective, Slo


def measured(**fields: Any) -> Measurement:
    """A measurement nothing is wrong with."""
    values: dict[str, Any] = {
        "load": LoadPoint(Arrivals.POISSON, 200.0),
        "seed": 1,
        "duration_s": 3.0,
        "completed_count": 600,
        "failed_count": 0,
        "throughput_infer_per_s": 200.0,
        "avg_latency_us": 10_000.0,
        "p50_latency_us": 9_000.0,
        "p90_latency_us": 12_000.0,
        "p95_latency_us": 15_000.0,
        "p99_latency_us": 20_000.0,
        "sent_per_s": 200.0,
        "late_sends": 0.01,
        "client_send_us": 10.0,
        "client_recv_us": 2.0,
        "mean_in_flight": 2.0,
    }
    return Measurement(**{**values, **fields})


def measurements() -> dict[str, Case]:
    def warned(**fields: Any) -> Case:
        return lambda _: warnings_about(measured(**fields))

    def behind(**fields: Any) -> Case:
        return lambda _: client_behind(measured(**fields)).message

    def limited(sent: float) -> Case:
        return lambda _: client_limit(LoadPoint(Arrivals.POISSON, 1413.0), sent).message

    bounds = [latency_slo(0.9, 0.04), latency_slo(0.5, 0.01)]
    due = replace(measured(), due_per_s=100.0, completed_count=270)
    recorded = replace(due, load=LoadPoint(Arrivals.RECORDING, 100.0))
    memory = Objective.parse("minimize gpu_memory at 300/s")
    return {
        "nothing is wrong": warned(),
        "some requests were late": warned(late_sends=0.06),
        "some requests were not sent": warned(sent_per_s=190.0),
        "the client takes its time": warned(client_send_us=1900.0, client_recv_us=200.0),
        "too few requests for a p99": warned(completed_count=458),
        "too few requests for the p90 of an SLO": lambda _: warnings_about(
            measured(completed_count=43), bounds
        ),
        "some requests were not answered": warned(unanswered_count=3),
        "more are in flight than can be": warned(mean_in_flight=4.0),
        "fewer are in flight than the clients": warned(load=LoadPoint(Arrivals.CLOSED, 8.0)),
        "the client sent too little": behind(sent_per_s=150.0),
        "the client sent late": behind(sent_per_s=201.0, late_sends=0.12, send_lag_p99_us=34_200.0),
        "the client sent too little, and late": behind(sent_per_s=150.0, late_sends=0.5),
        "the client can send no more": limited(1414.0),
        "the client can send no more than it did": limited(900.0),
        "less was answered than was due": lambda _: unsteadiness(recorded, 30_000.0),
        "the memory to minimise was not measured": lambda _: score_points(
            memory, [judge_point([P99_40MS], synthetic_measurement(50.0))]
        ),
    }


GIB = 1 << 30


def fits() -> dict[str, Case]:
    """Why a config of more instances is not tried, by the memory that one took."""

    def memory_of(instances: int, **memory: Memory) -> Case:
        used = {name.replace("_", " "): taken for name, taken in memory.items()}
        one, more = (candidate_of({INSTANCES: n, BATCH: 8}) for n in (1, instances))
        history = [Trial(0, one, TrialState.MEASURED, memory=used)]
        said = "".join(texts([cannot_fit(more, history, ())]))
        return lambda _: said.removeprefix("not loaded: it ") or "None"

    return {
        "the memory of a GPU": memory_of(4, memory_of_GPU0=Memory(4 * GIB, 0, 16 * GIB)),
        "the memory of a GPU that a neighbour uses": memory_of(
            3, memory_of_GPU8=Memory(2 * GIB, 13 * GIB, 16 * GIB)
        ),
        "the machine's memory": memory_of(60, **{MACHINE: Memory(GIB, 0, 64 * GIB)}),
        "shared memory": memory_of(60, **{SHM: Memory(1 << 20, 0, 64 << 20)}),
        "it fits": memory_of(2, memory_of_GPU0=Memory(4 * GIB, 0, 16 * GIB)),
    }


def machine() -> dict[str, Case]:
    def signalled(before: Callable[[Stop], object]) -> Case:
        def case(_: Path) -> list[str]:
            said: list[str] = []
            stop = Stop(said.append)
            with stop.listening():
                before(stop)
                signal.raise_signal(signal.SIGINT)
            return said

        return case

    def sharing(*cpus: int) -> Case:
        def case(_: Path) -> None:
            with patch("os.sched_getaffinity", lambda _: {*range(8)}):
                share_cores(None, cpus)

        return case

    return {
        "CPUs that tune may not use": sharing(7, 8, 9),
        "how CPUs are shared": lambda _: str(Cores((0, 1, 2, 4), (3,))),
        "Ctrl-C": signalled(lambda _: None),
        "Ctrl-C when all is measured": signalled(lambda stop: stop.measured()),
    }


KEY = Key("m", "a" * 16, "2.51.0", {"workload": "1", "slo": "2", "objective": "3", "server": "4"})
BASELINE = Baseline(
    key=KEY,
    run_id="r",
    accepted_at="2025-03-01T10:00:00+00:00",
    machine="Toy CPU, 2 cores",
    config_sha256="0" * 64,
    compared="capacity",
    values=(100.0, 101.0, 99.0),
    level=96.0,
    expected=100.0,
    arrivals=7,
)


def no_baseline(here: Path, key: Key, *, any_machine: bool = False) -> str:
    """Why there is none."""
    reason = find_baseline(here, key, any_machine=any_machine)
    assert isinstance(reason, Reason)
    return sentence(reason)


def no_baselines() -> dict[str, Case]:
    """Why a check has no accepted result to be compared with."""

    def baseline(key: Key, *, any_machine: bool = False) -> Case:
        def case(here: Path) -> str:
            write_baseline(here, BASELINE)
            return no_baseline(here, key, any_machine=any_machine)

        return case

    def holding(change: Callable[[str], str]) -> Case:
        def case(here: Path) -> None:
            path = write_baseline(here, BASELINE)
            path.write_text(change(path.read_text()))
            find_baseline(here, KEY)

        return case

    return {
        "there is none": lambda here: no_baseline(here, KEY),
        "it is of another model": baseline(replace(KEY, model="m-2")),
        "it is of another machine": baseline(replace(KEY, machine="b" * 16)),
        "it is of another question": baseline(
            replace(KEY, question={**KEY.question, "slo": "other"}), any_machine=True
        ),
        "a value has another type": holding(lambda text: text.replace("96.0", '"a lot"')),
        "it is half a file": holding(lambda _: "{"),
        "it is a list": holding(lambda _: "[]"),
        "it holds nothing": holding(lambda _: "{}"),
        "it has a version alone": holding(lambda _: '{"schema_version": 2}'),
    }


P99 = Slo.parse("p99_latency <= 40ms")


def bottlenecks() -> dict[str, Case]:
    """Which model of several a request waits for."""

    def spent(count: int, queue_us: float, compute_us: float) -> ServerStatistics:
        return ServerStatistics(count, 0, count, count, queue_us, 0.0, compute_us, 0.0)

    def of(models: Mapping[str, ServerStatistics], **p99_us: float) -> Case:
        streams = {name: synthetic_figures(50.0, us) for name, us in p99_us.items()}
        measurement = replace(synthetic_measurement(100.0), models=models, streams=streams)
        slos = [replace(P99, stream=name) for name in p99_us] or [P99]
        kept = {la: KeptConfig(la, f"/models/{la}", "", None) for la in models}
        if not p99_us:
            kept["nlp"] = replace(kept["nlp"], parts=tuple(la for la in models if la != "nlp"))
        model_of = dict(zip(p99_us, models, strict=False)) or {"nlp": "nlp"}
        run = replace(MANIFEST, models=kept, streams=model_of)

        def case(_: Path) -> str:
            bottleneck = bottleneck_of(judge_point(slos, measurement), run)
            return "none" if bottleneck is None else bottleneck_text(bottleneck)

        return case

    nlp = {"nlp": spent(300, 0, 9900)}
    steps = {"tokenizer": spent(300, 100, 1900), "tiny-bert": spent(300, 4880, 3120)}
    two = {"tiny-bert": spent(100, 1000, 9000), "image-prep": spent(100, 4000, 1000)}
    return {
        "a step of an ensemble": of({**steps, **nlp}),
        "the stream whose SLO is nearest": of(two, texts=20e3, images=38e3),
        "one model": of(nlp),
    }
