"""What requests carry and who sends them, and what of them does not fit a model or its machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from builders.refusals import Case

from tuner.checks.requests import note_requests
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.sending import sending_notes
from tuner.prepare.tools import client_notes, find_programs
from tuner.search.window_notes import replay_notes
from tuner.spec.mistakes import FindingSeverity

HEAD = "repository: repository\nslo: [p99_latency <= 40ms]\n"
SPACE = "space: {instance_group.count: {int: [1, 4]}}\n"
OUTPUT = 'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }'
CHARGE = 'input { name: "charge" data_type: TYPE_INT32 dims: [ 1 ] }'
TEXT = 'input { name: "text" data_type: TYPE_STRING dims: [ -1 ] }'
SMALL = 'input { name: "x" data_type: TYPE_INT8 dims: [ 2 ] optional: true }'
FLOATS = 'input { name: "x" data_type: TYPE_FP32 dims: %s }'
OPEN = FLOATS % "[ -1 ]"
BATCHED = "dynamic_batching { }"
TEXTS = "{kind: random, shapes: {x: [{dims: [64], share: 70%}, {dims: [256], share: 30%}]}}"


def prepared(
    here: Path,
    config: str,
    workload: str,
    *,
    backend: str = "python",
    server: str = "{}",
    space: str = "",
) -> Job:
    """A job of a model with this config, whose requests are these."""
    model = here / "repository" / "m"
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(
        f'backend: "{backend}" max_batch_size: 8 {config}\n{OUTPUT}\n'
    )
    more = f"workload: {{{workload}}}\nserver: {server}\n"
    searched = f"space: {{instance_group.count: {{int: [1, 4]}}, {space}}}\n"
    (here / "spec.yaml").write_text(f"model: m\n{HEAD}{more}{searched}")
    return prepare(Request(spec=here / "spec.yaml"))


def made_up(here: Path, dims: str, inputs: str = "{kind: random}") -> Job:
    return prepared(here, FLOATS % dims, f"inputs: {inputs}")


def recorded(
    here: Path,
    inputs: str,
    *entries: Any,
    batch: int = 1,
    repeat: str = "none",
    protocol: str = "grpc",
) -> Job:
    """A job with a file of requests for a model with these inputs."""
    (here / "requests.json").write_text(json.dumps({"data": entries}))
    file = f"{{kind: file, file: requests.json, repeat: {{kind: {repeat}}}}}"
    return prepared(here, inputs, f"protocol: {protocol}, batch_size: {batch}, inputs: {file}")


def played(
    here: Path, *entries: Any, arrivals: str = "", repeat: str = "none", indent: int | None = None
) -> Job:
    """A job of a model that takes sequences, with a file of requests in perf_analyzer's form."""
    (here / "requests.json").write_text(json.dumps({"data": entries}, indent=indent))
    file = f"{{kind: file, file: requests.json, repeat: {{kind: {repeat}}}}}"
    pace = f"arrivals: {{kind: sequences, interval: 100ms{arrivals}}}"
    return prepared(here, f"{CHARGE} sequence_batching {{ }}", f"{pace}, inputs: {file}")


CONFIG = """\
backend: "python" max_batch_size: 8 dynamic_batching { }
input { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "sum" data_type: TYPE_INT32 dims: [ 1 ] }
"""
ROWS = [{"due_s": k / 8, "shapes": {"ids": [k % 3 + 1]}} for k in range(601)]
SPEC = (
    f"model: texts\n{HEAD}workload: {{arrivals: {{kind: recording, file: requests.jsonl%s}}%s}}\n"
)
STREAMS = f"""\
models: {{texts: {{{SPACE.strip()}}}}}
{HEAD}streams: {{online: {{model: texts, share: %s}}, nightly: {{model: texts, share: %s}}}}
workload: {{arrivals: {{kind: recording, file: requests.jsonl}}}}
"""
STREAMED = [{**row, "stream": "online" if k % 4 else "nightly"} for k, row in enumerate(ROWS)]


SEQUENCES = [[{"charge": [k]} for k in range(length)] for length in (4, 3, 2)]


