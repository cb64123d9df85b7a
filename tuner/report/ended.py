"""The common part of the reports of runs and checks.

A builder (`run_document`, `check_document`) gives the ending of its kind, and adds its own blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from xml.etree import ElementTree as ET

from tuner.record.responses import ResponseFacts
from tuner.record.shapes import ShapeFacts
from tuner.report import junit
from tuner.report.blocks import Block, Document, Steps, Table, Tone, filled
from tuner.report.quantities import (
    NOTHING,
    VERDICTS,
    latency_text,
    margin_text,
    metric_text,
    rate_text,
    result_text,
    seconds_text,
    share_text,
    verdict_text,
    verdict_word,
)
from tuner.report.responses import count_of
from tuner.score.judge import SloResult, Verdict
from tuner.spec.labels import of_stream


@dataclass(frozen=True)
class SloRow:
    """One SLO of the verdict: the worst result, the value of each round, and the soak's result.

    Attributes:
        values: One per round, in the metric's base unit; None for a round without a value.
    """

    worst: SloResult
    values: tuple[float | None, ...]
    soak: SloResult | None = None


@dataclass(frozen=True)
class RequestsOf:
    """Figures of one config's requests, if they have several shapes or several responses.

    Attributes:
        config: Name of the config; empty in a report on a single config.
    """

    config: str
    shapes: Sequence[ShapeFacts] = ()
    responses: Sequence[ResponseFacts] = ()


@dataclass(frozen=True)
class Ended:
    """A run or a check that has ended.

    Attributes:
        kind: run or check.
        name: Name of the models.
        started_at: ISO 8601.
        facts: The basis of the verdict beside its time, a few words each.
        load: The load at which the SLOs had to hold; None if it differs between rows.
        steps: Next steps for the reader, each with its command.
    """

    kind: str
    name: str
    run_id: str
    started_at: str
    took_s: float
    status: str
    tone: Tone
    headline: str
    facts: tuple[str, ...]
    slo: tuple[SloRow, ...]
    requests: tuple[RequestsOf, ...]
    steps: Sequence[tuple[str, str]]
    load: str | None = None


def document(
    ended: Ended, answer: Iterable[Block | None], rest: Iterable[Block | None]
) -> Document:
    """The whole report: the answer, the next steps, and the rest."""
    return Document(
        name=ended.name,
        headline=ended.headline,
        tone=ended.tone,
        kind=ended.kind,
        run_id=ended.run_id,
        started_at=ended.started_at,
        facts=(seconds_text(ended.took_s), *ended.facts),
        blocks=filled(*answer, Steps("What next", tuple(ended.steps)), *rest),
    )


def suite(
    ended: Ended, case: ET.Element, facts: dict[str, str], shapes: Sequence[ShapeFacts]
) -> str:
    """The report as JUnit XML: a case per SLO, and then ``case``, which is about the whole.

    ``facts`` and the p99 latency of each of the ``shapes`` become properties.
    """
    p99_us = {
        f"p99_latency_us {of_stream(s.stream, s.shape)}": f"{s.p99_latency_us:.0f}" for s in shapes
    }
    facts = {"run_id": ended.run_id, "status": ended.status, **facts, **p99_us}
    cases = [*(junit.slo_case(ended.name, row.worst) for row in ended.slo), case]
    return junit.document(ended.name, facts, cases, ended.took_s, ended.started_at)


def slo_table(ended: Ended) -> Table | None:
    """Each SLO with its worst result, the result of each round, and that of the soak."""
    rows = ended.slo
    if not rows:
        return None
    soaked = any(row.soak is not None for row in rows)
    again = any(len(row.values) > 1 for row in rows)
    expected = f"expected at {ended.load}" if ended.load else "expected"
    heads = (
        *("verdict", expected, "worst", "margin"),
        *(["each round"] if again else []),
        *(["soak"] if soaked else []),
    )
    tones = tuple(VERDICTS[row.worst.verdict][0] for row in rows)
    return Table(heads, tuple(_slo_cells(row, again, soaked) for row in rows), "SLOs", tones)


def _slo_cells(row: SloRow, again: bool, soaked: bool) -> tuple[str, ...]:
    worst, soak = row.worst, row.soak
    each = ", ".join(metric_text(worst.metric, value) for value in row.values)
    return (
        *(verdict_word(worst), worst.expression, result_text(worst), margin_text(worst)),
        *([each] if again else []),
        *([NOTHING if soak is None else result_text(soak)] if soaked else []),
    )


def request_tables(ended: Ended) -> Iterator[Table | None]:
    """Figures by shape of request, and the responses of decoupled models."""
    yield _shapes([(of.config, each) for of in ended.requests for each in of.shapes])
    yield _responses([(of.config, each) for of in ended.requests for each in of.responses])


def _shapes(facts: Sequence[tuple[str, ShapeFacts]]) -> Table | None:
    """A row per shape and config, with equal shapes one below the other."""
    known = any(shape.batched_with is not None for _, shape in facts)
    columns = [
        {
            "shape": of_stream(shape.stream, shape.shape),
            **({"config": name} if name else {}),
            "share": share_text(shape.share),
            "goodput": rate_text(shape.goodput_infer_per_s),
            "p50": latency_text(shape.p50_latency_us),
            "p99": latency_text(shape.p99_latency_us),
            "SLOs for this shape": _unmet(shape.slo),
            **({"batched with": _batched_with(shape)} if known else {}),
        }
        for name, shape in facts
    ]
    if not columns:
        return None
    order = [*dict.fromkeys(row["shape"] for row in columns)]
    rows = sorted(columns, key=lambda row: order.index(row["shape"]))
    caption = "By shape of request; each SLO applies to all shapes together"
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), caption)


def _batched_with(shape: ShapeFacts) -> str:
    return NOTHING if shape.batched_with is None else " and ".join(shape.batched_with) or "nothing"


def _unmet(results: Sequence[SloResult]) -> str:
    missed = [r for r in results if r.verdict is not Verdict.PASS]
    return "; ".join(f"{r.expression} {verdict_text(r)}" for r in missed) or "all met"


def _responses(facts: Sequence[tuple[str, ResponseFacts]]) -> Table | None:
    """A row per stream and config, with equal streams one below the other."""
    if not facts:
        return None
    until = " or ".join(sorted({each.latency_until for _, each in facts}))
    rows = sorted((_response_cells(name, each) for name, each in facts), key=itemgetter(0))
    heads = tuple(head for head, _ in rows[0])
    cells = tuple(tuple(cell for _, cell in row) for row in rows)
    return Table(heads, cells, f"Responses; other latencies in this report are until {until}")


def _response_cells(config: str, facts: ResponseFacts) -> list[tuple[str, str]]:
    """Cells with their heads; a check has one config, which needs no name."""
    figures = facts.figures
    return [
        ("", facts.stream or "all requests"),
        *([("config", config)] if config else []),
        ("first response, p50", latency_text(figures.p50_first_response_us)),
        ("p99", latency_text(figures.p99_first_response_us)),
        ("last response, p50", latency_text(figures.p50_last_response_us)),
        ("p99", latency_text(figures.p99_last_response_us)),
        ("responses per request", count_of(figures)),
        ("not completed", f"{facts.incomplete_count:,}"),
        ("answered again", f"{facts.doubled_count:,}"),
    ]
