"""Models that fail, and one that is slow to begin, on a real server: what a run says of them."""

from __future__ import annotations

import signal

import pytest
from builders.failing_model import place

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long]


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"initialize": 'raise RuntimeError("weights.bin is not there")'}, "weights.bin"),
        ({"execute": 'assert False, "the tokenizer is missing"'}, "the tokenizer is missing"),
    ],
)
def test_failing_model_ends_the_run_with_the_error_of_the_model(
    workplace, where: dict[str, str], says: str
) -> None:  # type: ignore[no-untyped-def]
    done = workplace.tune("run", str(place(workplace, **where)))
    assert done.returncode == 5, done.stderr
    last = done.stderr[done.stderr.index("error:") :]
    assert says in last
    assert "perf_analyzer" not in last
    assert "SLO" not in last
    assert workplace.result()["status"] == "failed"
    assert len(workplace.trials()) <= 2


def test_slow_first_request_is_awaited_and_reported(workplace) -> None:  # type: ignore[no-untyped-def]
    lazy = "time.sleep(0 if self.begun else 6); self.begun = True"
    run = workplace.start("run", str(place(workplace, execute=lazy)), "--trials", "2")
    workplace.wait_for_trials(2)  # each server of the confirmation would be waited for too
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=90)
    assert "waiting for the first answer of m, up to 120 s" in said
    assert all(t["state"] != "failed" for t in workplace.trials())


def test_a_first_request_that_takes_longer_than_the_load_timeout_fails(workplace) -> None:  # type: ignore[no-untyped-def]
    spec = place(workplace, execute="time.sleep(30)", timeout="5s")
    done = workplace.tune("run", str(spec))
    assert done.returncode == 5, done.stderr
    assert "gave no answer within 5 s (server.load_timeout)" in done.stderr
