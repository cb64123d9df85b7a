"""The spec that `tune init` drafts for several models that are served, and loaded, together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tuner.errors import SpecError
from tuner.space.build import refuse_unmeasurable
from tuner.space.draft import (
    GOODPUT,
    Given,
    answering,
    models_entry,
    opening,
    requests_of,
    shared_bounds,
    tail_of,
)
from tuner.space.draft_instances import Machine
from tuner.space.draft_sequences import sequence_arrivals_lines
from tuner.space.draft_server import server_section
from tuner.space.draft_slos import latency_bound
from tuner.space.draft_space import DraftedModel, answer_many_times, are_for_sequences
from tuner.space.draft_text import COLUMN, DraftEntry, Remark, as_yaml, flow, item
from tuner.spec.paths import CONFIG_NAME
from tuner.spec.slo import Slo

_LOCAL = MappingProxyType({"mode": "local"})


@dataclass(frozen=True)
class DraftedStream:
    """Requests to one model.

    Attributes:
        models: The model by its name, then those that are served with it.
        given: What is known of its requests, its SLOs and its space.
        rate: Requests per second of the only load in the spec; None without one.
    """

    models: Mapping[str, DraftedModel]
    given: Given
    rate: float | None = None

    @property
    def slos(self) -> tuple[str, ...]:
        """The SLOs of the requests of this stream."""
        return tuple(text for text in self.given.slos if not _of_all(text))


def draft_streams(
    streams: Mapping[str, DraftedStream],
    machine: Machine,
    repository: str,
    command: str,
    *,
    server: Mapping[str, Any] = _LOCAL,
    why: str = "local, docker or remote",
    write_to: str = CONFIG_NAME,
) -> str:
    """YAML text of a spec with a stream for each model.

    Args:
        streams: By the name of the model that receives requests; SLOs not about requests count for
            all.
        repository: Path as it is to appear in the spec.
        command: What drafts it.
        server: The spec's section, and ``why``, a remark beside it.

    Raises:
        SpecError: A model cannot be measured, or not together with the others.
    """
    for model, stream in streams.items():
        for name in answering(stream.models, model):
            refuse_unmeasurable(name, stream.models[name].config)
    _refuse_decoupled_beside_sequences(streams, command)
    left = dict.fromkeys(line for stream in streams.values() for line in stream.given.left)
    slos = tuple(item(text) for text in _common(streams))
    draft = [
        *opening(command, [*left]),
        DraftEntry("repository", flow(repository)),
        *([] if write_to == CONFIG_NAME else [DraftEntry("write_to", write_to)]),
        DraftEntry("slo", remark="of each stream; its own are with it", below=slos, column=COLUMN),
        DraftEntry("objective", GOODPUT, "highest load that meets every SLO", column=COLUMN),
        server_section(server, why, []),
        _searched(streams, machine),
        *_load(streams),
        *tail_of(machine),
    ]
    return as_yaml(draft)


def _refuse_decoupled_beside_sequences(streams: Mapping[str, DraftedStream], command: str) -> None:
    taking = [name for name, stream in streams.items() if are_for_sequences(stream.models)]
    many = [name for name, stream in streams.items() if answer_many_times(stream.models)]
    if taking and many:
        options = command.removeprefix("tune init")
        text = f"{many[0]} is decoupled, and {taking[0]} takes sequences: not measured together"
        apart = " and ".join(f"tune init {name}{options}" for name in (many[0], taking[0]))
        raise SpecError(text, f"draft a spec for each: {apart}")


def _searched(streams: Mapping[str, DraftedStream], machine: Machine) -> DraftEntry:
    """The models of all streams, each once."""
    models, bounds = dict[str, DraftedModel](), dict[str, Slo]()
    for stream in streams.values():
        rows, bounds_of = stream.given.batch_size, stream.given.bounds
        for name, part in stream.models.items():
            least = max(part.least_batch, rows, models[name].least_batch if name in models else 0)
            bounded = bounds_of.get(name, {})
            models[name] = replace(part, least_batch=least, rows=rows, bounds=bounded)
        bounds |= shared_bounds(stream.models, latency_bound(stream.slos))
    known = {name: space for s in streams.values() for name, space in s.given.spaces.items()}
    return models_entry(models, machine, bounds, known)


def _load(streams: Mapping[str, DraftedStream]) -> Iterator[DraftEntry]:
    """When requests of all streams come, and what those of each carry."""
    rates = [stream.rate for stream in streams.values() if stream.rate is not None]
    known = len(rates) == len(streams)
    rate = f", rate: [{sum(rates):.12g}]" if known else ""
    arrivals: list[DraftEntry | Remark] = [
        DraftEntry("arrivals", f"{{kind: poisson{rate}}}", "of all streams together")
    ]
    if taking := [s for s in streams.values() if are_for_sequences(s.models)]:
        of_file = all(stream.given.sequences for stream in taking)
        arrivals = [*sequence_arrivals_lines(of_file=of_file)]
        if len(taking) < len(streams):
            arrivals.append(Remark("the streams of other models get single requests, by chance"))
    yield DraftEntry("workload", below=tuple(arrivals))
    guessed = "" if known else "guessed: write what your users send"
    entries = list[DraftEntry]()
    shares = _shares(rates if known else [1.0] * len(streams))
    for (model, stream), share in zip(streams.items(), shares, strict=True):
        below = (
            DraftEntry("model", flow(model)),
            DraftEntry("share", f"{share}%", guessed),
            DraftEntry("slo", flow([*stream.slos])),
            *requests_of(stream.models[model].config, stream.given),
        )
        entries.append(DraftEntry(flow(model), below=below))
    yield DraftEntry("streams", below=tuple(entries))


def _shares(rates: Sequence[float]) -> list[str]:
    """Percent of each, adding up to 100, in hundredths."""
    ends = [round(1e4 * sum(rates[: k + 1]) / sum(rates)) for k in range(len(rates))]
    return [f"{(end - start) / 100:.12g}" for start, end in zip([0, *ends], ends, strict=False)]


def _common(streams: Mapping[str, DraftedStream]) -> list[str]:
    """The tightest SLO on each metric, of those that are not about one stream's requests."""
    by_metric: dict[str, Slo] = {}
    for text in (text for stream in streams.values() for text in stream.given.slos):
        if _of_all(text):
            slo = Slo.parse(text)
            other = by_metric.get(slo.metric.name)
            if other is None or slo.bound < other.bound:
                by_metric[slo.metric.name] = slo
    return [str(slo) for slo in by_metric.values()]


def _of_all(text: str) -> bool:
    return not Slo.parse(text).metric.is_latency
