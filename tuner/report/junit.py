"""JUnit XML: suites with cases, one for each SLO."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from tuner.report.quantities import margin_text, result_text, verdict_text
from tuner.score.judge import SloResult, Verdict

#: Characters that XML 1.0 cannot represent, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(
    name: str, facts: Mapping[str, str], cases: Sequence[ET.Element], seconds: float, timestamp: str
) -> str:
    """The whole file, with its cases counted; ``facts`` become properties of the suite."""
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
        tag, type_, message = problem
        element = ET.SubElement(made, tag, message=_clean(message))
        if tag != "skipped":
            element.set("type", _clean(type_))
    if output is not None:
        ET.SubElement(made, "system-out").text = _clean(output)
    return made


def slo_case(model: str, result: SloResult) -> ET.Element:
    """A case for one SLO."""
    value_text = "but there is no value"
    if result.value is not None:
        value_text = f"measured {result_text(result)}, a point estimate ({margin_text(result)})"
    message = f"{verdict_text(result)}: expected {result.expression}, {value_text}"
    problem = ("failure", result.verdict.value, message)
    passed = result.verdict is Verdict.PASS
    return case(model, "slo", result.expression, None if passed else problem, None)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
