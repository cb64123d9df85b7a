"""The NumPy of Python models, and a shim for the wheel's Python backend with NumPy 2.

The stub of the wheel was built for NumPy 1. With NumPy 2, each tensor that a model receives repeats
its first element, and each tensor that it returns is empty: gRPC answers OK with 0 bytes (tested).
The shim uses DLPack, which works with NumPy 2, crashes the stub with NumPy 1 (tested), and does not
support strings.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.modelconfig.served import ServedModel
from tuner.spec.mistakes import listed

#: Appended to the backend's triton_python_backend_utils.py, which the stub imports before it reads
#: these classes. The shim renames NumPy's capsule, or NumPy would warn when it is freed.
SHIM = """

def _use_dlpack():
    import ctypes

    import c_python_backend_utils as stub

    api, capsule = ctypes.pythonapi, ctypes.py_object
    text, pointer = ctypes.c_char_p, ctypes.c_void_p
    made = ctypes.PYFUNCTYPE(capsule, pointer, text, pointer)(("PyCapsule_New", api))
    pointer_of = ctypes.PYFUNCTYPE(pointer, capsule, text)(("PyCapsule_GetPointer", api))
    rename = ctypes.PYFUNCTYPE(ctypes.c_int, capsule, text)(("PyCapsule_SetName", api))
    strings = "strings need NumPy 1, for which the Python backend of this tritonserver was built"
    plain = stub.Tensor

    def as_numpy(self):
        try:
            return np.from_dlpack(self).copy()
        except stub.TritonModelException as error:
            raise stub.TritonModelException(strings if "BYTES" in str(error) else str(error))

    class Tensor(plain):
        def __new__(cls, name, array):
            array = np.asarray(array, order="C")
            if array.dtype.kind in "OSU":
                raise stub.TritonModelException(strings)
            if not array.size:
                return plain(name, array)  # 0 bytes are right, and NumPy's strides are not C's
            array = array if array.flags.writeable else array.copy()
            theirs = array.__dlpack__()
            place = pointer_of(theirs, b"dltensor")
            rename(theirs, b"used_dltensor")
            return plain.from_dlpack(name, made(place, b"dltensor", None))

    plain.as_numpy = as_numpy
    Tensor.from_dlpack = plain.from_dlpack
    stub.Tensor = Tensor


if int(np.__version__.split(".")[0]) > 1:
    _use_dlpack()
"""

#: Isolated like the stub: without PYTHONPATH and the user's packages.
_ASK = ("-I", "-c", "from importlib.metadata import version; print(version('numpy'))")


def numpy_of_models(python: Path, models: Iterable[ServedModel] = ()) -> str:
    """The version of the NumPy that Python models import.

    Raises:
        EnvironmentNotReadyError: There is no NumPy, or one of the models would get wrong tensors.
    """
    version = _numpy_version(python)
    old = "numpy<2" if sys.version_info < (3, 13) else "numpy"
    fix = f"{python} -m pip install '{old}'"
    if not version:
        raise EnvironmentNotReadyError(f"Python models need numpy, which {python} lacks", fix)
    strings = [model.name for model in models if _passes_strings(model.base.completed)]
    if strings and int(version.split(".")[0]) > 1:
        raise EnvironmentNotReadyError(
            f"{listed(strings)}: strings need NumPy 1, for which the Python backend of this "
            f"tritonserver was built, and Python models import numpy {version} ({python})",
            fix if old != "numpy" else "use Python 3.11 or 3.12, or server: {mode: docker}",
        )
    return version


def in_python(models: Iterable[ServedModel]) -> list[ServedModel]:
    """The models that the Python backend serves."""
    configs = [(model, model.base.file) for model in models]
    return [
        m for m, config in configs if config.backend in ("", "python") and not is_ensemble(config)
    ]


def _passes_strings(config: ModelConfig) -> bool:
    tensors = [*config.input, *config.output]
    return any(enum_name(tensor, "data_type") == "TYPE_STRING" for tensor in tensors)


def _numpy_version(python: Path) -> str:
    """The version of a Python's NumPy; empty: there is none."""
    command = [str(python), *_ASK]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60.0, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReadyError(
            f"{python} does not run: {error}", "install tune again, in a new virtual environment"
        ) from error
    return done.stdout.decode(errors="replace").strip()
