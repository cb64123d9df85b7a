"""What is wrong or risky in a model repository: layout, configs, ensembles, model.py files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.lint.layout import layout_findings
from tuner.lint.model_calls import called_models
from tuner.lint.model_files import config_findings
from tuner.lint.model_py import knows_sequences, python_findings
from tuner.lint.rules import RULES, LintFinding, Severity, error_at, refuse_unknown, silenced_in
from tuner.modelconfig import ensembles
from tuner.modelconfig.backends import FILES
from tuner.modelconfig.files import (
    ModelFiles,
    holds_models,
    is_one_model,
    model_directory,
    model_names,
    read_model,
    repositories_in,
    unread_configs,
    versions,
)
from tuner.modelconfig.message import ParseMistake, try_parse
from tuner.modelconfig.queues import HANGS, may_be_full
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.tree import Field, Items, Message, build, elements, locate
from tuner.regular import is_there
from tuner.spec.mistakes import listed, meant_or_listed
from tuner.spec.paths import CONFIG_NAME, SEVERAL_REPOSITORIES

#: Calls by a model's code that a run of tune may not answer.
_CALLS = ("called-model", "network-call")
_METRIC = {"metric_identifier": "family", "histogram_options": "buckets"}


def lint_repository(
    repository: Path,
    model: str | None = None,
    *,
    ignore: Collection[str] = (),
    weights: bool = True,
) -> list[LintFinding]:
    """Findings about one model, or about all, by model, file and line.

    Args:
        model: Check this one only; the others are still read for its ensemble steps.
        ignore: Rules to switch off; comments in the files name more
            (`rules.silenced_in`).
        weights: False leaves out findings about files that are often not kept in git. So does a
            repository whose models have no directories at all.

    Raises:
        EnvironmentNotReadyError: The repository cannot be read.
        SpecError: There is no such model or rule, or the directory is a model's own.
    """
    refuse_unknown(ignore)
    names = model_names(repository)
    if is_one_model(repository):
        there = repository.absolute()
        raise SpecError(
            f"{repository} is the directory of one model",
            shlex.join(["tune", "lint", str(there.parent), "--model", there.name]),
        )
    silent = set(ignore)
    if not holds_models(repository):
        raise _no_models(repository, names)
    weightless = not weights or _keeps_no_weights(repository, names)
    if weightless:
        silent |= {rule for rule, text in RULES.items() if text.weights}
    chosen = names if model is None else [model_directory(repository, model).name]
    findings: list[LintFinding] = []
    for name in model_names(repository, empty=True) if model is None else ():
        text = "an empty folder: Triton reports it as a model that it cannot load"
        findings.append(
            LintFinding(repository / name, 1, None, Severity.NOTE, "empty-folder", text)
        )
    for name in chosen:
        findings += _lint_model(repository, name, names, CONFIG_NAME, within_repository=True)
        for path in sorted((repository / name).glob("configs/[!.]*.pbtxt")):
            of_config = _lint_model(
                repository, name, names, f"configs/{path.name}", within_repository=True
            )
            findings += [f for f in of_config if f.file == path]
    reported = [finding for finding in findings if finding.rule not in silent]
    if weightless:  # a file that is not here may tell
        note = partial(replace, severity=Severity.NOTE)
        reported = [note(f) if f.rule == "no-backend" else f for f in reported]
    return reported


def _keeps_no_weights(repository: Path, names: list[str]) -> bool:
    """No model has a directory, nor a file beside its config that is to be in one."""
    folders = {folder.name for folder in repository.glob("[!.]*/[!.]*/")}
    return folders <= {"configs"} and not any(
        is_there(repository / name / file) for name in names for file in FILES
    )


def _no_models(repository: Path, names: list[str]) -> SpecError:
    text = f"{repository} has no models: no directory in it has a config.pbtxt or a version"
    groups = [place.relative_to(repository) for place in repositories_in(repository)]
    text += f"; {listed(groups, ' and ')} hold{'s' * (len(groups) < 2)} models" if groups else ""
    inner = [f"{name}/{file}" for name in names for file in unread_configs(repository / name)]
    if unread := [] if groups else [*unread_configs(repository), *inner]:
        text += f"; Triton does not read {listed(unread)}"
        hint = f"make a directory for each model, with a {CONFIG_NAME} and a version such as 1"
        return SpecError(text, hint)
    return SpecError(text, "name the directory that holds one directory for each model")


def faults_of(repository: Path, model: str, write_to: str = CONFIG_NAME) -> list[LintFinding]:
    """Why ``model`` would not load, or not answer, or a model that it calls, and so on.

    Raises:
        EnvironmentNotReadyError: The repository cannot be read.
        SpecError: There is no such model.
    """
    names = model_names(repository)
    waiting, findings = [model_directory(repository, model).name], []
    for name in waiting:  # grows
        findings += _lint_model(repository, name, names, write_to)
        if (readable := _readable(repository, name, write_to)) is not None:
            steps = (step.model_name for step in readable[1].ensemble_scheduling.step)
            certain, _ = called_models(*readable, names, guesses=False)
            called = dict.fromkeys([*steps, *certain])
            waiting += [n for n in called if n in names and n not in waiting]
    return [f for f in findings if f.severity is Severity.ERROR or f.rule in _CALLS]


def _readable(repository: Path, name: str, write_to: str) -> tuple[ModelFiles, ModelConfig] | None:
    """The model's files and config; None when they cannot be read, which is its own finding."""
    try:
        files, _ = known_part(read_model(repository, name, write_to, within_repository=True))
        return files, files.config()
    except (SpecError, EnvironmentNotReadyError):
        return None


