"""Small changes to the source, each of which some test should notice; cosmic-ray's operators."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

import parso
import parso.python.tree  # before cosmic_ray, which imports it in a circle
from cosmic_ray.ast import ast_nodes
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

COMPOUND = {"if_stmt", "for_stmt", "while_stmt", "with_stmt", "try_stmt", "funcdef", "classdef"}


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        lines: Of the statement it changes, first and last.
        at_import: It changes what happens when the module is imported.
        source: The module with the change.
    """

    room: str
    path: Path
    line: int
    lines: tuple[int, int]
    at_import: bool
    operator: str
    source: str

    @property
    def module(self) -> str:
        return ".".join(self.path.with_suffix("").parts)

    @property
    def diff(self) -> str:
        """The changed lines, before and after."""
        before = self.path.read_text().splitlines()
        changes = unified_diff(before, self.source.splitlines(), n=0, lineterm="")
        return "\n".join(line for line in changes if line[:2] not in ("--", "++", "@@"))


class DropCall(Operator):
    """A statement that is nothing but a call is left out."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        if self._is_call(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        call = node.children[0]
        prefix = call.get_first_leaf().prefix
        node.children[0] = parso.python.tree.Name("pass", call.start_pos, prefix)
        return node

    @staticmethod
    def _is_call(node: Any) -> bool:
        if node.type != "simple_stmt" or node.children[0].type != "atom_expr":
            return False
        last = node.children[0].children[-1]
        return bool(last.type == "trailer" and last.children[0].value == "(")

    @classmethod
    def examples(cls) -> Sequence[Any]:
        return ()


class DropKeyword(Operator):
    """A call loses one of its keyword arguments, so that the default counts."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        for child in self._keywords(node):
            yield child.start_pos, child.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        at = node.children.index(list(self._keywords(node))[index])
        comma = at + 1 if at + 1 < len(node.children) else at - 1
        for place in sorted((at, comma), reverse=True):
            del node.children[place]
        return node

    @staticmethod
    def _keywords(node: Any) -> Iterator[Any]:
        if node.type == "arglist":
            yield from (
                c
                for c in node.children
                if c.type == "argument" and c.children[1].get_code().strip() == "="
            )

    @classmethod
    def examples(cls) -> Sequence[Any]:
        return ()


OWN: dict[str, type[Operator]] = {"DropCall": DropCall, "DropKeyword": DropKeyword}


@dataclass(frozen=True)
class Place:
    """Where a mutant can be made: the n-th place at which an operator finds something to change."""

    room: str
    path: Path
    operator: str
    occurrence: int

    def mutant(self) -> Mutant | None:
        """None where the change is none."""
        text, operator = self.path.read_text(), _operator(self.operator)
        tree, left = parso.parse(text), self.occurrence
        for node in ast_nodes(tree):
            positions = list(operator.mutation_positions(node))
            if left < len(positions):
                break
            left -= len(positions)
        start = positions[left][0]
        statement, inside = _statement(node)
        changed = operator.mutate(node, left)
        if changed is not node:
            siblings = node.parent.children
            siblings[siblings.index(node)] = changed
        source = tree.get_code()
        if source == text:
            return None
        first = statement.start_pos[0]
        last = start[0] if statement.type in COMPOUND else statement.end_pos[0]
        lines = first, max(first, last)
        return Mutant(self.room, self.path, start[0], lines, not inside, self.operator, source)


def places(room: str, paths: Sequence[str], core: Sequence[str]) -> Iterator[Place]:
    """Every place in a room's modules that is ever run."""
    for path in sorted(_modules(paths)):
        nodes = list(ast_nodes(parso.parse(path.read_text())))
        for name in (*core, *OWN):
            operator, occurrence = _operator(name), 0
            for node in nodes:
                for _ in operator.mutation_positions(node):
                    if not _never_runs(node):
                        yield Place(room, path, name, occurrence)
                    occurrence += 1


def sample(every: Sequence[Place], count: int, seed: int) -> list[Place]:
    """Chosen by chance, in the order of the source; the same for the same source and seed."""
    if count >= len(every):
        return list(every)
    chosen = set(random.Random(seed).sample(range(len(every)), count))
    return [place for i, place in enumerate(every) if i in chosen]


def _operator(name: str) -> Operator:
    made: Operator = OWN[name]() if name in OWN else get_operator(f"core/{name}")()
    return made


def _modules(paths: Sequence[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        yield from path.rglob("*.py") if path.is_dir() else (path,)


def _statement(node: Any) -> tuple[Any, bool]:
    """The statement around a node, and whether it lies in a function's body."""
    found, inside, child = None, False, node
    while child is not None:
        if found is None and (child.type == "simple_stmt" or child.type in COMPOUND):
            found = child
        if found is None and child.parent is not None and child.parent.type == "file_input":
            found = child  # a decorator of a class
        if child.parent is not None and child.parent.type in ("funcdef", "lambdef"):
            inside = inside or child is child.parent.children[-1]
        child = child.parent
    assert found is not None
    return found, inside


def _never_runs(node: Any) -> bool:
    """Whether no test is to notice it.

    Annotations are never evaluated (`from __future__ import annotations` is everywhere), the
    methods of a Protocol never called, and that nobody assigns to a frozen dataclass, or leaves
    the keyword away, is held by mypy.
    """
    child = node
    while (parent := child.parent) is not None:
        if child.type == "decorator" or parent.type == "tfpdef":
            return True
        if node.type == "operator" and parent.type == "parameters" and child is node:
            return True  # which arguments go by keyword
        if parent.type == "annassign" and child is parent.children[1]:
            return True
        if parent.type == "funcdef" and (parent.annotation is child or _is_stub(parent)):
            return True
        child = parent
    return False


def _is_stub(function: Any) -> bool:
    """A Protocol's method, whose body is nothing but dots."""
    return bool(function.children[-1].get_code().strip() == "...")
