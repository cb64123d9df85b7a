"""The report as JUnit XML: one case for each SLO, one for the confirmation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from tuner.record.shapes import ShapeFacts
from tuner.record.status import Status
from tuner.report.data import ReportData
from tuner.report.headline import gain_sentence, headline
from tuner.report.quantities import found_text, margin_text, verdict_text
from tuner.report.sentence import bottleneck_sentences, soak_sentences, verdict_sentence
from tuner.report.trust import trust
from tuner.score.judge import SloResult, Verdict
from tuner.sentences import sentence
from tuner.spec.labels import of_stream

#: Characters XML 1.0 cannot hold, however escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: JUnit's words for it.
_PROBLEMS = {
    Status.INTERRUPTED: "error",
    Status.FAILED: "error",
    Status.NOT_KNOWN: "failure",
    Status.INFEASIBLE: "skipped",
}


def render(data: ReportData) -> str:
    """A test suite; an SLO not known to be met is a failure, a run that broke is an error."""
    facts = {"run_id": data.run_id, "status": data.status.value}
    if data.shown_config is not None:
        facts["rejected_count"] = str(data.shown_config.judged.measurement.rejected_count)
        facts |= shape_facts(data.shown_config.shapes)
    cases = [slo_case(data.model, row.found) for row in data.slo]
    cases.append(_confirmation(data))
    return document(data.model, facts, cases, data.result.time.wall_s, data.manifest.created_at)


def shape_facts(shapes: Sequence[ShapeFacts]) -> dict[str, str]:
    """The p99 latency of each shape of request, as properties of a suite."""
    return {
        f"p99_latency_us {of_stream(own.stream, own.shape)}": f"{own.p99_latency_us:.0f}"
        for own in shapes
    }


def document(
    name: str, facts: Mapping[str, str], cases: Sequence[ET.Element], seconds: float, timestamp: str
) -> str:
    """The whole file, its cases counted; ``facts`` become properties of the suite."""
    root = ET.Element("testsuites")
    suite = ET.SubElement(root, "testsuite", name=_clean(f"tune {name}"))
    properties = ET.SubElement(suite, "properties")
    for fact, value in facts.items():
        ET.SubElement(properties, "property", name=fact, value=_clean(value))
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(plural, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("time", f"{seconds:.3f}")
    suite.set("timestamp", _clean(timestamp))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def case(
    model: str, kind: str, name: str, problem: tuple[str, str, str] | None, output: str | None
) -> ET.Element:
    """One case; ``problem``: failure, error or skipped, then its type and message."""
    made = ET.Element("testcase", classname=_clean(f"tune.{model}.{kind}"), name=_clean(name))
    made.set("time", "0")
    if problem is not None:
        found, type_, message = problem
        element = ET.SubElement(made, found, message=_clean(message))
        if found != "skipped":
            element.set("type", _clean(type_))
    if output is not None:
        ET.SubElement(made, "system-out").text = _clean(output)
    return made


def slo_case(model: str, found: SloResult) -> ET.Element:
    """A case for one SLO."""
    told = "but no value was found"
    if found.value is not None:
        told = f"found {found_text(found)}, a point estimate ({margin_text(found)})"
    message = f"{verdict_text(found)}: expected {found.expression}, {told}"
    problem = ("failure", found.verdict.value, message)
    passed = found.verdict is Verdict.PASS
    return case(model, "slo", found.expression, None if passed else problem, None)


def _confirmation(data: ReportData) -> ET.Element:
    verdict, problem = verdict_sentence(data), None
    if (kind := _PROBLEMS.get(data.status)) is not None:
        message = " ".join((verdict, *map(sentence, data.result.why)))
        if kind == "skipped":
            message = "nothing to confirm: no config that was measured meets the SLOs"
        problem = (kind, data.status.value, message)
    checks = trust(data)
    trusted = [f"{checks.caption}."] if checks else []
    figures = filter(None, (f"{headline(data)}.", gain_sentence(data), *trusted))
    told = (verdict, *figures, *soak_sentences(data), *bottleneck_sentences(data))
    return case(data.model, "tune", "confirmation", problem, " ".join(told))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
