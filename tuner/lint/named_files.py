"""The files that a config names: labels, values of samples, an environment, models by GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from errno import ENOENT
from functools import lru_cache, partial
from pathlib import Path

from tuner.lint.rules import LintFinding, Severity, error_at
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.samples import WarmupTensor, samples
from tuner.modelconfig.schema import ModelConfig
from tuner.regular import is_there, read_regular

_ENVIRONMENT = "EXECUTION_ENV_PATH"
_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
#: Of a file of values; what is longer is not looked at.
_MOST_BYTES = 1 << 28


def named_files(files: ModelFiles, config: ModelConfig) -> Iterator[LintFinding]:
    """Those that are not there, or cannot be what the config says of them."""
    for index, tensor in enumerate(config.output):
        label = tensor.label_filename
        if label and not is_there(files.directory / label):
            text = f"output {tensor.name} takes its labels from {label}, which is not there"
            hint = f"it is looked for in {files.directory}"
            yield error_at(files, f"output[{index}].label_filename", "label-file", text, hint)
    by_file = [sample for sample in samples(config) if sample.file]
    read = lru_cache(maxsize=1)(partial(_read, files.directory))
    for sample in sorted(by_file, key=lambda sample: sample.file):
        if wrong := _mistake_in(sample, read):
            text = f"{sample.what} takes its values from {sample.file}: {wrong}"
            yield error_at(files, sample.path, "sample-file", text, "")
    yield from _environment(files, config)
    for version in files.versions:
        for capability, name in sorted(config.cc_model_filenames.items()):
            if not is_there(files.directory / str(version) / name):
                text = f"version {version} has no {name}, which GPUs of {capability} load"
                finding = error_at(
                    files, f"cc_model_filenames[{capability}]", "model-file", text, ""
                )
                yield replace(finding, severity=Severity.WARNING)


def _read(directory: Path, name: str) -> bytes | str:
    """A file of values, or why it cannot be read."""
    try:
        return read_regular(directory / name, _MOST_BYTES)
    except OSError as error:
        return "it is not there" if error.errno == ENOENT else f"{error.strerror}"


def _mistake_in(sample: WarmupTensor, read: Callable[[str], bytes | str]) -> str:
    data = read(sample.file)
    if isinstance(data, str):
        return data
    return sample.mistake_in(data) if len(data) < _MOST_BYTES else ""


def _environment(files: ModelFiles, config: ModelConfig) -> Iterator[LintFinding]:
    """That of a Python model; only a path below the model is the same wherever a server runs."""
    named = _ENVIRONMENT in config.parameters and files.backend(config) == "python"
    value = config.parameters[_ENVIRONMENT].string_value if named else ""
    path = Path(value.replace(_DIRECTORY, str(files.directory)))
    if value and not is_there(path):
        in_repository = _DIRECTORY in value
        where = "" if in_repository else ", on this machine at least"
        text = f"{_ENVIRONMENT}: {path} is not there{where}"
        place, hint = f"parameters[{_ENVIRONMENT}]", "put it there, or leave the parameter out"
        finding = error_at(files, place, "execution-env", text, hint)
        yield finding if in_repository else replace(finding, severity=Severity.WARNING)
