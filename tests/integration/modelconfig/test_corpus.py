"""Triton's own parser accepts and refuses the same texts as ours, edited ones included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders.configs import BAD, GOOD

from tuner.errors import DeployRefusedError
from tuner.modelconfig.edit import edit
from tuner.modelconfig.encoding import decode, encode
from tuner.server.control import Control

pytestmark = pytest.mark.integration

FIELDS = {
    "max_batch_size": 64,
    "parameters.threads": 2,
    "instance_group[kind=KIND_MODEL].count": 2,
    "response_cache.enable": None,
}
UNREADABLE = re.compile(r"failed to read text proto from \S*/(\w+)/config\.pbtxt")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each text as a model of its own; none of them loads, for want of a model file."""
    root = tmp_path_factory.mktemp("corpus")
    contents = {f"bad_{path.stem}": path.read_bytes() for path in BAD}
    for path in GOOD:
        stem = path.stem.replace("-", "_")
        contents[f"good_{stem}"] = path.read_bytes()
        text, encoding = decode(path.read_bytes())
        contents[f"edited_{stem}"] = encode(edit(text, FIELDS), encoding)
    for name, content in contents.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_bytes(content)
    return root


def test_triton_reads_what_we_read(control: Control, repository: Path, log: Path) -> None:
    names = [path.name for path in repository.iterdir()]
    for name in names:
        with pytest.raises(DeployRefusedError):
            control.load(name, None, 30.0)
    unreadable = set(UNREADABLE.findall(log.read_text()))
    assert unreadable == {name for name in names if name.startswith("bad_")}
