"""The one line of a server's words that is worth showing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import yaml

from tuner.server.log import MEANINGS, failure, last_words, meaning, out_of_memory, refusal, remedy
from tuner.server.server import Server

CASES = Path(__file__).parents[2] / "cases" / "server_words.yaml"

STARTED = """\
W1121 01:58:50.884070 9830 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory"
E1121 01:58:50.884384 9830 server.cc:241] "CudaDriverHelper has not been initialized."
"""


USAGE = """\
/bin/tritonserver: unrecognized option '--foo=1'
Usage: tritonserver [options]
  --help
	Print usage
"""
BAD_VALUE = """\
Usage: tritonserver [options]
Bad option: "--http-thread-count".
Invalid option value. Got abc
"""
PORT_TAKEN = """\
E1121 02:03:20.688913 20307 main.cc:257] "failed to start HTTP service: Socket '1' already in use "
"""
STUB = """\
I1121 01:40:22.510025 2472 pb_stub.cc:298]  Failed to initialize Python stub for auto-complete: \
ModuleNotFoundError: No module named 'numpy'

At:
  model.py(2)
"""
CRASH = """\
E1121 02:03:20.688913 20307 model_lifecycle.cc:642] "failed to load 'm' version 1: Internal: no"
terminate called after throwing an instance of 'std::system_error'
  what():  Resource temporarily unavailable
Signal (6) received.
 0# 0x000055D0A5C6E29D in tritonserver
 1# 0x00007F4142D278EC in /usr/lib/x86_64-linux-gnu/libc.so.6
"""
#: TensorRT's answer is bare; its own words are in the log.
TENSORRT = """\
I1121 01:02:05.046193 9283 model_lifecycle.cc:472] "loading: other:1"
E1121 01:02:06.046193 9283 logging.cc:40] "[a.cpp] Error Code 2: OutOfMemory (of another model)"
I1121 01:02:07.046193 9283 model_lifecycle.cc:472] "loading: m:1"
E1121 01:02:08.046193 9283 logging.cc:40] "1: [b.cpp::allocate::20] Cuda Runtime (out of memory)"
E1121 01:02:09.046193 9283 model_lifecycle.cc:642] "failed to load 'm' version 1: Internal: no"
"""
#: What each Python process says as it ends, in some builds.
ENDED = """\
Fatal Python error: PyThreadState_Get: the function must be called with the GIL held
Python runtime state: finalizing (tstate=0x0)
"""
NO_FILES = "error: creating server: Internal - failed to stat file /none\n"
#: The log's lines of refused configs.
POLL_FAILED = """\
E1121 1 2 repository.cc:1460] "Poll failed for model directory 'm': old"
E1121 1 2 repository.cc:1460] "Poll failed for model directory 'other': no"
E1121 1 2 repository.cc:1460] "Poll failed for model directory 'm': Bad config: Token.\\nx\\n^"
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("\n\n", ""),
        (STARTED + NO_FILES, "creating server: Internal - failed to stat file /none"),
        (USAGE, "unrecognized option '--foo=1'"),
        (BAD_VALUE, 'Bad option: "--http-thread-count".'),
        (
            STARTED + PORT_TAKEN + STARTED,
            "failed to start HTTP service: Socket '1' already in use",
        ),
        (PORT_TAKEN + ENDED, "failed to start HTTP service: Socket '1' already in use"),
        (STUB, "ModuleNotFoundError: No module named 'numpy'"),
        (STARTED + "Segmentation fault\n", "Segmentation fault"),
        (CRASH, "std::system_error: Resource temporarily unavailable: Signal (6) received"),
        (
            STARTED + PORT_TAKEN + "Signal (6) received.\n 0# 0x000055D0A5C6E29D in tritonserver\n",
            "failed to start HTTP service: Socket '1' already in use: Signal (6) received",
        ),
        ("Signal (11) received.\n 0# 0x000055D0A5C6E29D in tritonserver\n", "Signal (11) received"),
        ('E1121 1 2 main.cc:257] ""', 'E1121 1 2 main.cc:257] ""'),
        ('2026-11-25T12:00:00Z E 1 main.cc:257] "failed to start"\n2026', "failed to start"),
    ],
)
def test_failure_is_the_line_that_says_why(text: str, expected: str) -> None:
    assert failure(text) == expected


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "Invalid argument: m_0 of model m has kind KIND_GPU;\n",
            "m_0 of model m has kind KIND_GPU",
        ),
        (
            "Internal: ValueError: no weights\n\nAt:\n  /models/m/1/model.py(9): initialize\n;\n",
            "ValueError: no weights",
        ),
        (
            "Invalid argument: failed to run warmup sample 'w': batch size 9, max allowed is 8; "
            + "batch size 9, max allowed is 8; " * 8
            + ";\n",
            "failed to run warmup sample 'w': batch size 9, max allowed is 8",
        ),
        ("Internal: no engine; no plan; no plan;\n", "no engine; no plan"),
    ],
)
def test_refusal_drops_tritons_wrapping_and_keeps_the_exception(reason: str, words: str) -> None:
    message = f"load failed for model 'm': version 1 is at UNAVAILABLE state: {reason}"
    assert refusal(message, "m", "") == words


