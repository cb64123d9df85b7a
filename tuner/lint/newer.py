"""Fields of newer Triton releases than the installed tritonclient."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tuner.lint.finding import Finding, Severity, error_at
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.message import Mistake, try_parse
from tuner.modelconfig.tree import Field, Items, Message, build, elements

_METRIC = {"metric_identifier": "family", "histogram_options": "buckets"}


def known_part(files: ModelFiles) -> tuple[ModelFiles, list[Finding]]:
    """The files with blanks for such fields, so that the rest can be checked, and warnings."""
    from google.protobuf.text_format import ParseError

    text, found = files.text, []
    while isinstance(mistake := try_parse(text), Mistake) and mistake.newer:
        before = text.split("\n")[: mistake.line - 1]
        start = sum(len(line) + 1 for line in before) + mistake.column - 1
        try:
            end = next(field.end for field in _fields(build(text)) if field.start == start)
        except (IndexError, ParseError, StopIteration):  # broken further on
            return files, []
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        told = f"the installed tritonclient does not know {mistake.newer}"
        place = (files.path, mistake.line, mistake.column)
        found.append(Finding(*place, Severity.WARNING, "newer-field", told, mistake.hint))
    return replace(files, text=text), found


def metric_findings(files: ModelFiles) -> Iterator[Finding]:
    """A metric_control that lacks something: refused (ValidateModelMetrics in core, source)."""
    controls = (
        control.message
        for metrics in elements(build(files.text), "model_metrics")
        for control in elements(metrics.message, "metric_control")
    )
    for index, control in enumerate(controls):
        for block, field in _METRIC.items():
            inner = [element.message for element in elements(control, block)]
            if inner and any(_is_given(f, files.text) for m in inner for f in m.named(field)):
                continue
            text = f"metric_control {index} has no {field if inner else block}"
            path = f"model_metrics.metric_control[{index}]"
            yield error_at(files, path, "model-metrics", text, "")


def _fields(message: Message) -> Iterator[Field]:
    for field in message.fields:
        yield field
        for inner in field.messages:
            yield from _fields(inner)


def _is_given(field: Field, text: str) -> bool:
    if isinstance(field.value, Items):
        return bool(field.value.items)
    return text[field.value.start : field.value.end] not in ("''", '""')
