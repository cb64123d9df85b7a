"""What a tritonserver says about its own failures, in one line worth showing."""

from __future__ import annotations

import re

from tuner.server.server import Server

_ERROR_LINE = re.compile(r'^E\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] +"?(?P<message>.*?)"?\s*$')
_FATAL_LINE = re.compile(r"^error: (?P<message>.+)$")
_STUB_LINE = re.compile(r"Failed to initialize Python stub[^:]*: (?P<message>.+)$")
_USAGE_LINE = re.compile(r"(?P<message>unrecognized option .+|Bad option: .+)$")
_POLL_FAILED = re.compile(r"Poll failed for model directory '(?P<model>[^']+)': (?P<message>.+)")
_LOAD_FAILED = re.compile(r"^load failed for model '[^']*': (version \S+ is at \w+ state: )?")
#: Of an ensemble, around the words of the model that does not load.
_STEP_FAILED = re.compile(r"(?<=error: )version \S+ is at \w+ state: (Internal|Invalid argument): ")
_MODEL_FAILED = re.compile(r"^Failed to process the request\(s\) for model '[^']*', message: ")
_LAST_LINES = 40
_STATUS_NAME = re.compile(
    r"^(Internal|Invalid argument|Unavailable|Unsupported|Unknown|Not found|Already exists): "
)
#: On every machine without a GPU; say nothing about a failure. The second comes whenever an
#: ensemble is set up, and so with every reload of a step.
_HARMLESS = ("CudaDriverHelper has not been initialized", "unable to create stream for")

_OUT_OF_MEMORY = re.compile(
    r"out of memory|out_of_memory|bad_alloc|MemoryError|cannot allocate memory"
    r"|failed to allocate|memory limit set for|no space left on device|cudaErrorMemoryAllocation",
    re.IGNORECASE,
)


def last_words(server: Server) -> str:
    """The model's last error in a server's log; empty when there is none."""
    told = (line.rstrip() for line in server.log_tail(_LAST_LINES).splitlines())
    lines = [line for line in told if not any(known in line for known in _HARMLESS)]
    matches = [m for line in lines if (m := _ERROR_LINE.search(line))]
    return _MODEL_FAILED.sub("", _first_line(matches[-1]["message"])) if matches else ""


def failure(text: str) -> str:
    """The line of a server's log that says why it ended; empty when the log is empty."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    for pattern in (_FATAL_LINE, _USAGE_LINE, _ERROR_LINE, _STUB_LINE):
        for line in reversed(lines):
            match = pattern.search(line)
            if match and not any(known in line for known in _HARMLESS):
                return _first_line(match["message"])
    return lines[-1] if lines else ""


def refusal(message: str, model: str, log: str) -> str:
    """Triton's reason for not loading a model, short.

    Args:
        message: The answer to the load request.
        model: The model's name.
        log: The log's last lines: for a config that is not valid by itself the answer says only
            "failed to poll from model repository" and the log has the reason.
    """
    if "failed to poll from model repository" in message:
        reasons = [m["message"] for m in _POLL_FAILED.finditer(log) if m["model"] == model]
        if reasons:
            return _first_line(reasons[-1].rstrip('"'))
    return _STEP_FAILED.sub("", _first_line(_LOAD_FAILED.sub("", message.strip())))


def out_of_memory(reason: str) -> bool:
    """Whether a failure is one of memory: device, host, or shared memory."""
    return bool(_OUT_OF_MEMORY.search(reason))


def _first_line(message: str) -> str:
    first = message.replace("\\n", "\n").strip().partition("\n")[0]
    return _STATUS_NAME.sub("", first).rstrip("; ")
