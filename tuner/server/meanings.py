"""What the words of servers, backends, drivers and entry points mean, and what to do: a table.

`tests/cases/server_words.yaml` has the real lines that it was made from.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HARMLESS, OUT_OF_MEMORY, SHARED_MEMORY = "harmless", "out of memory", "shared memory"


class Known(NamedTuple):
    """Words, a regular expression, and what to do about them, which may repeat their groups."""

    words: str
    remedy: str


#: The first whose words are found counts. Harmless ones come on machines where nothing is wrong.
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
    "missing backend": Known(
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
        r"No module named '?([\w.]+)",
        r"install \1 for the Python that runs the model",
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
        "no GPUs are available|invalid or unsupported gpu id|could not select device driver",
        "use a machine with a GPU (for Docker, its Container Toolkit), or KIND_CPU for KIND_GPU",
    ),
    "broken file": Known(
        "protobuf parsing failed|failed finding central directory|magic tag does not match",
        "replace the file: it is cut off, no TorchScript, or a Git LFS pointer (`git lfs pull`)",
    ),
    "missing file": Known(
        "failed to stat file|failed to open .*file|error while opening file|no version is available"
        "|at least one version must be available|not found in any model repository",
        "put the model's file into MODEL/1/, or name it in the config (default_model_filename)",
    ),
    "wrong shape, type or batch size": Known(
        r"the model expects \d+ dimensions|unexpected (datatype|shape)|expects \d+ inputs"
        "|configuration (specified max-batch|maximum batch size)|batch-size must be <="
        "|unexpected inference (in|out)put|set binding dimension|shape of dimension \\d+ to be",
        "correct the tensor or max_batch_size in config.pbtxt (above 0: no batch in dims)",
    ),
    "port taken": Known(
        "already in use", "end the process that has the port, or take another port"
    ),
}


def meaning(words: str) -> str | None:
    """What they mean; None for words that say it themselves, e.g. those of a model's own code."""
    return next((name for name in MEANINGS if _find(name, words)), None)


def remedy(words: str) -> str:
    """What to do about it; empty where nothing is known."""
    known = meaning(words)
    found = known and _find(known, words)
    return found.expand(MEANINGS[known].remedy) if known and found else ""


def _find(name: str, words: str) -> re.Match[str] | None:
    return re.search(MEANINGS[name].words, words, re.IGNORECASE | re.MULTILINE)
