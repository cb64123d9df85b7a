"""What a request costs each load generator: CPU time of the client, on a server that answers.

    python benchmarks/servers/client_ceiling.py --rate 500 --rate 3000 --shape 8 --shape 3,224,224

The result is requests per second of client CPU, not how many a machine sustains: server and client
share its cores. Our own client's time is that of its processes while load is on. perf_analyzer's is
the CPU time of a long run minus that of a short one, divided by the requests that the long one made
more. So writing its export counts, and its start does not.
"""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import click
import numpy as np

from tuner.load.client.calls import calls_over
from tuner.load.client.process import Loop, precise_loop
from tuner.load.setup import LoadTarget, Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.load.traffic.encoding import build
from tuner.load.traffic.wire import Content, RequestForm
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import perf_analyzer, tritonserver
from tuner.server.control import Control
from tuner.server.server import Endpoints
from tuner.spec.workload import Protocol, Workload
from tuner.triton.local import LocalLauncher

LONG_S, SHORT_S = 4.0, 1.0
MODEL = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([self.answer(request)]) for request in requests]

    def answer(self, request):
        x = pb.get_input_tensor_by_name(request, "x").as_numpy()
        return pb.Tensor("y", x.reshape(x.shape[0], -1)[:, :8].copy())
"""
CONFIG = """
name: "answers"
backend: "python"
max_batch_size: 32
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 8 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{ }}
"""


@contextmanager
def serving(shape: str, directory: Path) -> Iterator[tuple[Endpoints, Control]]:
    model = directory / "repository" / "answers"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(CONFIG.format(dims=shape))
    with (
        tritonserver(None, os.environ) as installation,
        LocalLauncher(installation, model.parent).launch([], directory / "log") as server,
        Control(server.endpoints, timeout_s=30.0) as control,
    ):
        control.load("answers", None, 60.0)
        yield server.endpoints, control


def ours(target: LoadTarget, shape: str, rate: float) -> str:
    """One process, with a few different requests."""
    sizes = [int(size) for size in shape.split(",")]
    form = RequestForm("answers", {"x": "FP32"}, batched=True, batch_size=1)
    zeros = Content(tuple(sizes), np.zeros(sizes, "f4").tobytes())
    requests = build([{"x": zeros}], form, 1, target.protocol, [f"Host: {target.address}"])
    due = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, int(rate * LONG_S)))

    async def run() -> str:
        calls = calls_over(target.protocol, target.address, None, {})
        await calls.connect()
        load = Loop(calls.send, requests, float(due[-1]) + 0.5, due_s=due)
        before_s = time.process_time()
        answers = await load.run()
        spent_s = time.process_time() - before_s
        await calls.close()
        answered = int((answers.answered_ns > 0).sum())
        late_ns = np.percentile(answers.sent_ns - answers.sent_ns[0] - due * 1e9 + due[0] * 1e9, 99)
        return cost_text(spent_s / max(answered, 1)) + f", 1% sent {late_ns / 1e6:.1f} ms late"

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(run())


def theirs(target: LoadTarget, rate: float, control: Control, directory: Path) -> str:
    def spent_s(seconds: float) -> tuple[float, str]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        window = Window(seconds, 0.3, 60.0, 0.2)
        measurement = generator.measure(LoadPoint(Arrivals.POISSON, rate), window, 1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times = (after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime)
        return sum(times), f", 1% sent {(measurement.send_lag_p99_us or 0.0) / 1e3:.1f} ms late"

    workload = Workload.model_validate({"protocol": target.protocol.value})
    with perf_analyzer(None, os.environ) as program:
        site, streams = (
            Site(control, target.endpoints, program, directory),
            {"answers": StreamRequests("answers")},
        )
        generator = streams_load(workload, streams, ["answers"], site)
        short_s, _ = spent_s(SHORT_S)
        long_s, late = spent_s(LONG_S)
    return cost_text((long_s - short_s) / (rate * (LONG_S - SHORT_S))) + late


def cost_text(each_s: float) -> str:
    return f"{each_s * 1e6:5.0f} us a request, {1.0 / each_s:6,.0f}/s on one core"


@click.command(help=dedent(__doc__))
@click.option("--rate", "rates", multiple=True, type=float, default=(500.0, 2000.0))
@click.option("--shape", "shapes", multiple=True, default=("8",), help="of the input")
@click.option("--without-perf-analyzer", is_flag=True)
def main(rates: tuple[float, ...], shapes: tuple[str, ...], without_perf_analyzer: bool) -> None:
    for shape in shapes:
        with tempfile.TemporaryDirectory() as name, serving(shape, Path(name)) as (at, control):
            for protocol in Protocol:
                target = LoadTarget(at, protocol)
                for rate in rates:
                    words = f"{protocol.value} FP32[{shape}] {rate:g}/s"
                    print(f"{words}: tune's {ours(target, shape, rate)}", flush=True)
                    if not without_perf_analyzer:
                        theirs_per_s = theirs(target, rate, control, Path(name))
                        print(f"{words}: perf_analyzer {theirs_per_s}", flush=True)


if __name__ == "__main__":
    main()
