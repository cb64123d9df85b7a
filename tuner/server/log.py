"""Extracts the reason of a failure from a tritonserver's log, and its meaning and remedy."""

from __future__ import annotations

import re
from itertools import chain
from typing import NamedTuple

from tuner.reason import Reason
from tuner.server.server import Server
from tuner.spec.server import ServerMode

HARMLESS, OUT_OF_MEMORY, SHARED_MEMORY = "harmless", "out of memory", "shared memory"
NO_BACKEND, PORT_TAKEN = "missing backend", "port taken"


class Known(NamedTuple):
    """A known message: a regular expression, and the remedy, which may refer to its groups."""

    words: str
    remedy: str


#: By meaning; the first match counts. Harmless messages also appear on healthy machines.
MEANINGS = {
    HARMLESS: Known(
        "CudaDriverHelper has not been initialized|unable to create stream for|DCGM unable to start"
        r"|^Error: Failed to initialize NVML\s*$|CacheManager Init Failed|NVIDIA Driver was not"
        "|(unable|failed) to (get|allocate) (power|energy|utilization|memory usage|pinned system)"
        "|SHMEM alloc|falling back to pinned|ignore version directory|createInferRuntime differs",
        "",
    ),
    SHARED_MEMORY: Known(
        "shared memory.*(no space left|--shm-size)|r[ua]n out of shared memory",
        "give the server more shared memory (server.shm_size, or --shm-size of its container)",
    ),
    OUT_OF_MEMORY: Known(
        r"out[ _]?of[ _]?memory|bad_alloc|MemoryError|cannot allocate memory|ALLOC_FAILED"
        "|failed to allocate|memory limit set for|no space left on device|cudaErrorMemoryAllocation"
        "|unable to create TensorRT context|no available memory for the cache blocks",
        "stop what else uses the memory, or take fewer instances or a smaller max_batch_size",
    ),
    NO_BACKEND: Known(
        r"unable to find backend library for backend '(\w+)|unable to find 'libtriton_(\w+)\.so'"
        r"|unknown platform '(\w+)",
        r"use a tritonserver that has the backend \1\2\3, e.g. server: {mode: docker, image: ...}",
    ),
    "missing library": Known(
        r"(lib[\w.+-]*\.so[.\d]*): cannot open shared object|(GLIBC\w*_[\d.]+\d)'? not found"
        r"|undefined symbol: (\w+)|unable to load shared library: (lib[\w.+-]+)$",
        r"make it find \1\2\3\4 (server.environment: {LD_LIBRARY_PATH: ...}), or use another image",
    ),
    "missing module": Known(
        r"No module named '?([\w.]+)", r"install \1 for the Python that runs the model"
    ),
    "built for another GPU or TensorRT": Known(
        "not compatible with this version of TensorRT|version tag does not match"
        "|generated on an incompatible device|no kernel image is available",
        "build it on a GPU like this one, with the TensorRT of the server's image",
    ),
    "unknown operation": Known(
        "could not find plugin|IPluginCreator not found|unsupported primitive of type"
        "|unknown builtin op|is not a registered function/op",
        "name the library that has it (server.environment: {LD_PRELOAD: ...}), or do without it",
    ),
    "newer than the server": Known(
        r"opset \d+ is under development|unsupported model IR version"
        "|unknown model file format version|maximum supported version for reading",
        "use a newer server, or export the model for this one (ONNX: an older opset, IR version)",
    ),
    "driver": Known(
        "driver version is insufficient|driver/library version mismatch|NVIDIA driver release",
        "update the GPU's driver and restart the machine, or use an older release of the server",
    ),
    "no GPU": Known(
        "no GPUs are available|invalid or unsupported gpu id|could not select device driver"
        "|server does not support GPUs",
        "use a machine with a GPU (for Docker, its Container Toolkit), or KIND_CPU for KIND_GPU",
    ),
    "broken file": Known(
        "protobuf parsing failed|failed finding central directory|magic tag does not match",
        "replace the file: it is cut off, no TorchScript, or a Git LFS pointer (`git lfs pull`)",
    ),
    "no version": Known(
        "at least one version must be available",
        "put the model's file into MODEL/1/; or correct version_policy, which must choose a "
        "version that is there, as latest { num_versions: 1 }",
    ),
    "missing file": Known(
        "failed to stat file|failed to open .*file|error while opening file|no version is available"
        "|not found in any model repository",
        "put the model's file into MODEL/1/, or name it in the config (default_model_filename)",
    ),
    "wrong shape, type or batch size": Known(
        r"the model expects \d+ dimensions|(unexpected|expects) (datatype|shape)|expects \d+ inputs"
        "|does not support batching"
        "|configuration (specified max-batch|maximum batch size)|batch-size must be <="
        "|unexpected inference (in|out)put|set binding dimension|shape of dimension \\d+ to be",
        "correct the tensor or max_batch_size in config.pbtxt (above 0: no batch in dims)",
    ),
    "wrong parameter": Known(
        "to integral number$|expected values for|expected the parameter|unsupported .* value '"
        "|unknown (execution accelerator|parameter) '",
        "correct it in config.pbtxt (tune lint knows what backends read), or use a server with it",
    ),
    "forbidden name": Known(
        "invalid stub name",
        "rename the model's directory: a Python model's name may not have a shell's characters",
    ),
    "dead Python process": Known(
        "stub process '[^']*' is not healthy",
        "run the model's code by itself: its process died, in a library or for lack of memory",
    ),
    PORT_TAKEN: Known("already in use", "end the process that has the port, or take another port"),
}


