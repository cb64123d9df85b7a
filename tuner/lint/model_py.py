"""model.py files of the Python backend, read and not run."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tuner.lint.completion import Function, completion_mistakes
from tuner.lint.cuda import device_findings
from tuner.lint.model_calls import MOST_NAMES, calling_sources, is_made, model_calls, network_calls
from tuner.lint.python_source import (
    MODEL_CLASS,
    assigned,
    calls_in,
    comes_from_elsewhere,
    dotted,
    parsed,
    python_sources,
)
from tuner.lint.rules import LintFinding, Severity, silenced_in
from tuner.lint.runtime_threads import open_threads
from tuner.modelconfig.files import ModelFiles, leads_out
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.spec.mistakes import meant_or_listed

_ONCE = ("__init__", "initialize", "finalize", "auto_complete_config")
#: What begins work that goes on beside the loop.
_STARTING = (".submit", ".run_in_executor", ".create_task", ".ensure_future")
#: What a model may read of a request, and the key of the response cache does not have.
_NOT_IN_THE_KEY = {
    "parameters": "request parameters",
    "requested_output_names": "which outputs are requested",
}
_BY_NETWORK = (
    "call models of this repository by pb_utils.InferenceRequest; another server must run beside, "
    "and its time is measured, too"
)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp)


def python_findings(
    files: ModelFiles, config: ModelConfig, names: Sequence[str]
) -> Iterator[LintFinding]:
    """Findings in the model file of every version; none for other backends.

    Of the files that it imports from beside it, the calls of other models.
    """
    main = {path for path, _ in python_sources(files, config)}
    for path, source in calling_sources(files, config):
        if leads_out(path, files.directory):
            text = f"a link to {path.resolve()}, which is not the model's own: it is not checked"
            yield LintFinding(path, 1, None, Severity.NOTE, "python-unread", text)
            continue
        silent = silenced_in(source)
        findings = [*lint_source(path, source, config)] if path in main else []
        for model, place in model_calls(source, config):
            if is_made(model):
                text = "this calls a model by a name that is made at run time"
                hint = "a spec lists the models that it may be: calls: [MODEL]"
                findings.append(_at(path, place, Severity.NOTE, "unnamed-call", text, hint))
            elif model not in names:
                text = f"this calls model {model!r}, which is not in the repository"
                hint = meant_or_listed(model, names)
                findings.append(_at(path, place, Severity.WARNING, "called-model", text, hint))
        for client in network_calls(source):
            text = "this calls a Triton server over the network: not the one that a run starts"
            findings.append(_at(path, client, Severity.NOTE, "network-call", text, _BY_NETWORK))
        yield from (f for f in findings if f.rule not in silent)


def knows_sequences(files: ModelFiles, config: ModelConfig) -> bool:
    """The model's code checks which sequence a request belongs to, or where one begins or ends."""
    words = (".flags(", ".correlation_id(")
    return any(word in source for _, source in python_sources(files, config) for word in words)


def parameters_read(files: ModelFiles, config: ModelConfig) -> tuple[str, ...]:
    """Names of request parameters that a Python model's code may read; none of other models.

    Each constant text by which something is looked up, where it reads parameters at all.
    """
    names_read = list[str]()
    for _, source in python_sources(files, config):
        module = parsed(source) if ".parameters()" in source else None
        for node in ast.walk(module) if isinstance(module, ast.Module) else ():
            match node:
                case (
                    ast.Subscript(slice=ast.Constant(value=str(name)))
                    | ast.Call(
                        func=ast.Attribute(attr="get" | "pop"),
                        args=[ast.Constant(value=str(name)), *_],
                    )
                ):
                    names_read.append(name)
    return tuple(dict.fromkeys(names_read))[:MOST_NAMES]


