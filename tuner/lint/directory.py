"""A model's directory: version directories and the files backends look for in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.lint.finding import Finding, Severity, error_at
from tuner.modelconfig.ensembles import is_ensemble
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.schema import ModelConfig


@dataclass(frozen=True)
class _Backend:
    """What a backend loads when ``default_model_filename`` is not set.

    Attributes:
        files: Any one of these must be there; empty when the backend decides by other means.
        unreadable: Endings it is often given and cannot read, with what to do.
    """

    files: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...] = ()


#: Names from AutoCompleteBackendFields in core's model_config_utils.cc; FIL's from its README.
_BACKENDS = {
    "onnxruntime": _Backend(("model.onnx",)),
    "tensorrt": _Backend(
        ("model.plan",),
        ((".engine", "rename it to model.plan, or name it in default_model_filename"),),
    ),
    "pytorch": _Backend(("model.pt", "model.pt2", "model.py")),
    "openvino": _Backend(("model.xml",)),
    "python": _Backend(("model.py",)),
    "fil": _Backend(
        ("xgboost.model", "xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl"),
        ((".pkl", "FIL reads no pickles: convert the model to Treelite's checkpoint.tl"),),
    ),
}


def layout_findings(files: ModelFiles, config: ModelConfig) -> Iterator[Finding]:
    """Errors of the directory; Triton reports most of them only in its log."""
    if config.name and config.name != files.model:
        yield error_at(
            files,
            "name",
            "name-mismatch",
            f"the config's name is {config.name!r}, its directory is {files.model!r}",
            "give both the same name, or leave the name out",
        )
    if not files.versions:
        hint = f"make {files.directory / '1'}" + (", empty" if is_ensemble(config) else "")
        text = "there is no version directory"
        yield Finding(files.directory, 1, None, Severity.ERROR, "version-directory", text, hint)
    for version in config.version_policy.specific.versions:
        if files.versions and version not in files.versions:
            text = f"version_policy asks for version {version}, which has no directory"
            yield error_at(files, "version_policy", "version-policy", text, "")
    if not is_ensemble(config):
        yield from _model_files(files, config)
    for index, tensor in enumerate(config.output):
        label = tensor.label_filename
        if label and not _is_there(files.directory / label):
            text = f"output {tensor.name} takes its labels from {label}, which is not there"
            hint = f"it is looked for in {files.directory}"
            yield error_at(files, f"output[{index}].label_filename", "label-file", text, hint)


def _is_there(path: Path) -> bool:
    """Something that can be loaded. Also asked of names that no file can have: too long."""
    try:
        return path.is_file() or path.is_dir()
    except OSError:
        return False


def _model_files(files: ModelFiles, config: ModelConfig) -> Iterator[Finding]:
    name = files.backend(config)
    backend = _BACKENDS.get(name)
    if backend is None or config.cc_model_filenames:
        return
    wanted = (config.default_model_filename,) if config.default_model_filename else backend.files
    for version in files.versions:
        directory = files.directory / str(version)
        if any(_is_there(directory / file) for file in wanted):
            continue
        text = f"{name} finds no {' or '.join(wanted)} in version {version}"
        hint = _hint(directory, backend)
        yield Finding(directory, 1, None, Severity.ERROR, "model-file", text, hint)


def _hint(directory: Path, backend: _Backend) -> str:
    present = sorted(entry.name for entry in directory.glob("*"))  # none where it may not be read
    broken = [name for name in present if not _is_there(directory / name)]
    if broken:
        return f"{directory / broken[0]} is a link to nothing, or a pipe"
    for ending, hint in backend.unreadable:
        if any(name.endswith(ending) for name in present):
            return hint
    return f"it holds {', '.join(present)}" if present else "it is empty"
