"""What tune imports is what pyproject.toml asks for: nothing is there by luck."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: Versions of these come with the package that is named.
PART_OF = {"pydantic-core": "pydantic", "nvidia-ml-py": "nvidia-ml-py"}


def declared() -> dict[str, str]:
    """Distribution to its whole requirement."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["gpu"], *extras["twin"], *extras["local"]]
    return {_name(line): line for line in lines}


def _name(text: str) -> str:
    return re.split(r"[\s\[<>=!;]", text, maxsplit=1)[0].lower().replace("_", "-")


def imported() -> dict[str, Path]:
    """Top-level package to a file that imports it."""
    found: dict[str, Path] = {}
    for file in (ROOT / "tuner").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                module = node.module if isinstance(node, ast.ImportFrom) else None
                names = [module] if module else []
            found |= {name.partition(".")[0]: file for name in names}
    return found


def test_every_import_is_declared() -> None:
    wanted, distributions = declared(), packages_distributions()
    for package, file in imported().items():
        if package in {*sys.stdlib_module_names, "tuner", "pynvml", "google"}:
            continue
        names = {_name(name) for name in distributions[package]}
        names |= {PART_OF[name] for name in names & PART_OF.keys()}
        assert names & wanted.keys(), f"{file} imports {package}, of {names}"


def test_every_dependency_that_is_always_there_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [line for line in project["dependencies"] if "<" not in line] == []
