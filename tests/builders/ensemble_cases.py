"""An ensemble of two models, and changes to its config that Triton refuses."""

from __future__ import annotations

ENSEMBLE = """
name: "e" platform: "ensemble" max_batch_size: 4
input { name: "in" data_type: TYPE_FP32 dims: 4 }
output { name: "out" data_type: TYPE_FP32 dims: 4 }
ensemble_scheduling {
  step {
    model_name: "one" model_version: -1
    input_map { key: "x" value: "in" }
    output_map { key: "y" value: "middle" }
  }
  step {
    model_name: "two" model_version: -1
    input_map { key: "x" value: "middle" }
    output_map { key: "y" value: "out" }
  }
}
"""
MODEL = """
name: "one" backend: "python" max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 4 }
"""


def step(model: str, reads: str, writes: str) -> str:
    return (
        f'step {{ model_name: "{model}" model_version: -1 '
        f'input_map {{ key: "x" value: "{reads}" }} output_map {{ key: "y" value: "{writes}" }} }} '
    )


#: text to replace, its replacement, path and part of the message of the mistake
ENSEMBLE_MISTAKES = [
    ("max_batch_size", "instance_group { } max_batch_size", "instance_group", "no instance_group"),
    ("max_batch_size", "optimization { } max_batch_size", "optimization", "no optimization"),
    ("max_batch_size", "model_warmup { } max_batch_size", "model_warmup", "no model_warmup"),
    ('platform: "ensemble"', "", "platform", "has platform"),
    ('platform: "ensemble"', 'platform: "ensemble" backend: "python"', "platform", "no backend"),
    ('model_name: "two"', "", "ensemble_scheduling.step[1]", "step 1 has no model_name"),
    ("model_version: -1", "", "ensemble_scheduling.step[0]", "step 0 has no model_version"),
    ('input_map { key: "x" value: "middle" }', "", "ensemble_scheduling.step[1]", "no input_map"),
    ('output_map { key: "y" value: "out" }', "", "ensemble_scheduling.step[1]", "no output_map"),
    ('value: "middle" }\n  }', 'value: "out" }\n  }',
     "ensemble_scheduling.step[1].output_map", "'out' is written more than once"),
    ('name: "in"', 'name: "other"', "input", "no step reads the ensemble's input 'other'"),
    ('name: "out"', 'name: "other"', "output", "no step writes the ensemble's output 'other'"),
    ('value: "in"', 'value: "nowhere"', "ensemble_scheduling.step[0].input_map",
     "reads 'nowhere', which nothing writes"),
    ('value: "out" }', 'value: "out" } output_map { key: "z" value: "unused" }',
     "ensemble_scheduling.step[1].output_map", "nothing uses 'unused'"),
    ("ensemble_scheduling {", "ensemble_scheduling {" + step("two", "loop", "loop"),
     "ensemble_scheduling.step[0].input_map", "step 0 (two) never runs: 'loop'"),
    ("ensemble_scheduling {",
     "ensemble_scheduling {" + step("two", "a", "b") + step("one", "b", "a"),
     "ensemble_scheduling.step[1].input_map", "step 1 (one) never runs: 'b'"),
]  # fmt: skip
