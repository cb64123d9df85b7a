"""No function decides anything by reading a sentence that `tuner` wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tuner

ROOT = Path(tuner.__file__).parent
#: What holds sentences, or reasons that were sentences once.
TEXTS = {"message", "reason", "reasons", "sentence", "sentences", "why", "left", "limit", "limited"}
TEXTS |= {"excuse", "notes", "remarks", "remark", "disturbances", "warnings", "shown"}
TEXTS |= {"disturbance_texts", "warning_texts", "situation"}
#: Variables that hold one.
NAMES = {"sentence", "clause", "reason", "message", "hint"}
#: Methods and functions that look into a text.
LOOKS = {"startswith", "endswith", "removeprefix", "removesuffix", "split", "partition", "find"}
LOOKS |= {"rpartition", "rsplit", "index", "search", "match", "fullmatch", "findall", "finditer"}
#: Earlier versions kept sentences only; these read them, once.
MIGRATION = "record/earlier.py"
#: Of those names, what holds no sentence of ours.
NOT_OURS = {
    "errors.py": "lines of a message, each of which is shortened",
    "server/control.py": "the server's own words",
    "server/log.py": "the server's own words",
    "modelconfig/edit.py": "a message of text protobuf",
    "lint/repository.py": "a message of text protobuf",
}


def is_text(node: ast.AST) -> bool:
    """An attribute that holds sentences, or a call that makes one of it (`str`, `sentence`)."""
    if isinstance(node, ast.Call):
        called = [node.func] if not isinstance(node.func, ast.Attribute) else [node.func.value]
        return any(map(is_text, node.args)) or any(map(is_text, called))
    if isinstance(node, ast.BoolOp):
        return any(map(is_text, node.values))
    if isinstance(node, ast.Name):
        return node.id in NAMES
    return isinstance(node, ast.Attribute) and node.attr in TEXTS


def looks(tree: ast.AST) -> Iterator[int]:
    """Lines of which a text is looked into."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(o, ast.In | ast.NotIn) for o in node.ops
        ):
            looked = [c for c in node.comparators if is_text(c)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_regex = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            spaces = node.func.attr == "split" and not node.args
            method = node.func.attr in LOOKS and not spaces and is_text(node.func.value)
            given = (of_regex or node.func.attr in LOOKS) and any(map(is_text, node.args))
            looked = [node] if method or given else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            mapped = node.func.id in ("map", "filter") and any(
                isinstance(a, ast.Attribute) and a.attr in LOOKS for a in node.args
            )
            looked = [node] if mapped and any(map(is_text, node.args)) else []
        else:
            continue
        yield from (node_.lineno for node_ in looked)


FILES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}


@pytest.mark.parametrize("name", sorted(FILES.keys() - NOT_OURS.keys() - {MIGRATION}))
def test_no_module_looks_into_a_sentence(name: str) -> None:
    assert [*looks(ast.parse(FILES[name].read_text()))] == []


#: What tells why, or what to know, is a `Reason`; texts of it are beside data in files, for people.
REASONS = {"reason", "reasons", "warnings", "disturbances", "limited", "why"}
BESIDE_DATA = {
    ("record/checks.py", "CheckFacts.reasons"),
    ("record/result_schema.py", "RejectedFacts.reasons"),
    ("record/result_schema.py", "Result.reasons"),
}
#: Not of a run: why a load generator or a field of the draft is what it is.
OTHER_TEXTS = {
    ("load/generators.py", "GeneratorChoice.why"),
    ("space/experts.py", "Rare.why"),
}


def text_fields(tree: ast.AST) -> Iterator[str]:
    """Fields of classes that are named as reasons and hold text."""
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for field in (node for node in kind.body if isinstance(node, ast.AnnAssign)):
            named = isinstance(field.target, ast.Name) and field.target.id in REASONS
            names = (n for n in ast.walk(field.annotation) if isinstance(n, ast.Name))
            if named and any(name.id == "str" for name in names):
                yield f"{kind.name}.{ast.unparse(field.target)}"


def test_no_class_carries_a_reason_as_text() -> None:
    fields = {(name, field) for name, path in FILES.items()
             for field in text_fields(ast.parse(path.read_text()))}  # fmt: skip
    assert fields == BESIDE_DATA | OTHER_TEXTS


@pytest.mark.parametrize(
    "code",
    [
        '"too late" in error.message',
        'reason.sentence.split(" for ", 1)',
        "[r.removeprefix(own) for r in found if result.reasons.startswith(own)]",
        're.search("budget", trial.reason)',
        "filter(None, map(LEFT_OUT.search, data.result.reasons))",
        'LEFT_OUT.fullmatch(trial.reason or "")',
        'sentence(trial.reason).startswith("not loaded")',
        '"the model fail" not in reason',
    ],
)
def test_each_way_of_looking_into_a_sentence_is_seen(code: str) -> None:
    assert [*looks(ast.parse(code))]
