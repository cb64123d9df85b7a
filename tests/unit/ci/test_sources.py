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

from tuner.extras import MODULES, Extra


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count, those for type checkers do not; the error says which."""
    graph = grimp.build_graph("tuner", cache_dir=None, exclude_type_checking_imports=True)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    in_order = list(TopologicalSorter(imports).static_order())
    assert in_order.index("tuner.errors") < in_order.index("tuner.run.run")


def test_no_test_imports_a_test() -> None:
    """What several tests share stands in `tests/builders`."""
    tests = Path(__file__).parents[2]
    importing = [
        f"{file.relative_to(tests)}:{node.lineno} imports {name}"
        for file in sorted(tests.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None) or "", *(alias.name for alias in node.names))
        if name.split(".")[-1].startswith("test_") or name.split(".")[-1] == "conftest"
    ]
    assert importing == []


ROOT = Path(__file__).parents[3]


def test_no_two_public_classes_have_one_name() -> None:
    """Of those at the top of a module; the error names each with its places."""
    places: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tuner").rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                place = f"{file.relative_to(ROOT)}:{node.lineno}"
                places.setdefault(node.name, []).append(place)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


#: Versions of these come with the package that is named.
PART_OF = {"pydantic-core": "pydantic", "nvidia-ml-py": "nvidia-ml-py"}


def declared(extra: str = "") -> set[str]:
    """Distributions that are always there, or that an extra brings, with the extras it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    distributions = set()
    for line in extras[extra] if extra else project["dependencies"]:
        if _name(line) == project["name"]:
            more = line.partition("[")[2].partition("]")[0].split(",")
            distributions |= set[str]().union(*map(declared, more))
        else:
            distributions.add(_name(line))
    return distributions


def _name(text: str) -> str:
    return re.split(r"[\s\[<>=!;]", text, maxsplit=1)[0].lower().replace("_", "-")


def imported() -> dict[str, Path]:
    """Top-level package to a file that imports it."""
    by_package: dict[str, Path] = {}
    for file in (ROOT / "tuner").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                module = node.module if isinstance(node, ast.ImportFrom) else None
                names = [module] if module else []
            by_package |= {name.partition(".")[0]: file for name in names}
    return by_package


def test_every_import_is_declared_and_what_an_extra_brings_is_known_to_be_so() -> None:
    brought = {package: extra for extra, packages in MODULES.items() for package in packages}
    distributions = packages_distributions()
    for package, file in imported().items():
        if package in {*sys.stdlib_module_names, "tuner", "pynvml", "google"}:
            continue
        names = {_name(name) for name in distributions[package]}
        names |= {PART_OF[name] for name in names & PART_OF.keys()}
        extra = brought[package].value if package in brought else ""
        assert names & declared(extra), f"{file} imports {package}, of {names}, not of {extra!r}"


def test_the_extras_of_the_program_are_those_of_the_project_and_local_has_all_of_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {extra.value for extra in Extra} <= project["optional-dependencies"].keys()
    assert declared("run") | declared("model-analyzer") <= declared("local")
    everything = {"triton-model-analyzer", "optuna", "tritonclient", "pandas", "pyyaml", "click"}
    assert everything <= declared() | declared("local")


def test_every_dependency_has_an_upper_bound_but_the_program_that_measures() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["run"]]
    unbounded = [line.partition(";")[0] for line in lines if "<" not in line]
    assert unbounded == ["perf-analyzer"]


TUNER = Path(__file__).parents[3] / "tuner"

_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def without_subject(source: str) -> list[str]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, _WITH_DOCSTRINGS)]
    texts = [ast.get_docstring(node) or "" for node in nodes]
    return [text for text in texts if text.partition(" ")[0] in ("Of", "As", "With", "Where")]


def test_no_docstring_is_a_fragment() -> None:
    assert without_subject('def f():\n    """Of each round the load."""\n') != []
    fragments = {path: without_subject(path.read_text()) for path in TUNER.rglob("*.py")}
    assert {path: texts for path, texts in fragments.items() if texts} == {}
