"""Checks of a spec against the models that it names."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import islice

from tuner.checks.case import Case
from tuner.errors import SpecError
from tuner.lint.completion import as_code_completes
from tuner.lint.model_calls import calling_sources
from tuner.lint.repository import faults_of
from tuner.lint.rules import Severity
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.encoding import UTF_8
from tuner.modelconfig.files import served_versions
from tuner.modelconfig.flags import FLAGGED
from tuner.modelconfig.keys import misread_values, unread_keys
from tuner.modelconfig.path import with_fields
from tuner.modelconfig.queues import HANGS, may_be_full
from tuner.modelconfig.rules import Rule
from tuner.modelconfig.traps import TRAPS
from tuner.space.build import never_tried, refuse_unmeasurable
from tuner.space.parameters import SERVER, Knob
from tuner.spec.labels import of_label
from tuner.spec.mistakes import Finding, FindingSeverity, Location, listed
from tuner.spec.paths import CACHE_SIZE, PRIORITY_LEVELS, VERSION_POLICY
from tuner.spec.units import count_text

#: Messages with keys that a backend may not read.
_KEYED = ("parameters", "optimization")
#: Values of one of them that are looked at.
_MOST_VALUES = 64


def check_encodings(case: Case) -> Iterator[Finding]:
    """Refuses text of the space that could not be written into the file's encoding."""
    for label, model in case.spec.models.items():
        files = case.served.models[label].files
        if files.encoding != UTF_8 and not model.model_dump_json(include={"space"}).isascii():
            text = f"{files.path} has comments in Latin-1, and the space has text beyond ASCII"
            yield Finding(("models", label, "space"), text, hint="save config.pbtxt as UTF-8")


def check_measurable(case: Case) -> Iterator[Finding]:
    """Refuses models that cannot be measured, such as language models."""
    for name, stream in case.spec.streams.items():
        for label in case.served.answering([stream.model]):
            model = case.served.models[label]
            try:
                refuse_unmeasurable(model.name, model.base.completed)
            except SpecError as error:
                yield from Finding.of(error, ("streams", name, "model"))


def check_priorities(case: Case) -> Iterator[Finding]:
    """Triton silently replaces a level that a model does not have by the model's default.

    An ensemble passes a request's priority on to its steps.
    """
    spec, served = case.spec, case.served
    for name, stream in spec.streams.items():
        labels = served.answering([stream.model])
        levels = {
            label: served.models[label].base.completed.dynamic_batching.priority_levels
            for label in labels
        }
        label = max(reversed(labels), key=lambda label: levels[label])  # a step, of an ensemble
        searched = any(PRIORITY_LEVELS in m.space for la, m in spec.models.items() if la in labels)
        if (stream.priority or 0) > levels[label] and not searched:
            model, least = (
                served.models[label],
                max(stream.priority or 0, 2),
            )  # 1 is the same for all
            many = levels[label]
            has = count_text(many, "priority level") if many else "no priority levels"
            yield Finding(
                (),
                f"{model.name} has {has}, and requests of the stream {name} have priority "
                f"{stream.priority}",
                at=model.place(PRIORITY_LEVELS),
                hint=f"write dynamic_batching {{ priority_levels: {least} "
                f"default_priority_level: {least} }}, or leave the priority out",
            )


def check_versions(case: Case) -> Iterator[Finding]:
    """Refuses versions of streams that no model serves."""
    for name, stream in case.spec.streams.items():
        model, searched = case.served.models[stream.model], case.spec.models[stream.model].space
        versions = served_versions(model.base.completed, model.files.versions)
        chosen = any(path.startswith(VERSION_POLICY) for path in searched)
        if chosen or stream.version in (None, *versions):
            continue
        yield Finding(
            ("streams", name, "version"),
            f"{model.name} serves {listed(versions) or 'none'}, not {stream.version}",
            hint=f"write {VERSION_POLICY} {{ specific {{ versions: [...] }} }} in config.pbtxt, "
            "with its directory in the repository",
        )


def check_searched_versions(case: Case) -> Iterator[Finding]:
    """Refuses versions of the space that the repository does not have."""
    for parameter in case.space.parameters:
        if parameter.path != f"{VERSION_POLICY}.specific.versions":
            continue
        model = case.served.models[parameter.knob.owner]
        chosen = {version for value in parameter if isinstance(value, tuple) for version in value}
        if absent := sorted(chosen - {*model.files.versions}, key=str):
            text = (
                f"{model.name} has no version {listed(absent)}, only {listed(model.files.versions)}"
            )
            hint = "put its directory into the repository, or leave it out"
            yield Finding(place_of(parameter.knob), text, key=True, hint=hint)


