from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from builders.virtual_time import run_in_virtual_time

from tuner.errors import ClientLimitError, LoadFailedError
from tuner.load.client import process as client_process
from tuner.load.client.calls import Done
from tuner.load.client.figures import StreamSlice, check_sent, observe, part_figures
from tuner.load.client.generator import processes_for, split_over
from tuner.load.client.job import GONE, Answers, ClientJob, Outcome, SentRequests, merge
from tuner.load.client.process import Loop, Send
from tuner.load.latency import AnsweredRequests, observe_open
from tuner.load.traffic.arrivals import poisson
from tuner.load.traffic.kind import CallerJob
from tuner.measurement.measurement import Arrivals, Figures, LoadPoint
from tuner.measurement.window import Window
from tuner.spec.workload import Protocol

BEGIN_NS = 1_795_000_000_000_000_000
WINDOW = Window(duration_s=2.0, warmup_s=0.5, deadline_s=60.0, tail_s=0.5)
LOAD = LoadPoint(Arrivals.POISSON, 100.0)
DUE = poisson(100.0, (0.5, 2.0, 0.5), seed=1)


def answers(
    outcomes: npt.NDArray[np.int8], *, delay_s: float = 0.0, latency_s: float = 0.010, **more: Any
) -> Answers:
    """Everything sent ``delay_s`` after it was due and answered ``latency_s`` later."""
    sent = BEGIN_NS + np.round((DUE + delay_s) * 1e9).astype(np.int64)
    answered = sent + round(latency_s * 1e9)
    return Answers(
        numbers=np.arange(DUE.size),
        sent_ns=np.where(outcomes > Outcome.UNSENT, sent, 0),
        answered_ns=np.where(outcomes > Outcome.UNANSWERED, answered, 0),
        outcomes=outcomes,
        end_ns=BEGIN_NS + 3_000_000_000,
        **{"busy": 0.1, "cpu_s": 0.2, "failure": "", "lost": "", **more},
    )


def outcomes(of: dict[Outcome, npt.NDArray[np.bool_]]) -> npt.NDArray[np.int8]:
    given = np.full(DUE.size, Outcome.ANSWERED, dtype=np.int8)
    for outcome, where in of.items():
        given[where] = outcome
    return given


def measured(run_answers: Answers) -> Figures:
    part = StreamSlice(run_answers, DUE)
    return part_figures(observe(part, WINDOW), part, LOAD, 1, WINDOW.bounds, 1)


EVERY_FIFTH = np.arange(DUE.size) % 5 == 0


