"""The number of replicas for a rate, from the load that a run proved for one replica."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from tuner.errors import SpecError
from tuner.record.manifest import Manifest
from tuner.record.status import Status
from tuner.report.data import ReportData
from tuner.report.quantities import rate_text, result_text, share_text
from tuner.report.tables import machine_text
from tuner.spec.units import count_text, digits


@dataclass(frozen=True)
class Sizing:
    """The deployment for a rate, if every replica is like the machine of the run.

    Attributes:
        run_id: Id of the run.
        models: Models that the rate is sent to.
        asked_otherwise: Those of them with further requests, which Triton counts too: from a model
            that they are a part of, or from a background stream.
        rate_infer_per_s: The rate, in inferences per second.
        headroom: Share of the rate that must be possible on top of it.
        credited_infer_per_s: Proved inferences per second of one replica.
        cost_per_hour: Cost of all replicas; None without a price.
        one_lost_infer_per_s: Rate of each remaining replica when one is lost; None if none remains.
        one_lost_holds: Whether the proved rate suffices then.
        threshold_requests_per_s: Requests per second of a replica above which another is needed.
        notes: Sentences about the basis of the figures.
    """

    run_id: str
    models: tuple[str, ...]
    asked_otherwise: tuple[str, ...]
    rate_infer_per_s: float
    headroom: float
    credited_infer_per_s: float
    replicas: int
    gpus: int
    cost_per_hour: float | None
    one_lost_infer_per_s: float | None
    one_lost_holds: bool
    threshold_requests_per_s: float
    notes: tuple[str, ...]

    @property
    def cost_per_million(self) -> float | None:
        """Cost of a million inferences at the rate, in the price's currency."""
        cost = self.cost_per_hour
        return None if cost is None else cost / (self.rate_infer_per_s * 3600.0) * 1e6

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each fact, for a terminal."""
        wanted = f"{rate_text(self.rate_infer_per_s)} plus {share_text(self.headroom)} headroom"
        proved = rate_text(self.credited_infer_per_s)
        others = "no other answers"
        if self.one_lost_infer_per_s is not None:
            margin = "within" if self.one_lost_holds else "more than"
            margin += f" the proved {proved}"
            others = f"{rate_text(self.one_lost_infer_per_s)} for each of the others, {margin}"
        cost, an_hour, a_million = "", self.cost_per_hour, self.cost_per_million
        if an_hour is not None and a_million is not None:
            cost = f", {an_hour:,.2f} an hour, {a_million:,.3f} a million inferences"
        gpus = count_text(self.gpus, "GPU") if self.gpus else "no GPU"
        threshold = digits(self.threshold_requests_per_s, 4)
        return [
            ("one replica", f"proved for {proved}"),
            ("replicas", f"{self.replicas:,} ({wanted}), {gpus}{cost}"),
            ("if one fails", others),
            ("scale out", f"above {threshold} requests/s for each replica"),
        ]


def size(data: ReportData, rate: float, headroom: float, price: float | None) -> Sizing:
    """Sizes a deployment of the config that a run wrote, proposed or kept.

    Args:
        rate: Inferences per second.
        headroom: Share of the rate that must be possible on top of it.
        price: Price of one replica per hour, in any currency; None without one.

    Raises:
        SpecError: The run proved no load.
    """
    soak = None if data.reported_config is None else data.reported_config.soak
    if soak is None or soak.sustained is None or soak.credited_per_s is None:
        why = "; ".join(soak.sentences) if soak and soak.sentences else "it has no soak test"
        if data.status is Status.INFEASIBLE:
            raise SpecError(
                f"run {data.run_id} proved no load: no config met the SLOs",
                f"`tune report {shlex.quote(str(data.directory))}` says which SLO was missed, and "
                "by how much; relax it, or widen the space, and run again",
            )
        raise SpecError(
            f"run {data.run_id} proved no load: {why}",
            f"`tune run {shlex.quote(data.manifest.spec_path)}` with confirm.soak above 0 proves "
            "the load of the config that it writes or keeps; then name that run",
        )
    measured, credited, manifest = soak.sustained.measurement, soak.credited_per_s, data.manifest
    streams = {stream: measured.of(stream) for stream in manifest.streams}
    beside = {
        name
        for name, measured_stream in streams.items()
        if measured_stream is None or measured_stream.background
    }
    loaded = {label for stream, label in manifest.streams.items() if stream not in beside}
    more = {manifest.streams[stream] for stream in beside}
    more |= {part for config in manifest.models.values() for part in config.parts}
    closed = "Proved with clients that wait for answers: at the same rate, others may wait longer."
    needed = rate * (1.0 + headroom) / credited
    replicas = ceil(needed * (1.0 - 1e-9))  # so that rounding adds no replica
    lost = rate / (replicas - 1) if replicas > 1 else None
    return Sizing(
        run_id=data.run_id,
        models=tuple(sorted(manifest.models[label].name for label in loaded)),
        asked_otherwise=tuple(sorted(manifest.models[label].name for label in loaded & more)),
        rate_infer_per_s=rate,
        headroom=headroom,
        credited_infer_per_s=credited,
        replicas=replicas,
        gpus=replicas * _gpus(manifest, measured.host.gpus),
        cost_per_hour=None if price is None else replicas * price,
        one_lost_infer_per_s=lost,
        one_lost_holds=lost is not None and lost <= credited,
        threshold_requests_per_s=(1.0 - soak.headroom) * measured.requests_per_s / (1.0 + headroom),
        notes=() if measured.load.arrivals.open_loop else (closed,),
    )


@dataclass(frozen=True)
class SizedMachine:
    """A run's machine as a replica for a rate; ``missed``: why it has no sizing."""

    run_id: str
    machine: str
    sizing: Sizing | None = None
    missed: str = ""

    def cells(self) -> tuple[str, ...]:
        sizing = self.sizing
        if sizing is None:
            return (self.run_id, self.machine, "-", "-", "-", "-", self.missed)
        cost, million = sizing.cost_per_hour, sizing.cost_per_million
        return (
            self.run_id,
            self.machine,
            rate_text(sizing.credited_infer_per_s),
            f"{sizing.replicas:,}",
            "-" if cost is None else f"{cost:,.2f}",
            "-" if million is None else f"{million:,.3f}",
            "sustained" if sizing.one_lost_holds else "not sustained",
        )


