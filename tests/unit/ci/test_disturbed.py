"""A failing test that measures is made again on a disturbed machine, and at once a failure else."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import disturbed
import pytest

MARKERS = """
[pytest]
markers = integration
"""
#: Fails ``{failures}`` times; each attempt makes the fixture of the module anew.
TEST = """
import pytest

made = []
ended = []

@pytest.fixture(scope="module")
def server():
    made.append(1)
    yield
    ended.append(1)

@pytest.mark.integration
def test_it(server, tmp_path):
    {does}
    assert len(made) > {failures}, "as often as this"
    assert len(ended) == {failures}

def test_next(server):
    assert len(made) <= {failures} + 1, "the fixture goes on after an attempt that passed"
"""


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how much of the time the machine stands still from now on, in percent."""
    share = [0.0]
    seen = SimpleNamespace(percent=lambda _start, _end: share[0])
    monkeypatch.setattr(disturbed, "watch_stalls", lambda _bound: nullcontext(seen))
    monkeypatch.setattr(disturbed, "_PAUSE_S", 0.0)
    return share


def ran(pytester: pytest.Pytester, failures: int, does: str = "pass") -> pytest.RunResult:
    pytester.makeini(MARKERS)
    pytester.makepyfile(TEST.format(failures=failures, does=does))
    return pytester.runpytest_inprocess("-p", "disturbed", "-p", "no:cacheprovider")


def wrote(name: str, content: object) -> str:
    return f"(tmp_path / {name!r}).write_text({json.dumps(content)!r})"


def test_a_failure_on_a_quiet_machine_counts_at_once(
    pytester: pytest.Pytester, stalled: list[float]
) -> None:
    done = ran(pytester, failures=1)
    done.assert_outcomes(failed=1, passed=1)
    assert "repeated" not in done.stdout.str()


def test_a_failure_while_the_machine_stood_still_is_repeated_with_new_fixtures_and_told(
    pytester: pytest.Pytester, stalled: list[float]
) -> None:
    stalled[0] = 1.5
    done = ran(pytester, failures=2)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(
        ["*repeated, since the machine was disturbed*"]
        + ["*::test_it: the machine stood still for 1.5 % of the time"] * 2
    )


def test_it_is_repeated_twice_at_the_most(pytester: pytest.Pytester, stalled: list[float]) -> None:
    stalled[0] = 1.5
    done = ran(pytester, failures=3)
    assert done.parseoutcomes()["failed"] == 1
    assert done.stdout.str().count("the machine stood still") == 2


def test_what_fails_each_time_beside_long_stalls_is_not_judged_and_told(
    pytester: pytest.Pytester, stalled: list[float]
) -> None:
    stalled[0] = 40.0
    done = ran(pytester, failures=3)
    done.assert_outcomes(skipped=1, passed=1)
    done.stdout.fnmatch_lines(
        ["*not judged*", "*::test_it: the machine stood still for 40.0 % *as often as this*"]
    )


def test_more_failures_than_a_few_count_beside_any_stalls(
    pytester: pytest.Pytester, stalled: list[float]
) -> None:
    stalled[0] = 40.0
    count = disturbed.MOST_UNJUDGED + 2
    pytester.makeini(MARKERS)
    pytester.makepyfile(
        "import pytest\n"
        f"@pytest.mark.integration\n@pytest.mark.parametrize('i', range({count}))\n"
        "def test_it(i): assert False"
    )
    done = pytester.runpytest_inprocess("-p", "disturbed", "-p", "no:cacheprovider")
    done.assert_outcomes(skipped=disturbed.MOST_UNJUDGED, failed=2)


def test_a_while_passes_before_each_repetition_but_not_for_ever(
    pytester: pytest.Pytester, stalled: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(disturbed, "time", SimpleNamespace(sleep=slept.append, time_ns=int))
    monkeypatch.setattr(disturbed, "_PAUSE_S", 20.0)
    monkeypatch.setattr(disturbed, "_PAUSES_S", 30.0)
    stalled[0] = 40.0
    ran(pytester, failures=2).assert_outcomes(passed=2)
    assert slept == [20.0, 10.0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trials.jsonl", {"points": [{"measurement": {"disturbances": ["Other processes took"]}}]}),
        ("rejected.jsonl", {"reason": "the load generator could not keep up with 100/s"}),
        ("check.json", {"disturbances": ["The hypervisor gave 9.5 %"]}),
    ],
)
def test_what_its_own_run_wrote_down_is_a_disturbance(
    pytester: pytest.Pytester, stalled: list[float], name: str, content: object
) -> None:
    ran(pytester, failures=1, does=wrote(name, content)).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trials.jsonl", {"points": [{"measurement": {"disturbances": []}}]}),
        ("rejected.jsonl", {"reason": "the model failed 3 of 4 requests"}),
        ("notes.json", "Other processes took"),
    ],
)
def test_what_else_its_run_wrote_is_none(
    pytester: pytest.Pytester, stalled: list[float], name: str, content: object
) -> None:
    ran(pytester, failures=1, does=wrote(name, content)).assert_outcomes(failed=1, passed=1)


def test_a_load_generator_that_was_behind_is_a_disturbance(
    pytester: pytest.Pytester, stalled: list[float]
) -> None:
    behind = "assert made[1:], 'the load generator could not keep up with 100/s'"
    ran(pytester, failures=1, does=behind).assert_outcomes(passed=2)


def test_a_test_that_does_not_measure_is_never_repeated(
    pytester: pytest.Pytester, stalled: list[float]
) -> None:
    stalled[0] = 1.5
    pytester.makepyfile("def test_it(): assert False")
    done = pytester.runpytest_inprocess("-p", "disturbed", "-p", "no:cacheprovider")
    done.assert_outcomes(failed=1)


def test_a_file_cut_short_by_a_signal_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").write_text('{"disturbances": ["first"]}\n{"disturbances": ["sec')
    assert list(disturbed.recorded(tmp_path)) == ["first"]