class TestFigures:
    def test_without_refusals_it_is_what_perf_analyzers_export_gives(self) -> None:
        run_answers = answers(outcomes({}))
        exported = AnsweredRequests(
            run_answers.sent_ns, run_answers.answered_ns, run_answers.end_ns
        )
        expected = observe_open(exported, DUE, WINDOW)
        observed = observe(StreamSlice(run_answers, DUE), WINDOW)
        assert observed.latencies_us == pytest.approx(expected.latencies_us)
        assert observed.answered_count == expected.answered_count
        assert observed.sent_per_s == expected.sent_per_s
        assert observed.mean_in_flight == pytest.approx(expected.mean_in_flight)

    def test_rejected_requests_are_errors_and_have_no_latency(self) -> None:
        figures = measured(answers(outcomes({Outcome.QUEUE_FULL: EVERY_FIFTH})))
        assert figures.rejected_count == figures.failed_count == pytest.approx(40, abs=1)
        assert figures.error_rate == pytest.approx(0.2, abs=0.01)
        assert figures.throughput_infer_per_s == pytest.approx(80.0, abs=1.5)
        assert figures.latencies_us is not None
        assert figures.latencies_us.size == pytest.approx(160, abs=1)
        assert figures.p99_latency_us == pytest.approx(10_000.0, abs=1.0)
        assert figures.sent_per_s == pytest.approx(100.0, abs=1.0)

    def test_failed_requests_are_distinguished_from_rejected_ones(self) -> None:
        few = np.arange(DUE.size) % 20 == 1
        figures = measured(
            answers(outcomes({Outcome.QUEUE_FULL: EVERY_FIFTH, Outcome.FAILED: few}))
        )
        assert figures.failed_count - figures.rejected_count == pytest.approx(10, abs=1)

    def test_failed_requests_are_reported_by_reason_and_delay(self) -> None:
        every_20th = np.arange(DUE.size) % 20
        full, broken = every_20th == 1, every_20th == 2
        kinds = {Outcome.TIMED_OUT: EVERY_FIFTH, Outcome.QUEUE_FULL: full, Outcome.FAILED: broken}
        given = answers(outcomes(kinds))
        late_ns = np.where(EVERY_FIFTH, 40_000_000, 0)
        failures = measured(replace(given, answered_ns=given.answered_ns + late_ns)).failures
        counts = {reason.name: failure.count for reason, failure in failures.items()}
        assert counts == {
            "TIMED_OUT": pytest.approx(40, abs=4),
            "QUEUE_FULL": pytest.approx(10, abs=1),
            "OTHER": pytest.approx(10, abs=1),
        }
        delays_us = {reason.name: failure.p50_told_us for reason, failure in failures.items()}
        assert delays_us == pytest.approx(
            {"TIMED_OUT": 50_000, "QUEUE_FULL": 10_000, "OTHER": 10_000}, rel=0.01
        )

    def test_every_request_of_the_window_is_accounted_for(self) -> None:
        figures = measured(
            answers(
                outcomes({Outcome.QUEUE_FULL: EVERY_FIFTH, Outcome.UNANSWERED: DUE > 2.0}),
                latency_s=0.0,
            )
        )
        total = figures.completed_count + figures.failed_count + figures.unanswered_count
        assert total == 200
        assert figures.p99_latency_us > 500_000.0  # unanswered ones are the slowest
        assert figures.sent_per_s == 100.0

    def test_requests_never_sent_show_that_the_client_is_behind(self) -> None:
        figures = measured(answers(outcomes({Outcome.UNSENT: DUE > 1.5})))
        assert figures.sent_per_s == pytest.approx(50.0, abs=8.0)
        inside = DUE[(DUE >= 0.5) & (DUE < 2.5)]
        assert figures.late_sends == pytest.approx((inside > 1.5).mean())

    def test_latency_counts_from_the_due_time_when_the_client_stalls(self) -> None:
        given = answers(outcomes({}))
        stalled = (DUE > 1.0) & (DUE < 1.2)
        delay_ns = np.where(stalled, np.round((1.2 - DUE) * 1e9), 0).astype(np.int64)
        late = Answers(
            **{
                **vars(given),
                "sent_ns": given.sent_ns + delay_ns,
                "answered_ns": given.answered_ns + delay_ns,
            }
        )
        figures = measured(late)
        assert figures.latencies_us is not None
        assert figures.latencies_us[-1] == pytest.approx(210_000.0, rel=0.1)
        assert figures.late_sends == pytest.approx(stalled.sum() / 200, abs=0.006)

    def test_nothing_answered_is_no_result_and_the_server_says_why(self) -> None:
        nothing = answers(outcomes({Outcome.FAILED: DUE >= 0.0}), failure="negative input")
        with pytest.raises(LoadFailedError, match="negative input"):
            observe(StreamSlice(nothing, DUE), WINDOW)

    def test_a_client_so_far_behind_that_nothing_was_answered_is_the_limit(self) -> None:
        behind = answers(outcomes({Outcome.UNANSWERED: DUE >= 0.0, Outcome.UNSENT: DUE > 1.5}))
        with pytest.raises(ClientLimitError, match="100/s"):
            check_sent(behind, LOAD)
        check_sent(answers(outcomes({Outcome.UNANSWERED: DUE >= 0.0})), LOAD)  # the server's
        check_sent(answers(outcomes({Outcome.UNSENT: DUE > 1.5})), LOAD)  # the figures tell


