"""What commands print, whole; no server is started and nothing is measured.

Each entry of `PRINTED` is a file of `tests/golden/printed`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import click
import pytest
from builders.candidates import candidate_of
from builders.commands import called
from builders.configs import case
from builders.emulated import EmulatedBench
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.events import tell_a_run
from builders.golden import Golden, sections, table_of
from builders.jobs import SPEC, a_job
from builders.measurements import P99_40MS
from builders.model_files import copy_examples, write_model
from builders.runs import Toy, make_run
from builders.series import ended_series
from rich.console import Console

from tuner.cli.inspect_commands import lines_of as lines_of_plan
from tuner.cli.ui.live import LiveEvents
from tuner.cli.ui.plain import PlainEvents
from tuner.measurement.measurement import Arrivals
from tuner.run.plan import draw_plan
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.search.estimate import Seen, estimate_run
from tuner.search.first_load import first_level

RUNS = Path(__file__).parents[2] / "runs"


def printed(*words: str) -> Callable[[], str]:
    def text() -> str:
        code, out, err = called(*words)
        return sections(out=out, err=err.replace(str(RUNS), "RUNS"), code=str(code))

    return text


def watched() -> str:
    """A run, as a log and the live view show it."""
    log, screen = io.StringIO(), io.StringIO()
    console = Console(file=screen, width=80, color_system=None)
    with redirect_stderr(log), LiveEvents(Console(file=io.StringIO(), width=80)) as live:
        tell_a_run(PlainEvents(1, clock=lambda: 0.0))
        tell_a_run(live)
        console.print(live.view())
    return sections(plain=click.unstyle(log.getvalue()), live=screen.getvalue())


def plan(more: str, *, effective: bool = False) -> Callable[[], str]:
    """How a spec would be searched on two cores without a GPU. Nothing of it is started."""

    def text() -> str:
        copy_examples(Path("models"), "emulated-accelerator")
        Path("spec.yaml").write_text(SPEC.format(repository="models") + more)
        drawn = draw_plan(Path("spec.yaml"), {"PATH": ""}, 2)
        spec = {"spec": drawn.effective_spec} if effective else {}
        text = sections(plan="\n".join(lines_of_plan(drawn)), **spec)
        return text.replace(str(Path.cwd()), "HERE")

    return text


REMOTE = "server: {mode: remote, http: 'h:1', grpc: 'h:2', headers_from_env: {Authorization: T}}\n"


PYTHON = 'backend: "python"\nmax_batch_size: 8\n'
ONNX = 'backend: "onnxruntime"\n'
OPENVINO = 'cpu_execution_accelerator { name: "OpenVINO" }'
PARAMETER = 'parameters { key: "%s" value { string_value: "%s" } }\n'
QUEUE = "dynamic_batching { default_queue_policy { max_queue_size: 8 } }\n"
PLAN = 'backend: "tensorrt" cc_model_filenames { key: "7.5" value: "sm75.plan" }'
WITHOUT = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
CALLING = f"{WITHOUT}        pb_utils.InferenceRequest(model_name='fst', inputs=[])\n"
SLOW_QUEUE = "dynamic_batching { max_queue_delay_microseconds: 500000 }\n"
#: Config and code of models, each with a mistake of its own, or none.
MODELS = {
    "accelerator": (f'{ONNX}optimization {{ execution_accelerators {{ {OPENVINO} }} }}\n', ""),
    "asking": (PYTHON, CALLING),
    "delaying": (PYTHON + SLOW_QUEUE, WITHOUT),
    "fast": (PYTHON + "dynamic_batching { }\n", WITHOUT),
    "idle": (PYTHON + "response_cache { enable: true }\ninstance_group { count: -1 }\n", WITHOUT),
    "lengths": (PYTHON + "dynamic_batching { }\n"
                'input { name: "x" data_type: TYPE_FP32 dims: -1 }\n', WITHOUT),
    "map": (case("bad/priority_map"), WITHOUT),
    "misspelt": (PYTHON, WITHOUT),
    "name#": (PYTHON, WITHOUT),
    "one": (MODEL + QUEUE, WITHOUT),
    "other": ('name: "another"\n' + PYTHON, WITHOUT),
    "parameter": (ONNX + PARAMETER % ("intra_op_num_threads", "1"), ""),
    "own": (ENSEMBLE.replace('"two"', '"own"').replace('"e"', '"own"'), ""),
    "plan": (PLAN, ""),
    "talking": (PYTHON + "sequence_batching { oldest { } }\n", WITHOUT),
    "unpacked": (PYTHON + PARAMETER % ("EXECUTION_ENV_PATH", "/no/env"), WITHOUT),
}  # fmt: skip


def inspected(*words: str) -> Callable[[], str]:
    """What a command says of a repository of those models, and one folder that is none."""

    def text() -> str:
        for name, (config, code) in MODELS.items():
            write_model(Path("models", name), config, code)
        Path("models", "lost+found").mkdir()
        Path("models", "misspelt", "config.pbtxt").rename("models/misspelt/config.pbtx")
        return printed(*words)()

    return text


REMOTE_AT = "server: {mode: remote, http: 'h:1', grpc: 'h:2'"
HERE = "server: {mode: remote, http: 'localhost:1', grpc: '127.0.0.1:2'"
HEADERS = "headers_from_env: {Authorization: TOKEN}}"
#: Keys of a spec that a plan has something to say about.
NOTED = (
    "server: {binary: /usr/bin/env}",
    "server: {binary: /usr/bin/env, environment: {LD_PRELOAD: /tmp/evil.so}}",
    "server: {binary: /usr/bin/env, gpus: [0]}",
    "server: {binary: /usr/bin/env, gpus: all}",
    "server: {mode: docker, image: 'evil:1'}",
    "server: {mode: docker, image: 'evil:1', mounts: {/opt/a: /b, /c: /d}}",
    "server: {mode: docker, image: i, mounts: {/: /m}}",
    "server: {mode: docker, image: i, mounts: {/var/../run/docker.sock: /m}}",
    "server: {mode: docker, image: i, mounts: {/home/me/engine.sock: /m}}",
    "server: {mode: docker, image: i, mounts: {/etc/../etc/ssl: /m}}",
    "server: {mode: docker, image: i, mounts: {/var/lib: /m}}",
    "server: {mode: docker, image: i, mounts: {/home/me/weights: /m}}",
    "server: {mode: docker, image: i, gpus: [1]}",
    f"{REMOTE_AT}, {HEADERS}",
    f"{REMOTE_AT}, tls: {{services: [grpc]}}, {HEADERS}",
    f"{REMOTE_AT}, tls: {{}}, {HEADERS}",
    f"{HERE}, {HEADERS}",
    REMOTE_AT + "}\nworkload: {perf_analyzer: /usr/bin/env}",
    "workload: {max_window: 20s}",
    "workload: {arrivals: {kind: poisson, rate: [8]}}",
    "workload: {arrivals: {kind: poisson, rate: [800]}}",
    "workload: {arrivals: {kind: closed}}",
    "workload: {arrivals: {kind: trace, file: gaps.txt, rate: [200]}}",
    "workload: {arrivals: {kind: trace, file: gaps.txt}}",
    "workload: {inputs: {kind: file, file: recorded.json}}",
)


def plan_notes() -> str:
    """What a plan remarks on, or ends with; nothing that a spec names is started."""
    copy_examples(Path("models"), "emulated-accelerator")
    Path("gaps.txt").write_text("1000\n" * 100_000)
    row = {"x": {"content": [1.0] * 64, "shape": [64]}}
    Path("recorded.json").write_text(json.dumps({"data": [row]}))
    rows = {}
    for more in NOTED:
        server = "" if "server" in more else "server: {binary: /usr/bin/env}\n"
        Path("spec.yaml").write_text(f"{SPEC.format(repository='models')}{server}{more}\n")
        drawn = draw_plan(Path("spec.yaml"), {"PATH": ""}, 0)
        rows[more] = "\n".join([*drawn.notes, *(f"error: {p}" for p in drawn.problems)])
    return table_of(rows).replace(str(Path.cwd()), "HERE")


#: What a spec may ask, and what was seen of its model.
SETTINGS = {
    "as drafted": "",
    "few trials": "budget: {trials: 10}\n",
    "a short time": "budget: {time: 1m}\n",
    "many rounds": "confirm: {rounds: 20, finalists: 4}\n",
    "rounds for a minute": "confirm: {rounds: 20, finalists: 20, time: 1m}\n",
    "no soak": "confirm: {soak: 0}\n",
    "long windows": "workload: {window: 20s}\n",
    "listed rates": "workload: {arrivals: {kind: poisson, rate: [300, 400, 600]}}\n",
    "clients, started once": "workload: {arrivals: {kind: closed, restarts: 1}}\n",
    "clients, started four times": "workload: {arrivals: {kind: closed, restarts: 4}}\n",
    "a latency": "objective: minimize p99_latency at 300/s\n",
}
SEEN = {
    "nothing": Seen(),
    "8/s": Seen(8.0),
    "0.5/s": Seen(0.5),
    "loads in 60 s": Seen(None, (60.0,)),
}


def estimates() -> str:
    """Each spec, and by what was seen of the model how long a run of it takes."""
    text = SPEC.replace("[1, 4]", "[1, 40]")
    jobs = {name: a_job(Path(), text + more.replace("{", "{{").replace("}", "}}"))
            for name, more in SETTINGS.items()}  # fmt: skip
    rows = {label: {name: estimate_run(job, seen) for name, seen in SEEN.items()}
            for label, job in jobs.items()}  # fmt: skip
    texts = {label: "\n".join(f"{name}: {e.sentence}" for name, e in row.items())
            for label, row in rows.items()}  # fmt: skip
    return table_of(texts)


def first_loads() -> str:
    """What is looked at before the first load, by how long one request takes and answers."""
    levels = LevelRange(0.1, 1e5)
    plans = [LoadPlan(kind, None, levels) for kind in (Arrivals.POISSON, Arrivals.CLOSED)]
    rows = {}
    for alone_s in (0.0001, 0.01, 0.04, 0.05, 0.26, 1.0, 20.0):
        for plan in plans:
            notes: list[str] = []
            bench = EmulatedBench(lambda _: 900.0 / 1.1, alone_s=alone_s)
            bench.deploy(candidate_of({}))
            bound = P99_40MS if alone_s < 0.1 else None
            first = first_level(bench, plan, 1, notes.append, bound)
            looks = ", ".join(str(many) for _, many in bench.looks)
            lowest = ", the lowest" if first.lowest else ""
            summary = f"looks with {looks}; begins at {first.level:g}{lowest}"
            rows[f"{alone_s} s, {plan.arrivals.value}"] = "\n".join((summary, *notes))
    return table_of(rows)


def refused() -> str:
    """Command lines that are mistakes, each with its exit code, and what to do instead."""
    for name in ("a", "b", "none"):
        Path(name).mkdir()
    write_model(Path("a", "m"), PYTHON, WITHOUT)
    both = "--repository a --repository b"
    lines = (
        f"init m {both}",
        f"apply r {both}",
        f"rollback m {both}",
        "init m --image i --server s",
        "init n --repository a",
        "init m --repository a --slo p99<=100ms --output -",
        "init gone --repository none",
        "run spec.yaml --time-budget 5min",
        "run spec.yaml --trials 0",
        "run",
        "report --format xml",
        "apply none",
        "compare none none",
        "size none --rate 5000/s",
        "models gone",
    )
    ended = {line: called(*line.split()) for line in lines}
    return "\n".join(f"$ tune {line}\n{err}({code})\n" for line, (code, _, err) in ended.items())


def report_list() -> str:
    ended_series(Path("results"))
    for status in ("kept", "not known", "failed"):
        make_run(Path("results"), Toy(trials=5), status)
    return printed("report")()


PRINTED: dict[str, Callable[[], str]] = {
    "watched": watched,
    "plan": plan("server: {binary: /usr/bin/env}\n", effective=True),
    "plan-remote": plan(REMOTE + "workload: {arrivals: {kind: closed, max_concurrency: 64}}\n"),
    "plan-many-notes": plan("server: {mode: docker, image: 'i', gpus: [1], mounts: {/run: /m}}\n"),
    "plan-notes": plan_notes,
    "estimates": estimates,
    "first-loads": first_loads,
    "lint": inspected("lint", "models"),
    "models": inspected("models", "models"),
    "init": inspected("init", "fast", "--repository", "models", "--output", "-", "--image", "i"),
    "init-unknown": inspected("init", "fst", "--repository", "models", "--output", "-"),
    "refused": refused,
    "report-list": report_list,
    "report-of-nothing": printed("report", "nowhere"),
    "size": printed("size", str(RUNS / "one-model"), "--rate", "5000/s", "--price", "2.5"),
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_command_prints_what_it_did(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("tuner.machine.host._GPU_DEVICES", ())
    monkeypatch.setattr("tuner.machine.host.read_gpus", lambda _: ())
    golden(f"printed/{name}", PRINTED[name]())


def test_every_text_is_still_printed(golden: Golden) -> None:
    golden.names("printed", PRINTED)
