"""The SLOs that `tune init` drafts, and the one by which it bounds times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tuner.errors import SpecError
from tuner.space.draft_text import DraftEntry, Remark, item
from tuner.spec.metrics import SLOW_PER_S, Until, easier_percentile
from tuner.spec.slo import Slo

#: Default SLOs: for a model that answers once, and for one that may answer many times.
EXAMPLE, EXAMPLE_OF_MANY = "p99_latency <= 100ms", "p99_first_response <= 200ms"


def example_slo(*, many: bool) -> str:
    """``many``: a request may be answered many times."""
    return EXAMPLE_OF_MANY if many else EXAMPLE


def on_a_latency(slos: Sequence[str]) -> list[str]:
    """The SLOs that bound a latency, as written.

    Raises:
        SpecError: A text is no SLO.
    """
    try:
        return [text for text in slos if Slo.parse(text).metric.is_latency]
    except ValueError as error:
        raise SpecError(f"--slo: {error}") from error


def joined(slos: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """The user's SLOs, then ``others`` on other metrics."""
    metrics = tuple(slo.split("<")[0].split(">")[0].strip() for slo in slos)
    return (*slos, *(slo for slo in others if not slo.startswith(metrics)))


def latency_bound(slos: Sequence[str]) -> Slo:
    """The first SLO on a latency, by which times are bounded."""
    slos_on_latency = on_a_latency(slos)
    if not slos_on_latency:
        raise SpecError(
            f"--slo: {slos[0]} bounds no latency, and goodput counts the requests within one",
            f"add an SLO on a latency, e.g. --slo '{EXAMPLE}'",
        )
    return Slo.parse(slos_on_latency[0])


def slo_lines(slos: Sequence[str], trial_s: float) -> Iterator[DraftEntry | Remark]:
    """What is drafted below `slo:`, with what may be added.

    ``trial_s``: what the budget has for each trial, which must hold a measurement.
    """
    yield from map(item, slos)
    for slo in on_a_latency(slos)[:1]:
        yield from _cheaper(Slo.parse(slo), trial_s)
    if {Slo.parse(slo).metric.until for slo in slos} & {Until.FIRST}:
        yield Remark("and until all is answered: p99_last_response <= 2s")
    if not any(text.startswith("error_rate") for text in slos):
        yield item("error_rate <= 0%")


def _cheaper(slo: Slo, trial_s: float) -> Iterator[DraftEntry | Remark]:
    """A lower percentile whose search fits in the budget for a slow model, as a remark."""
    easier = easier_percentile(slo.metric) if slo.metric.quantile is not None else None
    if easier is None:
        return
    needed, less = slo.metric.requests_searched, easier.requests_searched
    text = str(slo).replace(slo.metric.name, easier.name)
    why = f"instead, below {math.ceil(needed / trial_s)}/s: {less} requests, not {needed}"
    costs = f"at {SLOW_PER_S}/s in {less / SLOW_PER_S:.0f} s, not {needed / SLOW_PER_S:.0f} s"
    yield item(text, f"{why}; {costs}", mark="# ")
