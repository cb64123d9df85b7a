"""What people who know a backend search, and what they say about it: for `tune init`.

`search_spaces/` has a spec for each backend with the same fields and the same words; a test
compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Expert:
    """What to search of a backend beside instances, sizes and delay.

    Attributes:
        remarks: A line each.
        on_cpu: Parameters that matter most on a CPU, by path, with their values; a number of
            threads is left out where there are not as many cores.
        on_gpu: The same on a GPU.
        preferred: Preferred batch sizes may pay off.
        batches: It may be given a batcher, and taken it away: not one that is always better with.
        larger: It takes larger batches than today's ``max_batch_size``.
        sizes: Worth trying where the server completes ``max_batch_size``, its default among them.
    """

    remarks: tuple[str, ...] = ()
    on_cpu: Mapping[str, tuple[str | bool, ...]] = field(default_factory=dict)
    on_gpu: Mapping[str, tuple[str | bool, ...]] = field(default_factory=dict)
    preferred: bool = False
    batches: bool = True
    larger: bool = True
    sizes: tuple[int, ...] = ()


_THREADS = ("1", "2", "4")
EXPERTS = MappingProxyType(
    {
        "onnxruntime": Expert(
            (
                "Every instance is a session with its own copy of the weights and, on a CPU, a",
                "thread for each core, which spin as they wait: their number matters most there.",
                "Without preferred_batch_size the batcher takes all waiting requests.",
            ),
            on_cpu={"parameters.intra_op_thread_count": _THREADS},
            sizes=(4, 8, 16, 32),
        ),
        "tensorrt": Expert(
            (
                "max_batch_size cannot exceed what the engine was built for.",
                "preferred_batch_size pays off: list the batch sizes of its optimization profiles.",
                "Dynamic batching is on by default when the engine takes batches.",
            ),
            on_gpu={
                "optimization.cuda.graphs": (False, True),
                "optimization.cuda.output_copy_stream": (False, True),
            },
            preferred=True,
            batches=False,
            larger=False,
        ),
        "pytorch": Expert(
            (
                "Instances copy the weights unless ENABLE_WEIGHT_SHARING is true.",
                "The first requests after a load are slow: use a longer workload.warmup, as 2s.",
                "Thread counts hold for the whole server, until it ends: they cannot be searched.",
            ),
            on_gpu={"parameters.ENABLE_WEIGHT_SHARING": ("unset", "true")},
        ),
        "openvino": Expert(
            (
                "Instances, streams of an instance and threads of a stream share the same cores:",
                "more of one means less of another, so they are searched together.",
            ),
            on_cpu={
                "parameters.NUM_STREAMS": ("unset", *_THREADS),
                "parameters.INFERENCE_NUM_THREADS": ("unset", *_THREADS),
            },
        ),
        "fil": Expert(
            (
                "Rows are cheap, so batches are large (thousands of rows) and delays short.",
                "Neither parameter changes answers, and the best values cannot be guessed.",
            ),
            on_gpu={
                "parameters.threads_per_tree": ("1", "2", "4", "8", "16", "32"),
                "parameters.storage_type": ("AUTO", "DENSE", "SPARSE"),
            },
        ),
        "python": Expert(
            (
                "Every instance is a process with its own copy of the weights and, on a GPU, of",
                "the CUDA context. Batching helps only if execute() handles requests together.",
            ),
            preferred=True,
        ),
    }
)
#: Of a backend that is not known here.
UNKNOWN = Expert(preferred=True)
