"""Each reader of a verdict handles its three states: met, missed, too few answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders.measurements import P99_40MS, synthetic_measurement

import tuner
from tuner.meter.again import missed_by_gaps
from tuner.score.capacity import is_near
from tuner.score.judge import SloOutcome, Verdict
from tuner.score.point import Point, judge_point

ROOT = Path(tuner.__file__).parent
#: What tells whether SLOs were met, and not which of the other two states it is.
MET = {"Verdict.PASS", "SloOutcome.MET"}
#: Functions for which missed and too few answers are one thing, and why they may be.
ALIKE = {
    ("proof/soak.py", "soak"): "a window counts where it passed or tells where the bound is",
    ("report/run_document.py", "_points"): "shows each verdict in its own words",
    ("report/ended.py", "_unmet"): "shows each verdict in its own words",
    ("report/trust.py", "_rounds"): "shows each verdict in its own words",
    ("score/next_load.py", "_between"): "a step beside the guess, whose side hardly matters",
}


def two_ways(tree: ast.AST) -> Iterator[str]:
    """Functions that take what was not met for one thing."""
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        if any(map(splits_in_two, ast.walk(function))):
            yield function.name


def splits_in_two(node: ast.AST) -> bool:
    match node:
        case (
            ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(attr="passed"))
            | ast.IfExp(test=ast.Attribute(attr="passed"))
            | ast.Compare(left=ast.Attribute(attr="passed"))
            | ast.BoolOp(op=ast.Or(), values=[ast.Attribute(attr="passed"), *_])
        ):
            return True
        case ast.If(test=ast.Attribute(attr="passed")):
            return bool(node.orelse) or isinstance(node.body[-1], ast.Return)
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Attribute() as member]):
            return ast.unparse(member) in MET
    return False


def test_no_function_takes_too_few_answers_for_a_miss() -> None:
    names = {str(path.relative_to(ROOT)): path for path in ROOT.rglob("*.py")}
    joined = {(n, f) for n, path in names.items() for f in two_ways(ast.parse(path.read_text()))}
    assert joined == ALIKE.keys()


@pytest.mark.parametrize(
    "code",
    [
        "sum(not p.passed for p in points)",
        "'' if point.passed else 'red'",
        "point.passed != (share <= 1.0)",
        "point.passed or disturbed",
        "[r for r in results if r.verdict is not Verdict.PASS]",
        "point.outcome is not SloOutcome.MET",
    ],
)
def test_each_way_of_joining_two_states_is_seen(code: str) -> None:
    assert [*two_ways(ast.parse(f"def f():\n    return {code}"))]


def open_point(p99_us: float) -> Point:
    """Too few answers for a verdict, with this p99."""
    point = judge_point([P99_40MS], synthetic_measurement(100.0, p99_us))
    slo = tuple(replace(r, verdict=Verdict.NOT_ENOUGH_DATA) for r in point.slo)
    undecided = replace(point, slo=slo)
    assert undecided.outcome is SloOutcome.TOO_FEW
    return undecided


def test_too_few_answers_above_the_bound_do_not_tell_where_it_is() -> None:
    assert is_near(judge_point([P99_40MS], synthetic_measurement(100.0, 44_000.0)))
    assert not is_near(open_point(44_000.0))


def test_too_few_answers_beside_a_gap_are_not_measured_again_as_a_miss() -> None:
    point = open_point(30_000.0)
    latencies = point.measurement.latencies_us
    gap = replace(point, measurement=replace(point.measurement, outside_gaps_us=latencies))
    assert not missed_by_gaps([P99_40MS], gap)
