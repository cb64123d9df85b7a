#!/usr/bin/env bash
# onnxruntime 1.19.2: a session without `intra_op_num_threads` makes a thread for each physical core
# of the machine and pins each to its core, whatever CPUs the process was started on
# (sched_setaffinity, taskset). With a number set, all threads stay on the process's CPUs.
# Seen, started on CPU 0 of two: one worker thread, allowed on CPU 1 only; with
# intra_op_num_threads=2 a worker thread that is allowed on CPU 0 only.
. "$(dirname "$0")/common.sh"
[ "$(nproc)" -gt 1 ] || { echo "SKIPPED: needs two CPUs"; exit 0; }
install onnxruntime==1.19.2 onnx==1.16.2 numpy==1.26.4
"$tmp/venv/bin/python" - "$tmp/model.onnx" <<'PYTHON' || fail "threads stay on the CPUs of the process"
import os
import sys

first = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {first})  # before any thread of the library

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "x"], ["y"])],
    "g",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [256, 256])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [256, 256])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.save(model, sys.argv[1])


def outside(threads):
    options = onnxruntime.SessionOptions()
    if threads:
        options.intra_op_num_threads = threads
    before = set(os.listdir("/proc/self/task"))
    session = onnxruntime.InferenceSession(
        sys.argv[1], options, providers=["CPUExecutionProvider"]
    )
    session.run(None, {"x": np.ones((256, 256), np.float32)})
    made = set(os.listdir("/proc/self/task")) - before
    left = [t for t in made if not os.sched_getaffinity(int(t)) <= {first}]
    print(f"intra_op_num_threads {threads or 'unset'}: {len(made)} threads made, {len(left)} outside")
    return session, len(made), len(left)


kept, *unset = outside(0)
kept_too, *two = outside(2)
assert unset[1] > 0 and two[0] > 0 and two[1] == 0, (unset, two)
PYTHON
echo "AS SEEN: threads leave the CPUs of the process where their number is unset"
