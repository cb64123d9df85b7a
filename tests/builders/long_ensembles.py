"""An ensemble of any number of Python steps, one after the other, in a repository of its own."""

from __future__ import annotations

from pathlib import Path

from builders.ensemble_cases import step
from builders.model_files import write_model

_MODEL = """\
name: "{name}"
{kind}
max_batch_size: {batch}
input [{{name: "x" data_type: TYPE_FP32 dims: [4]}}]
output [{{name: "y" data_type: TYPE_FP32 dims: [4]}}]
"""
_CODE = """\
class TritonPythonModel:
    def execute(self, requests):
        return []
"""


def make_ensemble(repository: Path, steps: int) -> str:
    """The ensemble's name; its steps are step-00, step-01 and so on."""
    names = [f"step-{number:02d}" for number in range(steps)]
    for name in names:
        text = _MODEL.format(name=name, kind='backend: "python"', batch=16)
        write_model(repository / name, text, _CODE)
    tensors = ["x", *(f"t{number}" for number in range(1, steps)), "y"]
    scheduling = "".join(map(step, names, tensors, tensors[1:]))
    text = _MODEL.format(name="whole", kind='platform: "ensemble"', batch=4)
    write_model(repository / "whole", text + f"ensemble_scheduling {{ {scheduling} }}\n")
    return "whole"
