"""Code of a Python model that works on a GPU, whatever kind of instance the config names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tuner.lint.python_source import parsed, python_sources
from tuner.lint.rules import LintFinding, Severity
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.space.draft_instances import CudaUse

_DEVICE = re.compile(r"cuda(:\d+)?|CUDAExecutionProvider|TensorrtExecutionProvider")
#: Packages that work on GPUs alone.
_PACKAGES = ("cupy", "cudf", "pycuda", "tensorrt", "cuda")
#: A part of each of these names: without one the tree is not walked.
_ANY = re.compile("cuda|tensorrt|cupy|cudf", re.IGNORECASE)
#: By which a model's code may see the kind of its instance.
_KIND = "model_instance_kind"


def cuda_use(module: ast.Module, source: str) -> tuple[CudaUse, ast.stmt | ast.expr | None]:
    """The use, and where the source first names it."""
    nodes = ast.walk(module) if _ANY.search(source) else ()
    place = next((node for node in nodes if _is_cuda(node)), None)
    if not isinstance(place, ast.stmt | ast.expr):
        return CudaUse.NONE, None
    return (CudaUse.BY_KIND if _KIND in source else CudaUse.ALWAYS), place


def _is_cuda(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return _DEVICE.fullmatch(text) is not None
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text == "cuda:"
        case ast.Call(func=ast.Attribute(attr="cuda")):
            return True
        case ast.Import(names=names):
            return any(alias.name.partition(".")[0] in _PACKAGES for alias in names)
        case ast.ImportFrom(module=str(name), level=0):
            return name.partition(".")[0] in _PACKAGES
    return False


def cuda_use_of(files: ModelFiles, config: ModelConfig) -> CudaUse:
    """Whether the model's code uses a GPU, in any version."""
    modules = ((parsed(source), source) for _, source in python_sources(files, config))
    uses = {cuda_use(m, source)[0] for m, source in modules if isinstance(m, ast.Module)}
    return next((use for use in (CudaUse.ALWAYS, CudaUse.BY_KIND) if use in uses), CudaUse.NONE)


def device_findings(
    path: Path, module: ast.Module, source: str, config: ModelConfig
) -> Iterator[LintFinding]:
    """Instances of KIND_CPU whose code takes a GPU: Triton spreads them over none."""
    use, place = cuda_use(module, source)
    kinds = [enum_name(group, "kind") for group in config.instance_group]
    if place is None or use is not CudaUse.ALWAYS or "KIND_CPU" not in kinds:
        return
    text = "this takes a GPU where there is one, and the instances are KIND_CPU: all take the same"
    hint = "write KIND_GPU, and take the device from args['model_instance_device_id']"
    yield LintFinding(
        path, place.lineno, place.col_offset + 1, Severity.NOTE, "kind-cpu-on-gpu", text, hint
    )
