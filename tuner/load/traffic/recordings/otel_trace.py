"""Requests in OpenTelemetry's spans of Triton: OTLP in JSON, Jaeger's or Zipkin's.

OTLP is as a collector writes it, or as Tempo's API gives it. Each model that handles a request has
a span with `triton.model_name`; its `triton.trace_parent_id` is 0 unless an ensemble or a model
sent the request (TraceManager in server's src/tracer.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.recordings.making import LoggedRequest

#: Keys of OTLP: of today, and of Tempo and of collectors before 2022.
_RESOURCES = ("resourceSpans", "batches")
_SCOPES = ("scopeSpans", "instrumentationLibrarySpans")


def has_spans(element: Any) -> bool:
    """Whether an object has spans, or is one of Zipkin's."""
    return isinstance(element, dict) and _form(element) is not None


def _form(element: Mapping[str, Any]) -> _Form | None:
    """How to read an object; None if it has no spans."""
    traces = element.get("data")
    if isinstance(traces, list) and any(isinstance(t, dict) and "spans" in t for t in traces):
        return _jaeger
    inner = element.get("trace")  # version 2 of Tempo's API
    if any(isinstance(_of(each, _RESOURCES), list) for each in (element, inner)):
        return _otlp
    return _zipkin if {"traceId", "timestamp", "tags"} <= element.keys() else None


def requests_of_spans(
    element: Mapping[str, Any], place: str, *, named: bool
) -> Iterator[LoggedRequest]:
    """The requests in an object with spans, without those that models and ensembles sent.

    Raises:
        SpecError: It has the form of none of these programs.
    """
    form = _form(element)
    try:
        for at_s, facts in () if form is None else form(element):
            if int(facts.get("triton.trace_parent_id", 1)) == 0:
                row = {"model": str(facts["triton.model_name"])} if named else {}
                yield LoggedRequest(at_s, row, place)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(
            f"{place}: not OpenTelemetry's spans in JSON (OTLP, Jaeger or Zipkin)"
        ) from error


def _otlp(element: Mapping[str, Any]) -> _Spans:
    for resource in _of(element, _RESOURCES) or _of(element["trace"], _RESOURCES):
        for scope in _of(resource, _SCOPES) or ():
            for span in scope["spans"]:
                facts = ((fact["key"], fact["value"]) for fact in span.get("attributes", ()))
                values = {name: next(iter(value.values()), "") for name, value in facts}
                yield int(span["startTimeUnixNano"]) / 1e9, values


def _of(given: Any, keys: tuple[str, ...]) -> Any:
    """The value of the first of these keys that an object has; None without one."""
    return next((given[key] for key in keys if isinstance(given, dict) and key in given), None)


def _jaeger(element: Mapping[str, Any]) -> _Spans:
    for trace in element["data"]:
        for span in trace["spans"]:
            yield span["startTime"] / 1e6, {tag["key"]: tag["value"] for tag in span["tags"]}


def _zipkin(element: Mapping[str, Any]) -> _Spans:
    yield element["timestamp"] / 1e6, element["tags"]


#: The start of each span, and its attributes.
_Spans = Iterator[tuple[float, dict[str, Any]]]
_Form = Callable[[Mapping[str, Any]], _Spans]
