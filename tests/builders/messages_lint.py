"""What `tune lint` says of models, each with a mistake of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.refusals import Case

from tuner.lint.repository import lint_repository

PYTHON = """name: "m"
backend: "python"
max_batch_size: 8
"""
MODEL_PY = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
COMPLETING = """
    @staticmethod
    def auto_complete_config(config):
        %s
        return config
"""
ADD_Y = """y = {"name": "y", "data_type": "TYPE_FP32", "dims": [4], "optional": True}
        config.add_output(y)"""
TENSORS = 'input { name: "x" data_type: TYPE_FP32 dims: 4 } '
EXECUTE = "class TritonPythonModel:\n    def execute(self, r): ...\n"
#: That of a model whose code completes it.
COMPLETED = PYTHON + TENSORS + "model_transaction_policy { decoupled: false }"
#: What its code sets, and the config has otherwise.
CODE = {
    "an input without a type": 'config.add_input({"name": "x", "dims": [4]})',
    "an output with a key that is none": ADD_Y,
    "an input of another type": (
        'config.add_input(dict(name="x", data_type="TYPE_INT32", dims=[4]))'
    ),
    "an input of other dimensions": (
        'config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]})'
    ),
    "another batch size": "config.set_max_batch_size(4)",
    "a policy that is none": 'config.set_model_transaction_policy({"coupled": True})',
    "another policy": "config.set_model_transaction_policy(dict(decoupled=True))",
}


def add(
    repository: Path,
    name: str,
    config: str,
    files: Sequence[str] = ("1/model.py",),
    source: str = MODEL_PY,
) -> None:
    """A model with this config and these files."""
    directory = repository / name
    directory.mkdir(exist_ok=True)
    (directory / "config.pbtxt").write_text(config)
    for file in files:
        path = directory / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(source if file.endswith(".py") else "")


def findings() -> dict[str, Case]:
    def linted(make: Callable[[Path], object], model: str | None = None) -> Case:
        def case(here: Path) -> list[str]:
            make(here)
            return [
                f"{f.file.relative_to(here)}:{f.line}: {f.severity.value} {f.rule}: {f.message}"
                f"{f' ({f.hint})' if f.hint else ''}"
                for f in lint_repository(here, model)
            ]

        return case

    def coded(code: str, config: str = COMPLETED, completing: str = COMPLETING) -> Case:
        return linted(lambda here: add(here, "m", config, source=EXECUTE + completing % code))

    def unfit(here: Path) -> None:
        add(here, "e", ENSEMBLE.replace("max_batch_size: 4", "max_batch_size: 8"), ["1/.gitkeep"])
        add(here, "one", MODEL)
        add(here, "two", MODEL.replace('"one"', '"two"').replace("dims: 4", "dims: 5", 1))

    def linked(here: Path) -> None:
        add(here, "m", 'backend: "onnxruntime" max_batch_size: 4', ["1/x"])
        (here / "m" / "1" / "model.onnx").symlink_to("/nowhere/model.onnx")

    untyped = 'input { name: "x" dims: 4 }'
    labelled = 'output { name: "y" data_type: TYPE_FP32 dims: 4 label_filename: "labels.txt" }'
    return {
        **{f"its code sets {what}": coded(code) for what, code in CODE.items()},
        "its code returns no config": coded(
            "return", completing=COMPLETING.replace("return config", "")
        ),
        "its code sets a batcher for sequences": coded(
            "config.set_dynamic_batching()", PYTHON + "sequence_batching { }"
        ),
        "steps that do not fit": linted(unfit, "e"),
        "steps in another repository": linted(
            lambda here: add(here, "e", ENSEMBLE, ["1/.gitkeep"])
        ),
        "a link to nothing": linted(linked),
        "a PyTorch model without outputs": linted(
            lambda here: add(here, "m", untyped, ["1/model.pt"])
        ),
        "labels that are not there": linted(
            lambda here: add(here, "m", f'backend: "x"\n{labelled}'), "m"
        ),
    }
