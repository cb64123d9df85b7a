"""The table of checks: everything that is refused or noted of a spec and its repository.

`tune init`, `plan`, `run`, `check` and benches all use it, so that each accepts what the one before
accepted. A check is a function from a `Case` to findings; it ends where the case lacks what it
needs. Rules about one model's files, whatever the spec, are those of `tune lint`
(`tuner.lint.rules`), which `check_files` applies here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.checks import first, machine, models, requests, responses, sequences
from tuner.checks.case import Case
from tuner.checks.parts import AnyCase, completed
from tuner.modelconfig.served import Served
from tuner.space.build import refuse_empty
from tuner.spec.checks import cross_checks
from tuner.spec.load import LoadedSpec, read_spec
from tuner.spec.mistakes import Finding, FindingSeverity
from tuner.spec.model import Spec
from tuner.spec.rules import applied


@dataclass(frozen=True)
class CheckRule:
    """A row of the table; ``severities``: those that its findings may have."""

    rule: Callable[[Case], Iterator[Finding]]
    severities: tuple[FindingSeverity, ...] = (FindingSeverity.REFUSED,)


def _doubted(rule: Callable[[Case], Iterator[Finding]]) -> CheckRule:
    return CheckRule(rule, (FindingSeverity.DOUBTED,))


def _noted(rule: Callable[[Case], Iterator[Finding]]) -> CheckRule:
    return CheckRule(rule, (FindingSeverity.NOTED, FindingSeverity.MINOR))


def _values(case: Case) -> Iterator[Finding]:
    """Every rule between the parts of a spec: `tuner.spec.checks`."""
    yield from cross_checks(case.loaded.spec)  # what the command line sets has rules of its own


CHECKS: tuple[CheckRule, ...] = (
    CheckRule(_values),
    CheckRule(models.check_encodings),
    CheckRule(models.check_measurable),
    CheckRule(models.check_priorities),
    CheckRule(models.check_versions),
    CheckRule(models.check_searched_versions),
    CheckRule(sequences.check_arrivals),
    CheckRule(sequences.check_played),
    CheckRule(sequences.check_lengths),
    CheckRule(sequences.check_decoupled),
    CheckRule(sequences.check_idle_time),
    CheckRule(sequences.check_count_output),
    CheckRule(responses.check_bounded_latencies),
    CheckRule(responses.check_minimized_latency),
    CheckRule(responses.check_protocol_of_decoupled),
    CheckRule(responses.check_tolerances),
    CheckRule(responses.check_shared_outputs),
    CheckRule(first.check_first),
    CheckRule(requests.check_rows),
    CheckRule(requests.check_json),
    CheckRule(requests.check_resolution),
    CheckRule(requests.check_shapes),
    CheckRule(requests.check_open_shapes),
    CheckRule(models.check_files, (FindingSeverity.DOUBTED, FindingSeverity.NOTED)),
    _doubted(machine.check_gpus),
    _doubted(machine.check_listed_gpus),
    _doubted(machine.check_image),
    _noted(machine.note_mounts),
    _noted(machine.note_libraries),
    _noted(machine.note_release),
    _noted(requests.note_requests),
    _noted(requests.note_full_batches),
    _noted(requests.note_validation_data),
    _noted(models.note_queues),
    _noted(models.note_open_batches),
    _noted(models.note_traps),
    _noted(models.note_flags),
    _noted(models.note_parameters),
    _noted(machine.note_weights),
    _noted(machine.note_shared_memory),
    _noted(models.note_untried),
    _noted(first.note_first),
    _noted(first.note_recipes),
    _noted(machine.note_cache_sizes),
    _noted(machine.note_gpus),
    _noted(machine.note_spanning),
)


def checked(loaded: LoadedSpec, spec: Spec, environment: Mapping[str, str]) -> Case:
    """A spec with its models, their space and its files of requests.

    Raises:
        SpecMistakesError: The spec is wrong, by itself or for these models, or they are: every
            mistake.
        EnvironmentNotReadyError: There is no such repository or model, and nothing else is wrong.
    """
    return _refused(Case(loaded, spec, environment))


def refuse_draft(path: Path, text: str, environment: Mapping[str, str]) -> None:
    """Refuses what `tune plan` would refuse of a spec before that is written.

    Raises:
        SpecError: As `checked`.
        EnvironmentNotReadyError: Likewise.
        NothingToSearchError: As `refuse_empty`.
    """
    loaded = read_spec(path, draft=text)
    refuse_empty(checked(loaded, loaded.spec, environment).space)


def checked_again(case: AnyCase, served: Served) -> AnyCase:
    """The case with the configs that a server completed, checked again; raises as `checked`."""
    changed = any(model.base.completes for model in served.models.values())
    recorded = {} if changed else case.recorded
    return _refused(replace(case, known_models=served, recorded=recorded))


def _refused(case: AnyCase) -> AnyCase:
    case, mistakes = completed(case)
    case.loaded.refuse([*mistakes, *findings(case, FindingSeverity.REFUSED)])
    return case


def findings(case: Case, *severities: FindingSeverity) -> Iterator[Finding]:
    """What the checks of these severities find, as far as the case has what they need."""
    for check in CHECKS:
        if {*severities} & {*check.severities}:
            all_findings = applied(check.rule, case)
            yield from (finding for finding in all_findings if finding.severity in severities)


def sentences(case: Case, *severities: FindingSeverity) -> list[str]:
    """The same as text, each with its place."""
    return [*dict.fromkeys(_sentence(case.loaded, f) for f in findings(case, *severities))]


def _sentence(loaded: LoadedSpec, finding: Finding) -> str:
    text = finding.sentence
    return str(loaded.mistake(finding.location, text)) if finding.location else text