def check_files(case: Case) -> Iterator[Finding]:
    """Reports lint's errors of the models and of those they call; a server decides.

    Notes calls that may not be answered.
    """
    for model in case.served.models.values():
        for finding in faults_of(case.spec.repository, model.name, case.spec.write_to):
            error = finding.severity is Severity.ERROR
            severity = FindingSeverity.DOUBTED if error else FindingSeverity.NOTED
            yield Finding(
                (), finding.message, hint=finding.hint, at=finding.place, severity=severity
            )


def note_open_batches(case: Case) -> Iterator[Finding]:
    """Notes batch sizes that only a server knows."""
    for label, model in case.served.models.items():
        sources = (source for _, source in calling_sources(model.files, model.base.file))
        _, sizes = as_code_completes(model.base.file, sources)
        if model.base.leaves_batch_open and max(sizes, default=2) > 1:
            yield _note(
                f"config.pbtxt{of_label(label, case.served.models)} leaves max_batch_size to the "
                "server, which is asked when the run starts; this plan takes it to be "
                f"{model.base.completed.max_batch_size}, Triton's default",
                severity=FindingSeverity.MINOR,
            )


def note_traps(case: Case) -> Iterator[Finding]:
    """Notes settings of models whose effect on batches is unexpected."""
    for model in case.served.models.values():
        config = deepcopy(model.base.file)
        config.backend = model.files.backend(config)
        for _, trap in TRAPS:
            for path, text, hint in trap(config):
                at = model.place(path)
                yield Finding((), text, hint=hint, at=at, severity=FindingSeverity.MINOR)


def note_flags(case: Case) -> Iterator[Finding]:
    """Settings that do nothing on the server that the spec starts, so they are not measured."""
    server = case.spec.server
    searches_cache = CACHE_SIZE in server.space
    for model in case.served.models.values() if server.managed else ():
        for flagged in FLAGGED:
            if flagged.rule is Rule.CACHE_FLAG and searches_cache:
                continue
            for path, text, hint in flagged.idle(model.base.file, server.args):
                at = model.place(path)
                yield Finding(
                    (),
                    f"{text}: server.args has none",
                    hint=hint,
                    at=at,
                    severity=FindingSeverity.MINOR,
                )


def note_parameters(case: Case) -> Iterator[Finding]:
    """Notes searched parameters and values that the model's backend does not read as written."""
    for parameter in case.space.parameters:
        model = case.served.models.get(parameter.knob.owner)
        if model is None or not parameter.path.startswith(_KEYED):
            continue
        values = [value for value in islice(parameter, _MOST_VALUES) if value is not None]
        base, backend = model.base.file, model.files.backend(model.base.file)
        known = [*unread_keys(base, backend), *misread_values(base, backend)]
        for value in values:
            config = with_fields(base, {parameter.path: value})
            for mistake in (*unread_keys(config, backend), *misread_values(config, backend)):
                if mistake not in known:
                    known.append(mistake)
                    _, text, hint = mistake
                    yield _note(text, place_of(parameter.knob), hint, FindingSeverity.MINOR)


def note_untried(case: Case) -> Iterator[Finding]:
    """Notes values of the space that no config uses."""
    yield from (_note(text, severity=FindingSeverity.MINOR) for text in never_tried(case.space))


def note_queues(case: Case) -> Iterator[Finding]:
    """Notes steps of ensembles whose queues may fill up, and what happens to requests then."""
    models, knobs = case.served.models, [p.knob for p in case.space.parameters]
    steps = [part for m in models.values() if is_ensemble(m.base.file) for part in m.parts]
    for label in dict.fromkeys(steps):
        searched = any(k.owner == label and "max_queue_size" in k.path for k in knobs)
        if searched or may_be_full(models[label].base.completed):
            yield _note(f"requests that a full queue of the step {label} refuses {HANGS}")


def place_of(knob: Knob) -> Location:
    """The place of a searched field in the spec."""
    if knob.owner == SERVER:
        return ("server", "space", knob.path)
    return ("models", knob.owner, "space", knob.path)


def _note(
    text: str,
    location: Location = (),
    hint: str = "",
    severity: FindingSeverity = FindingSeverity.NOTED,
) -> Finding:
    return Finding(location, text, key=True, hint=hint, severity=severity)
