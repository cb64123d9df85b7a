"""The sources of Python models, read and not run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from tuner.modelconfig.files import ModelFiles, read_source
from tuner.modelconfig.schema import ModelConfig

#: The class of a Python model.
MODEL_CLASS = "TritonPythonModel"
#: Characters; what is longer is data, and takes seconds.
_LONGEST = 1_000_000


def python_sources(files: ModelFiles, config: ModelConfig) -> Iterator[tuple[Path, str]]:
    """The path and the text of each version's file; none for other backends."""
    if config.backend not in ("", "python"):
        return
    name = config.default_model_filename or "model.py"
    for version in files.versions:
        path = files.directory / str(version) / name
        source = source_text(path) if path.suffix == ".py" else None
        if source is not None:
            yield path, source


def source_text(path: Path) -> str | None:
    """The text, as far as it is looked at; None if there is no such file."""
    source = read_source(path, 4 * _LONGEST + 4)
    return None if source is None else source.decode("utf-8-sig", errors="replace")[: _LONGEST + 1]


def parsed(source: str) -> ast.Module | SyntaxError | str:
    """The module; why it is none; or, in words, why Python itself gives up."""
    if len(source) > _LONGEST:
        return f"more than {_LONGEST} characters"
    try:
        with warnings.catch_warnings(action="ignore"):  # of the model's own strings
            return ast.parse(source)
    except SyntaxError as error:
        return error
    except (RecursionError, MemoryError, ValueError) as error:
        return str(error) or type(error).__name__


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Every call, at any depth."""
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a chain of attributes; calls and subscripts on the way are passed over."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    first = node.id if isinstance(node, ast.Name) else ""
    return ".".join([first, *reversed(names)])


def comes_from_elsewhere(module: ast.Module) -> bool:
    """The class is imported, by name or with all others, or is another one's second name."""
    imports = (n for n in ast.walk(module) if isinstance(n, ast.ImportFrom | ast.Import))
    imported = ((a.asname or a.name) in (MODEL_CLASS, "*") for n in imports for a in n.names)
    return any(imported) or assigned(module, MODEL_CLASS)


def assigned(within: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(within)
    )
