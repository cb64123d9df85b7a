"""An ensemble of any number of Python steps, one after the other, in a repository of its own."""

from __future__ import annotations

from pathlib import Path

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
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.py").write_text(_CODE)
        text = _MODEL.format(name=name, kind='backend: "python"', batch=16)
        (repository / name / "config.pbtxt").write_text(text)
    tensors = ["x", *(f"t{number}" for number in range(1, steps)), "y"]
    scheduling = "".join(
        f'  step {{ model_name: "{name}" model_version: -1 '
        f'input_map {{ key: "x" value: "{given}" }} '
        f'output_map {{ key: "y" value: "{made}" }} }}\n'
        for name, given, made in zip(names, tensors, tensors[1:], strict=False)
    )
    (repository / "whole" / "1").mkdir(parents=True)
    text = _MODEL.format(name="whole", kind='platform: "ensemble"', batch=4)
    text += f"ensemble_scheduling {{\n{scheduling}}}\n"
    (repository / "whole" / "config.pbtxt").write_text(text)
    return "whole"