def meaning(words: str) -> str | None:
    """The meaning of a message; None if not known, e.g. for messages of a model's code."""
    return next((name for name in MEANINGS if _find(name, words)), None)


def remedy(words: str) -> str:
    """The remedy for a message; empty if none is known."""
    known = meaning(words)
    match = known and _find(known, words)
    return match.expand(MEANINGS[known].remedy) if known and match else ""


def _find(name: str, words: str) -> re.Match[str] | None:
    return re.search(MEANINGS[name].words, words, re.IGNORECASE | re.MULTILINE)


_ERROR_LINE = re.compile(  # in the default format or with --log-format=ISO8601
    r'^(E\d{4} [\d:.]+|[\dT:-]+Z E) +\d+ [\w.]+:\d+\] +"?(?P<message>.*?)"?\s*$'
)
_FATAL_LINE = re.compile(r"^error: (?P<message>.+)$")
#: What a C++ program prints when it dies, before the frames of its stack.
_CRASH_LINE = re.compile(
    r"^(?:terminate called after throwing an instance of '(?P<type>.+)'"
    r"|\s+what\(\): +(?P<what>.+)|(?P<signal>Signal \(\d+\) received))"
)
_STUB_LINE = re.compile(r"Failed to initialize Python stub[^:]*: (?P<message>.+)$")
#: A Python process that dies; stubs of some builds print it when they exit.
_PYTHON_LINE = re.compile(r"^(?P<message>Fatal Python error: .+)$")
_USAGE_LINE = re.compile(r"(?P<message>unrecognized option .+|Bad option: .+)$")
_POLL_FAILED = re.compile(r"Poll failed for model directory '(?P<model>[^']+)': (?P<message>.+)")
_LOAD_FAILED = re.compile(r"^load failed for model '[^']*': (version \S+ is at \w+ state: )?")
#: Prefix of an ensemble before the message of the step that does not load.
_STEP_FAILED = re.compile(r"(?<=error: )version \S+ is at \w+ state: (Internal|Invalid argument): ")
_MODEL_FAILED = re.compile(
    r"^Failed to process the request\(s\) for model (instance )?'[^']*', message: "
)
#: Prefix of the Python backend before the message of a model or of a backend written in Python.
_EXCEPTION = re.compile(r"(\w+\.)*TritonModelException: ")
_LAST_LINES = 40
_STATUS_NAME = re.compile(
    r"^(Internal|Invalid argument|Unavailable|Unsupported|Unknown|Not found|Already exists): "
)
#: What to do where a server lacks a model's backend.
OTHER_BACKENDS = {
    ServerMode.LOCAL: "name a directory that has it, server.args: [--backend-directory=DIR], or a "
    "tritonserver of your own, server.binary; or use the docker mode with an image that has it",
    ServerMode.DOCKER: "take an image that has it; or mount a directory that has all of them, "
    "server.mounts, and name that one, server.args: [--backend-directory=DIR]",
    ServerMode.REMOTE: "start that server with a directory that has it, --backend-directory=DIR, "
    "or use the docker mode with an image that has it",
}


