"""The two forms of a spec: for one model, and for several models and streams of requests.

The short form has `model:`, `space:` and, under `workload:`, what a request carries. The long form
has `models:`, `streams:` and `server: {space: ...}`. `long_form` turns either into the long form,
the only one that the rest of the program knows, and remembers where each part was written.
`as_written` turns it back, for what is stored and shown. What the short form does not name, its
model and its stream, has the model's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.spec.mistakes import Finding, Location
from tuner.spec.paths import CACHE_SIZE

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


@dataclass
class Form:
    """The long form of what was written.

    Attributes:
        moved: Places in ``data`` to where that was written.
        problems: Parts of both forms that exclude each other, by their places as written.
    """

    data: dict[str, Any]
    moved: dict[Location, Location] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)

    def written(self, location: Location) -> Location:
        """The place in the short form of what is at ``location`` in the long one."""
        for end in range(len(location), 0, -1):
            if location[:end] in self.moved:
                return (*self.moved[location[:end]], *location[end:])
        return location

    def found(self, findings: Iterable[Finding]) -> list[Finding]:
        """The problems, and findings of the long form, by their places as written."""
        return [
            *self.problems,
            *(replace(f, location=self.written(f.location)) for f in findings),
        ]


def long_form(data: Any) -> Form:
    """What was written, in the long form; the long form comes back unchanged.

    What has the wrong type stays as it is, for the validation to find.
    """
    if not isinstance(data, dict):
        return Form({})
    form = Form(dict(data))
    given = form.data.get("model")
    label = given if isinstance(given, str) else ""
    asks = "model" in data or not {"models", "streams"} & set(data)
    space = _take_space(form)
    _name_models(form)
    if asks:
        _take_model(form, label, space)
    elif space is not None:
        text = "belongs to a model: write it under models.NAME.space"
        form.problems.append(Finding(("space",), text, key=True))
    if "streams" not in data:
        _make_stream(form, label, asks=asks)
    elif isinstance(streams := form.data["streams"], dict):
        _fill_streams(form, streams, label if asks else None)
    form.data.pop("model", None)
    _carry_what_is_recorded(form)
    return form


def _carry_what_is_recorded(form: Form) -> None:
    """Requests that come as recorded carry what was recorded, where nothing else is said.

    And a window is long enough for several stretches of the recording.
    """
    workload, streams = form.data.get("workload"), form.data.get("streams")
    arrivals = workload.get("arrivals") if isinstance(workload, dict) else None
    recorded = isinstance(arrivals, dict) and arrivals.get("kind") == RECORDING
    if recorded and isinstance(workload, dict) and isinstance(streams, dict):
        form.data["workload"] = {"window": RECORDING_WINDOW, **workload}
        own = {"inputs": {"kind": RECORDING}}
        form.data["streams"] = {
            name: {**own, **stream} if isinstance(stream, dict) else stream
            for name, stream in streams.items()
        }


def _take_space(form: Form) -> Any:
    """The fields of `space`, without the cache's size, which goes to the server; None without."""
    space = form.data.pop("space", None)
    if not isinstance(space, dict) or CACHE_SIZE not in space:
        return space
    server = form.data.get("server", {})
    own = server.get("space") if isinstance(server, dict) else None
    if isinstance(own, dict) and CACHE_SIZE in own:
        text = "is given in server.space too: leave one of them out"
        form.problems.append(Finding(("space", CACHE_SIZE), text, key=True))
    elif isinstance(server, dict) and (own is None or isinstance(own, dict)):
        form.data["server"] = {**server, "space": {CACHE_SIZE: space[CACHE_SIZE], **(own or {})}}
        form.moved["server", "space", CACHE_SIZE] = ("space", CACHE_SIZE)
    return {path: values for path, values in space.items() if path != CACHE_SIZE} or None


