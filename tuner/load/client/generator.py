"""tune's own load generator, for loads that perf_analyzer cannot measure: `tuner.load.generators`.

It sends each request once, without retries, as bytes built beforehand. It does not parse answers,
and counts answered, rejected and failed requests. Everything else is as with perf_analyzer: the
same arrivals for the same seed, the same inputs, latency from the moment a request was due (closed
loop: sent). Rejected requests have no latency; they count in `Measurement.error_rate`.

benchmarks/claims/README.md compares its cost with perf_analyzer's. `tuner.load.validity` reports
loads that it cannot send.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, ServerGoneError, TunerError
from tuner.load import seeds
from tuner.load.client.cost import request_cost_s
from tuner.load.client.figures import Run, by_stream, check_sent
from tuner.load.client.job import (
    GONE,
    HEADERS,
    Answers,
    ClientJob,
    Outcome,
    SentRequests,
    merge,
)
from tuner.load.client.process import LEAD_NS
from tuner.load.perf_analyzer.outputs import bare_words
from tuner.load.setup import TOO_LATE, Schedule, Setup, schedule
from tuner.load.traffic.arrivals import Times
from tuner.load.traffic.encoding import build
from tuner.load.traffic.wire import Lay
from tuner.load.validity import (
    BUSY,
    client_busy,
    client_cost,
    client_kept_up,
    ended_early,
    warnings_about,
)
from tuner.load.watch.early_end import (
    SloLost,
    TooManyLate,
    check_answered,
    check_decided,
    no_early_end,
    truncate,
)
from tuner.machine.cpus import core_count
from tuner.machine.process import child, tail
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import EarlyEnd, Window
from tuner.reason import Fact, Reason, ReasonKind
from tuner.sentences import failed
from tuner.server import health

_POLL_S = 0.01
_READY_S = 60.0  # for the processes to start and to build their requests
#: Clients per process in a closed loop, whose rate is unknown.
_PROCESS_CLIENTS = 64
#: Number of a stream's requests that show their mean size.
_FIRST = 20


class OpenClient(Setup):
    """Measures streams of one server on one clock; see `tuner.load.generators`."""

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        begin = time.monotonic()
        plan = schedule(self.streams, load, window, seed, self.shape, self.traffic)
        count = min(processes_for(load, self._cores_for(load)), core_count(self.site.program.cpus))
        with (
            tempfile.TemporaryDirectory(prefix="load-", dir=self.site.directory) as private,
            ExitStack() as stack,
            self.watched(window) as watched,
        ):
            laid = [stack.enter_context(k.laid(self.site.endpoints)) for k in self.traffic]
            lay = next(filter(None, laid), None)
            sent, warnings = self._sent(plan, seed, lay)
            job = self._job(plan, load, window, Path(private))
            slo_lost = no_early_end if plan.due_s is None else self._until_lost(plan, window, job)
            alone = job.caller is not None and job.caller.one_process
            jobs = split_over(job, 1 if alone else count)
            answers, command, stopped_ns = self._execute(jobs, sent, window, slo_lost)
        spells_ns = watched.spells(window, stopped_ns)
        unanswered = (answers.outcomes == Outcome.UNANSWERED).any()
        at_rest = not unanswered or self.at_rest()
        run, planned = Run(self.streams, answers, plan, load, seed, self.traffic), window
        if stopped_ns is not None:
            window = truncate(window, run.begun_ns, stopped_ns)
        check_sent(answers, load)
        observed, result = run.measured(window, spells_ns)
        of_each = {"": result, **result.streams}.items()
        latencies = {n: m.latencies_us for n, m in of_each if m.latencies_us is not None}
        check_decided(latencies, self._due(plan), window, planned)
        result = replace(
            self.with_readings(result, observed, watched),
            backlog=not at_rest,
            wall_s=time.monotonic() - begin,
            command=command,
        )
        for kind in self.traffic:
            result = kind.totals(self, load, result)
        if client_kept_up(result):  # else the client is at fault, and is reported
            check_answered(observed.answered_count, window, planned)
        warnings += ended_early(window, planned)
        if failed := int((answers.outcomes == Outcome.FAILED).sum()):
            tried = int((answers.outcomes > Outcome.UNSENT).sum())
            facts: dict[str, Fact] = {
                "failed_count": failed,
                "request_count": tried,
                "in_sequences": any(stream.takes_sequences for stream in self.streams),
                "words": bare_words(answers.failure),
            }
            warnings.append(Reason(ReasonKind.SOME_FAILED, facts=facts))
        for kind in self.traffic:
            warnings += kind.warnings(answers)
        warnings += client_busy(answers.busy)
        busy_cores = answers.cpu_s / ((answers.end_ns - run.begun_ns) / 1e9)
        warnings += self._cost(answers, busy_cores, window)
        result = replace(result, client_cores=busy_cores)
        return replace(result, warnings=(*warnings, *warnings_about(result, window.bounds)))

    def _cost(self, answers: Answers, busy_cores: float, window: Window) -> Iterator[Reason]:
        sent = int((answers.outcomes > Outcome.UNSENT).sum())
        cores = core_count(self.site.program.cpus)
        return client_cost(answers.cpu_s / sent, busy_cores / cores, cores, window.bounds)

    def _sent(
        self, plan: Schedule, seed: int, lay: Lay | None
    ) -> tuple[SentRequests, list[Reason]]:
        """The requests of a run, and warnings about inputs that do not match the spec."""
        firsts = np.cumsum([0, *(len(stream.shapes) for stream in self.streams)])
        order = firsts[plan.order] + plan.shape_of_each()
        counts = iter(np.bincount(order, minlength=int(firsts[-1])).tolist())
        built, warnings = list[list[bytes]](), list[Reason]()
        headers = self.site.endpoints.headers.items()
        for stream in self.streams:
            of_stream = seeds.of_stream(seed, stream.name, self.streams)
            target = stream.target
            head = [f"Host: {target.address}", *(f"{name}: {value}" for name, value in headers)]
            for shape in stream.shapes:
                lines = None if plan.lines is None else plan.lines[order == len(built)]
                count = next(counts)
                shape_seed = seeds.of_stream(of_stream, shape.name, stream.shapes)
                given = shape.inputs.of_run(shape_seed, count * stream.requests.batch_size, lines)
                form = stream.form, count, target.protocol
                built.append(build(given.inferences, *form, head, lay))
                warnings += given.warnings
        return SentRequests(built, order, plan.due_s, plan.sequences), warnings

    def _job(self, plan: Schedule, load: LoadPoint, window: Window, private: Path) -> ClientJob:
        """The job of the run, before it is split over processes."""
        target = self.streams[0].target
        tls = self.site.endpoints.tls_of(target.protocol.service)
        callers = [kind.caller(self.streams, window) for kind in self.traffic]
        job = ClientJob(
            target.address,
            window.total_s,
            private / "answers.npz",
            private / "ready",
            private / "begin",
            private / "settled_ns.npy",
            target.protocol,
            clients=0 if load.arrivals.open_loop else round(load.level),
            tls=None if tls is None else tls.model_dump(),
            caller=next(filter(None, callers), None),
        )
        if plan.due_s is not None:
            np.save(job.settled_ns, np.zeros(plan.due_s.size, np.int64))
        return job

    def _due(self, plan: Schedule) -> dict[str, Times]:
        """When requests are due, by stream as in `by_stream`; empty for a closed loop."""
        which = by_stream(self.streams, plan.order)
        return {} if plan.due_s is None else {n: plan.due_s[mask] for n, mask in which.items()}

    def _until_lost(self, plan: Schedule, window: Window, job: ClientJob) -> Callable[[], bool]:
        """A check whether a stream has certainly missed an SLO; models count separately."""
        if window.ends_early is EarlyEnd.LATE:
            which = by_stream(self.streams, plan.order)
            return TooManyLate(self._due(plan), window, partial(progress, job, which))
        if job.caller is not None and job.caller.by_answer:
            return no_early_end
        due: defaultdict[str, dict[str, Times]] = defaultdict(dict)
        for number, stream in enumerate(self.streams):
            due[stream.requests.model][stream.name] = plan.of(number)
        watches = [
            SloLost(due_s, window, partial(self._settled_count, model))
            for model, due_s in due.items()
        ]
        return lambda: any(watch() for watch in watches)

    def _execute(
        self,
        jobs: Sequence[ClientJob],
        sent: SentRequests,
        window: Window,
        slo_lost: Callable[[], bool],
    ) -> tuple[Answers, tuple[str, ...], int | None]:
        """Outcomes of the requests, a command line, and the time of an early stop."""
        program, endpoints = self.site.program, self.site.endpoints
        private = jobs[0].answers.parent
        environment = {**program.environment, HEADERS: json.dumps(dict(endpoints.headers))}
        logs = [private / f"log-{part.first}" for part in jobs]
        commands = []
        with ExitStack() as stack:
            memory = stack.enter_context(os.fdopen(os.memfd_create("tune-requests"), "wb"))
            sent.write(memory)
            processes = []
            for part, log in zip(jobs, logs, strict=True):
                file = private / f"job-{part.first}"
                file.write_text(json.dumps(part.to_json()))
                command = (sys.executable, "-P", "-m", "tuner.load.client.process", str(file))
                output = stack.enter_context(log.open("wb"))
                commands.append(command)
                processes.append(
                    stack.enter_context(
                        child(
                            command,
                            env=environment,
                            stdout=output,
                            stdin=memory,
                            cpus=program.cpus,
                            priority=program.priority,
                        )
                    )
                )
            _begin(jobs, processes)
            reason, stopped_ns = _wait(processes, window.deadline_s, slo_lost)
        if not all(part.answers.exists() for part in jobs):
            said = next((words for log in logs if (words := tail(log, 1))), "")
            codes = f"exit code {next((p.returncode for p in processes if p.returncode), 0)}"
            raise self._failure(reason or said or codes)
        parts = [Answers.read(part.answers) for part in jobs]
        answers = merge(parts, open_loop=sent.due_s is not None)
        if answers.lost:
            raise self._failure(answers.lost)
        if (answers.outcomes == Outcome.FAILED).any() and not health.live(endpoints):
            raise self._failure(answers.failure)
        return answers, commands[0], stopped_ns

    def _cores_for(self, load: LoadPoint) -> float:
        """CPU cores that it takes to send the load; 0 for a closed loop.

        Uneven traffic counts by its busiest second.
        """
        if not load.arrivals.open_loop:
            return 0.0
        program = self.site.program
        highest = max((kind.peak(load) for kind in self.traffic), default=1.0)
        return sum(
            highest
            * stream.load(load).level
            * request_cost_s(size, stream.target.protocol, program.cpus, program.environment)
            for stream, size in zip(self.streams, self._mean_bytes, strict=True)
        )

    @cached_property
    def _mean_bytes(self) -> list[int]:
        """Mean size of a request by stream, from the first ones; 0 if the inputs are unknown."""
        if self.site.endpoints.shared is not None:
            return [0 for _ in self.streams]
        return [round(fmean(map(len, stream.questions(_FIRST)))) for stream in self.streams]

    def _failure(self, words: str) -> TunerError:
        facts = {"generator": "tune's own client", "words": words}
        if not health.live(self.site.endpoints):
            return failed(ServerGoneError, Reason(ReasonKind.SERVER_STOPPED_ANSWERING, facts=facts))
        return failed(LoadFailedError, Reason(ReasonKind.GENERATOR_FAILED, facts=facts))

    def _settled_count(self, model: str) -> int:
        """Number of requests answered, or timed out in a queue, so far.

        Only the metrics count requests that timed out; no counter has those that a full queue
        refused.
        """
        metrics, name = self.site.control.metrics(), "nv_inference_request_failure"
        failed = [] if metrics is None else metrics.values(name, model=model)
        statistics = self.site.control.statistics(model)
        return statistics.success_count + max(statistics.fail_count, int(sum(failed)))


def progress(
    job: ClientJob, which: Mapping[str, npt.NDArray[np.bool_]]
) -> tuple[float, Mapping[str, Times]] | None:
    """Progress of a run, from the files of its processes; see `Progress`.

    ``which``: mask of each stream's requests.
    """
    if not job.begin.exists():
        return None
    begin_ns = int(job.begin.read_text())
    at_s = (time.monotonic_ns() - begin_ns) / 1e9
    settled_ns = np.load(job.settled_ns)
    answered_s = np.where(settled_ns == 0, np.inf, (settled_ns - begin_ns) / 1e9)
    answered_s[settled_ns == GONE] = np.nan
    return at_s, {name: answered_s[mask] for name, mask in which.items()}


def processes_for(load: LoadPoint, cores: float) -> int:
    """The number of processes for a load that takes this many ``cores`` to send."""
    needed = cores / BUSY if load.arrivals.open_loop else load.level / _PROCESS_CLIENTS
    return max(math.ceil(needed), 1)


def split_over(job: ClientJob, count: int) -> list[ClientJob]:
    """One job per process, which together carry out the run."""
    clients = [job.clients // count + (k < job.clients % count) for k in range(count)]
    return [
        replace(
            job,
            clients=clients[k],
            first=k,
            step=count,
            answers=job.answers.with_name(f"answers-{k}.npz"),
            ready=job.ready.with_name(f"ready-{k}"),
        )
        for k in range(count)
    ]


def _begin(jobs: Sequence[ClientJob], processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Waits until all processes are ready, then starts them at the same moment."""
    deadline = time.monotonic() + _READY_S
    while not all(job.ready.exists() for job in jobs):
        if time.monotonic() > deadline or any(p.poll() is not None for p in processes):
            return  # `_wait` and the logs report the failure
        time.sleep(_POLL_S / 5)
    begin = jobs[0].begin
    unfinished = begin.with_suffix(".part")
    unfinished.write_text(str(time.monotonic_ns() + LEAD_NS))
    unfinished.replace(begin)


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], deadline_s: float, slo_lost: Callable[[], bool]
) -> tuple[str, int | None]:
    """Why the processes did not end in time (empty if they did), and when they were stopped early.

    If one process fails, this does not wait for the others.
    """
    deadline = time.monotonic() + deadline_s
    stopped_ns = None
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            return "", stopped_ns
        if time.monotonic() > deadline:
            return TOO_LATE, stopped_ns
        if stopped_ns is None and slo_lost():
            stopped_ns = time.time_ns()
            for process in processes:
                process.send_signal(signal.SIGINT)
        time.sleep(_POLL_S)
    return "", stopped_ns
