"""How exactly a recording is replayed: 100,000 requests in ten minutes, one burst of two seconds.

    python benchmarks/servers/replay.py --pace 1 --pace 2

The burst is five times as busy as what is around it. A model that answers at once is asked, on a
real server, by the load generator of a run. Told are the requests that were sent more than 1 ms
after they were due, and the busiest two seconds as they were sent.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import numpy as np
from client_ceiling import serving

from tuner.load.client.figures import Run
from tuner.load.generators import TUNE_CLIENT
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import EarlyEnd, Window
from tuner.server.binaries import Installation, Origin
from tuner.spec.workload import RecordingInputs, Workload

REQUESTS, LENGTH_S, BURST_S, TIMES = 100_000, 600.0, 2.0, 5.0


def write_recording(path: Path) -> float:
    """Writes it; returns its mean rate per second."""
    rng = np.random.default_rng(1)
    calm_per_s = REQUESTS / (LENGTH_S + (TIMES - 1.0) * BURST_S)
    more = round((TIMES - 1.0) * BURST_S * calm_per_s)
    begin_s = 0.6 * LENGTH_S
    calm = rng.uniform(0.0, LENGTH_S, REQUESTS - more)
    busy = rng.uniform(begin_s, begin_s + BURST_S, more)
    values = rng.random((REQUESTS, 8)).round(3).tolist()
    with path.open("w") as file:
        for due_s, x in zip(np.sort(np.concatenate([calm, busy])).tolist(), values, strict=True):
            file.write(json.dumps({"due_s": round(due_s, 6), "inputs": {"x": x}}) + "\n")
    return REQUESTS / LENGTH_S


@click.command(help=dedent(__doc__))
@click.option("--pace", "paces", multiple=True, type=float, default=(1.0, 2.0))
@click.option("--share", default=1.0, help="of the recording in a window; stretches of it below 1")
def main(paces: tuple[float, ...], share: float) -> None:
    sent: list[Run] = []
    measured = Run.measured

    def noted(self: Run, *arguments: Any) -> Any:
        sent.append(self)
        return measured(self, *arguments)

    Run.measured = noted  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as name, serving("8", Path(name)) as (at, control):
        path = Path(name) / "requests.jsonl"
        rate = write_recording(path)
        program = Installation(Path(os.devnull), "none", Origin.PATH, dict(os.environ))
        site = Site(control, at, program, Path(name))
        requests = {"answers": StreamRequests("answers", RecordingInputs(kind="recording"))}
        for pace in paces:
            arrivals = {"kind": "recording", "file": str(path), "pace": [pace]}
            workload = Workload.model_validate({"arrivals": arrivals})
            load = streams_load(workload, requests, ["answers"], site, TUNE_CLIENT)
            seconds = share * LENGTH_S / pace
            window = Window(seconds, 0.5, 2 * seconds + 60.0, 0.5, ends_early=EarlyEnd.NEVER)
            measurement = load.measure(LoadPoint(Arrivals.RECORDING, pace * rate), window, 1)
            at_s = np.sort(sent[-1].answers.sent_ns) / 1e9
            most = int((np.searchsorted(at_s, at_s + BURST_S / pace) - np.arange(at_s.size)).max())
            late, lag_us = measurement.late_sends or 0.0, measurement.send_lag_p99_us or 0.0
            print(
                f"pace {pace:g}: {at_s.size} sent, {100 * (1 - late):.3f}% within 1 ms of their "
                f"time, 1% by {lag_us / 1e3:.2f} ms or more; {most / BURST_S * pace:.0f}/s in the "
                f"burst, {measurement.due_per_s:.0f}/s in all; "
                f"load average {os.getloadavg()[0]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
