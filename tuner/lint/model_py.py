"""model.py files of the Python backend, read and not run."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from tuner.lint.completion import Function, completion_mistakes
from tuner.lint.rules import LintFinding, Severity, silenced_in
from tuner.lint.runtime_threads import open_threads
from tuner.modelconfig.files import ModelFiles, leads_out, read_source
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.spec.mistakes import meant_or_listed

_CLASS = "TritonPythonModel"
_ONCE = ("__init__", "initialize", "finalize", "auto_complete_config")
#: Characters; what is longer is data, and takes seconds.
_LONGEST = 1_000_000
#: That one request is looked at for: nobody asks so many models at one place.
_MOST_NAMES = 20
#: What begins work that goes on beside the loop.
_STARTING = (".submit", ".run_in_executor", ".create_task", ".ensure_future")
#: What a model may read of a request, and the key of the response cache does not have.
_NOT_IN_THE_KEY = {
    "parameters": "request parameters",
    "requested_output_names": "which outputs are requested",
}
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp)


def python_findings(
    files: ModelFiles, config: ModelConfig, names: Sequence[str]
) -> Iterator[LintFinding]:
    """Findings in the model file of every version; none for other backends."""
    for path, source in _sources(files, config):
        if leads_out(path, files.directory):
            text = f"a link to {path.resolve()}, which is not the model's own: it is not checked"
            yield LintFinding(path, 1, None, Severity.NOTE, "python-unread", text)
            continue
        silent = silenced_in(source)
        findings = [*lint_source(path, source, config)]
        for model, place in _model_calls(source, config):
            if not model:
                text = "this calls a model by a name that is made at run time"
                hint = "a spec lists the models that it may be: calls: [MODEL]"
                findings.append(_at(path, place, Severity.NOTE, "unnamed-call", text, hint))
            elif model not in names:
                text = f"this calls model {model!r}, which is not in the repository"
                hint = meant_or_listed(model, names)
                findings.append(_at(path, place, Severity.WARNING, "called-model", text, hint))
        yield from (f for f in findings if f.rule not in silent)


def knows_sequences(files: ModelFiles, config: ModelConfig) -> bool:
    """The model's code checks which sequence a request belongs to, or where one begins or ends."""
    words = (".flags(", ".correlation_id(")
    return any(word in source for _, source in _sources(files, config) for word in words)


def parameters_read(files: ModelFiles, config: ModelConfig) -> tuple[str, ...]:
    """Names of request parameters that a Python model's code may read; none of other models.

    Each constant text by which something is looked up, where it reads parameters at all.
    """
    names_read = list[str]()
    for _, source in _sources(files, config):
        module = _parsed(source) if ".parameters()" in source else None
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
    return tuple(dict.fromkeys(names_read))[:_MOST_NAMES]


