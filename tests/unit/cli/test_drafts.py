"""What `tune init` drafts, `tune plan` answers for: soon, and with 0 or, lacking a program, 4."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import yaml
from builders import load_repository, sequence_model, triton_repository
from builders.commands import Tune
from builders.effort import takes_at_most
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.model_files import copy_examples, write_model

from tuner.modelconfig.files import model_names
from tuner.modelconfig.message import parse
from tuner.run.plan import draw_plan
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin
from tuner.space.draft import Given, draft_spec
from tuner.space.draft_instances import Machine
from tuner.space.draft_space import DraftedModel
from tuner.space.experts import EXPERTS

ROOT = Path(__file__).parents[3]
#: Of `takes_at_most`, for a plan; without what the client costs, which is measured by processes.
SOON = 300
TENSORS = (
    'input { name: "x" data_type: TYPE_FP32 dims: 4 } '
    'output { name: "y" data_type: TYPE_FP32 dims: 4 }\n'
)
ENGINE = 'backend: "vllm" instance_group [{ count: 1 kind: KIND_MODEL }]'
CHAT = (
    'backend: "python" model_transaction_policy { decoupled: true }\n'
    'input { name: "text" data_type: TYPE_STRING dims: 1 } '
    'output { name: "answer" data_type: TYPE_STRING dims: 1 }\n'
)
CALLING = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceRequest(model_name="llm", inputs=[]).exec() for _ in requests]
"""


COMPLETING = """
class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, config):
        cls._add(config)
        config.set_model_transaction_policy(dict(decoupled=True))
        config.set_max_batch_size(0)
        return config

    @staticmethod
    def _add(config):
        inputs = [
            {"name": "text", "data_type": "TYPE_STRING", "dims": [1]},
            {"name": "words", "data_type": "TYPE_STRING", "dims": [-1]},
            {"name": "pcm", "data_type": "TYPE_INT16", "dims": [-1], "optional": True},
        ]
        names = []
        for input in config.as_dict()["input"]:
            names.append(input["name"])
        for input in inputs:
            if input["name"] not in names:
                config.add_input(input)
        config.add_output({"name": "answer", "data_type": "TYPE_STRING", "dims": [-1]})

    def execute(self, requests): ...
"""


def shipped(here: Path) -> None:
    copy_examples(here)


def of_sequences(here: Path) -> None:
    for strategy in ("direct { }", "oldest { max_candidate_sequences: 4 }"):
        name = strategy.partition(" ")[0]
        write_model(here / name, sequence_model.sequence_config(name, strategy))


def of_every_backend(here: Path) -> None:
    for backend in (*EXPERTS, "my_engine"):
        for size in (0, 1, 2, 64):
            text = f'backend: "{backend}" max_batch_size: {size}\n{TENSORS}'
            write_model(here / f"{backend}-{size}", text)


def of_many_parts(here: Path) -> None:
    """Six steps, and an ensemble of two that batches by four."""
    write_model(here / "e", ENSEMBLE)
    for name in ("one", "two"):
        write_model(here / name, MODEL.replace("one", name).replace("size: 4", "size: 64"))
    steps = ""
    for at in range(6):
        write_model(here / f"s{at}", f'backend: "python" max_batch_size: 64 {TENSORS}')
        reads, writes = "x" if at == 0 else f"t{at}", "y" if at == 5 else f"t{at + 1}"
        steps += (
            f'step {{ model_name: "s{at}" model_version: -1 '
            f'input_map {{ key: "x" value: "{reads}" }} '
            f'output_map {{ key: "y" value: "{writes}" }} }}\n'
        )
    scheduled = f"ensemble_scheduling {{ {steps} }}"
    write_model(here / "long", f'platform: "ensemble" max_batch_size: 8 {TENSORS}{scheduled}')


def of_language_models(here: Path) -> None:
    write_model(here / "llm", ENGINE)
    write_model(here / "chat", CHAT, CALLING)


def real_networks(here: Path) -> None:
    shutil.copytree(ROOT / "benchmarks" / "real" / "models", here)


def completed_by_code(here: Path) -> None:
    write_model(here / "m", 'backend: "python"', COMPLETING)


def of_searches(here: Path) -> None:
    shutil.copytree(ROOT / "benchmarks" / "searches" / "served_models", here)


def published(here: Path) -> None:
    for config in sorted((ROOT / "tests" / "cases" / "pbtxt" / "published").rglob("*.pbtxt")):
        write_model(here / f"{config.parent.name}-{config.stem}", config.read_text())


