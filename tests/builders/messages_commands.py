"""What the command line answers to mistakes, and to runs that contradict themselves."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from builders.commands import called
from builders.model_files import REPOSITORY, copy_examples, write_model
from builders.refusals import Case
from builders.runs import BETTER, CONFIG, Toy, edit_config, make_run

from tuner.record.store import RunStore
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin
from tuner.space.candidate import Candidate
from tuner.writeback.plan import sha256_of, text_with

SPEC = """\
model: emulated-accelerator
repository: {repository}
slo: [p99_latency <= 40ms]
objective: maximize goodput
space:
  instance_group.count: {{int: [1, 4]}}
budget: {{trials: 4, time: 2m}}
server: {{binary: /no/tritonserver}}
"""

#: What the spec says right, and the mistake in its place.
IN_SPECS = (
    ("instance_group.count", "instance_groups.count"),
    ("objective:", "objectiv:"),
    ("trials: 4", "trails: 4"),
    ("<= 40ms", "<= 40"),
    ("<= 40ms", "<= 40sec"),
    ("p99_latency", "p99"),
    ("p99_latency", "tail_latency"),
    ("<= 40ms", "< 40ms"),
    ("<= 40ms", "≤ 40ms"),
    ("{repository}", "{repository}y"),
    ("emulated-accelerator", "emulated-accelerato"),
    ("maximize goodput", "maximize throughput"),
    ("maximize goodput", "minimise p99_latency"),
    ("binary: /no/tritonserver", "mode: lokal"),
    ("binary: /no/tritonserver", "mode: remote"),
    ("time: 2m", "time: 2 minutes"),
    ("time: 2m", "time: 2"),
    ("time: 2m", "time: 2s"),
    ("int: [1, 4]", "int: [4, 1]"),
    ("{{int: [1, 4]}}", "1-4"),
    ("{{int: [1, 4]}}", "{{range: [1, 4]}}"),
    ("objective: ", "\tobjective: "),
    ("objective: maximize goodput", "model: twice"),
    ("slo: [p99_latency <= 40ms]", "slo: [error_rate <= 1%]"),
    ("binary: /no/tritonserver", "args: [--http-port=8000]"),
)

#: Command lines that are mistakes, beside a spec and an empty one.
LINES = (
    "run emulated-accelerator",
    "plan {repository}/emulated-accelerator/config.pbtxt",
    "plan empty.yaml",
    "init emulated-accelerato --repository {repository}",
    "init emulated-accelerator --repository {repository}x",
    "rollback emulated-accelerato --repository {repository}",
    "report spec.yaml",
    "report nosuchrun",
    "apply nosuchrun",
    "worker nosuchrun",
    "run spec.yaml --storage sqlite:///study.db",
    "models {repository}y",
    "lint {repository}y",
    "plan spec.yaml --no-such",
    "run none.yaml",
    "run spce.yml",
    "run specz/m.yaml",
    "init --from-model-analyzer specs/n.yaml",
    "report --output spec",
    "report nosuchrun --output spec",
    "report m --output spec",
    "run spec.yaml",
    "check spec.yaml",
    "rnu",
    "compare a b",
)


def line(words: str) -> Case:
    """What `tune` with these words prints, and its exit code."""

    def case(_: Path) -> str:
        code, out, err = called(*words.format(repository=REPOSITORY).split())
        said = f"{out}{err}({code})".replace(sys.executable, "python")  # may be in ROOT
        return said.replace(str(REPOSITORY.parent), "ROOT")

    return case


def spec_mistakes() -> dict[str, Case]:
    """Of specs that are planned."""

    def planned(right: str, wrong: str) -> Case:
        def case(here: Path) -> str:
            text = SPEC.replace(right, wrong).format(repository=REPOSITORY)
            (here / "spec.yaml").write_text(text)
            return str(line("plan spec.yaml")(here))

        return case

    def named(right: str, wrong: str) -> str:
        name = f"{wrong.strip()} instead of {right.strip(' :')}"
        return name.replace("{{", "{").replace("}}", "}")

    return {named(*words): planned(*words) for words in IN_SPECS}


def command_mistakes() -> dict[str, Case]:
    def typed(words: str) -> Case:
        def case(here: Path) -> str:
            (here / "spec.yaml").write_text(SPEC.format(repository=REPOSITORY))
            (here / "empty.yaml").touch()
            (here / "specs" / "m").mkdir(parents=True)
            (here / "specs" / "m.yaml").touch()
            return str(line(words)(here))

        return case

    return {f"tune {words}".replace("{repository}", "REPOSITORY"): typed(words) for words in LINES}


#: What `tune record` cannot make a recording of.
RECORDED = (
    "access.csv --from log",
    "access.csv --from log --time tme",
    "access.csv --from log --time time --shape ids",
    "absent --from log --time time",
    "acess.csv --from log --time time",
    "inputs.json --from inputs --intervals gap",
    "inputs.json --from inputs",
    "access.csv --from inputs --rate 1",
    "access.csv --from triton-trace",
    "inputs.json --output inputs.json --from log",
    "access.csv --from log --time time --output gaps",
    "inputs.json --from inputs --rate 1e-320",
    "days.csv --from log --time time",
)


def write_recordables(here: Path) -> None:
    """A log, a file of inputs and one of gaps, as teams have them."""
    (here / "access.csv").write_text("time,tokens\n3.5,5\n2.25,64\n")
    (here / "inputs.json").write_text('{"data": [{"x": [1]}, {"x": [2], "model": "m"}]}')
    (here / "days.csv").write_text("time,tokens\n0,5\n86400000,64\n")
    (here / "gaps").write_text("100\n250000\n250000\n")


def recording() -> dict[str, Case]:
    """What a log becomes, and what becomes no recording."""

    def record(words: str) -> Case:
        def case(here: Path) -> str:
            write_recordables(here)
            return str(line(f"record {words}")(here))

        return case

    good = "access.csv --from log --time=time --shape=ids=tokens"
    return {f"tune record {words}": record(words) for words in (good, *RECORDED)}


def edit(run: Path, name: str, changes: Mapping[str, Any]) -> None:
    """Changes a file of a run, as its owner, or somebody else, may."""
    path = run / f"{name}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def texts(after: str) -> dict[str, Any]:
    """The facts of a result about what becomes of the config."""
    return {"models": {"toy": {"config_before": "", "config_after": after}}}


def written(path: Path) -> dict[str, Any]:
    hashes = {"sha256_before": sha256_of(CONFIG), "sha256_after": sha256_of(BETTER)}
    return {"path": str(path), **hashes, "backup": None}


def with_code(run: Path, *parameters: str) -> None:
    """Has a run claim a winner with these parameters, and the config that they make."""
    result = json.loads((run / "result.json").read_text())
    fields = {f"parameters.{key}": "/x" for key in parameters}
    manifest = RunStore(run).manifest()
    winner = result["winner"]["candidate"]
    winner["models"]["toy"] |= fields
    after = text_with(manifest.models["toy"], Candidate.from_json(winner).of("toy"))
    result["models"]["toy"]["config_after"] = after
    edit(run, "result", {**result, "written": None})


#: Chooses what code a model runs.
FOREIGN = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/x" } }\n'
#: A file of a run, and what is changed in it.
CONTRADICTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "its winner is no config": ("result", texts("#!/bin/sh\nrm -rf ~\n")),
    "its winner is no text": ("result", texts("\ud800")),
    "its winner has more than its fields": ("result", texts(f"{BETTER}{FOREIGN}")),
    "its server had an argument": ("result", {"server_args": ["--x=/x"]}),
    "its server had arguments that are no list": ("result", {"server_args": "--one"}),
    "its result is of another model": ("result", {"model": "other"}),
    "its winner has another hash": (
        "result",
        {"written": {**written(Path("x")), "sha256_after": "0" * 64}},
    ),
    "its winner is a list": ("result", {"winner": ["a list"]}),
    "its config has another hash": ("config", {"text": "name: 'another'"}),
    "its config was not there, and has a text": ("config", {"sha256": None}),
    "its model is a path": ("config", {"name": "../toy"}),
}


def put(run: Path, directory: Path) -> None:
    """A copy of a run into a directory, about a model of a repository there; not written yet."""
    shutil.copytree(run, directory / "run")
    config = directory / "models" / "toy" / "config.pbtxt"
    (config.parent / "1").mkdir(parents=True)
    config.write_text(CONFIG)
    edit_config(directory / "run", path=str(config))
    edit(directory / "run", "result", {"written": None})


def contradict(run: Path, name: str) -> None:
    file, changes = CONTRADICTIONS[name]
    if file == "config":
        edit_config(run, **changes)
    else:
        edit(run, file, changes)


def not_applied() -> dict[str, Case]:
    """Of runs that somebody else made."""
    made = make_run(Path("made").absolute(), Toy(trials=5))

    def apply(here: Path, words: str = "") -> str:
        return str(line(f"apply run {words}")(here))

    def contradicting(name: str) -> Case:
        def case(here: Path) -> str:
            put(made, here)
            contradict(here / "run", name)
            return apply(here)

        return case

    def of_file(path: str, text: str = "") -> Case:
        def case(here: Path) -> str:
            put(made, here)
            (here / "home").mkdir()
            (here / "home" / ".bashrc").write_text(text)
            known = {"text": text, "sha256": sha256_of(text) if text else None}
            edit_config(here / "run", path=str(here / path), **known)
            return apply(here)

        return case

    def of_link(here: Path) -> str:
        put(made, here)
        (here / "home").mkdir()
        (here / "home" / ".bashrc").write_text("# stock\n")
        edit_config(here / "run", text="# stock\n", sha256=sha256_of("# stock\n"))
        config = here / "models" / "toy" / "config.pbtxt"
        config.unlink()
        config.symlink_to(here / "home" / ".bashrc")
        return apply(here)

    def choosing_code(searched: str = "") -> Case:
        def case(here: Path) -> str:
            put(made, here)
            with_code(here / "run", "EXECUTION_ENV_PATH")
            space = f"{{parameters.EXECUTION_ENV_PATH: {{choice: [unset, {searched}]}}}}"
            head = "model: toy\nrepository: models\nslo: [p99_latency <= 40ms]\n"
            (here / "own.yaml").write_text(f"{head}space: {space}\n")
            return apply(here, "own.yaml --dry-run" if searched else "")

        return case

    def elsewhere(here: Path) -> str:
        put(made, here)
        edit_config(here / "run", path="/ci/models/toy/config.pbtxt")
        return apply(here)

    return {
        **{name: contradicting(name) for name in CONTRADICTIONS},
        "it names a file that is not there": of_file("home/new"),
        "it names a file whose content it knows": of_file("home/.bashrc", "# stock\n"),
        "a link in the model's directory leads elsewhere": of_link,
        "it is from another machine": elsewhere,
        "a field may choose code, and no spec is given": choosing_code(),
        "a field may choose code, and the spec searches other values": choosing_code("/y"),
        "a field may choose code, and the spec searches its value": choosing_code("/x"),
    }


GOOD = "class TritonPythonModel:\n  execute = None\n"
CALLING = """\
class TritonPythonModel:
    def execute(self, requests):
        pb_utils.InferenceRequest(model_name="callee")
