"""Which models the code of a Python model calls."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.lint.python_source import (
    calls_in,
    comes_from_elsewhere,
    dotted,
    parsed,
    python_sources,
    source_text,
)
from tuner.modelconfig.files import ModelFiles, leads_out
from tuner.modelconfig.schema import ModelConfig

#: That one request is looked at for: nobody asks so many models at one place.
MOST_NAMES = 20
_IMPORT = re.compile(
    r"^\s*(?:from\s+\.*(?P<of>[\w.]*)\s+)?import\s+(?P<names>\w[\w., ]*|\([^)]*\)|\*)", re.MULTILINE
)
#: So many letters of a name tell which models it may be.
_TELLING = 3
_NAME = re.compile(r"[\w.-]+")
_CLIENTS, _API = ("tritonclient.http", "tritonclient.grpc"), "/v2/models/"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def called_models(
    files: ModelFiles, config: ModelConfig, names: Collection[str], *, guesses: bool = True
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The models of ``names`` that a model's code calls, and the places where a run makes the name.

    ``guesses``: then, and where the class lies elsewhere, those that its code or the config's
    parameters name anywhere are among them.
    """
    called, unnamed, sources = list[str](), list[str](), [*calling_sources(files, config)]
    for path, source in sources:
        for model, place in model_calls(source, config):
            sibling = model.replace("*", files.model)  # parts are often called after the whole
            known = sibling if model.startswith("*") and sibling in names else model
            pattern = re.compile(".*".join(map(re.escape, known.split("*"))))
            called += filter(pattern.fullmatch, names if guesses or not is_made(model) else ())
            where = path.relative_to(files.directory)
            unnamed += [f"{where}:{place.lineno}"] if is_made(model) else []
    if guesses and (unnamed or (not called and _lies_elsewhere(files, config))):
        for parameter in config.parameters.values():
            called += [parameter.string_value, *_NAME.findall(parameter.string_value)]
        for module in (parsed(source) for _, source in sources):
            called += _texts_in(module) if isinstance(module, ast.Module) else ()
    models = (model for model in called if model in names and model != files.model)
    return tuple(dict.fromkeys(models)), tuple(dict.fromkeys(unnamed))


def is_made(model: str) -> bool:
    """Whether a run makes the name of a call, in whole or, as in ``*_encoder``, in part."""
    return not model or "*" in model


