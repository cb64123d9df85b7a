"""Model Analyzer's load as a workload: concurrency, request rates, flags of perf_analyzer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.model_analyzer.options import FLAG_REASONS
from tuner.model_analyzer.yaml_file import Profile, numbers_between
from tuner.spec.slo import Slo
from tuner.spec.units import Seconds
from tuner.spec.workload import Workload

FLAGS = "perf_analyzer_flags"

_CARRIED_FLAGS = (
    "concurrency-range",
    "i",
    "input-data",
    "measurement-interval",
    "protocol",
    "request-distribution",
    "request-intervals",
    "request-rate-range",
    "shape",
    "string-length",
)

#: Model Analyzer's own defaults.
MAX_CONCURRENCY = 1024
MAX_REQUEST_RATE = 8192


@dataclass(frozen=True)
class Traffic:
    """``levels``: the loads that the file lists, none when the load is searched."""

    arrivals: dict[str, Any]
    levels: tuple[float, ...]

    @property
    def open_loop(self) -> bool:
        return str(self.arrivals["kind"]) != "closed"


def traffic(profile: Profile, path: Callable[[str], str]) -> Traffic:
    """How requests arrive. ``path`` gives what the spec writes for a path of the YAML."""
    flags = profile.take_mapping(FLAGS)
    rates = profile.take_numbers("request_rate") or _flag_range(profile, "request-rate-range")
    clients = profile.take_numbers("concurrency") or _flag_range(profile, "concurrency-range")
    most_clients = profile.take_number("run_config_search_max_concurrency")
    most_rate = profile.take_number("run_config_search_max_request_rate")
    searched = profile.take("request_rate_search_enable") is True
    intervals = flags.get("request-intervals")
    if intervals is not None:
        return Traffic({"kind": "trace", "file": path(str(intervals))}, ())
    if rates:
        _note_pace(profile, "request_rate")
        return Traffic({"kind": "poisson", "rate": list(rates)}, tuple(map(float, rates)))
    if searched or most_rate is not None or "run_config_search_min_request_rate" in profile.values:
        _note_pace(profile, "request_rate_search_enable")
        return Traffic({"kind": "poisson", "max_rate": most_rate or MAX_REQUEST_RATE}, ())
    if clients:
        if most_clients is not None:
            profile.leave(("run_config_search_max_concurrency",), "concurrency is listed")
        levels = tuple(map(float, clients))
        return Traffic({"kind": "closed", "concurrency": list(clients)}, levels)
    return Traffic({"kind": "closed", "max_concurrency": most_clients or MAX_CONCURRENCY}, ())


def workload(
    profile: Profile, found: Traffic, goal: str, slos: list[str], path: Callable[[str], str]
) -> dict[str, Any]:
    """The workload section without the inputs."""
    arrivals = dict(found.arrivals)
    if goal.startswith("minimize"):
        for name in ("rate", "concurrency"):
            arrivals.pop(name, None)  # the objective says where
    lines: dict[str, Any] = {"protocol": _protocol(profile), "arrivals": arrivals}
    sizes = profile.take_numbers("batch_sizes")
    for size in sizes[1:]:
        profile.leave(
            ("batch_sizes",), f"all requests carry the same number of inputs; {size} left out"
        )
    if sizes and sizes[0] > 1:
        lines["batch_size"] = sizes[0]
    lines |= _window(profile, found, slos)
    program = profile.take_text("perf_analyzer_path")
    if program is not None and "/" in program:
        lines["perf_analyzer"] = path(program)
    return lines


def inputs(
    profile: Profile, open_shapes: Mapping[str, list[int]], path: Callable[[str], str]
) -> dict[str, Any]:
    """The workload's inputs; what a random one cannot know of a shape comes from the model."""
    flags = profile.take_mapping(FLAGS)
    data = flags.get("input-data", "random")
    data = data[0] if isinstance(data, list) and len(data) == 1 else data
    if data == "zero":
        reason = "random inputs instead: zeros may be quicker for a model, and are for a cache"
        profile.leave((FLAGS, "input-data"), reason)
    elif isinstance(data, list) or Path(str(data)).is_dir():
        reason = "random inputs instead: tune takes one JSON file, no directory and no list"
        profile.leave((FLAGS, "input-data"), reason)
    elif data != "random":
        return {"kind": "file", "file": path(str(data))}
    found: dict[str, Any] = {"kind": "random", "unique": 2000}
    shapes = dict(open_shapes)
    for name, dims in _shapes(profile, flags.get("shape")).items():
        if name in open_shapes:
            shapes[name] = dims
        else:
            profile.leave((FLAGS, "shape"), f"config.pbtxt leaves no dimension of {name} open")
    if shapes:
        found["shapes"] = shapes
    length = _whole(profile, "string-length")
    if length is not None:
        found["string_length"] = length
    return found


