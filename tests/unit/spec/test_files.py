"""The files that a spec names."""

from __future__ import annotations

from pathlib import Path

from builders.messages_specs import THEIRS

from tuner.spec.files import files_of
from tuner.spec.load import load_spec


def test_a_file_of_the_load_is_named_by_its_field(tmp_path: Path) -> None:
    file, spec = tmp_path / "inputs.json", tmp_path / "spec.yaml"
    file.write_text("{}")
    inputs = f"workload: {{inputs: {{kind: file, file: {file}}}, perf_analyzer: /opt/p}}\n"
    spec.write_text(f"{THEIRS}{inputs}")
    assert files_of(load_spec(spec).spec) == {"streams.m.inputs.file": file}
