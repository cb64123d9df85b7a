"""Models that are not read or not served, and configs that Triton refuses: what is said of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from builders.configs import config
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.model_files import write_model
from builders.refusals import Case
from builders.serving import write_models

from tuner.lint.repository import lint_repository
from tuner.modelconfig import base, content
from tuner.modelconfig.edit import edit
from tuner.modelconfig.encoding import encode
from tuner.modelconfig.ensembles import mistakes_between
from tuner.modelconfig.files import model_directory, read_model
from tuner.modelconfig.message import parse
from tuner.modelconfig.rules import violations
from tuner.modelconfig.served import read_served
from tuner.run.models import list_models
from tuner.spec.paths import MAX_BATCH_SIZE

PYTHON = 'backend: "python"\n'
TWO = MODEL.replace("one", "two")
#: What may lie where a config is expected, and is no file.
NO_FILES = ("directory", "pipe", "device", "dead link", "loop")


def no_file(path: Path, kind: str) -> None:
    """Puts something there that is no file."""
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "dead link":
        path.symlink_to("../configs/bare.pbtxt")
    else:
        path.symlink_to(path.name)


def reading(text: str | bytes, *, change: bool = False) -> Case:
    """Of a config with this text, which is changed then."""

    def read(here: Path) -> None:
        write_model(here / "bare", "")
        path = here / "bare" / "config.pbtxt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        files = read_model(here, "bare")
        files.config()
        if change:
            encode(edit(files.text, {"parameters.x": "\u00e9"}), files.encoding)

    return read


def named(name: str) -> Case:
    def read(here: Path) -> None:
        write_models(here, bert=PYTHON, bare="")
        read_model(here, name)

    return read


def is_no_file(kind: str) -> Case:
    def read(here: Path) -> None:
        (here / "bare").mkdir()
        no_file(here / "bare" / "config.pbtxt", kind)
        read_model(here, "bare")

    return read


def too_deep(here: Path) -> None:
    write_models(here, bert=PYTHON)
    read_model(here / "bert", "bert")


def listed_too_deep(here: Path) -> None:
    write_models(here, bert=PYTHON)
    list_models(here / "bert", {"PATH": ""})


def led_out(here: Path) -> None:
    write_models(here / "models", bert=PYTHON)
    config = here / "models" / "bert" / "config.pbtxt"
    config.rename(here / "secret")
    config.symlink_to(here / "secret")
    read_model(here / "models", "bert", within_repository=True)


def linted(model: str | None = None, ignore: Iterable[str] = (), below: str = "") -> Case:
    def lint(here: Path) -> object:
        write_models(here, bert=PYTHON)
        return lint_repository(here / below, model, ignore=[*ignore])

    return lint


def of_groups(here: Path) -> None:
    for group in ("Peptide", "Common"):
        write_models(here / group, m=PYTHON)
    (here / "docs").mkdir()
    (here / "docs" / "x").touch()
    lint_repository(here)


def not_read() -> dict[str, Case]:
    """By what is wrong with a name, a config or a repository."""
    return {
        "a mistyped name": named("brt"),
        "a name that is like none": named("zzz"),
        "a path for a name": named("bert/1"),
        "the directory of the model for the repository": too_deep,
        "the directory of one model to list": listed_too_deep,
        "a name that no file can have": lambda here: model_directory(here, "\ud800"),
        "no repository": lambda here: read_model(here / "nowhere", "bert"),
        "a word that is no field": reading("\nnonsense: 1"),
        "a character that is not ASCII": reading(b'# ok\nname: "\xff"'),
        "a character that is not ASCII after one that is UTF-8": reading(b"# \xc3\xa9\n\xa0"),
        "a value beside a comment in Latin-1": reading(
            b"# caf\xe9\nmax_batch_size: 4", change=True
        ),
        **{f"a config that is a {kind}": is_no_file(kind) for kind in NO_FILES},
        "a config that leads out of the repository": led_out,
        "an unknown model to lint": linted("bret"),
        "an unknown rule to ignore": linted(ignore=["name-mismach"]),
        "the directory of one model to lint": linted(below="bert"),
        "a directory of repositories to lint": of_groups,
        "an empty directory to lint": lint_repository,
        "a file to lint": lambda here: lint_repository(Path("/dev/null")),
    }


def served_in(
    named: Iterable[str], calls: Mapping[str, list[str]] | None = None, **configs: str
) -> Case:
    return lambda here: read_served(write_models(here, **configs), [*named], calls or {})


def not_served() -> dict[str, Case]:
    """Of models that are searched together, and candidates of them."""

    def candidate(fields: dict[str, dict[str, object]], **configs: str) -> Case:
        def case(here: Path) -> list[str]:
            served = read_served(write_models(here, **configs), [next(iter(configs))])
            broken = served.violations(fields)
            return [f"{served.place(v)}: {v.message}" for v in broken]

        return case

    both = {"one": ["two"], "two": ["one"]}
    sample = (
        'model_warmup { name: "full" batch_size: 16 '
        'inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 zero_data: true } } }'
    )
    onnx = MODEL.replace('backend: "python" max_batch_size: 4', 'backend: "onnxruntime"')
    repository = {"e": ENSEMBLE, "one": MODEL, "two": TWO}
    return {
        "a step that is not there": served_in(["e"], e=ENSEMBLE, one=MODEL, twoo=TWO),
        "a called model that is not there": served_in(["one"], {"one": ["another"]}, one=MODEL),
        "two that call each other": served_in(["one", "two"], both, one=MODEL, two=TWO),
        "an ensemble of itself": served_in(["e"], e=ENSEMBLE.replace('"two"', '"e"'), one=MODEL),
        "a step that is too small": candidate({"two": {"max_batch_size": 2}}, **repository),
        "a size that a step may not prefer": candidate(
            {"two": {"dynamic_batching.preferred_batch_size": (16,)}}, **repository
        ),
        "a batch that is smaller than a warm-up sample": candidate(
            {"one": {"max_batch_size": 8}}, one=onnx + sample
        ),
    }


def step(line: str) -> str:
    """A step of a decoupled ensemble, from model, what it reads and what it writes."""
    model, reads, writes = line.split()
    maps = "".join(f'input_map {{ key: "{r}" value: "{r}" }} ' for r in reads.split(","))
    maps += f'output_map {{ key: "y" value: "{writes}" }}'
    return f'step {{ model_name: "{model}" model_version: -1 {maps} }}'


def joins(*steps: str, decoupled: str = "ab") -> list[tuple[str, str]]:
    """What is wrong in an ensemble of these steps, where models of these names are decoupled."""
    ends = 'output { name: "out" } input { name: "in" }'
    text = f'platform: "ensemble" {ends} ensemble_scheduling {{ %s }}'
    models = {m: parse("model_transaction_policy { decoupled: true }") for m in decoupled}
    models["inner"] = parse(text % step("a in out"))
    mistakes = mistakes_between(parse(text % " ".join(map(step, steps))), models)
    return [(path, message) for path, message, _ in mistakes]


def refused() -> dict[str, Case]:
    """By what is wrong in a config, or between an ensemble and its steps."""

    def config(text: str) -> Case:
        return lambda _: [
            " | ".join(filter(None, (f"{v.path or 'config'}: {v.message}", v.hint)))
            for v in violations(parse(text))
        ]

    def ensemble(old: str, new: str) -> Case:
        return config(ENSEMBLE.replace(old, new, 1))

    def between(one: str, two: str, pipeline: str = ENSEMBLE) -> Case:
        models = {"one": parse(one), "two": parse(two)}
        return lambda _: [
            f"{path}: {message}" for path, message, _ in mistakes_between(parse(pipeline), models)
        ]

    def first(old: str, new: str) -> Case:
        return between(MODEL.replace(old, new, 1), TWO)

    def last(old: str, new: str) -> Case:
        return between(MODEL, TWO.replace(old, new))

    def joined(*steps: str) -> Case:
        return lambda _: [f"{path}: {said}" for path, said in joins(*steps) if "join" in said]

    tensor = 'input { name: "x" data_type: TYPE_FP32 dims: 4 } '
    untyped = 'input { name: "x" dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }'
    any_strategy = (
        'parameters { key: "execution_context_allocation_strategy" value { string_value: "ANY" } }'
    )
    decoupled = MODEL + "model_transaction_policy { decoupled: true }"
    both = ENSEMBLE.replace('value: "middle"', 'value: "in"', 2).replace(
        'output_map { key: "y" value: "in" }', 'output_map { key: "y" value: "first" }'
    )
    unbatched = MODEL.replace("size: 4", "size: 0")
    wide = unbatched.replace("dims: 4", "dims: 5")
    return {
        "PyTorch without inputs and outputs": config('backend: "pytorch"'),
        "PyTorch with an input of no type": config(f'platform: "pytorch_libtorch" {untyped}'),
        "a platform that is none": config(f'platform: "onnxruntime" {tensor}'),
        "a platform of another backend": config(
            f'platform: "tensorrt_plan" backend: "onnxruntime" {tensor}'
        ),
        "a parameter of other values": config(f'backend: "tensorrt" {any_strategy}'),
        "an ensemble with instances": ensemble("max_batch", "instance_group { } max_batch"),
        "an ensemble of no platform": ensemble('platform: "ensemble"', ""),
        "an ensemble without steps": config('platform: "ensemble" ensemble_scheduling { }'),
        "a step of no model": ensemble('model_name: "two"', ""),
        "a step that reads what nothing writes": ensemble('value: "in"', 'value: "nowhere"'),
        "an output that no step writes": ensemble('name: "out"', 'name: "other"'),
        "a step of smaller batches": first("max_batch_size: 4", "max_batch_size: 2"),
        "a step with another input": first('name: "x"', 'name: "z"'),
        "a step with another input, which is optional": first(
            'name: "x"', 'name: "z" optional: true'
        ),
        "a step with another output": first('name: "y"', 'name: "z"'),
        "tensors of another dimension": last("dims: 4", "dims: 5"),
        "tensors of more dimensions": last("dims: 4", "dims: [ 2, 2 ]"),
        "tensors without a batch": between(MODEL, TWO.replace("4\n", "0\n").replace("4", "5")),
        "nothing has batches": between(unbatched, wide, ENSEMBLE.replace("size: 4", "size: 0")),
        "an input of another type": last('"x" data_type: TYPE_FP32', '"x" data_type: TYPE_INT8'),
        "an output of another type": last('"y" data_type: TYPE_FP32', '"y" data_type: TYPE_INT8'),
        "an ensemble that reshapes its input": between(
            MODEL, TWO, ENSEMBLE.replace("dims: 4 }", "dims: 4 reshape { shape: [ 2, 2 ] } }", 1)
        ),
        "answers of two decoupled models together": joined("a in p", "b in q", "c p,q out"),
        "answers of a decoupled model beside the request": joined("a in p", "c p,in out"),
        "answers of a decoupled step of a step": joined("inner in p", "c p,in out"),
        "outputs of a decoupled model and another": between(
            decoupled, TWO, both + 'output { name: "first" data_type: TYPE_FP32 dims: 4 }'
        ),
    }


#: What a server without a GPU reports for `config()` with dynamic_batching { }.
REPORTED = """
  version_policy { latest { num_versions: 1 } }
  optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }
  dynamic_batching { preferred_batch_size: 8 }
  instance_group { name: "m_0" kind: KIND_CPU count: 1 }
  default_model_filename: "model.py"
