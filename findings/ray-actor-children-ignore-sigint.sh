#!/usr/bin/env bash
# ray 2.60.0: SIGINT is blocked in an actor's worker process, and every program that the actor starts
# inherits that: a child that is to stop on SIGINT, as load generators do, never gets it. In the driver
# the same child ends at once.
# Seen: a child of the driver has SIGINT unblocked, one of an actor has it blocked.
. "$(dirname "$0")/common.sh"
install ray==2.60.0
export HOME="$tmp" RAY_USAGE_STATS_ENABLED=0
"$tmp/venv/bin/python" - 2>"$tmp/log" <<'PYTHON' || { cat "$tmp/log"; fail "an actor's child can be interrupted"; }
import signal
import subprocess

import ray

STATUS = ["cat", "/proc/self/status"]


def blocks_sigint() -> bool:
    said = subprocess.run(STATUS, check=True, capture_output=True, text=True).stdout
    masks = [line.split()[1] for line in said.splitlines() if line.startswith("SigBlk")]
    return bool(int(masks[0], 16) >> (signal.SIGINT - 1) & 1)


@ray.remote
class Actor:
    def child_blocks_sigint(self) -> bool:
        return blocks_sigint()


ray.init(address="local", num_cpus=1, include_dashboard=False)
of_driver, of_actor = blocks_sigint(), ray.get(Actor.remote().child_blocks_sigint.remote())
ray.shutdown()
print("SIGINT is blocked in a child of the driver:", of_driver, "| of an actor:", of_actor)
assert (of_driver, of_actor) == (False, True)
PYTHON
echo "AS SEEN: what an actor starts cannot be interrupted"
