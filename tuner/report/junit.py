"""The report as JUnit XML: one case an SLO, one for the confirmation."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from tuner.report.data import ReportData
from tuner.report.quantities import VERDICTS, margin_text, metric_text
from tuner.report.result_schema import Status
from tuner.report.sentence import verdict_sentence
from tuner.score.verdict import Verdict

#: Characters XML 1.0 cannot hold, however escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(data: ReportData) -> str:
    """A test suite; what is not known to be met counts as a failure, what broke as an error."""
    suite = ET.Element("testsuite", name=_clean(f"tune {data.model}"))
    properties = ET.SubElement(suite, "properties")
    facts = {"run_id": data.run_id, "status": data.status.value}
    if data.subject is not None and data.subject.judged is not None:
        facts["rejected_count"] = str(data.subject.judged.measurement.rejected_count)
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    _add_slos(suite, data)
    _add_confirmation(suite, data)
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for kind in ("failure", "error", "skipped"):
        plural = kind if kind == "skipped" else f"{kind}s"
        suite.set(plural, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("time", f"{data.wall_s:.3f}")
    suite.set("timestamp", _clean(data.manifest.created_at))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_slos(suite: ET.Element, data: ReportData) -> None:
    for row in data.slo:
        found = row.found
        case = _case(suite, data, "slo", found.expression)
        if found.verdict is Verdict.PASS:
            continue
        value = metric_text(found.metric, found.value)
        message = f"{VERDICTS[found.verdict]}: expected {found.expression}, found {value}"
        _problem(case, "failure", found.verdict.value, f"{message} ({margin_text(found)})")


def _add_confirmation(suite: ET.Element, data: ReportData) -> None:
    case = _case(suite, data, "tune", "confirmation")
    sentence = verdict_sentence(data)
    if data.status in (Status.INTERRUPTED, Status.FAILED):
        _problem(case, "error", data.status.value, " ".join((sentence, *data.reasons)))
    elif data.status is Status.UNCONFIRMED:
        _problem(case, "failure", data.status.value, " ".join((sentence, *data.reasons)))
    elif data.status is Status.INFEASIBLE:
        _problem(case, "skipped", data.status.value, "nothing to confirm: no config meets the SLOs")
    ET.SubElement(case, "system-out").text = _clean(sentence)


def _case(suite: ET.Element, data: ReportData, kind: str, name: str) -> ET.Element:
    classname = _clean(f"tune.{data.model}.{kind}")
    return ET.SubElement(suite, "testcase", classname=classname, name=_clean(name), time="0")


def _problem(case: ET.Element, kind: str, type_: str, message: str) -> None:
    attributes = {"message": _clean(message)}
    if kind != "skipped":
        attributes["type"] = _clean(type_)
    ET.SubElement(case, kind, attributes)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
