"""What experts search for each backend, with remarks, for the drafts of `tune init`.

`search_spaces/` has a spec for each backend with the same fields and remarks; a test compares
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_Values = tuple[str | bool | int | tuple[str, ...], ...]


@dataclass(frozen=True)
class Rare:
    """A field from which few models gain, with its effect: in drafts a comment."""

    values: _Values
    why: str


@dataclass(frozen=True)
class Expert:
    """What to search for a backend, besides instances, batch sizes and delay.

    Attributes:
        remarks: The lines of a comment.
        on_cpu: Fields that matter most on a CPU, by path, with their values; a number of threads
            is left out where there are not as many cores.
        on_gpu: The same on a GPU.
        rare_on_cpu, rare_on_gpu: Fields that seldom matter.
        preferred: Preferred batch sizes may pay off.
        batches: Whether to have a batcher is worth searching.
        larger: Models accept larger batches than the current ``max_batch_size``.
        sizes: Batch sizes worth trying where the server completes ``max_batch_size``, with its
            default.
    """

    remarks: tuple[str, ...] = ()
    on_cpu: Mapping[str, _Values] = field(default_factory=dict)
    on_gpu: Mapping[str, _Values] = field(default_factory=dict)
    rare_on_cpu: Mapping[str, Rare] = field(default_factory=dict)
    rare_on_gpu: Mapping[str, Rare] = field(default_factory=dict)
    preferred: bool = False
    batches: bool = True
    larger: bool = True
    sizes: tuple[int, ...] = ()


_THREADS = ("1", "2", "4")
_ACCELERATORS = "optimization.execution_accelerators"
_UNOPTIMIZED = {
    "parameters.DISABLE_OPTIMIZED_EXECUTION": Rare(
        ("unset", "true"), "warm at once; for some TorchScript models as fast"
    )
}
EXPERTS = MappingProxyType(
    {
        "onnxruntime": Expert(
            (
                "Every instance is a session with its own copy of the weights and, on a CPU, a",
                "thread for each core of the machine, whatever server.cpus says. They spin as they",
                "wait: their number matters most there.",
                "Without preferred_batch_size the batcher takes all waiting requests.",
            ),
            on_cpu={"parameters.intra_op_thread_count": _THREADS},
            rare_on_cpu={
                "parameters.execution_mode": Rare(
                    ("unset", "1"), "1: parallel branches of the graph run at once"
                ),
                "parameters.inter_op_thread_count": Rare(
                    _THREADS, "for these branches: nothing without execution_mode 1"
                ),
                "optimization.graph.level": Rare(
                    ("unset", 1), "1: fewer fusions than all, the default"
                ),
                f"{_ACCELERATORS}.cpu_execution_accelerator[name=openvino]": Rare(
                    ("unset", True), "for Intel's CPUs, where the server has it"
                ),
            },
            rare_on_gpu={
                f"{_ACCELERATORS}.gpu_execution_accelerator[name=tensorrt]": Rare(
                    ("unset", True), "where the server has it; builds an engine at each load"
                ),
            },
            sizes=(4, 8, 16, 32),
        ),
        "tensorrt": Expert(
            (
                "max_batch_size cannot exceed what the engine was built for.",
                "preferred_batch_size pays off: list the batch sizes of its optimization profiles.",
                "Dynamic batching is on by default when the engine takes batches.",
            ),
            on_gpu={
                "optimization.cuda.graphs": ("unset", True),
                "optimization.cuda.output_copy_stream": ("unset", True),
            },
            rare_on_gpu={
                "instance_group.profile": Rare(
                    (("0",), ("0", "1")), "the engine's profiles, where it has several"
                ),
                "optimization.eager_batching": Rare(
                    ("unset", True), "makes a batch, perhaps a smaller one, while another runs"
                ),
                "parameters.execution_context_allocation_strategy": Rare(
                    ("unset", "ON_PROFILE_CHANGE"), "less memory where it has several profiles"
                ),
            },
            preferred=True,
            batches=False,
            larger=False,
        ),
        "pytorch": Expert(
            (
                "Instances copy the weights unless ENABLE_WEIGHT_SHARING is true.",
                "The first requests after a load are slow: use a longer workload.warmup, as 2s.",
                "A model.pt2 (platform torch_aoti) takes no batches yet: search only instances.",
                "Thread counts apply to the full server until it ends: they cannot be searched.",
            ),
            on_gpu={"parameters.ENABLE_WEIGHT_SHARING": ("unset", "true")},
            rare_on_cpu=_UNOPTIMIZED,
            rare_on_gpu=_UNOPTIMIZED,
        ),
        "tensorflow": Expert(
            (
                "NVIDIA's images have this backend up to release 25.02. Exported to ONNX, a",
                "model is served by newer ones.",
                "Each instance has a session, with its own copy of the weights on each device,",
                "unless MAX_SESSION_SHARE_COUNT lets so many instances share one.",
                "TensorFlow keeps the memory of its largest batch until the server ends: a config",
                "measured after a larger one seems to need as much.",
                "Thread counts are those of the first session: they cannot be searched.",
            ),
            on_gpu={"parameters.MAX_SESSION_SHARE_COUNT": ("unset", "2", "4")},
            rare_on_gpu={
                "optimization.graph.level": Rare(("unset", 1), "1: compiled by XLA"),
                f"{_ACCELERATORS}.gpu_execution_accelerator[name=tensorrt]": Rare(
                    ("unset", True), "converts parts of the graph, at the first requests"
                ),
            },
            batches=False,
            sizes=(4, 8, 16, 32),
        ),
        "openvino": Expert(
            (
                "The backend compiles the model once. NUM_STREAMS is how many batches run at once,",
                "INFERENCE_NUM_THREADS the sum of their threads. An instance only sends batches:",
                "it takes as many instances as streams to use them all, so the three are searched",
                "together.",
            ),
            on_cpu={
                "parameters.NUM_STREAMS": ("unset", *_THREADS),
                "parameters.INFERENCE_NUM_THREADS": ("unset", *_THREADS),
            },
            rare_on_cpu={
                "parameters.PERFORMANCE_HINT": Rare(
                    ("unset", "LATENCY", "THROUGHPUT"), "in place of the other two"
                )
            },
        ),
        "fil": Expert(
            (
                "Rows are cheap, so batches are large (thousands of rows) and delays short.",
                "No parameter here changes answers, and the best values cannot be guessed.",
                "Before release 25.09 they were threads_per_tree and storage_type.",
            ),
            on_cpu={"parameters.cpu_nthread": _THREADS},
            on_gpu={
                "parameters.chunk_size": ("unset", "2", "4", "8", "16", "32"),
                "parameters.layout": ("unset", "breadth_first", "layered"),
            },
            rare_on_gpu={
                "parameters.transfer_threshold": Rare(
                    ("unset", "2", "5"), "a batch of no more rows is computed on the CPU"
                )
            },
        ),
        "dali": Expert(
            (
                "num_threads: CPU threads that decode, also on a GPU. DALI advises one instance:",
                "more may take far more memory.",
                "A batch has inputs of one shape: encoded images of unlike lengths share one only",
                "where clients pad them. Random bytes are no image: what decodes needs inputs:",
                "{kind: file, file: requests.json}.",
            ),
            on_cpu={"parameters.num_threads": _THREADS},
            on_gpu={"parameters.num_threads": (*_THREADS, "8")},
            larger=False,
        ),
        "python": Expert(
            (
                "Every instance is a process with its own copy of the weights and, on a GPU, of",
                "the CUDA context. Batching helps only if execute() handles requests together.",
                "On a CPU, most runtimes make a thread for each CPU in each instance, and so",
                "instances slow each other down: limit threads in model.py, or for many runtimes",
                "search environment.OMP_NUM_THREADS. `tune lint` shows what a model leaves open.",
            ),
            preferred=True,
        ),
    }
)
#: For a backend without an entry.
UNKNOWN = Expert(preferred=True)
