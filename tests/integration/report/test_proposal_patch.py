"""What a run proposes, taken by a real Git."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.runs import BETTER, CONFIG, Toy, edit_config, make_run, stored_run, with_config

from tuner.report.data import load
from tuner.report.render import patch_of, write_proposal
from tuner.writeback.plan import sha256_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git"),
]


def read(before: str | None) -> dict[str, Any]:
    """What a manifest says of the config that the run read."""
    if before is None:
        return {"text": "", "sha256": None}
    return {"text": before, "sha256": sha256_of(before)}


@pytest.mark.parametrize(
    "before", [CONFIG, CONFIG.rstrip("\n"), CONFIG.replace("\n", "\r\n"), None]
)
@pytest.mark.parametrize("model", ["toy", "a model"])
def test_git_apply_takes_it(tmp_path: Path, before: str | None, model: str) -> None:
    checkout = tmp_path / "checkout"
    config = checkout / "models" / model / "config.pbtxt"
    config.parent.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True)
    if before is not None:
        config.write_bytes(before.encode())
    run = with_config(make_run(tmp_path, Toy(trials=5)), config, before=before)
    edit_config(run, name=model, **read(before))
    for name, key in (("manifest.json", "name"), ("result.json", "model")):
        data = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps({**data, key: model}))
    patch = tmp_path / "proposal.patch"
    patch.write_bytes(patch_of(run).encode())
    subprocess.run(["git", "apply", "--check", str(patch)], cwd=checkout, check=True)
    subprocess.run(["git", "apply", str(patch)], cwd=checkout, check=True)
    assert config.read_bytes() == BETTER.encode()


def test_git_apply_takes_the_configs_of_several_models_as_one(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True)
    run = stored_run(tmp_path)
    manifest = json.loads((run / "manifest.json").read_text())
    configs = []
    for name in ("tiny-bert", "tokenizer"):
        config = checkout / "models" / name / "config.pbtxt"
        config.parent.mkdir(parents=True)
        config.write_text(manifest["models"][name]["text"])
        manifest["models"][name]["path"] = str(config)
        configs.append(config)
    (run / "manifest.json").write_text(json.dumps(manifest))
    patch, body = write_proposal(load(run))
    subprocess.run(["git", "apply", str(patch)], cwd=checkout, check=True)
    texts = json.loads((run / "result.json").read_text())["models"].values()
    assert [config.read_text() for config in configs] == [text["config_after"] for text in texts]
    assert body.read_text().count("The change as a diff\n") == 1