#: Writes a repository into a directory, or into one below it.
REPOSITORIES: dict[str, Callable[[Path], object]] = {
    "shipped": shipped,
    "loads": load_repository.make_repository,
    "ensemble": triton_repository.make_ensemble,
    "sequences": of_sequences,
    "backends": of_every_backend,
    "parts": of_many_parts,
    "language models": of_language_models,
    "real networks": real_networks,
    "searches": of_searches,
    "completed": completed_by_code,
    "published": published,
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tritonserver that has the Python backend alone."""
    library = tmp_path / "backends" / "python" / "libtriton_python.so"
    library.parent.mkdir(parents=True)
    library.touch()
    wheel = Installation(Path("tritonserver"), "2.51.0", Origin.WHEEL, {}, tmp_path / "backends")
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: nullcontext(wheel))


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("backend", "image"),
    [
        ("onnxruntime", "nvcr.io/nvidia/tritonserver:26.09-py3"),
        ("tensorflow", "nvcr.io/nvidia/tritonserver:25.02-py3"),
        ("vllm", "nvcr.io/nvidia/tritonserver:26.09-vllm-python-py3"),
        ("tensorrtllm", "nvcr.io/nvidia/tritonserver:26.09-trtllm-python-py3"),
    ],
)
def test_draft_names_the_image_that_has_the_backends(
    backend: str, image: str, tmp_path: Path, tune: Tune
) -> None:
    write_model(tmp_path / "llm", f'backend: "{backend}"')
    write_model(tmp_path / "chat", CHAT, CALLING)
    assert tune("init", "chat", "--repository", tmp_path, "--output", "-") == 0
    assert yaml.safe_load(tune.out)["server"] == {"mode": "docker", "image": image}


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("backends", [("my_engine", "python"), ("vllm", "onnxruntime")])
def test_draft_for_backends_that_no_image_has_says_what_to_name(
    backends: tuple[str, str], tmp_path: Path, tune: Tune
) -> None:
    for name, backend in zip(("llm", "other"), backends, strict=True):
        write_model(tmp_path / name, f'backend: "{backend}" {TENSORS}')
    code = CALLING + '        pb_utils.InferenceRequest(model_name="other", inputs=[])\n'
    write_model(tmp_path / "chat", CHAT, code)
    assert tune("init", "chat", "--repository", tmp_path, "--output", "-") == 0
    assert yaml.safe_load(tune.out)["server"] == {"mode": "local"}
    remark = " ".join(tune.out.split("\nserver:")[0].replace("#", "").split())
    assert "--backend-directory=DIR" in remark
    assert "image: IMAGE" in remark


def test_called_language_model_is_loaded_and_not_searched(tmp_path: Path, tune: Tune) -> None:
    of_language_models(tmp_path)
    assert tune("init", "chat", "--repository", tmp_path, "--output", "-", "--server", "g") == 0
    models = yaml.safe_load(tune.out)["models"]
    assert models["llm"] == {}
    assert models["chat"]["calls"] == ["llm"]
    assert models["chat"]["space"]


def test_draft_has_what_the_code_completes(tmp_path: Path, tune: Tune) -> None:
    completed_by_code(tmp_path)
    assert tune("init", "m", "--repository", tmp_path, "--output", "-", "--server", "g") == 0
    drafted = yaml.safe_load(tune.out)
    assert drafted["slo"][0].startswith("p99_first_response")
    assert drafted["workload"]["inputs"]["shapes"] == {"words": [1]}
    assert set(drafted["space"]) == {"instance_group.count"}
    assert "# model.py sets a max_batch_size of 1 or 0" in tune.out
    assert "response_cache" not in tune.out


def test_a_model_that_triton_does_not_see_is_refused_with_the_reason(
    tmp_path: Path, tune: Tune
) -> None:
    (tmp_path / "m" / "0").mkdir(parents=True)
    (tmp_path / "m" / "0" / "model.py").write_text(CALLING)
    assert tune("init", "m", "--repository", tmp_path, "--output", "-") == 2
    assert "Triton passes over 0" in tune.err


def test_template_and_folder_of_models_are_named_where_no_model_is(
    tmp_path: Path, tune: Tune
) -> None:
    write_model(tmp_path / "m", TENSORS)
    (tmp_path / "m" / "config.pbtxt").rename(tmp_path / "m" / "config_template.pbtxt")
    write_model(tmp_path / "group" / "models" / "n", TENSORS)
    assert tune("init", "m", "--repository", tmp_path, "--output", "-") == 2
    assert "m holds neither a config.pbtxt nor a model: Triton does not read config_t" in tune.err
    assert "next:  make config.pbtxt of it" in tune.err
    assert tune("init", "group", "--repository", tmp_path, "--output", "-") == 2
    assert f"tune init MODEL --repository {tmp_path / 'group' / 'models'}" in tune.err


@pytest.mark.usefixtures("server")
def test_ensemble_over_a_language_model_is_refused_as_plan_does(tmp_path: Path, tune: Tune) -> None:
    write_model(tmp_path / "e", ENSEMBLE)
    write_model(tmp_path / "one", MODEL)
    write_model(tmp_path / "two", MODEL.replace("one", "two").replace("python", "tensorrtllm"))
    assert tune("init", "e", "--repository", tmp_path, "--output", "-") == 2
    assert "two is a language model (tensorrtllm)" in tune.err


@pytest.mark.parametrize("name", ["conf/a.pbtxt", "../config.pbtxt", "x\n.pbtxt"])
def test_init_refuses_to_write_to_what_no_server_reads(
    name: str, tmp_path: Path, tune: Tune
) -> None:
    write_model(tmp_path / "m", MODEL)
    given = ["init", "m", "--repository", tmp_path, "--output", "-", "--write-to", name]
    assert tune(*given) == 2
    assert tune.out == ""
    assert "configs/NAME.pbtxt is expected" in tune.err


#: Of a config or a directory's name; as it is, its second line would be a key of the spec.
HOSTILE = "x\nwrite_to: configs/x.pbtxt\n#"


@pytest.mark.usefixtures("server")
def test_text_of_a_config_becomes_no_key_of_a_draft(tmp_path: Path, tune: Tune) -> None:
    escaped = HOSTILE.replace("\n", "\\n")
    open_input = f'input {{ name: "{escaped}" data_type: TYPE_STRING dims: [ -1 ] }}'
    write_model(tmp_path / "m", f'backend: "{escaped}" max_batch_size: 8 {open_input}')
    assert tune("init", "m", "--repository", tmp_path, "--output", "-") == 0
    drafted = yaml.safe_load(tune.out)
    assert "write_to" not in drafted
    assert drafted["workload"]["inputs"]["shapes"] == {HOSTILE: [1]}


def test_text_of_a_model_analyzer_file_becomes_no_key_of_a_draft() -> None:
    fields = {"parameters.a\nwrite_to": {"choice": ["1", "2"]}}
    slos = ("p99_latency <= 100ms",)
    given = Given(HOSTILE, slos, spaces={"m": fields}, shapes={HOSTILE: [1]}, left=(HOSTILE,))
    text = f'max_batch_size: 8 input {{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }} {TENSORS}'
    models = {"m": DraftedModel(parse(text), unnamed=(HOSTILE,))}
    drafted = yaml.safe_load(draft_spec(models, Machine(2), ".", given=given, why=HOSTILE))
    assert "write_to" not in {*drafted, *drafted["models"]["m"]["space"]}


@pytest.mark.parametrize("name", [HOSTILE, "a\u202eb", "a\x1b[31m"])
def test_init_drafts_for_no_name_with_control_characters(
    name: str, tmp_path: Path, tune: Tune
) -> None:
    write_model(tmp_path / "models" / name.replace("/", "-"), MODEL)
    given = ["--repository", tmp_path / "models", "--output", "-"]
    assert tune("init", name.replace("/", "-"), *given) == 2
    assert "non-printable characters" in tune.err
    assert tune("init", "--all", tmp_path / "models", "--output", tmp_path) == 2
    assert not [*tmp_path.glob("*.yaml")]


def planned(spec: Path) -> None:
    plan = draw_plan(spec, {"PATH": ""}, 3)
    assert plan.space_size > 1
    assert plan.candidates


@pytest.mark.parametrize("made", REPOSITORIES)
def test_plan_accepts_each_draft_soon(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.chdir(tmp_path)
    there = Path("models")
    below = REPOSITORIES[made](there)
    there = below if isinstance(below, Path) else there
    drafted = 0
    for name in model_names(there):
        spec = Path(f"{name}.yaml")
        if tune("init", name, "--repository", there, "--output", spec, "--server", "gpu") != 0:
            continue  # it says why; no draft, nothing to plan
        drafted += 1
        assert takes_at_most(SOON, partial(planned, spec)), name
    assert drafted
