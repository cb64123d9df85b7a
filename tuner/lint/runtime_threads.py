"""Runtimes that make a thread for each CPU in each instance, and that a model.py leaves so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.spec.runtimes import RUNTIMES, Runtime

#: Calls whose first argument names what the second one sets.
_SETTERS = ("set_param", "set_property", "setdefault", "putenv", "set_parameter")


@dataclass(frozen=True)
class OpenThreads:
    """A runtime that nothing in the source limits.

    Attributes:
        place: Its first import.
        late: The line that sets a variable too late, and the variable; empty: none.
    """

    runtime: Runtime
    place: ast.stmt
    late: str = ""

    @property
    def hint(self) -> str:
        """What to do."""
        if self.late:
            return f"move that above line {self.place.lineno}"
        others = [f"start the server with {name}=1" for name in self.runtime.variables[:1]]
        return ", or ".join([self.runtime.limit, *others])


def open_threads(module: ast.Module) -> Iterator[OpenThreads]:
    """The runtimes that a model's source imports, and whose number of threads it leaves open."""
    imports, given = list(_imports(module)), list(_given(module))
    for runtime in RUNTIMES:
        places = (node for node, name in imports if _brings(runtime, name))
        first = min(places, key=lambda node: node.lineno, default=None)
        settings = [(name, line) for name, value, line in given if not _is_each_cpu(value)]
        if first is None or any(name in runtime.settings for name, _ in settings):
            continue
        variables = [(name, line) for name, line in settings if name in runtime.variables]
        if not any(line < first.lineno for _, line in variables):
            late = next((f"{line} sets {name}" for name, line in variables), "")
            yield OpenThreads(runtime, first, late)


def _imports(module: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from ((node, alias.name) for alias in names)
            case ast.ImportFrom(module=str(name), names=names, level=0):
                yield from ((node, f"{name}.{alias.name}") for alias in names)


def _brings(runtime: Runtime, name: str) -> bool:
    quiet = any(f"{name}.".startswith(f"{part}.") for part in runtime.quiet)
    return name.partition(".")[0] in runtime.modules and not quiet


def _given(module: ast.Module) -> Iterator[tuple[str, ast.expr | None, int]]:
    """What is called, passed and assigned by a name, with its value and line."""
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                yield name, args[0] if args else None, node.lineno
                for keyword in node.keywords:
                    yield keyword.arg or "", keyword.value, node.lineno
                match args:
                    case [ast.Constant(value=str(key)), value] if name in _SETTERS:
                        yield key, value, node.lineno
            case ast.Dict(keys=keys, values=values):
                for key_node, value in zip(keys, values, strict=True):
                    yield _key(key_node), value, node.lineno
            case ast.Assign(targets=targets, value=value):
                yield from ((_key(target), value, node.lineno) for target in targets)


def _key(node: ast.expr | None) -> str:
    """The text, attribute or key that names what is set."""
    match node:
        case ast.Constant(value=str(name)) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name)) | ast.Attribute(attr=name)):
            return name
    return ""


def _is_each_cpu(value: ast.expr | None) -> bool:
    """Whether a number of threads is none, as 0, -1 and None, or is that of the CPUs."""
    match value:
        case ast.Call(func=ast.Name(id="str" | "int"), args=[inner]):
            return _is_each_cpu(inner)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name.endswith("cpu_count")
        case ast.UnaryOp(op=ast.USub()) | ast.Constant(value=None | "" | "0" | "-1"):
            return True
        case ast.Constant(value=int(number)):
            return number == 0 and number is not False
    return False
