"""Writes the model repository of the GPU benchmark: `served_model.py` under three configs.

On a CPU, small versions of the same models are served to test the procedure; their results say
nothing about a GPU.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

SERVED = Path(__file__).with_name("served_model.py")


class Device(Enum):
    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True)
class Model:
    """What a config says; ``parameters`` are read by `served_model.py`."""

    name: str
    says: str
    input: str
    output: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def config(self, device: Device) -> str:
        """The text of config.pbtxt from which tuning starts: every request runs alone."""
        entries = "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            for key, value in self.parameters.items()
        )
        return (
            f'# {self.says}\nname: "{self.name}"\nbackend: "python"\nmax_batch_size: 32\n\n'
            f"input [ {self.input} ]\noutput [ {self.output} ]\n\n{entries}\n"
            "# One instance and no dynamic_batching block: every request runs alone.\n"
            f"instance_group [ {{ count: 1 kind: KIND_{device.name} }} ]\n"
        )


_BERT = {"network": "bert", "layers": "12", "hidden": "768", "ballast": "0"}
BERT = Model(
    "bert-base",
    "BERT-base with two labels over 128 tokens; weights drawn from a seed, fp16 on the GPU.",
    '{ name: "input_ids" data_type: TYPE_INT64 dims: [ 128 ] }',
    '{ name: "logits" data_type: TYPE_FP32 dims: [ 2 ] }',
    _BERT,
)
#: Three copies fit on a GPU and four do not, whatever the GPU.
HEAVY = replace(
    BERT,
    name="bert-heavy",
    says="bert-base, each instance of which takes 27 % of the GPU's memory besides.",
    parameters={**_BERT, "ballast": "27%"},
)
CNN = Model(
    "small-cnn",
    "Twelve small convolutions over a grey image: launching them takes longer than they do.",
    '{ name: "image" data_type: TYPE_FP32 dims: [ 1, -1, -1 ] }',
    '{ name: "scores" data_type: TYPE_FP32 dims: [ 10 ] }',
    # Without it the backend copies what clients send through CUDA shared memory to the host.
    {"network": "cnn", "layers": "12", "ballast": "0", "FORCE_CPU_ONLY_INPUT_TENSORS": "no"},
)
MODELS = (BERT, HEAVY, CNN)


def small(model: Model) -> Model:
    """Sizes that a CPU core serves."""
    sizes = {"layers": "2", "hidden": "128", "ballast": "0"}
    kept = {k: sizes.get(k, v) for k, v in model.parameters.items()}
    return replace(model, parameters=kept, says=f"Small, for a CPU: {model.says}")


def write_repository(repository: Path, device: Device) -> None:
    """Writes all models, replacing existing ones."""
    for model in MODELS:
        served = model if device is Device.GPU else small(model)
        version = repository / model.name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version.parent / "config.pbtxt").write_text(served.config(device))
        shutil.copy(SERVED, version / "model.py")
