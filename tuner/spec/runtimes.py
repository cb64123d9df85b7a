"""What limits the threads of the runtimes that Python models import, and the server's variables.

A runtime starts a thread for each CPU in each instance of a model. Measured on two CPUs: the
throughput of two instances with such threads is 0.11 (torch), 0.18 (LightGBM) and 0.23 (XGBoost) of
the throughput with one thread each.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Runtime:
    """A runtime whose number of threads is that of the CPUs until something sets another.

    Attributes:
        modules: Modules whose import loads the runtime.
        quiet: Modules below these that compute nothing.
        limit: The line for model.py that limits the threads.
        settings: Names of calls, arguments, keys and attributes that set the number of threads.
        variables: Environment variables that the runtime reads at its import.
    """

    name: str
    modules: tuple[str, ...]
    limit: str
    settings: tuple[str, ...]
    variables: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()


_OPENMP = ("OMP_NUM_THREADS",)
#: Tried: torch 2.13, XGBoost 3.2, LightGBM 4.7, scikit-learn 1.9, CTranslate2 4.8, treelite 4.8,
#: CatBoost 1.2.10, OpenVINO 2026.4, onnxruntime 1.32, TensorFlow 2.21, OpenCV 5.0, polars 2.1.
RUNTIMES = (
    Runtime(
        "torch",
        ("torch", "sentence_transformers"),
        "call torch.set_num_threads(1) in initialize",
        ("set_num_threads",),
        _OPENMP,
        quiet=("torch.utils",),
    ),
    Runtime(
        "XGBoost",
        ("xgboost",),
        'call booster.set_param({"nthread": 1}) after loading, since a saved model does not hold '
        "the nthread of its training",
        ("nthread", "n_jobs"),
        _OPENMP,
    ),
    Runtime(
        "LightGBM",
        ("lightgbm",),
        "pass num_threads=1 to predict",
        ("num_threads", "num_thread", "nthread", "nthreads", "n_jobs", "threadpool_limits"),
        _OPENMP,
    ),
    Runtime(
        "scikit-learn",
        ("sklearn",),
        "set n_jobs=1 where a model has it",
        ("n_jobs", "threadpool_limits", "LOKY_MAX_CPU_COUNT"),
        _OPENMP,
    ),
    Runtime(
        "CTranslate2",
        ("ctranslate2",),
        "pass intra_threads=1 to the constructor",
        ("intra_threads",),
        _OPENMP,
    ),
    Runtime(
        "treelite", ("treelite", "tl2cgen"), "pass nthread=1 to predict", ("nthread",), _OPENMP
    ),
    Runtime("CatBoost", ("catboost",), "pass thread_count=1 to predict", ("thread_count",)),
    Runtime(
        "OpenVINO",
        ("openvino",),
        "compile with INFERENCE_NUM_THREADS 1 and ENABLE_CPU_PINNING False, since each compiled "
        "model is pinned from the first CPU on",
        ("ENABLE_CPU_PINNING", "enable_cpu_pinning"),
    ),
    Runtime(
        "onnxruntime",
        ("onnxruntime",),
        "set intra_op_num_threads = 1 in the SessionOptions",
        ("intra_op_num_threads",),
    ),
    Runtime(
        "TensorFlow",
        ("tensorflow",),
        "call tf.config.threading.set_intra_op_parallelism_threads(1) before anything else of it",
        ("set_intra_op_parallelism_threads", "intra_op_parallelism_threads"),
    ),
    Runtime(
        "OpenCV",
        ("cv2",),
        "call cv2.setNumThreads(1) in initialize",
        ("setNumThreads",),
        ("OPENCV_FOR_THREADS_NUM",),
    ),
    Runtime(
        "polars",
        ("polars",),
        'set os.environ["POLARS_MAX_THREADS"] = "1" above the import',
        (),
        ("POLARS_MAX_THREADS",),
    ),
)
#: Of libraries beneath the runtimes: MKL (torch), joblib (scikit-learn), OpenBLAS (NumPy) and rayon
#: (tokenizers).
_BENEATH = (
    "LOKY_MAX_CPU_COUNT",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
#: Every variable of the server's environment that can be searched: a number of threads each, so
#: that no value is a secret.
VARIABLES = tuple(sorted({*_BENEATH, *(name for r in RUNTIMES for name in r.variables)}))


def thread_count(given: object) -> int | None:
    """The number of threads that a spec or a run gives a variable; None: it is not set.

    Raises:
        ValueError: The value is neither.
    """
    if given is None or given == "unset":
        return None
    if isinstance(given, str) and given.isascii() and given.isdecimal():
        given = int(given)
    if type(given) is not int or given < 1:
        raise ValueError(f"'{given}' is not a number of threads, such as 1, or unset")
    return given