"""


def drafting() -> dict[str, Case]:
    """What `tune init` says of models and places, where it drafts a spec or none."""

    def init(words: str, *configs: str, code: str = GOOD) -> Case:
        def case(here: Path) -> str:
            for config in configs:
                text = f'backend: "python" max_batch_size: 8\n{config}'
                write_model(here / "models" / "m", text, code)
            (here / "models" / "m" / "1").mkdir(parents=True, exist_ok=True)
            if code is CALLING:
                write_model(here / "models" / "callee", 'backend: "python"', "class Model: ...\n")
            return str(line(f"init m --repository models {words}")(here))

        return case

    def every(here: Path) -> str:
        copy_examples(here / "models")
        (here / "models" / "empty" / "1").mkdir(parents=True)
        (here / "models" / "lost+found").mkdir()
        return str(line("init models --all --image an-image")(here))

    def remarked(config: str, model: str = "model.py") -> Case:
        """What the draft itself remarks, where the server here has the Python backend alone."""

        def case(here: Path) -> list[str]:
            (here / "python").mkdir()
            (here / "python" / "libtriton_python.so").touch()
            write_model(here / "models" / "m", config, GOOD if model == "model.py" else "")
            (here / "models" / "m" / "1" / model).touch()
            server = Installation(Path("t"), "2.51.0", Origin.WHEEL, {}, here)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(binaries, "tritonserver", lambda *_: nullcontext(server))
                draft = str(line("init m --repository models --output -")(here))
            return [text for text in draft.splitlines() if "# here" in text or "# No" in text]

        return case

    warm = 'inputs { key: "x" value { data_type: TYPE_FP32 dims: 1 random_data: true } }'
    full = (
        'backend: "python" max_batch_size: 32 dynamic_batching { }\n'
        'input { name: "x" data_type: TYPE_FP32 dims: 1 }\n'
        f'model_warmup {{ name: "full batch" batch_size: 32 {warm} }}'
    )
    zero = 'input { name: "x" data_type: TYPE_FP32\n  dims: [ 0 ] }'
    return {
        "a config that Triton refuses": init("--output spec.yaml", zero),
        "neither a config nor a model": init("--output spec.yaml"),
        "a mistake in a model that it calls": init("--output spec.yaml", "", code=CALLING),
        "a full disk": init("--force --output /dev/full", ""),
        "a file for a directory": init("--force --output /dev/null/spec.yaml", ""),
        "all models of a repository": every,
        "a backend that is not here": remarked("", "model.onnx"),
        "a warm-up of full batches": remarked(full),
    }