def _texts_in(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _lies_elsewhere(files: ModelFiles, config: ModelConfig) -> bool:
    """The model's class is imported, so its requests may not be seen."""
    modules = (parsed(source) for _, source in python_sources(files, config))
    return any(isinstance(m, ast.Module) and comes_from_elsewhere(m) for m in modules)


def calling_sources(files: ModelFiles, config: ModelConfig) -> Iterator[tuple[Path, str]]:
    """The sources of a model, and of the files of their version that they import."""
    for path, source in python_sources(files, config):
        sources, seen = [(path, source)], {path}
        for place, text in sources:  # grows
            yield place, text
            for imported in _imported_files(path.parent, place, text):
                if imported in seen or len(sources) > MOST_NAMES:
                    continue
                seen.add(imported)
                within = [p for p in imported.parents if p.is_relative_to(path.parent)]
                if any(leads_out(part, files.directory) for part in (imported, *within[:-1])):
                    continue
                if (more := source_text(imported)) is not None:
                    sources.append((imported, more))


def _imported_files(version: Path, place: Path, source: str) -> Iterator[Path]:
    """The files that may be modules which a source imports: from its version, or from beside it."""
    for match in _IMPORT.finditer(source):
        names = _NAME.findall(match["names"])
        modules = [match["of"], *(f"{match['of']}.{n}" for n in names)] if match["of"] else names
        for module in dict.fromkeys(modules):
            parts = module.strip(".").split(".")
            for top in dict.fromkeys((version, place.parent)):
                yield top.joinpath(*parts[:-1], f"{parts[-1]}.py")
                yield top.joinpath(*parts, "__init__.py")


def model_calls(source: str, config: ModelConfig) -> Iterator[tuple[str, ast.expr]]:
    """Models that the source names in its requests, with the places.

    "": only a run knows; ``*``: a part that only a run knows.
    """
    module = parsed(source) if "InferenceRequest" in source else None
    if not isinstance(module, ast.Module):
        return
    known = _known(module)
    for call in calls_in(module):
        if dotted(call.func).rpartition(".")[2] == "InferenceRequest":
            named = (k.value for k in call.keywords if k.arg == "model_name")
            place: ast.expr = next(named, call)
            yield from ((text, place) for text in _texts(place, known, config))


def network_calls(source: str) -> list[ast.AST]:
    """The first place where a source imports a client of Triton, or writes a path of its API."""
    likely = any(word in source for word in (*_CLIENTS, _API, "from tritonclient import"))
    module = parsed(source) if likely else None
    nodes = [*ast.walk(module)] if isinstance(module, ast.Module) else []
    notes = {node.value for node in nodes if isinstance(node, ast.Expr)}
    places = [node for node in nodes if node not in notes and _is_client(node)]
    return places[:1]


def _is_client(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return _API in text
        case ast.Import(names=names):
            return any(name.name.startswith(_CLIENTS) for name in names)
        case ast.ImportFrom(module=str(package), names=names):
            return any(f"{package}.{name.name}".startswith(_CLIENTS) for name in names)
    return False


@dataclass(frozen=True)
class _Known:
    """What names are in a module.

    Attributes:
        once: The value of each name and attribute that the module assigns once; of a loop, all it
            takes.
        parameters: For each use of a function's parameter, all that the module's own calls give.
    """

    once: Mapping[str, ast.expr]
    parameters: Mapping[ast.expr, ast.expr]

    def value(self, node: ast.expr) -> ast.expr | None:
        if node in self.parameters:
            return self.parameters[node]
        name = dotted(node)
        return self.once.get(name, self.once.get(name.removeprefix("self.")))  # the class's own


def _known(module: ast.Module) -> _Known:
    stored, values = Counter[str](), dict[str, ast.expr]()
    for node in ast.walk(module):
        match node:
            case ast.arg(arg=name):
                stored[name] += 1
            case ast.Name(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                stored[dotted(node)] += 1
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.For(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
            ) if isinstance(target, ast.Name | ast.Attribute):
                values[dotted(target)] = value
    once = {name: value for name, value in values.items() if stored[name] == 1}
    return _Known(once, _parameters(module))


def _parameters(module: ast.Module) -> dict[ast.expr, ast.expr]:
    """What each use of a parameter is, of functions that the module only calls, with all of them.

    That of an inner function, which comes later, counts where it has the same name.
    """
    calls: dict[str, list[ast.Call]] = {}
    for call in calls_in(module):
        if isinstance(call.func, ast.Name) or dotted(call.func).startswith("self."):
            calls.setdefault(dotted(call.func).removeprefix("self."), []).append(call)
    parameters = dict[ast.expr, ast.expr]()
    for function in (node for node in ast.walk(module) if isinstance(node, _Function)):
        names = [parameter.arg for parameter in function.args.args]
        defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        names = names[1:] if names[:1] == ["self"] else names
        made = calls.get(function.name, [])
        uses = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        changed = {node.id for node in uses if isinstance(node.ctx, ast.Store)}
        for index, name in enumerate(names):
            given = [_argument(call, index, name, defaults.get(name)) for call in made]
            known = [value for value in given if value is not None]
            value = ast.List(elts=known if len(known) == len(given) and name not in changed else [])
            parameters |= {node: value for node in uses if node.id == name}
    return parameters


def _argument(call: ast.Call, index: int, name: str, default: ast.expr | None) -> ast.expr | None:
    """The value of a parameter in a call; None: left out without a default, or behind stars."""
    stars = any(isinstance(value, ast.Starred) for value in call.args[: index + 1])
    if stars or any(keyword.arg is None for keyword in call.keywords):
        return None
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), default)
    return call.args[index] if index < len(call.args) else by_name


def _texts(node: ast.expr, known: _Known, config: ModelConfig) -> list[str]:
    """What an expression may be, as far as the source and the config say; "": something else."""
    texts, waiting, seen = list[str](), [node], set[ast.expr]()
    for part in waiting:  # grows
        match part:
            case ast.Constant(value=str(text)):
                texts.append(text)
            case ast.BinOp(op=ast.Add()) | ast.JoinedStr():
                texts.append(_joined(part, known))
            case ast.Subscript() | ast.Call() if key := _parameter(part):
                if key in config.parameters:
                    texts.append(config.parameters[key].string_value)
                elif isinstance(part, ast.Call) and len(part.args) > 1:
                    waiting.append(part.args[1])
                else:
                    texts.append("")
            case ast.Name() | ast.Attribute():
                value = known.value(part)
                if value is None or len(waiting) >= MOST_NAMES:
                    texts.append("")
                elif value not in seen:
                    waiting.append(value)
                    seen.add(value)
            case _:
                choices = _choices(part, known)
                waiting += choices
                texts += [] if choices else [""]
    return list(dict.fromkeys(texts)) or [""]


def _parameter(node: ast.expr) -> str:
    """The parameter of the config whose text this is: ``x["name"]["string_value"]``."""
    inner, last = _looked_up(node)
    _, name = _looked_up(inner)
    return name if last == "string_value" else ""


def _looked_up(node: ast.expr | None) -> tuple[ast.expr | None, str]:
    """What is looked up by a constant text, and the text."""
    match node:
        case (
            ast.Subscript(value=table, slice=ast.Constant(value=str(key)))
            | ast.Call(
                func=ast.Attribute(value=table, attr="get"), args=[ast.Constant(value=str(key)), *_]
            )
        ):
            return table, key
    return None, ""


def _choices(node: ast.expr, known: _Known) -> list[ast.expr]:
    """The expressions of which a value is one; none where they are not known, or too many."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.BoolOp(values=parts):
            choices = parts
        case ast.IfExp(body=one, orelse=other):
            choices = [one, other]
        case ast.Dict(keys=keys):  # of a loop over it
            choices = [key for key in keys if key is not None]
        case ast.Subscript(value=table):
            choices = _values(table, known)
        case ast.Call(func=ast.Attribute(attr="values", value=table), args=[]):
            choices = _values(table, known)
        case ast.Call(func=ast.Attribute(attr="get", value=table), args=[_, *default]):
            values = _values(table, known)
            choices = [*values, *default] if values else []
        case _:
            choices = []
    return choices if len(choices) < MOST_NAMES else []


def _values(table: ast.expr, known: _Known) -> list[ast.expr]:
    """Those of a dict that the module writes out."""
    if isinstance(table, ast.Name | ast.Attribute):
        table = known.value(table) or table
    return table.values if isinstance(table, ast.Dict) else []


def _joined(node: ast.expr, known: _Known) -> str:
    """A text that is put together; ``*``: a part that only a run knows. Empty: little else is."""
    texts, waiting = list[str](), [node]
    while waiting:
        match waiting.pop():
            case ast.Constant(value=str(text)):
                texts.append(text)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                waiting += [right, left]
            case ast.JoinedStr(values=parts):
                waiting += reversed(parts)
            case ast.FormattedValue(value=inner, format_spec=None):
                waiting.append(inner)
            case ast.Name() | ast.Attribute() as part:
                value = known.value(part)
                texts.append(str(value.value) if isinstance(value, ast.Constant) else "*")
            case _:
                texts.append("*")
    joined = "".join(texts)
    return joined if joined.count("*") <= 2 and len(joined.replace("*", "")) >= _TELLING else ""
