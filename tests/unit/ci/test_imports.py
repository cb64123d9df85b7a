"""Imports between files, unlike import-linter's contracts, which are about packages."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Those that are imported inside functions count as well; the error names the circle."""
    graph = grimp.build_graph("tuner", cache_dir=None)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    in_order = list(TopologicalSorter(imports).static_order())
    assert in_order.index("tuner.errors") < in_order.index("tuner.programs.run.run")


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