Reply = tuple[Outcome, str]
Play = Callable[[Coroutine[Any, Any, Answers]], Answers]
FINE: Reply = (Outcome.ANSWERED, "")
FULL: Reply = (Outcome.QUEUE_FULL, "[request id: <id_unknown>] Exceeds maximum queue size")
BROKEN: Reply = (Outcome.FAILED, "negative input")
CUT: Reply = (Outcome.LOST, "Socket closed")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a loop of the client in no time, however busy the machine is."""
    return partial(run_in_virtual_time, monkeypatch, client_process)


def replying(replies: Iterator[Reply | None], seen: list[bytes]) -> Send:
    """Replies to requests in turn, after 1 ms; None never."""

    def send(request: bytes, done: Done) -> None:
        seen.append(request)
        if (reply := next(replies)) is not None:
            asyncio.get_running_loop().call_later(0.001, done, *reply)

    return send


def sent(
    play: Play, replies: list[Reply | None], total_s: float = 0.15
) -> tuple[Answers, list[bytes]]:
    """What became of requests 10 ms apart."""
    seen: list[bytes] = []

    async def run() -> Answers:
        due = np.arange(len(replies)) * 0.010
        return await Loop(replying(iter(replies), seen), [b"a", b"b"], total_s, due_s=due).run()

    return play(run()), seen


class TestOpenLoop:
    def test_requests_go_round_in_order_and_once_each(self, play: Play) -> None:
        run_answers, seen = sent(play, [FINE] * 5)
        assert seen == [b"a", b"b", b"a", b"b", b"a"]
        assert run_answers.outcomes.tolist() == [Outcome.ANSWERED] * 5
        assert (np.diff(run_answers.sent_ns) > 0).all()
        assert (run_answers.answered_ns - run_answers.sent_ns >= 1_000_000).all()
        assert run_answers.end_ns > run_answers.answered_ns.max()

    def test_outcome_of_each_run_is_printed_meanwhile(self, play: Play) -> None:
        settled_ns = np.zeros(8, np.int64)

        async def run() -> Answers:
            send = replying(iter([FINE, FULL, None, FINE]), [])
            share = {
                "due_s": np.arange(4) * 0.010,
                "settled_ns": settled_ns[1::2],
                "first": 1,
                "step": 2,
            }
            return await Loop(send, [b"a"], 0.1, **share).run()

        run_answers = play(run())
        assert settled_ns[::2].tolist() == [0, 0, 0, 0]
        assert settled_ns[[3, 5]].tolist() == [GONE, 0]
        assert (np.diff(settled_ns[[1, 7]]) == np.diff(run_answers.answered_ns[[0, 3]])).all()

    def test_refusals_are_distinguished_and_never_sent_again(self, play: Play) -> None:
        run_answers, seen = sent(play, [FINE, FULL, BROKEN, FINE])
        assert run_answers.outcomes.tolist() == [
            Outcome.ANSWERED,
            Outcome.QUEUE_FULL,
            Outcome.FAILED,
            Outcome.ANSWERED,
        ]
        assert len(seen) == 4
        assert run_answers.failure == "negative input"
        assert run_answers.lost == ""

    def test_a_lost_connection_ends_the_run_at_once(self, play: Play) -> None:
        run_answers, seen = sent(play, [FINE, CUT, *[FINE] * 20], total_s=30.0)
        assert run_answers.lost == "Socket closed"
        assert len(seen) < 10

    def test_a_run_that_is_stopped_tells_what_it_has(self, play: Play) -> None:
        seen: list[bytes] = []

        async def run() -> Answers:
            send = replying(repeat(FINE), seen)

            def stopping(request: bytes, done: Done) -> None:
                send(request, done)
                if len(seen) == 5:
                    load.stop()

            load = Loop(stopping, [b"a"], 30.0, due_s=np.arange(1000) * 0.010)
            return await load.run()

        run_answers = play(run())
        answered = run_answers.outcomes == Outcome.ANSWERED
        assert answered.sum() == 4  # the fifth stopped it
        assert (run_answers.outcomes[~answered] <= Outcome.UNANSWERED).all()
        assert run_answers.end_ns - run_answers.sent_ns[0] < 50_000_000

    def test_at_the_end_what_is_in_flight_is_unanswered_the_rest_unsent(self, play: Play) -> None:
        async def run() -> Answers:
            send = replying(repeat(None), [])
            return await Loop(send, [b"a"], 0.1, due_s=np.array([0.0, 0.01, 60.0])).run()

        run_answers = play(run())
        assert run_answers.outcomes.tolist() == [
            Outcome.UNANSWERED,
            Outcome.UNANSWERED,
            Outcome.UNSENT,
        ]
        assert run_answers.answered_ns.tolist() == [0, 0, 0]

    def test_a_defect_of_the_client_is_not_taken_for_silence(self, play: Play) -> None:
        def broken(request: bytes, done: Done) -> None:
            raise ZeroDivisionError

        async def run() -> Answers:
            return await Loop(broken, [b"a"], 30.0, due_s=np.array([0.0])).run()

        with pytest.raises(ZeroDivisionError):
            play(run())

    def test_processes_that_share_a_run_take_turns_with_the_inputs(self, play: Play) -> None:
        requests = [bytes([i]) for i in range(5)]
        due, parts, seen = np.arange(7) * 0.001, [], []

        async def run(first: int, sent_here: list[bytes]) -> Answers:
            send = replying(repeat(FINE), sent_here)
            return await Loop(send, requests, 0.1, due_s=due[first::2], first=first, step=2).run()

        for first in range(2):
            sent_here: list[bytes] = []
            parts.append(play(run(first, sent_here)))
            seen.append(sent_here)
        assert [b[0] for b in seen[0]] == [0, 2, 4, 1]
        assert [b[0] for b in seen[1]] == [1, 3, 0]
        merged = merge(parts, open_loop=True)
        assert merged.sent_ns[::2].tolist() == parts[0].sent_ns.tolist()
        assert merged.sent_ns[1::2].tolist() == parts[1].sent_ns.tolist()
        assert merged.end_ns == parts[0].end_ns
        assert merged.cpu_s == sum(part.cpu_s for part in parts)


class TestClosedLoop:
    def test_so_many_are_outstanding_and_each_answer_brings_another(self, play: Play) -> None:
        outstanding, most = 0, 0

        async def run() -> Answers:
            def send(request: bytes, done: Done) -> None:
                nonlocal outstanding, most
                outstanding += 1
                most = max(most, outstanding)
                asyncio.get_running_loop().call_later(0.005, answer, done)

            def answer(done: Done) -> None:
                nonlocal outstanding
                outstanding -= 1
                done(*FINE)

            return await Loop(send, [b"a", b"b"], 0.2, clients=3).run()

        run_answers = play(run())
        assert most == 3
        assert run_answers.outcomes.size == 3 * 39 + 3  # in 200 ms, 5 ms and a little each
        assert (run_answers.outcomes == Outcome.UNANSWERED).sum() == 3
        observed = observe(StreamSlice(run_answers, None), Window(0.1, 0.05, 10.0))
        assert observed.mean_in_flight == pytest.approx(3.0, abs=0.3)
        assert observed.latencies_us[0] >= 5000.0

    def test_a_refusal_brings_another_as_well(self, play: Play) -> None:
        seen: list[bytes] = []

        async def run() -> Answers:
            send = replying(chain([FULL, BROKEN], repeat(FINE)), seen)
            return await Loop(send, [b"a"], 0.1, clients=1).run()

        run_answers = play(run())
        assert run_answers.outcomes[:3].tolist() == [
            Outcome.QUEUE_FULL,
            Outcome.FAILED,
            Outcome.ANSWERED,
        ]

    def test_the_clients_are_shared_by_the_processes(self) -> None:
        assert processes_for(LoadPoint(Arrivals.CLOSED, 8), 0.0) == 1
        assert processes_for(LoadPoint(Arrivals.CLOSED, 65), 0.0) == 2
        files = (Path("a"), Path("r"), Path("b"), Path("s"))
        job = ClientJob("h:1", 1.0, *files, clients=7)
        parts = split_over(job, 3)
        assert [part.clients for part in parts] == [3, 2, 2]
        assert [(part.first, part.step) for part in parts] == [(0, 3), (1, 3), (2, 3)]
        assert len({part.answers for part in parts} | {part.ready for part in parts}) == 6
        assert {part.begin for part in parts} == {job.begin}


@pytest.mark.parametrize(("cores", "count"), [(0.01, 1), (0.69, 1), (0.71, 2), (7.0, 10)])
def test_a_rate_is_shared_by_processes_that_are_busy_for_at_most_seven_tenths(
    cores: float, count: int
) -> None:
    assert processes_for(LoadPoint(Arrivals.POISSON, 1000.0), cores) == count


@pytest.mark.parametrize("due_s", [None, np.array([0.0, 0.5])])
def test_all_processes_of_a_run_read_the_same_requests(
    tmp_path: Path, due_s: npt.NDArray[np.float64] | None
) -> None:
    built = [[b"one", b"", b"one"], [], [b"three"]]
    sent = SentRequests(built, np.array([0, 2]), due_s)
    with (tmp_path / "sent").open("wb") as file:
        sent.write(file)
    for _ in range(2):
        again = SentRequests.read(tmp_path / "sent")
        assert again.built == built
        assert again.order.tolist() == [0, 2]
        assert (again.due_s is None) if due_s is None else (again.due_s == due_s).all()
        assert again.sequences is None


def test_jobs_and_answers_survive_their_files(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("answers", "ready", "begin", "settled_ns")}
    caller_job = CallerJob("toy:caller", {"ids": [None, "texts"]}, one_process=True)
    job = ClientJob("127.0.0.1:1", caller=caller_job, total_s=3.0, protocol=Protocol.HTTP, **files)
    assert ClientJob.from_json(json.loads(json.dumps(job.to_json()))) == job
    run_answers = answers(outcomes({Outcome.QUEUE_FULL: EVERY_FIFTH}), failure="no", lost="gone")
    run_answers.write(tmp_path / "answers.npz")
    back = Answers.read(tmp_path / "answers.npz")
    assert (back.sent_ns == run_answers.sent_ns).all()
    assert (back.outcomes == run_answers.outcomes).all()
    assert (back.end_ns, back.busy) == (run_answers.end_ns, run_answers.busy)
    assert (back.failure, back.lost) == ("no", "gone")