def _lint_model(
    repository: Path, name: str, names: list[str], write_to: str, *, within_repository: bool = False
) -> list[LintFinding]:
    try:
        all_files = read_model(repository, name, write_to, within_repository=within_repository)
    except (SpecError, EnvironmentNotReadyError) as error:  # not UTF-8, or nothing to read
        rule = "encoding" if isinstance(error.__cause__, UnicodeDecodeError) else "config-file"
        path = repository / name / write_to
        return [LintFinding(path, 1, None, Severity.ERROR, rule, error.message, error.hint)]
    files, newer = known_part(all_files)
    config = try_parse(files.text)
    if isinstance(config, ParseMistake):
        position = (config.line, config.column)
        return [
            LintFinding(
                files.path, *position, Severity.ERROR, "syntax", config.message, config.hint
            )
        ]
    silent = silenced_in(all_files.text)
    findings = [
        *newer,
        *metric_findings(all_files),
        *layout_findings(files, config),
        *config_findings(files, config, has_state=knows_sequences(files, config)),
        *_between_findings(repository, files, config, names),
        *python_findings(files, config, names),
    ]
    reported = (finding for finding in findings if finding.rule not in silent)
    return sorted(reported, key=lambda f: (str(f.file), f.line, f.column or 0, f.rule))


def _between_findings(
    repository: Path, files: ModelFiles, config: ModelConfig, names: list[str]
) -> Iterator[LintFinding]:
    """An ensemble against the models of its steps, and those against each other."""
    for index, step in enumerate(config.ensemble_scheduling.step):
        path = f"ensemble_scheduling.step[{index}]"
        if step.model_name not in names:
            message = f"there is no model {step.model_name!r} in the repository"
            near = meant_or_listed(step.model_name, names)
            hint = f"{near}; {SEVERAL_REPOSITORIES}, or write # tune: ignore ensemble-step-model"
            yield error_at(files, f"{path}.model_name", "ensemble-step-model", message, hint)
            continue
        known = versions(repository / step.model_name)
        if known and step.model_version > 0 and step.model_version not in known:
            text = f"{step.model_name} has no version {step.model_version}"
            hint = "write model_version: -1 for the latest"
            yield error_at(files, f"{path}.model_version", "ensemble-step", text, hint)
    models = _reached_configs(repository, config, names, files.write_to)
    for where, message, hint in ensembles.mistakes_between(config, models):
        yield error_at(files, where, "ensemble-step", message, hint)
    for where, message, hint in ensembles.circle_mistakes(files.model, config, models):
        yield error_at(files, where, "ensemble-cycle", message, hint)
    yield from _queue_findings(files, config, models)
    if config.response_cache.enable:
        yield from _cache_findings(files, models)