"""
#: A field, and a config that asks for another value than the server has.
FIELDS = {
    "dynamic_batching.max_queue_delay_microseconds": (
        "dynamic_batching { max_queue_delay_microseconds: 5 }"
    ),
    "dynamic_batching.preferred_batch_size": "dynamic_batching { preferred_batch_size: [ 2, 4 ] }",
    "dynamic_batching": "",
    "instance_group.count": "dynamic_batching { } instance_group { count: 4 }",
    "instance_group[0].kind": "instance_group { kind: KIND_GPU count: 1 }",
    "instance_group[1].count": "instance_group [ { count: 1 }, { count: 2 } ]",
    "parameters.threads": 'parameters { key: "threads" value { string_value: "4" } }',
    "response_cache.enable": "response_cache { enable: true }",
    "version_policy.latest.num_versions": "version_policy { latest { num_versions: 3 } }",
}


def compared() -> dict[str, Case]:
    """How a server differs from what it was asked for, and a copy of a model from another."""

    def difference(path: str, text: str) -> Case:
        return lambda _: base.differences(config(text), config(REPORTED), [path])

    def copies(there: Mapping[str, str], here: Mapping[str, str]) -> Case:
        return lambda _: content.differences(there, here)

    def too_many(here: Path) -> list[str]:
        write_models(here, m=PYTHON)
        for name in "abc":
            (here / "m" / name).touch()
        messages: list[str] = []
        with patch.object(content, "_MOST_FILES", 3):
            content.content_of(read_served(here, ["m"]), {}, messages.append)
        return messages

    def overridden(_: Path) -> list[str]:
        running = parse("max_batch_size: 8")
        served = base.Base.of_server(parse(""), running, completes=True)
        served = replace(served, overridden=frozenset({MAX_BATCH_SIZE}))
        return [violation.message for violation in served.violations({MAX_BATCH_SIZE: 4})]

    one = "instance_group [ { count: 1 } ]"
    there = {"1/model.onnx": "weights", "1/env": "x", "labels.txt": "cat"}
    here = {"1/model.onnx": "Weights", "1/env": "x", "2/model.onnx": "weights"}
    return {
        **{f"{path} of a server": difference(path, text) for path, text in FIELDS.items()},
        "files of a model": copies(there, here),
        "many files": copies({f"{number}": "" for number in range(8)}, {}),
        "more files than are compared": too_many,
        "a size that the server sets": overridden,
        "an element beyond the last": lambda _: edit(one, {"instance_group[1].count": 3}),
        "an element beyond the last two": lambda _: edit(
            "instance_group [ { }, { } ]", {"instance_group[2].count": 3}
        ),
    }