def threads_left_open(files: ModelFiles, config: ModelConfig) -> dict[str, str]:
    """What a model's code leaves open about the threads of its runtimes; none of other models.

    A line for each runtime: where its import is, and what limits it; with the variable of the
    environment that limits it, empty where none does.
    """
    variables = dict[str, str]()
    for path, source in python_sources(files, config):
        module = parsed(source)
        if isinstance(module, ast.Module) and "thread-count" not in silenced_in(source):
            for left in open_threads(module):
                place = f"{path.parent.name}/{path.name}:{left.place.lineno}"
                line = f"{place} leaves the threads of {left.runtime.name} open: {left.hint}."
                variables[line] = next(iter(left.runtime.variables), "")
    return variables


def lint_source(
    path: Path, source: str, config: ModelConfig | None = None
) -> Iterator[LintFinding]:
    """Findings in the source of one model.py, and what contradicts its config."""
    module = parsed(source)
    if isinstance(module, SyntaxError):
        line, column = module.lineno or 1, module.offset
        yield LintFinding(path, line, column, Severity.ERROR, "python-syntax", module.msg)
        return
    if isinstance(module, str):
        text = f"too long or too deeply nested to be checked: {module}"
        yield LintFinding(path, 1, None, Severity.NOTE, "python-unread", text)
        return
    try:
        yield from list(_lint_module(path, module, source, config))
    except RecursionError:
        text = "too deeply nested to be checked"
        yield LintFinding(path, 1, None, Severity.NOTE, "python-unread", text)


def _lint_module(
    path: Path, module: ast.Module, source: str, config: ModelConfig | None
) -> Iterator[LintFinding]:
    classes = (n for n in ast.walk(module) if isinstance(n, ast.ClassDef))
    model = next((n for n in classes if n.name == MODEL_CLASS), None)
    if not isinstance(model, ast.ClassDef):
        if not comes_from_elsewhere(module):
            text = f"there is no class {MODEL_CLASS}"
            yield LintFinding(path, 1, None, Severity.ERROR, "python-model", text)
        return
    methods = {n.name: n for n in model.body if isinstance(n, Function)}
    if "execute" not in methods:
        if not model.bases and not assigned(model, "execute"):
            yield _at(path, model, Severity.ERROR, "python-model", f"{MODEL_CLASS} has no execute")
        return
    if config is not None and "auto_complete_config" in methods:
        for node, text in completion_mistakes(methods["auto_complete_config"], config):
            yield _at(path, node, Severity.ERROR, "auto-complete", text)
    if config is not None and config.response_cache.enable:
        yield from _lint_cached(path, model)
    batches = config is None or config.max_batch_size > 1
    later = {name for name, n in methods.items() if isinstance(n, ast.AsyncFunctionDef)}
    yield from _lint_execute(path, methods["execute"], "is_cancelled" in source, batches, later)
    for method in methods.values():
        yield from _lint_threads(path, method)
    if config is not None:
        yield from _lint_runtimes(path, module, config)
        yield from device_findings(path, module, source, config)


def _lint_runtimes(path: Path, module: ast.Module, config: ModelConfig) -> Iterator[LintFinding]:
    """Instances on CPUs that slow each other down; without a kind, only where there is no GPU."""
    counts = Counter[str]()
    for group in config.instance_group:
        counts[enum_name(group, "kind")] += max(group.count, 1)
    on_cpu = counts["KIND_CPU"]
    for left in open_threads(module) if on_cpu + counts["KIND_AUTO"] > 1 else ():
        text = f"{left.runtime.name} makes a thread for each CPU in each instance"
        text += f" (line {left.late}, after this import has read it)" if left.late else ""
        if on_cpu > 1:
            text += f", and {on_cpu} instances take the CPUs from each other"
            yield _at(path, left.place, Severity.WARNING, "thread-count", text, left.hint)
        else:
            text += ", and without a GPU instances take the CPUs from each other"
            yield _at(path, left.place, Severity.NOTE, "thread-count", text, left.hint)


def _lint_cached(path: Path, model: ast.ClassDef) -> Iterator[LintFinding]:
    """Tried on tritonserver 2.51: requests that differ in nothing else share an answer."""
    for call in calls_in(model):
        method = dotted(call.func).rpartition(".")[2]
        if method in _NOT_IN_THE_KEY:
            text = f"the response cache ignores {_NOT_IN_THE_KEY[method]}: it may answer a "
            text += "request with the answer to another one"
            hint = "leave response_cache out, or let the answer depend on inputs alone"
            yield _at(path, call, Severity.WARNING, "cached-parameters", text, hint)


