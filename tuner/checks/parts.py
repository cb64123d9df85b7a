"""Makes the parts of a case: its models, their space, and the content of its files of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from tuner.checks.case import Case
from tuner.checks.machine import ON_GPU, sees_no_gpu
from tuner.checks.recordings import traffic_of
from tuner.checks.requests import figures
from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.machine.host import has_gpu, machine_memory_bytes
from tuner.modelconfig.files import model_directory, model_names
from tuner.modelconfig.served import Served, read_served
from tuner.space.analyzer_results import ReportedConfig, read_results
from tuner.space.build import build_space
from tuner.space.parameters import without
from tuner.space.space import Space
from tuner.spec.fields import UnknownValueError, known
from tuner.spec.load import LoadedSpec
from tuner.spec.mistakes import Finding, FindingsError
from tuner.spec.model import Spec
from tuner.spec.server import ServerMode

_Part = TypeVar("_Part")
#: A case, or a kind of it such as a job.
AnyCase = TypeVar("AnyCase", bound=Case)


def models_of(spec: Spec) -> Served:
    """The models that a spec is about; raises as `read_served` does."""
    calls = {label: model.calls for label, model in spec.models.items()}
    on_cpu = spec.server.gpus == "none" or (spec.server.managed and not has_gpu())
    return read_served(spec.repository, calls, calls, on_cpu=on_cpu, write_to=spec.write_to)


def completed(case: AnyCase) -> tuple[AnyCase, list[Finding]]:
    """The case with every part that can be made, and what is wrong with the others.

    Parts that it has stay, but for the space, which depends on the models.
    """
    findings: list[Finding] = []
    models = case.known_models or _made(lambda: _read_models(case.spec), findings)
    traffic = case.traffic or _made(lambda: traffic_of(case.spec), findings)
    analyzed = case.analyzed or _made(lambda: _analyzed(case.spec), findings)
    case = replace(case, known_models=models, traffic=traffic, analyzed=analyzed)
    recorded = dict(case.recorded)
    for number, name in enumerate(_made(lambda: [*case.spec.streams], findings) or ()):
        read = recorded.get(name) or _made(lambda: figures(case, number, name), findings)  # noqa: B023
        recorded |= {} if read is None else {name: read}
    space = _made(lambda: _space(case), findings)
    return replace(case, known_space=space, recorded=recorded), findings


def _space(case: Case) -> Space:
    space = build_space(case.spec, case.served)
    if case.spec.server.managed:
        space = space.with_caches_up_to(machine_memory_bytes())
    if case.spec.server.mode is not ServerMode.LOCAL or not sees_no_gpu(case):
        return space
    return replace(space, parameters=tuple(without(p, ON_GPU) for p in space.parameters))


def _analyzed(spec: Spec) -> list[ReportedConfig] | None:
    file = spec.search.first
    try:
        return None if file is None else read_results(file)
    except SpecError as error:
        raise FindingsError(Finding.of(error, ("search", "first"))) from error


def _made(make: Callable[[], _Part], findings: list[Finding]) -> _Part | None:
    """The part; None if the spec lacks it, or if making it adds to ``findings``."""
    try:
        return make()
    except UnknownValueError:
        return None
    except FindingsError as error:
        findings += error.findings
    except (SpecError, EnvironmentNotReadyError) as error:
        findings += Finding.of(error)
    return None


def read_models(loaded: LoadedSpec) -> Served:
    """The models of a spec.

    Raises:
        SpecError: Every one that is missing, or cannot be read, with its place.
        EnvironmentNotReadyError: There is no such repository.
    """
    findings: list[Finding] = []
    models = _made(lambda: _read_models(loaded.spec), findings)
    loaded.refuse(findings)
    assert models is not None
    return models


def _read_models(spec: Spec) -> Served:
    """The models of a spec; raises FindingsError with each that is missing or unreadable.

    A stream of a model that the spec does not list, or what is no name of a model, is a mistake of
    the spec: no check of streams and their models applies then.
    """
    for label, model in known(spec.models.items()):
        if model.name != label or "/" in label:
            raise UnknownValueError(label)
    for _, stream in known(spec.streams.items()):
        if stream.model not in spec.models:
            raise UnknownValueError(stream.model)
    findings = [*_missing(spec)]
    if not findings:
        try:
            return models_of(spec)
        except SpecError as error:
            findings = [*_unreadable(spec)] or Finding.of(error)
    raise FindingsError(findings)


def _missing(spec: Spec) -> Iterator[Finding]:
    try:
        model_names(spec.repository)
    except (SpecError, EnvironmentNotReadyError) as error:
        yield from Finding.of(error, ("repository",))
        return
    for label in spec.models:
        try:
            model_directory(spec.repository, label)
        except (SpecError, EnvironmentNotReadyError) as error:
            yield from Finding.of(error, ("models", label))


def _unreadable(spec: Spec) -> Iterator[Finding]:
    """The mistake of each model that cannot be read, with those of its parts."""
    reported = set[str]()
    for label, model in spec.models.items():
        try:
            read_served(spec.repository, [label], {label: model.calls}, write_to=spec.write_to)
        except SpecError as error:
            if error.message not in reported:
                yield from Finding.of(error)
            reported.add(error.message)
