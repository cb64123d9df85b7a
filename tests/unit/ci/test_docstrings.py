"""Docstrings are sentences with a subject, which these words do not begin."""

from __future__ import annotations

import ast
from pathlib import Path

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
