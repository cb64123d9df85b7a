"""Rules between models and their streams of requests: names, shares, and allowed SLOs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tuner.spec.metrics import Scope
from tuner.spec.mistakes import Finding, in_brackets
from tuner.spec.model import Spec
from tuner.spec.paths import SERVER
from tuner.spec.units import Percent
from tuner.spec.workload import ClosedArrivals

_STREAM = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"


def check_models(spec: Spec) -> Iterator[Finding]:
    """Names that a directory in the repository can have, and sensible calls."""
    for label, model in spec.models.items():
        where = ("models", label)
        if "/" in model.name:
            text = f"'{model.name}' is a path; write only the model's name"
            yield Finding((*where, "name"), text)
        if model.name == SERVER or (not label and len(spec.models) > 1):
            yield Finding((*where, "name"), "is not a model name", key=True)
        for index, name in enumerate(model.calls):
            at = (*where, "calls", index)
            if "/" in name or not name:
                yield Finding(
                    at, f"'{name}' is not a model name: write only the name of its directory"
                )
            elif name == model.name:
                yield Finding(at, "a model that calls itself cannot be loaded before itself")
            elif name in model.calls[:index]:
                yield Finding(at, f"{name} is listed twice")


def check_streams(spec: Spec) -> Iterator[Finding]:
    """Each stream names a model of the spec, and bounds only what its requests can show."""
    for name, stream in spec.streams.items():
        where = ("streams", name)
        if name != stream.model and not re.fullmatch(_STREAM, name):
            text = f"'{name}' is not a stream name: use letters, digits, _, - and ."
            yield Finding(where, text, key=True)
        if stream.model not in spec.models:
            known = ", ".join(spec.models)
            guess = in_brackets(stream.model, list(spec.models))
            text = f"'{stream.model}' is not one of the models: {known}{guess}"
            yield Finding((*where, "model"), text)
        for index, slo in enumerate(stream.slo):
            if slo.metric.scope is Scope.SERVER:
                text = (
                    f"{slo.metric.name} applies to the whole server: write it under the top-level "
                    f"slo"
                )
                yield Finding((*where, "slo", index), text)


def check_shares(spec: Spec) -> Iterator[Finding]:
    """The level of a load scales streams with a share; streams with a rate stay constant."""
    shared = {name: stream for name, stream in spec.streams.items() if stream.rate is None}
    for name, stream in spec.streams.items():
        where = ("streams", name)
        if stream.rate is not None and stream.share is not None:
            text = (
                "a stream has either a share of the load or a constant rate: leave one of them out"
            )
            yield Finding((*where, "rate"), text, key=True)
        elif name in shared and stream.share is None and len(shared) > 1:
            text = "has neither share nor rate: write share: 50%, or rate: 20/s for background"
            yield Finding(where, text, key=True)
    shares = [stream.share for stream in shared.values() if stream.share is not None]
    total = math.fsum(shares)
    if 0.0 in shares:
        name = next(name for name, stream in shared.items() if stream.share == 0.0)
        text = "a stream that sends no requests has no effect: leave it out"
        yield Finding(("streams", name, "share"), text)
    elif len(shares) == len(shared) and shared and not math.isclose(total, 1.0, abs_tol=1e-6):
        text = f"the shares add up to {Percent(round(total, 6))}; they must add up to 100%"
        yield Finding(("streams", next(iter(shared)), "share"), text)
    if not shared:
        text = (
            "all streams have a constant rate: give one a share, so that its load can be searched"
        )
        yield Finding(("streams",), text, key=True)


def check_open_loop(spec: Spec) -> Iterator[Finding]:
    """Clients that wait for answers send as fast as these come: shares would not hold."""
    if not isinstance(spec.workload.arrivals, ClosedArrivals):
        return
    parts = [
        ("streams", name, field)
        for name, stream in spec.streams.items()
        for field in ("share", "rate")
        if getattr(stream, field) is not None
    ]
    if len(spec.streams) > 1:
        text = "several streams need an open loop, such as {kind: poisson}"
        yield Finding(("workload", "arrivals"), text)
    elif parts:
        text = "clients of a closed loop wait for answers: leave it out, or use {kind: poisson}"
        yield Finding(parts[0], text, key=True)