HEADER = ("run", "machine", "proved", "replicas", "an hour", "a million", "if one fails")


def machines(
    runs: Sequence[ReportData], rate: float, headroom: float, prices: Sequence[float | None]
) -> list[SizedMachine]:
    """The machines of runs, the cheapest first; without prices, the fewest replicas first.

    Machines without a credited load, for instance if no config meets the SLOs, come last.
    """
    sized = list[SizedMachine]()
    for data, price in zip(runs, prices, strict=True):
        name = machine_text(data.manifest)
        try:
            sized.append(SizedMachine(data.run_id, name, size(data, rate, headroom, price)))
        except SpecError as error:
            sized.append(SizedMachine(data.run_id, name, missed=_why_none(data, error)))
    return sorted(sized, key=_order)


def _order(machine: SizedMachine) -> tuple[bool, float, int]:
    sizing = machine.sizing
    if sizing is None:
        return True, 0.0, 0
    cost = inf if sizing.cost_per_hour is None else sizing.cost_per_hour
    return False, cost, sizing.replicas


def _why_none(data: ReportData, error: SpecError) -> str:
    if data.status is Status.INFEASIBLE and data.missed:
        return "misses " + ", ".join(f"{r.expression} ({result_text(r)})" for r in data.missed)
    return error.message


def refuse_unlike(runs: Sequence[ReportData]) -> None:
    """SpecError if runs answer different questions: other models, or other SLOs."""
    first, *others = runs
    for other in others:
        for what, of in (("models", lambda data: data.model), ("SLOs", _slos)):
            if (a := of(first)) != (b := of(other)):
                raise SpecError(
                    f"{first.run_id} and {other.run_id} have other {what}: {a} and {b}",
                    "name runs of one model within the same SLOs, on other machines",
                )


def _slos(data: ReportData) -> str:
    return ", ".join(sorted(row.worst.expression for row in data.slo))


def _gpus(manifest: Manifest, seen: int | None) -> int:
    """GPUs of the run's server: those in its metrics, or those in the spec."""
    given = manifest.spec.get("server", {}).get("gpus", "all")
    if seen is not None or given == "all":
        return len(manifest.gpus) if seen is None else seen
    return 0 if given == "none" else len(given)
