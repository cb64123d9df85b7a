"""Specs that say the same in other words or on other machines, and how others are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.told_specs import THEIRS as SPEC

from tuner.spec.load import effective_yaml, load_spec
from tuner.spec.meaning import differences, files_of, meaning

CASES = Path(__file__).parents[2] / "cases"
REWRITTEN = """\
# The same in the long form, on another machine.
models:
  m: {space: {instance_group.count: {int: [1, 4], step: 1}}}
repository: /data/models
streams: {m: {model: m, batch_size: 1}}
slo: ["p99_latency <= 0.06s"]
budget: {trials: 7, time: 1m}
search: {seed: 4}
server: {binary: /opt/tritonserver, gpus: [2], cpus: 0-5}
workload: {window: 3000ms, cpus: 6-7, perf_analyzer: /opt/perf_analyzer}
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "spec.yaml"
    path.write_text(text)
    return path


def told(there: Path, here: Path, *overrides: str) -> list[str]:
    ours = load_spec(here, overrides)
    found = differences(meaning(load_spec(there).spec), meaning(ours.spec))
    return [str(ours.mistake(f.location, f.message)).removeprefix(f"{here}:") for f in found]


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return written(tmp_path / "there", SPEC)


def test_what_a_machine_has_in_its_own_way_and_other_words_make_no_difference(
    there: Path, tmp_path: Path
) -> None:
    assert told(there, written(tmp_path, REWRITTEN)) == []
    assert told(written(tmp_path, REWRITTEN), there) == []


@pytest.mark.parametrize("path", sorted((CASES / "good").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_spec_means_the_same_with_its_defaults_written_out(path: Path, tmp_path: Path) -> None:
    text = effective_yaml(load_spec(path).spec).replace("'***'", "a value")
    assert told(path, written(tmp_path, text)) == []


def test_of_variables_the_names_count_and_of_mounts_the_places_inside(
    there: Path, tmp_path: Path
) -> None:
    docker = "server: {mode: docker, image: i, environment: {KEY: %s}, mounts: {%s: /data}}\n"
    written(there.parent, SPEC + docker % ("secret", "/srv/a"))
    here = written(tmp_path, SPEC + docker % ("{from: MINE}", "/srv/b"))
    assert told(there, here) == []


def test_a_file_of_the_load_may_lie_elsewhere_and_is_named_by_its_field(
    there: Path, tmp_path: Path
) -> None:
    files: dict[str, Any] = {}
    for directory in (there.parent, tmp_path):
        file = directory / f"{directory.name}.json"
        file.write_text("{}")
        text = f"workload: {{inputs: {{kind: file, file: {file}}}}}\n"
        files[directory.name] = file, load_spec(written(directory, SPEC + text)).spec
    (_, one), (file, other) = files.values()
    assert meaning(one) == meaning(other)
    assert files_of(other) == {"streams.m.inputs.file": file}
