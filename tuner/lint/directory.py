"""A model's directory: version directories and the files backends look for in them."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from tuner.lint.finding import Finding, Severity, error_at
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.schema import ModelConfig
from tuner.spec.paths import CONFIG_NAME

#: What each backend loads if `default_model_filename` is not set, any one of them; FIL's from its
#: README.
_LOADED = {
    "onnxruntime": ("model.onnx",),
    "tensorrt": ("model.plan",),
    "pytorch": ("model.pt", "model.pt2", "model.py"),
    "openvino": ("model.xml",),
    "python": ("model.py",),
    "fil": ("xgboost.model", "xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl"),
}
#: Endings that a backend is often given and cannot read, with what to do.
_UNREADABLE = {
    "tensorrt": (".engine", "rename it to model.plan, or name it in default_model_filename"),
    "fil": (".pkl", "FIL reads no pickles: convert the model to Treelite's checkpoint.tl"),
}


def layout_findings(files: ModelFiles, config: ModelConfig) -> Iterator[Finding]:
    """Errors of the directory; Triton reports most of them only in its log."""
    if config.name and config.name != files.model:
        text = f"the config's name is {config.name!r}, its directory is {files.model!r}"
        hint = "give both the same name, or leave the name out"
        yield error_at(files, "name", "name-mismatch", text, hint)
    beside = [] if files.sha256 else [entry.name for entry in files.directory.iterdir()]
    for near in get_close_matches(CONFIG_NAME, beside, cutoff=0.9):
        text, hint = f"Triton does not read {near}", f"rename it to {CONFIG_NAME}"
        yield Finding(files.directory / near, 1, None, Severity.ERROR, "config-file", text, hint)
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
    moved = config.model_repository_agents.agents  # they may bring the files
    if not (is_ensemble(config) or config.platform or files.backend(config) or moved):
        text = "neither the config nor a model file says which backend loads this model"
        hint = "write backend: ... in config.pbtxt, or put the model's file into a version"
        yield error_at(files, "default_model_filename", "no-backend", text, hint)
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
    if name not in _LOADED or config.cc_model_filenames:
        return
    wanted = (config.default_model_filename,) if config.default_model_filename else _LOADED[name]
    for version in files.versions:
        directory = files.directory / str(version)
        if any(_is_there(directory / file) for file in wanted):
            continue
        text = f"{name} finds no {' or '.join(wanted)} in version {version}"
        yield Finding(
            directory, 1, None, Severity.ERROR, "model-file", text, _hint(directory, name)
        )


def _hint(directory: Path, backend: str) -> str:
    present = sorted(entry.name for entry in directory.glob("*"))  # none where it may not be read
    broken = [name for name in present if not _is_there(directory / name)]
    if broken:
        return f"{directory / broken[0]} is a link to nothing, or a pipe"
    ending, hint = _UNREADABLE.get(backend, (None, ""))
    if ending and any(name.endswith(ending) for name in present):
        return hint
    return f"it holds {', '.join(present)}" if present else "it is empty"
