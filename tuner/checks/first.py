"""Checks of a search's first configs: recipes, and configs from Model Analyzer's results."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.checks.case import Case
from tuner.errors import SpecError
from tuner.space.analyzer_results import first_configs
from tuner.space.recipes import recipe_configs
from tuner.space.words import changes_text
from tuner.spec.mistakes import Finding, FindingSeverity

_FIRST = ("search", "first")


def check_first(case: Case) -> Iterator[Finding]:
    """Refuses results of Model Analyzer that have no model of the space."""
    file = case.spec.search.first
    if file is None:
        return
    try:
        first_configs(case.reported, file, case.space)
    except SpecError as error:
        yield from Finding.of(error, _FIRST)


def note_first(case: Case) -> Iterator[Finding]:
    """Notes which configs of Model Analyzer's results are measured first."""
    file = case.spec.search.first
    if file is None:
        return
    measured = first_configs(case.reported, file, case.space)
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


def note_recipes(case: Case) -> Iterator[Finding]:
    """Notes which config of this space each recipe is."""
    recipes = case.spec.search.recipes
    if not recipes:
        return
    configs, current = recipe_configs(recipes, case.space), case.space.current
    for number, recipe in enumerate(recipes):
        text = f"{recipe.value}: the space has no such config, or it has another name"
        if recipe in configs:
            text = f"{recipe.value} goes first: {changes_text(configs[recipe], current)}"
        yield Finding(("search", "recipes", number), text, severity=FindingSeverity.NOTED)
