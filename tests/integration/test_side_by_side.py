"""A session with two workers: what measures is alone, and what fails beside others is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

#: Each notes when it ran; `e2e/test_cache.py` is listed as measuring.
TIMED = """
import time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    began = time.monotonic()
    time.sleep(0.3)
    Path({notes!r}, f"{kind}-{name}-{{number}}").write_text(f"{{began}} {{time.monotonic()}}")
"""
#: Fails beside another worker's test, and passes alone.
DISTURBED = """
import pytest
made = []

@pytest.mark.integration
def test_it():
    made.append(1)
    assert len(made) > 1, "beside another"
"""


def run(pytester: pytest.Pytester, **tests: str) -> pytest.RunResult:
    """The files ``e2e/test_cache.py`` and others, on two workers."""
    pytester.makeini("[pytest]\nmarkers = integration\ntestpaths = tests\n")
    for name, text in tests.items():
        path = pytester.path / "tests" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    options = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider"]
    plugins = ["-p", "turns", "-p", "disturbed", "--import-mode=importlib"]
    pythonpath = str(Path(__file__).parents[1])
    return pytester.runpytest_subprocess(*options, *plugins, "-o", f"pythonpath={pythonpath}")


def test_nothing_runs_beside_a_test_that_measures_and_the_others_run_side_by_side(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    names = {"e2e__test_cache": "alone", "unit__test_a": "a", "unit__test_b": "b"}
    done = run(
        pytester,
        **{
            place: TIMED.format(notes=str(notes), kind=place[:4], name=name)
            for place, name in names.items()
        },
    )
    done.assert_outcomes(passed=12)
    spans = {p.name: tuple(map(float, p.read_text().split())) for p in notes.iterdir()}
    overlapping = [
        {one, other}
        for one, (begin, end) in spans.items()
        for other, (other_begin, other_end) in spans.items()
        if one < other and begin < other_end and other_begin < end
    ]
    assert overlapping
    assert all(name.startswith("unit") for pair in overlapping for name in pair)


def test_what_fails_beside_others_is_repeated_alone_and_told(pytester: pytest.Pytester) -> None:
    done = run(pytester, unit__test_a=DISTURBED, unit__test_b="def test_it(): pass")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["*repeated*", "*test_a.py::test_it: other tests ran beside it"])


def test_what_fails_alone_too_is_a_failure_with_its_own_words(pytester: pytest.Pytester) -> None:
    broken = DISTURBED.replace("> 1", "> 9")
    done = run(pytester, unit__test_a=broken, unit__test_b="def test_it(): pass")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["E*beside another*", "FAILED tests/unit/test_a.py::test_it*"])