def _lint_execute(
    path: Path, execute: Function, checks_cancelled: bool, batches: bool, later: Collection[str]
) -> Iterator[LintFinding]:
    if batches and (loop := _loop_with_work(execute, later)) is not None:
        text = "execute handles one request after the other: batching reduces calls but not compute"
        yield _at(path, loop[0], Severity.NOTE, "per-request-loop", text, loop[1])
    loops = (n for n in ast.walk(execute) if isinstance(n, ast.While))
    endless = next((loop for loop in loops if _goes_on(loop)), None)
    if endless is not None and not checks_cancelled:
        text = "the loop continues after the client has given up"
        hint = "call request.is_cancelled() in it (gRPC clients only)"
        yield _at(path, endless, Severity.NOTE, "cancellation", text, hint)
    for call in calls_in(execute):
        if dotted(call.func) == "time.sleep":
            text = "execute sleeps, which blocks its instance"
            yield _at(path, call, Severity.WARNING, "sleep", text)


def _goes_on(loop: ast.While) -> bool:
    """Whether a loop has no end of its own, or works: calls the model's code, answers or waits."""
    names = [dotted(call.func) for call in calls_in(loop)]
    works = any(n.startswith("self.") or n.endswith((".exec", ".send", "sleep")) for n in names)
    return works or (isinstance(loop.test, ast.Constant) and bool(loop.test.value))


def _loop_with_work(execute: Function, later: Collection[str]) -> tuple[ast.AST, str] | None:
    """The first loop over the requests that calls something of the model's (``self.x(...)``), or
    waits for another model (``exec``), and what to do.

    What is called ``later``, as coroutines are until they are awaited, may run at the same time.
    """
    parameters = [argument.arg for argument in execute.args.args]
    requests = parameters[1] if len(parameters) > 1 else ""
    for node in ast.walk(execute):
        if not isinstance(node, _LOOPS) or not _mentions(_iterated(node), requests):
            continue
        awaited = {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Await)}
        for call in calls_in(node):
            name = dotted(call.func)
            is_method = name.startswith("self.") and not name.startswith(("self.log", "self._log"))
            waits = name.removeprefix("self.") not in later and not name.endswith(_STARTING)
            if name.endswith(".exec") or (name.endswith(".async_exec") and call in awaited):
                return node, "start all calls with async_exec, then await asyncio.gather(*calls)"
            if is_method and (waits or call in awaited):
                once = "join the requests' inputs and call the model once, if it takes batches"
                return node, once
    return None


def _iterated(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.For | ast.AsyncFor):
        return [node.iter]
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return [generator.iter for generator in node.generators]
    return []


def _mentions(expressions: list[ast.expr], name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name
        for expression in expressions
        for node in ast.walk(expression)
    )


def _lint_threads(path: Path, method: Function) -> Iterator[LintFinding]:
    for call in calls_in(method):
        name = dotted(call.func).rpartition(".")[2]
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        size = call.args[0] if call.args else named.get("max_workers")
        unlimited = size is None or (isinstance(size, ast.Constant) and size.value is None)
        if name == "ThreadPoolExecutor" and unlimited:
            text = "a ThreadPoolExecutor without max_workers chooses its own number of threads"
            hint = "set max_workers; every instance is a process with its own pool"
            yield _at(path, call, Severity.WARNING, "thread-pool-size", text, hint)
        elif name in ("Thread", "ThreadPoolExecutor") and method.name not in _ONCE:
            text = f"{method.name} starts threads for each call: nothing limits how many there are"
            hint = "create one pool of a fixed size in initialize"
            yield _at(path, call, Severity.WARNING, "thread-per-request", text, hint)


def _at(
    path: Path, node: ast.AST, severity: Severity, rule: str, message: str, hint: str = ""
) -> LintFinding:
    line = getattr(node, "lineno", 1)
    column = getattr(node, "col_offset", 0) + 1
    return LintFinding(path, line, column, severity, rule, message, hint)
