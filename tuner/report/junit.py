"""The report as JUnit XML: one case for each SLO, one for the confirmation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from tuner.report.data import ReportData
from tuner.report.quantities import margin_text, metric_text, verdict_text
from tuner.report.sentence import bottleneck_sentences, soak_sentences, verdict_sentence
from tuner.report.tiles import texts, tiles
from tuner.run.status import Status
from tuner.score.judge import SloResult, Verdict

#: Characters XML 1.0 cannot hold, however escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(data: ReportData) -> str:
    """A test suite; an SLO not known to be met is a failure, a run that broke is an error."""
    facts = {"run_id": data.run_id, "status": data.status.value}
    if data.subject is not None and data.subject.judged is not None:
        facts["rejected_count"] = str(data.subject.judged.measurement.rejected_count)
    suite = new_suite(data.model, facts)
    for row in data.slo:
        add_slo(suite, data.model, row.found)
    _add_confirmation(suite, data)
    return document(suite, data.result.time.wall_s, data.manifest.created_at)


def new_suite(model: str, facts: Mapping[str, str]) -> ET.Element:
    """A suite without cases; ``facts`` become its properties."""
    suite = ET.Element("testsuite", name=_clean(f"tune {model}"))
    properties = ET.SubElement(suite, "properties")
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    return suite


def document(suite: ET.Element, seconds: float, timestamp: str) -> str:
    """The whole file, its cases counted."""
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for kind in ("failure", "error", "skipped"):
        plural = kind if kind == "skipped" else f"{kind}s"
        suite.set(plural, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("time", f"{seconds:.3f}")
    suite.set("timestamp", _clean(timestamp))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def add_slo(suite: ET.Element, model: str, found: SloResult) -> None:
    """A case for one SLO."""
    case = add_case(suite, model, "slo", found.expression)
    if found.verdict is Verdict.PASS:
        return
    value = metric_text(found.metric, found.value)
    verdict = verdict_text(found)
    message = f"{verdict}: expected {found.expression}, found {value}, a point estimate"
    add_problem(case, "failure", found.verdict.value, f"{message} ({margin_text(found)})")


def _add_confirmation(suite: ET.Element, data: ReportData) -> None:
    case = add_case(suite, data.model, "tune", "confirmation")
    sentence = verdict_sentence(data)
    if data.status in (Status.INTERRUPTED, Status.FAILED):
        add_problem(case, "error", data.status.value, " ".join((sentence, *data.result.reasons)))
    elif data.status is Status.UNCONFIRMED:
        add_problem(case, "failure", data.status.value, " ".join((sentence, *data.result.reasons)))
    elif data.status is Status.INFEASIBLE:
        reason = "nothing to confirm: no config meets the SLOs"
        add_problem(case, "skipped", data.status.value, reason)
    told = (*texts(tiles(data).tiles), *soak_sentences(data), *bottleneck_sentences(data))
    add_output(case, " ".join((sentence, *told)))


def add_case(suite: ET.Element, model: str, kind: str, name: str) -> ET.Element:
    classname = _clean(f"tune.{model}.{kind}")
    return ET.SubElement(suite, "testcase", classname=classname, name=_clean(name), time="0")


def add_output(case: ET.Element, text: str) -> None:
    ET.SubElement(case, "system-out").text = _clean(text)


def add_problem(case: ET.Element, kind: str, type_: str, message: str) -> None:
    """``kind``: failure, error or skipped."""
    attributes = {"message": _clean(message)}
    if kind != "skipped":
        attributes["type"] = _clean(type_)
    ET.SubElement(case, kind, attributes)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