def replayed(
    here: Path,
    rows: Sequence[dict[str, Any]] = ROWS,
    *,
    arrivals: str = "",
    more: str = "",
    spec: str = "",
) -> Job:
    """A job that replays a recording, of these lines."""
    model = here / "repository" / "texts"
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(CONFIG)
    (here / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (here / "spec.yaml").write_text(spec or (SPEC % (arrivals, more)) + SPACE)
    return prepare(Request(spec=here / "spec.yaml"))


def lengths(*numbers: int) -> list[Any]:
    return [{"text": {"content": ["ab"] * n, "shape": [n]}} for n in numbers]


def request_notes(job: Job, *severities: FindingSeverity) -> list[str]:
    """What a plan says of the requests; with `FindingSeverity.NOTED`, what a run says too."""
    notes = note_requests(job)
    return [f.message for f in notes if f.severity in (severities or FindingSeverity)]


def carried() -> dict[str, Case]:
    """Of requests that fit."""

    def made(dims: str, inputs: str = "{kind: random}", *severities: FindingSeverity) -> Case:
        return lambda here: request_notes(made_up(here, dims, inputs), *severities)

    def of(config: str, workload: str = f"inputs: {TEXTS}") -> Case:
        return lambda here: request_notes(prepared(here, config, workload))

    def read(inputs: str, *entries: Any, **more: Any) -> Case:
        return lambda here: request_notes(recorded(here, inputs, *entries, **more))

    def in_json(inputs: str, *entries: Any) -> Case:
        return lambda here: request_notes(recorded(here, inputs, *entries, protocol="http-json"))

    def unread(here: Path) -> Any:
        model = here / "repository" / "m" / "1"
        model.mkdir(parents=True)
        (model / "model.onnx").touch()
        (here / "requests.json").write_text(json.dumps({"data": [{"charge": [2]}] * 2}))
        file = "inputs: {kind: file, file: requests.json}"
        return request_notes(prepared(here, "", file, backend="onnxruntime"))

    def replay(**more: Any) -> Case:
        def case(here: Path) -> list[str]:
            job = replayed(here, **more)
            return [*client_notes(job), *request_notes(job), *replay_notes(job)]

        return case

    times = [{"due_s": row["due_s"]} for row in ROWS]
    several = "batch_size: 3, inputs: {kind: random, string_length: 20}"
    pair = FLOATS % "[ 4 ]" + 'input { name: "text" data_type: TYPE_STRING dims: [ 2 ] }'
    ragged = "allow_ragged_batch: true dims"
    return {
        "four floats": made("[ 4 ]"),
        "two by two floats": made("[ 2, 2 ]"),
        "8 MiB, which a run tells too": made(
            "[ -1, -1, -1 ]", "{kind: random, shapes: {x: [128, 128, 128]}}", FindingSeverity.NOTED
        ),
        "three inferences of two tensors": of(pair, several),
        "four floats, as JSON": of(FLOATS % "[ 4 ]", "protocol: http-json"),
        "texts and truths, as JSON": of(
            'input { name: "text" data_type: TYPE_STRING dims: [ 2 ] }'
            'input { name: "yes" data_type: TYPE_BOOL dims: [ 3 ] }',
            "protocol: http-json, batch_size: 2",
        ),
        "a picture, as JSON": of(FLOATS % "[ 3, 224, 224 ]", "protocol: http-json"),
        "a picture in shared memory": of(
            FLOATS % "[ 3, 224, 224 ]", "protocol: http-json, shared_memory: system"
        ),
        "two shapes": of(OPEN),
        "two shapes, batched": of(OPEN + BATCHED),
        "two shapes, batched raggedly": of(OPEN.replace("dims", ragged) + BATCHED),
        "a file of one request": read(CHARGE, {"charge": [2]}),
        "a file of unlike requests, as JSON": in_json(TEXT, *lengths(1, 3, 2, 3)),
        "a file of three, two in a request": read(CHARGE, *[{"charge": [2]}] * 3, batch=2),
        "a file of inputs that only the server knows": unread,
        "a file of unlike requests": read(TEXT, *lengths(1, 3, 2, 3)),
        "a file of unlike requests, batched": read(TEXT + BATCHED, *lengths(1, 3, 2, 3)),
        "a file of unlike requests, batched raggedly": read(
            TEXT.replace("dims", ragged) + BATCHED, *lengths(1, 3, 2, 3)
        ),
        "a file of unlike requests, like ones together": read(TEXT, *lengths(1, 1, 3, 3), batch=2),
        "a file of sequences": lambda here: request_notes(played(here, *SEQUENCES)),
        "a recording": replay(more=", window: 6s"),
        "a recording that is shorter than a window": replay(
            arrivals=", pace: [1]", more=", window: 2m"
        ),
        "a recording of times alone": replay(
            rows=times, more=", inputs: {kind: random, shapes: {ids: [7]}}"
        ),
    }


def not_fitting() -> dict[str, Case]:
    """Of requests that are refused before anything is started."""

    def entry(inputs: str, *entries: Any, **more: Any) -> Case:
        return lambda here: recorded(here, inputs, *entries, **more)

    def charge(value: Any) -> Case:
        return entry(CHARGE, {"charge": value})

    def shape(dims: str, inputs: str = TEXTS) -> Case:
        return lambda here: made_up(here, dims, inputs)

    late = {"due_s": 99.0, "inputs": {"ids": {"content": ["a"], "shape": [1]}}}
    times = [{"due_s": row["due_s"]} for row in ROWS]
    half = STREAMS % ("50%", "50%")
    return {
        "three wrong entries of four": entry(
            CHARGE, {"charge": [2]}, {"charge": [3, 4]}, {"charges": [1]}, {"charge": ["x"]}
        ),
        "130 wrong entries": entry(CHARGE, *[{}] * 130),
        "a fraction for an integer": charge([1.5]),
        "a truth for an integer": charge([True]),
        "no list": charge(5),
        "an integer that is too large": charge([1 << 31]),
        "a value that JSON does not have": entry(
            FLOATS % "[ 1 ]", {"x": {"b64": "AADAfw=="}}, protocol="http-json"
        ),
        "bytes that are too few": charge({"b64": "AAAA"}),
        "a shape without content": charge({"shape": [1]}),
        "a shape of too many dimensions": charge({"content": [1], "shape": [1, 1]}),
        "sequences for a model that takes none": entry(CHARGE, [{"charge": [1]}]),
        "requests and sequences in one file": entry(CHARGE, [{"charge": [1]}], {"charge": [1]}),
        "two wrong sequences of four": lambda here: played(
            here, *SEQUENCES[:2], [], [{"charge": [1]}, {"charge": [1.5]}, [{}]], indent=2
        ),
        "a length beside sequences of a file": lambda here: played(
            here, *SEQUENCES, arrivals=", length: 5"
        ),
        "sequences of no length": lambda here: played(here, *SEQUENCES[0], arrivals=", longest: 9"),
        "single requests without a length": lambda here: played(here, *SEQUENCES[0]),
        "sequences that are drawn": lambda here: played(here, *SEQUENCES, repeat="uniform"),
        "an open shape that is not given": entry(TEXT, {"text": ["a", "b"]}),
        "a number for a text": entry(TEXT, {"text": {"content": [1], "shape": [1]}}),
        "bytes that are no texts": entry(TEXT, {"text": {"b64": "BQAAAGFi", "shape": [1]}}),
        "an integer that is too large for a byte": entry(SMALL, {"x": [1, 128]}),
        "unlike inferences in a request": entry(TEXT, *lengths(1, 1, 3, 1), batch=2),
        "unlike inferences round the end": entry(TEXT, *lengths(1, 1, 1, 1, 3), batch=2),
        "unlike inferences drawn": entry(TEXT, *lengths(1, 1, 3, 3), batch=2, repeat="uniform"),
        "open inputs": shape(
            '[ -1, 3, -1 ] } input { name: "z" data_type: TYPE_STRING dims: [ -1 ]',
            "{kind: random}",
        ),
        "a shape that the config does not allow": shape("[ 64 ]"),
        "shapes of too few dimensions": shape("[ -1, 2 ]"),
        "a recorded line that does not fit": lambda here: replayed(here, [*ROWS, late]),
        "a recording of times alone": lambda here: replayed(here, times),
        "shares that are not the recording's": lambda here: replayed(here, STREAMED, spec=half),
    }


IMAGE = "3, 224, 224"


def sent(here: Path, dims: str = "8", workload: str = "", **more: str) -> Job:
    """A job whose requests are of this size, or sent in this way."""
    server = more.get("server", "{cpus: all}")
    config = f"{FLOATS % f'[ {dims} ]'} dynamic_batching {{ {more.get('batching', '')} }}"
    return prepared(
        here, config, f"cpus: all{workload}", server=server, space=more.get("space", "")
    )


def senders() -> dict[str, Case]:
    """Who sends the requests, what a request takes it, and where there is too little room."""

    def case(dims: str, cost_s: float = 0.0007, workload: str = "") -> Case:
        def notes(here: Path) -> list[str]:
            def cost(size: int, *_: object) -> float:
                return cost_s if size else 0.0001

            job = sent(here, dims, workload)
            with patch("tuner.prepare.sending.request_cost_s", cost):
                return [*client_notes(job), *sending_notes(job, {})]

        return notes

    def pinned(here: Path) -> list[str]:
        job = sent(here)
        server = job.spec.server.model_copy(update={"cpus": (0, 1, 2)})
        workload = job.spec.workload.model_copy(update={"cpus": None})
        spec = job.spec.model_copy(update={"server": server, "workload": workload})
        return client_notes(replace(job, spec=spec))

    def without(here: Path) -> list[str]:
        with patch("tuner.prepare.job.has_perf_analyzer", lambda *_: False):
            return client_notes(sent(here))

    def crowded(free: int, more: str = "") -> Case:
        def find(here: Path) -> None:
            job = sent(here, IMAGE, f", shared_memory: system{more}")
            room = SimpleNamespace(free=free)
            with patch("shutil.disk_usage", lambda _: room), find_programs(job, {}):
                pass

        return find

    remote = "{mode: remote, http: 'h:1', grpc: 'h:2'}"
    return {
        "perf_analyzer, on CPUs of its own": pinned,
        "there is no perf_analyzer": without,
        "an image": case(IMAGE),
        "an image that takes long": case(IMAGE, 0.02),
        "an image in shared memory": case(IMAGE, workload=", shared_memory: system"),
        "too little shared memory": crowded(40 << 20),
        "too little shared memory for 8 inputs": crowded(
            4 << 20, ", inputs: {kind: random, unique: 8}"
        ),
        "shared memory of a server elsewhere": lambda here: sent(
            here, workload=", shared_memory: system", server=remote
        ),
    }