def _queue_findings(
    files: ModelFiles, config: ModelConfig, models: Mapping[str, ModelConfig]
) -> Iterator[LintFinding]:
    """Steps whose queues may be full."""
    for index, step in enumerate(config.ensemble_scheduling.step):
        if step.model_name in models and may_be_full(models[step.model_name]):
            line, column = locate(files.text, f"ensemble_scheduling.step[{index}].model_name")
            text = f"requests that a full queue of {step.model_name} refuses {HANGS}"
            hint = "update the server, or leave max_queue_size to a proxy in front of it"
            place = (files.path, line, column)
            yield LintFinding(*place, Severity.WARNING, "full-queue-in-step", text, hint)


def _cache_findings(files: ModelFiles, models: Mapping[str, ModelConfig]) -> Iterator[LintFinding]:
    """A cache on an ensemble over such models.

    Refused: a decoupled step makes the ensemble so. Over one that takes sequences it loads, and
    a request that was sent before is answered without the step (tritonserver 2.51).
    """
    line, column = locate(files.text, "response_cache.enable")
    for name, model in models.items():
        if model.model_transaction_policy.decoupled:
            severity = Severity.ERROR
            text = f"the response cache does not work with a decoupled step such as {name}"
        elif model.HasField("sequence_batching"):
            severity = Severity.WARNING
            text = (
                f"what the cache answers never reaches {name}, which then misses it in its sequence"
            )
        else:
            continue
        yield LintFinding(files.path, line, column, severity, "response-cache", text, "turn it off")


def _reached_configs(
    repository: Path, config: ModelConfig, names: list[str], write_to: str
) -> dict[str, ModelConfig]:
    """Configs of the steps' models, of their steps' models, and so on, if they can be read."""
    configs: dict[str, ModelConfig] = {}
    waiting = [step.model_name for step in config.ensemble_scheduling.step]
    for name in waiting:  # grows
        if name not in names or (readable := _readable(repository, name, write_to)) is None:
            continue
        files, inner = readable
        in_code = files.backend(inner) == "python" and files.completes(inner)
        if in_code and not inner.max_batch_size:
            for tensor in (*inner.input, *inner.output):  # the batch may be in front of the dims
                tensor.ClearField("dims")
        configs[name] = inner
        waiting += {s.model_name for s in inner.ensemble_scheduling.step} - {*waiting}
    return configs


def known_part(files: ModelFiles) -> tuple[ModelFiles, list[LintFinding]]:
    """The files with blanks for fields of newer Triton releases, and a warning for each."""
    from google.protobuf.text_format import ParseError

    text, findings = files.text, []
    while isinstance(mistake := try_parse(text), ParseMistake) and mistake.newer:
        before = text.split("\n")[: mistake.line - 1]
        start = sum(len(line) + 1 for line in before) + mistake.column - 1
        try:
            end = next(field.end for field in _fields(build(text)) if field.start == start)
        except (IndexError, ParseError, StopIteration):  # broken further on
            return files, []
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        message = f"the installed tritonclient does not know {mistake.newer}"
        place = (files.path, mistake.line, mistake.column)
        findings.append(LintFinding(*place, Severity.WARNING, "newer-field", message, mistake.hint))
    return replace(files, text=text), findings


def metric_findings(files: ModelFiles) -> Iterator[LintFinding]:
    """A metric_control that lacks something: refused (ValidateModelMetrics in core, source)."""
    controls = (
        control.message
        for metrics in elements(build(files.text), "model_metrics")
        for control in elements(metrics.message, "metric_control")
    )
    for index, control in enumerate(controls):
        for block, field in _METRIC.items():
            inner = [element.message for element in elements(control, block)]
            if inner and any(_is_given(f, files.text) for m in inner for f in m.named(field)):
                continue
            text = f"metric_control {index} has no {field if inner else block}"
            path = f"model_metrics.metric_control[{index}]"
            yield error_at(files, path, "model-metrics", text, "")


def _fields(message: Message) -> Iterator[Field]:
    for field in message.fields:
        yield field
        for inner in field.messages:
            yield from _fields(inner)


def _is_given(field: Field, text: str) -> bool:
    if isinstance(field.value, Items):
        return bool(field.value.items)
    return text[field.value.start : field.value.end] not in ("''", '""')
