"""What a tritonserver says about its own failures, in one line worth showing."""

from __future__ import annotations

import re
from itertools import chain

from tuner.server.meanings import HARMLESS, OUT_OF_MEMORY, SHARED_MEMORY, meaning
from tuner.server.server import Server

_ERROR_LINE = re.compile(  # in the default format or with --log-format=ISO8601
    r'^(E\d{4} [\d:.]+|[\dT:-]+Z E) +\d+ [\w.]+:\d+\] +"?(?P<message>.*?)"?\s*$'
)
_FATAL_LINE = re.compile(r"^error: (?P<message>.+)$")
#: What a C++ program says when it dies, before the frames of its stack.
_CRASH_LINE = re.compile(
    r"^(?:terminate called after throwing an instance of '(?P<type>.+)'"
    r"|\s+what\(\): +(?P<what>.+)|(?P<signal>Signal \(\d+\) received))"
)
_STUB_LINE = re.compile(r"Failed to initialize Python stub[^:]*: (?P<message>.+)$")
_USAGE_LINE = re.compile(r"(?P<message>unrecognized option .+|Bad option: .+)$")
_POLL_FAILED = re.compile(r"Poll failed for model directory '(?P<model>[^']+)': (?P<message>.+)")
_LOAD_FAILED = re.compile(r"^load failed for model '[^']*': (version \S+ is at \w+ state: )?")
#: Of an ensemble, around the words of the model that does not load.
_STEP_FAILED = re.compile(r"(?<=error: )version \S+ is at \w+ state: (Internal|Invalid argument): ")
_MODEL_FAILED = re.compile(
    r"^Failed to process the request\(s\) for model (instance )?'[^']*', message: "
)
#: What the Python backend calls an error that a model, or a backend in Python, words itself.
_EXCEPTION = re.compile(r"(\w+\.)*TritonModelException: ")
_LAST_LINES = 40
_STATUS_NAME = re.compile(
    r"^(Internal|Invalid argument|Unavailable|Unsupported|Unknown|Not found|Already exists): "
)
#: What to do where a server lacks a model's backend.
OTHER_BACKENDS = (
    "name a directory that has it, server.args: [--backend-directory=DIR], or a tritonserver of "
    "your own, server.binary; or use the docker mode with NVIDIA's image"
)


def last_words(server: Server) -> str:
    """The model's last error in a server's log; empty when there is none."""
    lines = _telling(server.log_tail(_LAST_LINES))
    matches = [m for line in lines if (m := _ERROR_LINE.search(line))]
    return _MODEL_FAILED.sub("", _first_line(matches[-1]["message"])) if matches else ""


def failure(text: str) -> str:
    """The line of a server's log that says why it ended; empty when the log is empty."""
    lines = _telling(text)
    crash = [match[match.lastgroup or 0] for line in lines if (match := _CRASH_LINE.search(line))]
    if crash:
        return ": ".join(dict.fromkeys(crash))
    for pattern in (_FATAL_LINE, _USAGE_LINE, _ERROR_LINE, _STUB_LINE):
        for line in reversed(lines):
            if match := pattern.search(line):
                return _first_line(match["message"])
    return lines[-1] if lines else ""


def refusal(message: str, model: str, log: str) -> str:
    """Triton's reason for not loading a model, short.

    Args:
        log: The log's last lines: for a config that is not valid by itself the answer says only
            "failed to poll from model repository" and the log has the reason. The log may also
            be alone in saying what a backend lacked: memory, or an engine of its own version.
    """
    if "failed to poll from model repository" in message:
        reasons = [m["message"] for m in _POLL_FAILED.finditer(log) if m["model"] == model]
        if reasons:
            return _first_line(reasons[-1].rstrip('"'))
    reason = _STEP_FAILED.sub("", _first_line(_LOAD_FAILED.sub("", message.strip())))
    since = _telling(log.rpartition(f"loading: {model}:")[2])
    errors = [_first_line(m["message"]) for line in since if (m := _ERROR_LINE.search(line))]
    memory = () if out_of_memory(reason) else filter(out_of_memory, errors)
    cause = next(chain(memory, () if meaning(reason) else filter(meaning, errors)), "")
    return f"{reason}: {cause}" if cause else reason


def out_of_memory(reason: str) -> bool:
    """Whether a failure is one of memory: device, host, or shared memory."""
    return meaning(reason) in (SHARED_MEMORY, OUT_OF_MEMORY)


def _telling(text: str) -> list[str]:
    """The lines that may say something about a failure."""
    lines = (line.rstrip() for line in text.splitlines() if line.strip())
    return [line for line in lines if meaning(line) is not HARMLESS]


def _first_line(message: str) -> str:
    """The first line, and the one that it announces."""
    first, *more = message.replace("\\n", "\n").strip().split("\n", 2)
    if first.rstrip().endswith(":") and more:
        first = f"{first.rstrip()} {more[0].strip()}"
    return _EXCEPTION.sub("", _STATUS_NAME.sub("", first), count=1).rstrip("; ")