def test_a_refusal_says_out_of_memory_where_only_the_log_does() -> None:
    message = "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: no engine;"
    reason = refusal(message, "m", TENSORRT)
    assert reason == "no engine: 1: [b.cpp::allocate::20] Cuda Runtime (out of memory)"
    lines = TENSORRT.splitlines(keepends=True)
    assert refusal(message, "m", "".join(lines[:3] + lines[4:])) == "no engine", "another model's"


def test_a_refusal_worded_in_python_keeps_its_words_only() -> None:
    at = "\n\nAt:\n  /tmp/models/m/1/model.py(134): refuse\n;"
    raised = f"version 1 is at UNAVAILABLE state: Internal: TritonModelException: no input 'x'{at}"
    assert refusal(f"load failed for model 'm': {raised}", "m", "") == "no input 'x'"
    does_not = "ensemble 'chain' depends on 'm' which has no loaded version. Model 'm' loading"
    message = f"load failed for model 'chain': {does_not} failed with error: {raised}"
    assert refusal(message, "chain", "") == f"{does_not} failed with error: no input 'x'"


def test_a_refusal_says_what_only_the_log_says_of_an_engine() -> None:
    message = "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: no engine;"
    log = (
        'I1121 1 2 model_lifecycle.cc:472] "loading: m:1"\n'
        'E1121 1 2 server.cc:241] "CudaDriverHelper has not been initialized."\n'
        'E1121 1 2 logging.cc:40] "The engine plan file is generated on an incompatible device"\n'
    )
    assert refusal(message, "m", log) == (
        "no engine: The engine plan file is generated on an incompatible device"
    )


def test_refusal_finds_the_reason_of_this_model_in_the_log() -> None:
    message = "failed to load 'm', failed to poll from model repository"
    assert refusal(message, "m", POLL_FAILED) == "Bad config: Token."
    assert refusal(message, "third", POLL_FAILED) == message


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "Internal: RuntimeError: no vocab.txt\n\nAt:\n  model.py(9)\n;",
            "RuntimeError: no vocab.txt",
        ),
        ("Invalid argument: it has kind KIND_GPU;", "it has kind KIND_GPU"),
    ],
)
def test_an_ensemble_that_does_not_load_is_refused_with_its_steps_words(
    reason: str, words: str
) -> None:
    does_not = "ensemble 'chain' depends on 'pre' which has no loaded version. Model 'pre' loading"
    message = (
        f"load failed for model 'chain': {does_not} failed with error: "
        f"version 1 is at UNAVAILABLE state: {reason}"
    )
    assert refusal(message, "chain", "") == f"{does_not} failed with error: {words}"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("cudaMalloc failed: CUDA_ERROR_OUT_OF_MEMORY", True),
        ("std::bad_alloc", True),
        ("Error Code 2: OutOfMemory (Requested size was 4096 bytes.)", True),
        ("memory limit set for GPU 0 has exceeded, model loading is rejected", True),
        ("ValueError: no such weights", False),
        ("unexpected inference output 'memory'", False),
    ],
)
def test_reason_says_whether_memory_ran_out(reason: str, expected: bool) -> None:
    assert out_of_memory(reason) is expected


def test_log_line_of_a_machine_without_a_gpu_is_no_reason_of_a_failed_request() -> None:
    """Else what a load generator that was stopped dropped would pass for the model's failures."""
    line = (
        'E1122 16:44:01.884384 9830 ensemble_scheduler.cc:1549] "unable to create stream for '
        'chain: CUDA driver version is insufficient for CUDA runtime version"'
    )
    server = SimpleNamespace(log_tail=lambda count: f"{line}\n")
    assert last_words(cast("Server", server)) == ""
    failed = 'E1122 16:44:00.884384 9830 pb_stub.cc:402] "ValueError: no such word"'
    server = SimpleNamespace(log_tail=lambda count: f"{failed}\n{line}\n")
    assert last_words(cast("Server", server)) == "ValueError: no such word"


@pytest.mark.parametrize("case", yaml.safe_load(CASES.read_text()), ids=lambda c: c["source"])
def test_lines_of_real_servers_have_their_meanings(case: dict[str, str]) -> None:
    """Real lines; a harmless one never hides the line that says why."""
    why = 'E1125 02:03:20.688913 20307 pb_stub.cc:402] "ValueError: no such word"\n'
    words = refusal(case["refusal"], "m", "") if "refusal" in case else failure(case["log"])
    if case["meaning"] == "harmless":
        server = SimpleNamespace(log_tail=lambda count: f"{why}{case['log']}\n")
        assert words == ""
        assert failure(server.log_tail(2)) == last_words(cast("Server", server))
        assert last_words(cast("Server", server)) == "ValueError: no such word"
        return
    known = meaning(words)
    assert (known or "none") == case["meaning"]
    assert bool(remedy(words)) is (known is not None)
    assert case.get("shown", words) == words
    assert out_of_memory(words) is (case["meaning"] in ("out of memory", "shared memory"))


def test_the_real_lines_are_many_and_cover_every_meaning() -> None:
    cases = yaml.safe_load(CASES.read_text())
    assert len(cases) >= 60
    assert set(MEANINGS) <= {case["meaning"] for case in cases}
