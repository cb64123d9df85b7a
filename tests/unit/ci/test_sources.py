"""What the sources import, and how their docstrings begin."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Those that are imported inside functions count as well; the error names the circle."""
    graph = grimp.build_graph("tuner", cache_dir=None)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    in_order = list(TopologicalSorter(imports).static_order())
    assert in_order.index("tuner.errors") < in_order.index("tuner.run.run")


def test_no_test_imports_a_test() -> None:
    """What several tests share stands in `tests/builders`."""
    tests = Path(__file__).parents[2]
    found = [
        f"{file.relative_to(tests)}:{node.lineno} imports {name}"
        for file in sorted(tests.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None) or "", *(alias.name for alias in node.names))
        if name.split(".")[-1].startswith("test_") or name.split(".")[-1] == "conftest"
    ]
    assert found == []


ROOT = Path(__file__).parents[3]


def test_no_two_public_classes_have_one_name() -> None:
    """Of those at the top of a module; the error names each with its places."""
    places: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tuner").rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                place = f"{file.relative_to(ROOT)}:{node.lineno}"
                places.setdefault(node.name, []).append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


#: Versions of these come with the package that is named.
PART_OF = {"pydantic-core": "pydantic", "nvidia-ml-py": "nvidia-ml-py"}


def declared() -> dict[str, str]:
    """Distribution to its whole requirement."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["gpu"], *extras["local"]]
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


TUNER = Path(__file__).parents[3] / "tuner"

_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def without_subject(source: str) -> list[str]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, _WITH_DOCSTRINGS)]
    texts = [ast.get_docstring(node) or "" for node in nodes]
    return [text for text in texts if text.partition(" ")[0] in ("Of", "As", "With", "Where")]


def test_no_docstring_is_a_fragment() -> None:
    assert without_subject('def f():\n    """Of each round the load."""\n') != []
    found = {path: without_subject(path.read_text()) for path in TUNER.rglob("*.py")}
    assert {path: texts for path, texts in found.items() if texts} == {}
