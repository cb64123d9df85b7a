#!/usr/bin/env bash
# ray 2.60.0: `ray.init` installs a SIGTERM handler of its own in the driver, and `ray.shutdown` does not
# put the one back that was there: a program that stops in order on SIGTERM no longer does, even after
# it has left Ray. The handler of SIGINT stays.
# Seen: SIGTERM's handler is the program's before, another during and after; SIGINT's is always the same.
. "$(dirname "$0")/common.sh"
install ray==2.60.0
export HOME="$tmp" RAY_USAGE_STATS_ENABLED=0
"$tmp/venv/bin/python" - 2>"$tmp/log" <<'PYTHON' || { cat "$tmp/log"; fail "the handler comes back, or is left alone"; }
import signal

import ray


def stop(*_: object) -> None:
    raise SystemExit(130)


for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, stop)


def own(number: int) -> bool:
    return signal.getsignal(number) is stop


found = []
ray.init(address="local", num_cpus=1, include_dashboard=False)
found.append((own(signal.SIGTERM), own(signal.SIGINT)))
ray.shutdown()
found.append((own(signal.SIGTERM), own(signal.SIGINT)))
for when, (term, interrupt) in zip(("in Ray", "after it"), found):
    print(f"{when}: SIGTERM has the program's handler: {term}, SIGINT: {interrupt}")
assert found == [(False, True), (False, True)]
PYTHON
echo "AS SEEN: the program's SIGTERM handler is gone for good"
