"""The configs of Model Analyzer's results that a search begins with."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.checks.case import Case
from tuner.errors import SpecError
from tuner.space.analyzer_results import first_configs, first_of, read_results
from tuner.spec.mistakes import Finding, FindingSeverity

_FIRST = ("search", "first")


def check_first(case: Case) -> Iterator[Finding]:
    """Its results can be read, and are of the models that are searched."""
    file = case.spec.search.first
    if file is None:
        return
    try:
        results = read_results(file)  # its mistakes too where the space has some
        first_of(results, file, case.space)
    except SpecError as error:
        yield from Finding.of(error, _FIRST)


def note_first(case: Case) -> Iterator[Finding]:
    """Which of them go first."""
    file = case.spec.search.first
    if file is None:
        return
    measured = first_configs(file, case.space)
    outside = f"; the space does not have {measured.outside}" * bool(measured.outside)
    text = (
        f"of the {measured.count} configs in {file.name} that Model Analyzer measured, the best "
        f"{len(measured.candidates)} go first, and are measured anew, without its figures{outside}"
    )
    if not measured.candidates:
        text = (
            f"none of the {measured.count} configs in {file.name} that Model Analyzer measured is "
            "in the space beside the current config: the search begins as without them"
        )
    yield Finding(_FIRST, text, severity=FindingSeverity.NOTED)
