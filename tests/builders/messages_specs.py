"""Texts that are no spec, words that are no metric and no objective: what is said of each."""

from __future__ import annotations

import os
from pathlib import Path

from builders.refusals import Case

from tuner.spec.load import load_spec
from tuner.spec.metrics import parse_metric
from tuner.spec.slo import Objective, Slo
from tuner.spec.units import Bytes
from tuner.spec.yaml_tree import LARGEST_BYTES

SPACE = "space: {max_batch_size: {choice: [1, 2]}}\n"
HEAD = "model: m\nrepository: .\nslo: [p99_latency <= 60ms]\n"
SPEC = HEAD + SPACE
WITHOUT_SLO = "model: m\nrepository: .\n" + SPACE
WITHOUT_REPOSITORY = "model: m\nslo: [p99_latency <= 60ms]\n" + SPACE
BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)

#: Specs that no parser should be given for long.
BAD = {
    "nested flow lists": "[" * 900,
    "nested blocks": "".join(" " * n + "a:\n" for n in range(300)),
    "aliases in aliases": "a0: &a0 [1]\n"
    + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 100)),
    "alias bomb": BOMB,
    "many items": SPEC + f"x: [{'1, ' * 20_000}]",
    "a long text": SPEC + "#" * LARGEST_BYTES,
    "a number of 5000 digits": SPEC + f"budget: {{trials: {'9' * 5000}}}",
    "a number of 30 digits": SPEC + f"budget: {{trials: {'9' * 30}}}",
    "a time with a long exponent": SPEC + "budget: {time: 1e999999999s}",
    "an endless time": SPEC + "budget: {time: 1e400h}",
    "an infinite time": SPEC + "budget: {time: .inf}",
    "a size with a long exponent": SPEC + "server: {mode: docker, image: x, shm_size: 1e5000000B}",
    "a bound with a long exponent": WITHOUT_SLO + "slo: [p99_latency <= 1e999999999ms]",
    "an infinite bound": WITHOUT_SLO + "slo: [p99_latency <= 1e400ms]",
    "a bound of 200000 digits": WITHOUT_SLO + f"slo: [p99_latency <= {'9' * 200_000}ms]",
    "a bound of spaces": WITHOUT_SLO + f'slo: ["p99_latency <= a{" " * 200_000}b"]',
    "no such user": WITHOUT_REPOSITORY + "repository: ~nosuchuser/x",
    "a program of no such user": SPEC + "workload: {perf_analyzer: ~nosuchuser/x}",
    "a name of 300 characters": WITHOUT_REPOSITORY + f"repository: {'x' * 300}",
    "every subset of 64 sizes": (
        HEAD + "space: {dynamic_batching.preferred_batch_size: {subsets: "
        f"{list(range(1, 65))}, at_most: 64}}}}"
    ),
    "a range of all numbers": HEAD
    + "space: {instance_group.count: {int: [1, 18446744073709551615]}}",
    "a thousand fields": HEAD
    + "space:\n"
    + "".join(f"  parameters.k{n}: {{choice: [1, 2]}}\n" for n in range(999)),
    "unknown keys": SPEC + "".join(f"server{n}: x\n" for n in range(4_900)),
    "a tag before no number": SPEC + "x: !!int foo",
    "a date": SPEC + "x: !!timestamp x",
    "NUL": SPEC + 'x: "\\0"',
    "half a character": SPEC + 'x: "\\ud800"',
}


def reading(text: str, *overrides: str) -> Case:
    def read(here: Path) -> None:
        path = here / "spec.yaml"
        path.write_text(text)
        load_spec(path, overrides)

    return read


def bad_texts() -> dict[str, Case]:
    return {name: reading(text) for name, text in BAD.items()}


def no_specs() -> dict[str, Case]:
    """Of names that lead to no spec, and specs that name what is not there."""

    def beside(here: Path) -> None:
        (here / "bert.yaml").touch()
        load_spec(here / "bert")

    def model(here: Path, spec: str = "gpt") -> None:
        (here / "model_repository" / "gpt").mkdir(parents=True)
        load_spec(Path(spec))

    def run(here: Path) -> None:
        (here / "manifest.json").touch()
        load_spec(here)

    def pipe(here: Path) -> None:
        os.mkfifo(here / "pipe")
        inputs("pipe")(here)

    def link(here: Path) -> None:
        (here / "link").symlink_to("/proc/self/environ")
        inputs("link")(here)

    def inputs(file: str, more: str = "") -> Case:
        return reading(f"{SPEC}workload: {{inputs: {{kind: file, file: {file}{more}}}}}\n")

    def mistyped(here: Path) -> None:
        (here / "nose.json").touch()
        (here / "load").mkdir()
        (here / "load" / "no.txt").touch()
        inputs("nope.json, repeat: {kind: log, file: loda/no.txt}")(here)

    def args(words: str) -> Case:
        return reading(f"{SPEC}server: {{args: [{words}]}}\n")

    return {
        "a directory": load_spec,
        "a run": run,
        "nothing": lambda here: load_spec(here / "nowhere.yaml"),
        "a name without its ending": beside,
        "a model": model,
        "a model's config": lambda here: model(here, "model_repository/gpt/config.pbtxt"),
        "a file that never ends": lambda _: load_spec(Path("/dev/zero")),
        "files that are absent beside a mistake": inputs(
            "nope.json, repeat: {kind: log, file: no.txt}}, window: {"
        ),
        "files whose names are mistyped": mistyped,
        "inputs from a pipe": pipe,
        "inputs from the environment of tune": inputs("/proc/self/environ"),
        "inputs from the kernel's version": inputs("/proc/version"),
        "inputs from a link to the kernel's": link,
        "a value that a stored spec hides": reading(
            SPEC + "server: {environment: {KEY: '***'}}\n"
        ),
        "the tuned model loaded by an argument": args("--load-model=m"),
        "the tuned model loaded by two arguments": args("--load-model, m"),
        "all models loaded by an argument": args("'--load-model=*'"),
        "a bound of a stream outside of it": lambda _: Slo.parse(
            "interactive: p99_latency <= 60ms"
        ),
        "a size without a number": lambda _: Bytes.of("huge"),
        **{
            f"--set {words}": reading(SPEC, words)
            for words in (
                "budget.trials=0", "budget.trails=3", "budget", "budget={trials: [}",
            )
        },
    }  # fmt: skip


def no_metrics() -> dict[str, Case]:
    """Names as they are mistyped."""
    return {name: lambda _, name=name: parse_metric(name) for name in (
        "p99", "latency_p99", "p99_latency_us", "perf_latency_p95", "P99_latency", "p99_latancy",
        "latency", "mean_latency", "eror_rate", "qps", "gpu_used_memory", "ttft", "first_response",
        "p99_first_respons", "p999_latency", "p99.9_latency", "p75", "colour", "median_latency",
        "max_latency", "minimum",
    )}  # fmt: skip


def no_objectives() -> dict[str, Case]:
    return {text or "nothing": lambda _, text=text: Objective.parse(text) for text in (
        "maximise goodput", "maximize throughput", "maximize goodput of chat",
        "minimise p99_latency at 300/s", "minimize p99 at 300/s", "minimize p99_latency",
        "minimize p99_latency at 1.5", "minimize p99_latency at 0/s",
        "minimize p99_latency at noon", "minimize throughput at 300/s",
        "minimize error_rate at 300/s", "",
    )}  # fmt: skip


THEIRS = """\
model: m
repository: models
slo: [p99_latency <= 60ms]
space:
  instance_group.count: {int: [1, 4]}
"""