def _name_models(form: Form) -> None:
    """Each model of the long form has the key it is listed under as its name."""
    models = form.data.get("models")
    if not isinstance(models, dict):
        return
    form.data["models"] = {}
    for label, model in models.items():
        form.moved["models", label, "name"] = ("models", label)
        if not isinstance(model, dict) and model is not None:
            form.data["models"][label] = model
            continue
        own = dict(model or {})
        if not label:
            form.problems.append(Finding(("models", ""), "is not a model name", key=True))
            continue
        if own.get("name", label) != label:
            text = "unknown key 'name'; a model's name is the key it is listed under"
            form.problems.append(Finding(("models", label, "name"), text, key=True))
        form.data["models"][label] = {**own, "name": label}


def _take_model(form: Form, label: str, space: Any) -> None:
    """`model` and its `space` become one of the models."""
    models = form.data.setdefault("models", {})
    if not isinstance(models, dict):
        return
    model = models.get(label, {})
    if not isinstance(model, dict):
        return
    if "model" in form.data:
        model = {**model, "name": form.data["model"]}
    form.moved["models", label, "name"] = ("model",)
    if space is not None and "space" in model:
        text = f"is given in models.{label}.space too: leave one of them out"
        form.problems.append(Finding(("space",), text, key=True))
    elif space is not None:
        model = {**model, "space": space}
    if "space" not in models.get(label, {}):
        form.moved["models", label, "space"] = ("space",)
    form.data["models"] = {**models, label: model}


def _make_stream(form: Form, label: str, *, asks: bool) -> None:
    """`workload` says what the requests of the one stream carry."""
    if not asks:
        text = "is missing: name the model that gets the requests, or write streams"
        form.problems.append(Finding(("model",), text, absent=True))
        models = form.data["models"]
        label = next(iter(models), "") if isinstance(models, dict) else ""
    stream: dict[str, Any] = {"model": label}
    form.moved["streams", label, "model"] = ("model",)
    form.moved["streams", label, "slo"] = ("slo",)
    workload = form.data.get("workload")
    for name in CARRIED:
        form.moved["streams", label, name] = ("workload", name)
        if isinstance(workload, dict) and name in workload:
            stream[name] = workload[name]
    if isinstance(workload, dict):
        form.data["workload"] = {k: v for k, v in workload.items() if k not in CARRIED}
    form.data["streams"] = {label: stream}


def _fill_streams(form: Form, streams: dict[str, Any], label: str | None) -> None:
    """A stream that names no model sends its requests to that of `model`."""
    if label is not None:
        form.data["streams"] = {
            name: {"model": label, **stream} if isinstance(stream, dict) else stream
            for name, stream in streams.items()
        }
    workload = form.data.get("workload")
    if not isinstance(workload, dict):
        return
    for name in CARRIED:
        if name in workload:
            text = f"belongs to a stream: write it under streams.NAME.{name}"
            form.problems.append(Finding(("workload", name), text, key=True))
    form.data["workload"] = {k: v for k, v in workload.items() if k not in CARRIED}


def as_written(data: Mapping[str, Any], asked: str | None) -> dict[str, Any]:
    """The long form as its user would write it, in the short one where that says the same.

    The values of ``data`` may be anything; `long_form` gives the same back. ``asked``: the model
    that gets all requests, and whose name its stream has; None where that says too little.
    """
    models = {label: _searched(model) for label, model in data["models"].items()}
    names = {label: model.pop("name") for label, model in models.items()}
    parts = {**data, "models": models}
    streams = dict(data["streams"])
    if asked is not None:
        stream = streams.pop(asked)
        parts["model"] = names[asked]
        carried = {name: stream[name] for name in CARRIED}
        parts["workload"] = _ordered({**data["workload"], **carried}, _ORDER_OF_WORKLOAD)
    server = parts["server"] = _searched(data["server"])
    if [*models] == [asked]:
        parts["space"] = {**models.pop(asked).get("space", {}), **server.pop("space", {})}
    parts |= {"models": models, "streams": streams}
    shown = {key: part for key, part in parts.items() if part or key not in ("models", "streams")}
    return _ordered(shown, (*_ORDER, "space"))


def _searched(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part, without its space if that is empty."""
    return {key: value for key, value in part.items() if value or key != "space"}


def _ordered(data: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    return {key: data[key] for key in (*first, *data) if key in data}
