"""What a Python model's `auto_complete_config` says that contradicts its config.pbtxt."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from tuner.lint.python_source import calls_in, parsed
from tuner.modelconfig.schema import ModelConfig, enum_name

Function = ast.FunctionDef | ast.AsyncFunctionDef

_TENSOR_KEYS = ("name", "data_type", "dims")
_KEYS = {
    "add_input": (*_TENSOR_KEYS, "optional"),
    "add_output": _TENSOR_KEYS,
    "set_model_transaction_policy": ("decoupled",),
}
_COMPLETING = (*_KEYS, "set_max_batch_size")
_UNKNOWN = object()


def completion_mistakes(function: Function, config: ModelConfig) -> Iterator[tuple[ast.AST, str]]:
    """The places in `auto_complete_config` for which Triton refuses the model, with the reasons.

    It compares literals with config.pbtxt: `ModelConfig` in the Python backend's
    triton_python_backend_utils.py raises where they contradict each other. Other values, and what
    is done under a condition, are passed over.
    """
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    if all(value is None or _value(value, {}) is not _UNKNOWN for value in returned):
        yield function, "auto_complete_config does not return the config"
    uses = [node.id for node in ast.walk(function) if isinstance(node, ast.Name)]
    names: dict[str, ast.expr] = {}
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if uses.count(name) == 2:
                names[name] = statement.value
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=method), args=arguments)):
                given = _value(arguments[0], names) if arguments else _UNKNOWN
                for text in (*_unfit(method, given), *_contradictions(method, given, config)):
                    yield statement, text
        if any(isinstance(node, ast.Return | ast.Raise) for node in ast.walk(statement)):
            return  # what follows may not be reached


def _value(node: ast.expr, names: dict[str, ast.expr]) -> Any:
    """The value of a literal, of ``dict(...)`` or of one of ``names``; parts may be unknown."""
    match node:
        case ast.Name(id=name) if name in names:
            return _value(names[name], {})
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            keys: list[Any] = [keyword.arg for keyword in node.keywords]
            values = [keyword.value for keyword in node.keywords]
        case ast.Dict(values=values):
            keys = [None if key is None else _value(key, {}) for key in node.keys]
        case _:
            try:
                return ast.literal_eval(node)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return _UNKNOWN
    if not all(isinstance(key, str) for key in keys):
        return _UNKNOWN
    return {key: _value(value, {}) for key, value in zip(keys, values, strict=True)}


def _unfit(method: str, given: Any) -> Iterator[str]:
    if isinstance(given, dict) and method in _KEYS:
        missing = [key for key in _TENSOR_KEYS if method.startswith("add_") and key not in given]
        if missing:
            yield f"{method} is given no {' and no '.join(missing)}"
        if unknown := [key for key in given if key not in _KEYS[method]]:
            yield f"{method} takes {', '.join(_KEYS[method])}, and no {unknown[0]!r}"


def _contradictions(method: str, given: Any, config: ModelConfig) -> Iterator[str]:
    most, decoupled = config.max_batch_size, config.model_transaction_policy.decoupled
    match method, given:
        case "set_max_batch_size", int() if given < most:
            yield f"this sets max_batch_size {given}, and config.pbtxt has {most}"
        case "set_dynamic_batching", _ if config.HasField("sequence_batching"):
            yield "this sets dynamic_batching, and config.pbtxt has sequence_batching"
        case "set_model_transaction_policy", {"decoupled": bool() as decouples} if (
            decouples != decoupled
        ):
            if config.HasField("model_transaction_policy"):
                yield f"this sets decoupled {decouples}, and config.pbtxt has {decoupled}"
        case "add_input" | "add_output", {"name": name}:
            for tensor in getattr(config, method.removeprefix("add_")):
                has = {"data_type": enum_name(tensor, "data_type"), "dims": list(tensor.dims)}
                for key, value in has.items() if tensor.name == name else ():
                    other = given.get(key, _UNKNOWN)
                    if getattr(tensor, key) and other not in (_UNKNOWN, value):
                        yield f"{name} has {key} {other} here, and {value} in config.pbtxt"


def as_code_completes(
    config: ModelConfig, sources: Iterable[str]
) -> tuple[ModelConfig, frozenset[int]]:
    """The config with the tensors and the transaction policy that `auto_complete_config` adds, and
    the sizes of batches that it may set.

    As far as the sources, the model's and those that it imports, write them out: under whatever
    condition, and in whatever function, since only that one's argument has such methods.
    """
    completed, sizes = deepcopy(config), set[int]()
    decided = config.HasField("model_transaction_policy")
    for method, given in (pair for source in sources for pair in _completions(source)):
        match method, given:
            case "set_max_batch_size", int(size):
                sizes.add(size)
            case "set_model_transaction_policy", {"decoupled": bool(decouples)} if not decided:
                completed.model_transaction_policy.decoupled |= decouples
            case "add_input" | "add_output", {
                "name": str(name),
                "data_type": str(data_type),
                "dims": [*dims],
            }:
                tensors = getattr(completed, method.removeprefix("add_"))
                types = tensors.add().DESCRIPTOR.fields_by_name["data_type"].enum_type
                tensors.pop()
                new = all(tensor.name != name for tensor in tensors)
                if new and data_type in types.values_by_name and all(type(d) is int for d in dims):
                    number = types.values_by_name[data_type].number
                    tensors.add(name=name, data_type=number, dims=dims)
                    if given.get("optional") is True:
                        tensors[-1].optional = True
    return completed, frozenset(sizes)


def _completions(source: str) -> Iterator[tuple[str, Any]]:
    """The methods of a config's object that the source calls, with what it gives them."""
    module = parsed(source) if any(f".{method}(" in source for method in _COMPLETING) else None
    if not isinstance(module, ast.Module):
        return
    of_module = _assigned(module.body)
    for function in (node for node in ast.walk(module) if isinstance(node, Function)):
        names = {**of_module, **_assigned(ast.walk(function))}
        around = dict[ast.Call, list[ast.For]]()
        for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
            for call in calls_in(loop):
                around.setdefault(call, []).append(loop)
        for call in calls_in(function):
            match call:
                case ast.Call(func=ast.Attribute(attr=method), args=[given, *_]) if (
                    method in _COMPLETING
                ):
                    for value in _given(given, names, around.get(call, [])):
                        yield method, _value(value, {})


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """What each name is, where that is assigned once."""
    values, twice = dict[str, ast.expr](), set[str]()
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                twice |= {name} & values.keys()
                values[name] = value
    return {name: value for name, value in values.items() if name not in twice}


def _given(node: ast.expr, names: Mapping[str, ast.expr], around: list[ast.For]) -> list[ast.expr]:
    """What an argument is: each element, where a loop around the call takes it from a list."""
    for loop in reversed(around):
        match node, loop:
            case ast.Name(id=name), ast.For(target=ast.Name(id=target), iter=iterated) if (
                name == target
            ):
                values = names.get(iterated.id) if isinstance(iterated, ast.Name) else iterated
                return values.elts if isinstance(values, ast.List | ast.Tuple) else []
    return [names.get(node.id, node)] if isinstance(node, ast.Name) else [node]