def leave_flags(profile: Profile) -> None:
    """Lists the flags of perf_analyzer that are in no part of the spec."""
    for name in profile.take_mapping(FLAGS):
        if name not in _CARRIED_FLAGS:
            default = "perf_analyzer is run with flags of tune's own"
            profile.leave((FLAGS, name), FLAG_REASONS.get(name, default))


def _note_pace(profile: Profile, option: str) -> None:
    flags = profile.take_mapping(FLAGS)
    if flags.get("request-distribution") != "poisson" and option in profile.values:
        reason = "carried over as Poisson arrivals: an even pace hides what queues do"
        profile.leave((option,), reason)


def _protocol(profile: Profile) -> str:
    flags = profile.take_mapping(FLAGS)
    found = flags.get("protocol", flags.get("i", profile.take_text("client_protocol"))) or "grpc"
    if str(found).lower() not in ("grpc", "http"):
        raise profile.mistake(("client_protocol",), "grpc or http is expected")
    return str(found).lower()


def _window(profile: Profile, found: Traffic, slos: list[str]) -> dict[str, str]:
    """Windows that are long enough for the percentiles at the lowest listed rate."""
    lines: dict[str, str] = {}
    most_s = float(Workload().max_window)
    interval_ms = _whole(profile, "measurement-interval")
    longest_s = most_s
    if interval_ms is not None:
        lines["window"] = str(Seconds(interval_ms / 1000))
        longest_s = max(longest_s, interval_ms / 1000)
    if found.open_loop and found.levels:
        requests = max((Slo.parse(text).metric.requests_needed for text in slos), default=1)
        longest_s = max(longest_s, math.ceil(requests / min(found.levels)))
    if longest_s > most_s:
        lines["max_window"] = str(Seconds(longest_s))
    return lines


def _flag_range(profile: Profile, name: str) -> tuple[int, ...]:
    """perf_analyzer's ``START[:END[:STEP]]``."""
    given = profile.take_mapping(FLAGS).get(name)
    if given is None:
        return ()
    try:
        start, end, step = (int(part) for part in (*str(given).split(":"), "0", "1")[:3])
        return tuple(numbers_between(start, max(start, end), max(1, step)))
    except OverflowError as error:
        raise profile.mistake((FLAGS, name), str(error)) from None
    except ValueError:
        raise profile.mistake((FLAGS, name), "START:END:STEP is expected") from None


def _whole(profile: Profile, name: str) -> int | None:
    given = profile.take_mapping(FLAGS).get(name)
    if given is None:
        return None
    if not str(given).isdigit() or int(given) < 1:
        raise profile.mistake((FLAGS, name), "a whole number above 0 is expected")
    return int(given)


def _shapes(profile: Profile, given: Any) -> dict[str, list[int]]:
    """``NAME:3,224,224``, one or a list of them."""
    shapes = {}
    for text in given if isinstance(given, list) else [given] if given else []:
        name, _, dims = str(text).rpartition(":")
        if not name or not all(part.strip().isdigit() for part in dims.split(",")):
            raise profile.mistake((FLAGS, "shape"), "NAME:DIM,DIM is expected")
        shapes[name] = [int(part) for part in dims.split(",")]
    return shapes