def called_models(
    files: ModelFiles, config: ModelConfig, names: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The models of ``names`` that a model's code calls, and the places where a run makes the name.

    Then those that the config's parameters name are among them.
    """
    called, unnamed = list[str](), list[str]()
    for path, source in _sources(files, config):
        for model, place in _model_calls(source, config):
            called.append(model)
            unnamed += [] if model else [f"{path.parent.name}/{path.name}:{place.lineno}"]
    if unnamed:
        called += (p.string_value for p in config.parameters.values())
    models = (model for model in called if model in names and model != files.model)
    return tuple(dict.fromkeys(models)), tuple(dict.fromkeys(unnamed))


def threads_left_open(files: ModelFiles, config: ModelConfig) -> dict[str, str]:
    """What a model's code leaves open about the threads of its runtimes; none of other models.

    A line for each runtime: where its import is, and what limits it; with the variable of the
    environment that limits it, empty where none does.
    """
    variables = dict[str, str]()
    for path, source in _sources(files, config):
        module = _parsed(source)
        if isinstance(module, ast.Module) and "thread-count" not in silenced_in(source):
            for left in open_threads(module):
                place = f"{path.parent.name}/{path.name}:{left.place.lineno}"
                line = f"{place} leaves the threads of {left.runtime.name} open: {left.hint}."
                variables[line] = next(iter(left.runtime.variables), "")
    return variables


def _model_calls(source: str, config: ModelConfig) -> Iterator[tuple[str, ast.expr]]:
    """Models that the source names in its requests, with the places; "": only a run knows."""
    module = _parsed(source) if "InferenceRequest" in source else None
    if not isinstance(module, ast.Module):
        return
    known = _assigned_once(module)
    for call in _calls(module):
        if _dotted(call.func).rpartition(".")[2] == "InferenceRequest":
            named = (k.value for k in call.keywords if k.arg == "model_name")
            place: ast.expr = next(named, call)
            yield from ((text, place) for text in _texts(place, known, config))


def _assigned_once(module: ast.Module) -> dict[str, ast.expr]:
    """What the names and attributes are that the module assigns once; of a loop, all it takes."""
    stored, values = Counter[str](), dict[str, ast.expr]()
    for node in ast.walk(module):
        match node:
            case ast.arg(arg=name):
                stored[name] += 1
            case ast.Name(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                stored[_dotted(node)] += 1
            case (
                ast.Assign(targets=[target], value=value)
                | ast.For(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
            ) if isinstance(target, ast.Name | ast.Attribute):
                values[_dotted(target)] = value
    return {name: value for name, value in values.items() if stored[name] == 1}


def _texts(node: ast.expr, known: Mapping[str, ast.expr], config: ModelConfig) -> list[str]:
    """What an expression may be, as far as the source and the config say; "": something else."""
    texts, waiting, seen = list[str](), [node], set[str]()
    for part in waiting:  # grows
        match part:
            case ast.Constant(value=str(text)):
                texts.append(text)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) if 0 < len(parts) < _MOST_NAMES:
                waiting += parts
            case ast.Subscript(
                value=ast.Subscript(slice=ast.Constant(value=str(key))),
                slice=ast.Constant(value="string_value"),
            ):
                texts.append(
                    config.parameters[key].string_value if key in config.parameters else ""
                )
            case ast.Name() | ast.Attribute():
                name = _dotted(part)
                name = name if name in known else name.removeprefix("self.")  # the class's own
                if name in known and name not in seen and len(waiting) < _MOST_NAMES:
                    waiting.append(known[name])
                elif name not in seen:
                    texts.append("")
                seen.add(name)
            case _:
                texts.append("")
    return list(dict.fromkeys(texts)) or [""]


def _sources(files: ModelFiles, config: ModelConfig) -> Iterator[tuple[Path, str]]:
    if config.backend not in ("", "python"):
        return
    name = config.default_model_filename or "model.py"
    for version in files.versions:
        path = files.directory / str(version) / name
        source = read_source(path, 4 * _LONGEST + 4) if path.suffix == ".py" else None
        if source is not None:
            yield path, source.decode("utf-8-sig", errors="replace")[: _LONGEST + 1]


def lint_source(
    path: Path, source: str, config: ModelConfig | None = None
) -> Iterator[LintFinding]:
    """Findings in the source of one model.py, and what contradicts its config."""
    module = _parsed(source)
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


def _parsed(source: str) -> ast.Module | SyntaxError | str:
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


def _lint_module(
    path: Path, module: ast.Module, source: str, config: ModelConfig | None
) -> Iterator[LintFinding]:
    classes = (n for n in ast.walk(module) if isinstance(n, ast.ClassDef))
    model = next((n for n in classes if n.name == _CLASS), None)
    if not isinstance(model, ast.ClassDef):
        if not _comes_from_elsewhere(module):
            text = f"there is no class {_CLASS}"
            yield LintFinding(path, 1, None, Severity.ERROR, "python-model", text)
        return
    methods = {n.name: n for n in model.body if isinstance(n, Function)}
    if "execute" not in methods:
        if not model.bases and not _assigned(model, "execute"):
            yield _at(path, model, Severity.ERROR, "python-model", f"{_CLASS} has no execute")
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
    for call in _calls(model):
        method = _dotted(call.func).rpartition(".")[2]
        if method in _NOT_IN_THE_KEY:
            text = f"the response cache ignores {_NOT_IN_THE_KEY[method]}: it may answer a "
            text += "request with the answer to another one"
            hint = "leave response_cache out, or let the answer depend on inputs alone"
            yield _at(path, call, Severity.WARNING, "cached-parameters", text, hint)


def _comes_from_elsewhere(module: ast.Module) -> bool:
    """The class is imported, by name or with all others, or is another one's second name."""
    imports = (n for n in ast.walk(module) if isinstance(n, ast.ImportFrom | ast.Import))
    imported = ((a.asname or a.name) in (_CLASS, "*") for n in imports for a in n.names)
    return any(imported) or _assigned(module, _CLASS)


def _assigned(within: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(within)
    )


def _lint_execute(
    path: Path, execute: Function, checks_cancelled: bool, batches: bool, later: Collection[str]
) -> Iterator[LintFinding]:
    loop = _loop_with_work(execute, later) if batches else None
    if loop is not None:
        text = "execute handles one request after the other: batching reduces calls but not compute"
        hint = "join the requests' inputs and call the model once, if it takes batches"
        yield _at(path, loop, Severity.NOTE, "per-request-loop", text, hint)
    endless = next((n for n in ast.walk(execute) if isinstance(n, ast.While)), None)
    if endless is not None and not checks_cancelled:
        text = "the loop continues after the client has given up"
        hint = "call request.is_cancelled() in it (gRPC clients only)"
        yield _at(path, endless, Severity.NOTE, "cancellation", text, hint)
    for call in _calls(execute):
        if _dotted(call.func) == "time.sleep":
            text = "execute sleeps, which blocks its instance"
            yield _at(path, call, Severity.WARNING, "sleep", text)


def _loop_with_work(execute: Function, later: Collection[str]) -> ast.AST | None:
    """The first loop over the requests that calls something of the model's (``self.x(...)``).

    What is called ``later``, as coroutines are until they are awaited, may run at the same time.
    """
    parameters = [argument.arg for argument in execute.args.args]
    requests = parameters[1] if len(parameters) > 1 else ""
    for node in ast.walk(execute):
        if not isinstance(node, _LOOPS) or not _mentions(_iterated(node), requests):
            continue
        awaited = {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Await)}
        for call in _calls(node):
            name = _dotted(call.func)
            is_method = name.startswith("self.") and not name.startswith(("self.log", "self._log"))
            waits = name.removeprefix("self.") not in later and not name.endswith(_STARTING)
            if is_method and (waits or call in awaited):
                return node
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
    for call in _calls(method):
        name = _dotted(call.func).rpartition(".")[2]
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


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` of a chain of attributes; calls and subscripts on the way are passed over."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    first = node.id if isinstance(node, ast.Name) else ""
    return ".".join([first, *reversed(names)])


def _at(
    path: Path, node: ast.AST, severity: Severity, rule: str, message: str, hint: str = ""
) -> LintFinding:
    line = getattr(node, "lineno", 1)
    column = getattr(node, "col_offset", 0) + 1
    return LintFinding(path, line, column, severity, rule, message, hint)