def last_words(server: Server) -> str:
    """The last error of a model in a server's log; empty if there is none."""
    lines = _relevant_lines(server.log_tail(_LAST_LINES))
    matches = [m for line in lines if (m := _ERROR_LINE.search(line))]
    return _MODEL_FAILED.sub("", _first_line(matches[-1]["message"])) if matches else ""


def failure(text: str) -> str:
    """The reason in a server's log why the server exited; empty if the log is empty."""
    lines = _relevant_lines(text)
    crash = [match for line in lines if (match := _CRASH_LINE.search(line))]
    # A server may also abort while it exits for another reason: prefer an error to a signal.
    message = ""
    if not any(match["type"] or match["what"] for match in crash):
        patterns = (_FATAL_LINE, _USAGE_LINE, _ERROR_LINE, _STUB_LINE, _PYTHON_LINE)
        matches = (p.search(line) for p in patterns for line in reversed(lines))
        message = next((_first_line(match["message"]) for match in matches if match), "")
    reasons = [message, *(match[match.lastgroup or 0] for match in crash)]
    return ": ".join(filter(None, dict.fromkeys(reasons))) or (lines[-1] if lines else "")


def refusal(message: str, model: str, log: str) -> str:
    """Triton's reason for not loading a model, as one line.

    Args:
        message: The error message of the load request.
        log: The last lines of the log. For an invalid config, the message is only "failed to poll
            from model repository", and the log has the reason. Sometimes only the log has what a
            backend lacked: memory, or an engine of the right version.
    """
    if "failed to poll from model repository" in message:
        reasons = [m["message"] for m in _POLL_FAILED.finditer(log) if m["model"] == model]
        if reasons:
            return _first_line(reasons[-1].rstrip('"'))
    reason = _STEP_FAILED.sub("", _first_line(_LOAD_FAILED.sub("", message.strip())))
    errors = errors_of_load(model, log)
    memory = () if out_of_memory(reason) else filter(out_of_memory, errors)
    cause = next(chain(memory, () if meaning(reason) else filter(meaning, errors)), "")
    return f"{reason}: {cause}" if cause else reason


def errors_of_load(model: str, log: str) -> list[str]:
    """The errors in a server's log since it began to load a model."""
    since = _relevant_lines(log.rpartition(f"loading: {model}:")[2])
    return [_first_line(m["message"]) for line in since if (m := _ERROR_LINE.search(line))]


def out_of_memory(reason: str) -> bool:
    """Whether a failure is a lack of device, host or shared memory."""
    return meaning(reason) in (SHARED_MEMORY, OUT_OF_MEMORY)


def not_ready(words: str) -> list[str]:
    """Called models that are not loaded, by the message of the calling model."""
    return re.findall(r"Model '([^']+)' is not ready", words)


def lacks_memory(reason: Reason | None) -> bool:
    """Whether a failure is a lack of memory, by the messages that its reason quotes."""
    return reason is not None and any(map(out_of_memory, reason.quotes()))


def _relevant_lines(text: str) -> list[str]:
    lines = (line.rstrip() for line in text.splitlines() if line.strip())
    return [line for line in lines if meaning(line) is not HARMLESS]


def _first_line(message: str) -> str:
    """The first line, with the next one after a colon; repeated parts only once."""
    first, *more = message.replace("\\n", "\n").strip().split("\n", 2)
    if first.rstrip().endswith(":") and more:
        first = f"{first.rstrip()} {more[0].strip()}"
    text = ""
    for part in filter(None, map(str.strip, first.split(";"))):
        if not text.endswith(part):
            text += f"; {part}" if text else part
    return _EXCEPTION.sub("", _STATUS_NAME.sub("", text), count=1)
