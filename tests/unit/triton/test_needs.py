"""What is known of a release before a server of it serves."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.serving import served_several

from tuner.errors import EnvironmentNotReadyError
from tuner.triton.needs import holes_of, refuse_names


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        ("2.51.0 (/opt/tritonserver/bin/tritonserver, from PATH)", True),
        ("2.59.0, image sha256:1", True),
        ("2.59.1", False),
        ("2.73.0dev", False),
        ("unknown version, image sha256:1", False),
    ],
)
def test_vulnerable_release_is_reported_with_the_fixed_one(version: str, warned: bool) -> None:
    assert bool(holes_of(version)) is warned


def test_model_name_that_newer_servers_refuse_is_reported_before_serving(tmp_path: Path) -> None:
    group = 'backend: "python" instance_group { name: "a$b" }'
    models = served_several(tmp_path, **{"a;b": 'backend: "python"', "x": group}).models
    named, grouped = ([model.files] for model in models.values())
    for version in ("2.60.0, image sha256:1", "unknown version"):
        refuse_names(version, [*named, *grouped])
    with pytest.raises(EnvironmentNotReadyError, match="'a;b'") as refused:
        refuse_names("2.61.0, image sha256:1", named)
    assert "Triton 2.61.0 " in refused.value.message
    assert "rename" in refused.value.hint
    with pytest.raises(EnvironmentNotReadyError, match=r"'a\$b'"):
        refuse_names("2.73.0dev", grouped)
    onnx = served_several(tmp_path, **{"a;c": 'backend: "onnxruntime"'}).models.values()
    refuse_names("2.73.0", [model.files for model in onnx])
