"""The two forms of a spec: for one model, and for several models and streams of requests.

The short form has `model:`, `space:` and, under `workload:`, the content of requests. The long form
has `models:`, `streams:` and `server: {space: ...}`. `long_form` turns either form into the long
form, the only one that other modules use; `written` gives the place at which the user wrote a part
of it, and `as_written` turns it back, for files and messages. In the long form of a short spec,
model and stream have the model's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.spec.mistakes import Location
from tuner.spec.paths import is_of_server

#: What of `workload` says what a request carries, and is a stream's in the long form.
CARRIED = ("inputs", "batch_size")
#: Keys of the short form that the long one does not have.
SHORT_KEYS = ("model", "space")
#: Kind of arrivals, and of inputs.
RECORDING = "recording"
#: Default of `workload.window` under a recording.
RECORDING_WINDOW = "30s"
#: Keys of a spec in the order in which it is shown, in either form.
_ORDER = ("model", "models", "repository", "server", "streams", "workload", "slo", "objective")
_ORDER_OF_WORKLOAD = ("protocol", "arrivals", *CARRIED)


def long_form(data: Any) -> Any:
    """The data of a spec in the long form; data in the long form remains unchanged.

    Values of a wrong type, and those that both forms say, or contradict each other in, remain: the
    validation reports them.
    """
    if not isinstance(data, dict):
        return data
    spec, label = dict(data), _label(data)
    models = _copied(spec, "models", create=label is not None)
    for name, model in models.items():
        if isinstance(model, dict) or model is None:
            models[name] = {"name": name, **(model or {})}
    if label is not None:
        _take_model(spec, _copied(models, label, create=True))
    workload = _copied(spec, "workload")
    if "streams" not in spec:
        carried = {name: workload.pop(name) for name in CARRIED if name in workload}
        gets = {} if label is None else {"model": label}
        spec["streams"] = {next(iter(models), "") if label is None else label: {**gets, **carried}}
    defaults: dict[str, Any] = {"model": label} if "model" in data else {}
    arrivals = workload.get("arrivals")
    if isinstance(arrivals, dict) and arrivals.get("kind") == RECORDING:
        # Requests carry what was recorded, and a window holds several stretches of the recording.
        defaults["inputs"] = {"kind": RECORDING}
        spec["workload"] = {"window": RECORDING_WINDOW, **workload}
    streams = _copied(spec, "streams")
    for name, stream in streams.items():
        if isinstance(stream, dict):
            streams[name] = {**defaults, **stream}
    targets = [_model_of(stream) for stream in streams.values()]
    if "model" in data and targets and label not in targets and {*targets} <= models.keys():
        spec["model"] = label  # contradicts the streams: a key that the long form does not know
    return spec


def _model_of(stream: object) -> str:
    """The model that a stream names, as data or as its model; empty where none is known."""
    fields = stream if isinstance(stream, dict) else getattr(stream, "__dict__", {})
    name = fields.get("model")
    return name if isinstance(name, str) else ""


def _take_model(spec: dict[str, Any], model: dict[str, Any]) -> None:
    """`model` and its `space` become one of the models, without what all models share."""
    if "model" in spec:
        model["name"] = spec.pop("model")
    space = spec.pop("space", None)
    if isinstance(space, dict) and any(map(is_of_server, space)):
        shared = _copied(_copied(spec, "server", create=True), "space", create=True)
        moved = {p: v for p, v in space.items() if is_of_server(p) and p not in shared}
        shared |= moved
        space = {path: values for path, values in space.items() if path not in moved} or None
    if space is not None and "space" in model:
        spec["space"] = space  # said twice: a key that the long form does not know
        space = {**space, **_copied(model, "space")} if isinstance(space, dict) else None
    if space is not None:
        model["space"] = space


def written(location: Location, data: Mapping[str, Any]) -> Location:
    """The place in ``data``, as the user wrote it, for a ``location`` in the long form."""
    label = _label(data)
    match location:
        case ("models", name, "name"):
            if name == label:
                return ("model",)
            return location if "name" in _mapping(data, "models", name) else location[:2]
        case ("models", name, "space", *path) if name == label:
            model = _mapping(data, "models", name)
            if "space" not in model or (
                path and path[0] not in _mapping(data, "models", name, "space")
            ):
                return ("space", *path)
        case ("server", "space", path, *_) if is_of_server(path) and label is not None:
            if path not in _mapping(data, "server", "space"):
                return location[1:]
        case ("streams", _, "inputs" | "batch_size", *_) if "streams" not in data:
            return ("workload", *location[2:])
        case ("streams", _, "model" | "slo", *_) if "streams" not in data:
            return location[2:]
    return location


def _label(data: Mapping[str, Any]) -> str | None:
    """The model of the short form, "" where its name is missing; None in the long form."""
    if "model" not in data and ("models" in data or "streams" in data):
        return None
    name = data.get("model")
    return name if isinstance(name, str) else ""


def _copied(holder: dict[str, Any], key: str, *, create: bool = False) -> dict[str, Any]:
    """A copy of the mapping at the key, stored in its place; without a mapping, an empty one."""
    part = holder.get(key, {} if create else None)
    if isinstance(part, dict):
        holder[key] = part = dict(part)
        return part
    return {}


def _mapping(data: Mapping[str, Any], *keys: str | int) -> Mapping[str | int, Any]:
    """The mapping at the key; empty if there is none."""
    part: Any = data
    for key in keys:
        part = part.get(key) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else {}


def as_written(data: Mapping[str, Any], short: str | None) -> dict[str, Any]:
    """The long form as its user would write it: in the short form where that is equivalent.

    The values of ``data`` may be of any type; `long_form` reverses this function. The short form
    needs one model that gets all requests from a stream of the same name.
    """
    models = {label: _searched(model) for label, model in data["models"].items()}
    names = {label: model.pop("name") for label, model in models.items()}
    parts = {**data, "models": models}
    streams = dict(data["streams"])
    if short is not None:
        stream = streams.pop(short)
        parts["model"] = names[short]
        carried = {name: stream[name] for name in CARRIED}
        parts["workload"] = _ordered({**data["workload"], **carried}, _ORDER_OF_WORKLOAD)
    server = parts["server"] = _searched(data["server"])
    if [*models] == [short]:
        parts["space"] = {**models.pop(short).get("space", {}), **server.pop("space", {})}
    parts |= {"models": models, "streams": streams}
    given = {key: part for key, part in parts.items() if part or key not in ("models", "streams")}
    return _ordered(given, (*_ORDER, "space"))


def _searched(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part, without its space if that is empty."""
    return {key: value for key, value in part.items() if value or key != "space"}


def _ordered(data: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    return {key: data[key] for key in (*first, *data) if key in data}
