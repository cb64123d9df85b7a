"""JUnit XML: suites with cases, one for each SLO."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from tuner.report.quantities import found_text, margin_text, verdict_text
from tuner.score.judge import SloResult, Verdict

#: Characters XML 1.0 cannot hold, however escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
