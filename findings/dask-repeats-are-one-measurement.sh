#!/usr/bin/env bash
# distributed 2026.8.0: `Client.map` over equal items calls the function once and gives its result
# to all: three repetitions of a measurement are one, without a warning (`pure=True` is the default;
# keys are made of the function and its arguments). `dask.delayed` calls it three times.
# Seen: client.map: 1 call for 3 items; pure=False: 3 calls; delayed: 3 calls.
. "$(dirname "$0")/common.sh"
install distributed==2026.8.0 dask==2026.8.0
"$tmp/venv/bin/python" - "$tmp" <<'PYTHON' || fail "repetitions are made"
import sys
from pathlib import Path

import dask
from distributed import Client


def measure(config, log):
    with Path(log).open("a") as file:
        file.write(f"{config}\n")
    return len(config)


def calls(log):
    return len(Path(log).read_text().splitlines())


if __name__ == "__main__":
    logs = [f"{sys.argv[1]}/{name}.log" for name in ("map", "impure", "delayed")]
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        client.gather(client.map(measure, ["config"] * 3, log=logs[0]))
        client.gather(client.map(measure, ["config"] * 3, log=logs[1], pure=False))
        dask.compute(*[dask.delayed(measure)("config", logs[2]) for _ in range(3)])
    found = [calls(log) for log in logs]
    print("calls for three items: map", found[0], "| map, pure=False", found[1], "| delayed", found[2])
    assert found == [1, 3, 3]
PYTHON
echo "AS SEEN: client.map makes one measurement of three"
