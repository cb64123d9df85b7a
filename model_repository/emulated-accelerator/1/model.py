"""Takes the time a batching accelerator would take; computes y = 2x + 1. See config.pbtxt."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import json
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

PR_SET_TIMERSLACK = 29


@dataclass(frozen=True)
class Costs:
    """What a batch of n inputs takes, n rounded up to a multiple of ``pad_to``."""

    overlap_base_ms: float = 1.0
    overlap_per_request_ms: float = 0.05
    exclusive_base_ms: float = 4.0
    exclusive_per_request_ms: float = 0.2
    pad_to: int = 1

    @classmethod
    def from_parameters(cls, parameters: dict[str, dict[str, str]]) -> Costs:
        """From the config's `parameters` but `device`; what is not there has its default."""
        costs = {name: value for name, value in parameters.items() if name != "device"}
        values = {name: float(value["string_value"]) for name, value in costs.items()}
        values["pad_to"] = int(values.get("pad_to", 1))
        return cls(**values)

    def padded(self, n: int) -> int:
        return math.ceil(n / self.pad_to) * self.pad_to

    def overlap_s(self, n: int) -> float:
        return (self.overlap_base_ms + self.overlap_per_request_ms * self.padded(n)) / 1e3

    def exclusive_s(self, n: int) -> float:
        return (self.exclusive_base_ms + self.exclusive_per_request_ms * self.padded(n)) / 1e3


def open_device_lock(device: str) -> int:
    """A file that all instances of this device's models lock on this server, and no other server.

    Every instance is a process started by the server: the parent's id names the server. Files of
    servers that live no more are removed.
    """
    directory, beginning = Path(tempfile.gettempdir()), f"{device}-{os.getuid()}-"
    path = directory / f"{beginning}{os.getppid()}.lock"
    for left in {*directory.glob(f"{glob.escape(beginning)}*.lock")} - {path}:
        server = left.stem.removeprefix(beginning)
        if server.isdecimal() and not Path("/proc", server).exists():
            with contextlib.suppress(OSError):
                left.unlink()
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = config.get("parameters", {})
        self.costs = Costs.from_parameters(parameters)
        device = parameters.get("device", {"string_value": config["name"]})
        self.lock = open_device_lock(device["string_value"])
        # A sleep ends up to 50 us late by default; spinning instead would take a core from the
        # server and the load generator, which share the machine.
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)

    def execute(self, requests: list[Any]) -> list[Any]:
        inputs = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        n = sum(x.shape[0] for x in inputs)
        time.sleep(self.costs.overlap_s(n))
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            time.sleep(self.costs.exclusive_s(n))
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", 2 * x + 1)]) for x in inputs]

    def finalize(self) -> None:
        # The file stays: instances that are still running need it.
        os.close(self.lock)
