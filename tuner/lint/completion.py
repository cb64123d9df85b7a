"""What a Python model's `auto_complete_config` says that contradicts its config.pbtxt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tuner.modelconfig.schema import ModelConfig, enum_name

Function = ast.FunctionDef | ast.AsyncFunctionDef

_TENSOR_KEYS = ("name", "data_type", "dims")
_KEYS = {
    "add_input": (*_TENSOR_KEYS, "optional"),
    "add_output": _TENSOR_KEYS,
    "set_model_transaction_policy": ("decoupled",),
}
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
