"""Names of sources, tests and benchmarks are nouns and verbs; CONTRIBUTING.md has the rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

#: No part of a name: say what the value is, such as `result`, `texts`, `message` or `request`.
PARTICIPLES = {"told", "asked", "found", "own", "held", "whole", "shown", "foreseen", "placing"}
ARCHAIC = {"heed", "heeds", "heeded", "mend", "mends", "mended"}

#: Keys of stored files and of printed JSON, which stay as they are.
STORED = {
    "benchmarks/searches/recorded_curves.py": {"asked"},
    "tuner/load/probes/lone.py": {"asked"},
    "tuner/load/probes/overload.py": {"asked_per_s"},
    "tuner/measurement/measurement.py": {"p50_told_us", "p99_told_us"},
    "tuner/record/result_schema.py": {"asked"},
    "tuner/report/sizing.py": {"asked_otherwise"},
    "tuner/triton/doctor.py": {"found"},
}

_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def definitions(source: str) -> Iterator[str]:
    """Names of classes and functions."""
    nodes = ast.walk(ast.parse(source))
    yield from (node.name for node in nodes if isinstance(node, _DEFINITIONS))


def variables(source: str) -> Iterator[str]:
    """Names of parameters, variables, and fields."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def is_poor(name: str) -> bool:
    """Whether a part of the name is a participle or an archaic verb."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
    return not (PARTICIPLES | ARCHAIC).isdisjoint(parts)


@pytest.mark.parametrize("name", ["own_s", "found", "AskedConfig", "test_a_stop_is_heeded"])
def test_participle_as_a_part_of_a_name_is_poor(name: str) -> None:
    assert is_poor(name)


@pytest.mark.parametrize("name", ["ownership", "owner", "task", "Foundation", "known"])
def test_other_words_with_the_same_letters_are_allowed(name: str) -> None:
    assert not is_poor(name)


@pytest.mark.parametrize("folder", ["tuner", "tests", "benchmarks"])
def test_names_are_nouns_and_verbs(folder: str) -> None:
    poor = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        source, place = path.read_text(), str(path.relative_to(ROOT))
        names = {n for n in (*definitions(source), *variables(source)) if is_poor(n)}
        if names := names - STORED.get(place, set()):
            poor[place] = sorted(names)
    assert poor == {}
