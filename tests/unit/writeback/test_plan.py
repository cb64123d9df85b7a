from __future__ import annotations

from pathlib import Path

import pytest
from builders.plans import make_file

from tuner.errors import SpecError
from tuner.run.manifest import KeptConfig, Manifest
from tuner.space.candidate import Candidate
from tuner.writeback.plan import plan_from_run, sha256_of

OLD, NEW = "max_batch_size: 1\n", "max_batch_size: 8"


def manifest(config_text: str = OLD, config_sha256: str | None = "") -> Manifest:
    sha256 = sha256_of(config_text) if config_sha256 == "" else config_sha256
    return Manifest(
        run_id="r1", created_at="", spec_path="", spec_text="", spec_sha256="", spec={}, name="m",
        seed=0, models={"m": KeptConfig("m", "/repo/m/config.pbtxt", config_text, sha256)},
        versions={}, host={}, gpus=(), fingerprint="f",
        current=Candidate.of_models({"m": {}}), arrivals=1, streams={"m": "m"},
    )  # fmt: skip


RESULT = {
    "status": "improved",
    "winner": {},
    "models": {"m": {"config_after": NEW}},
    "server_args": ["--x=1"],
}


def test_made_from_a_run() -> None:
    plan = plan_from_run(manifest(), RESULT)
    (file,) = plan.files
    assert file.path == Path("/repo/m/config.pbtxt")
    assert (file.text_before, file.text_after) == (OLD, NEW)
    assert file.sha256_before == sha256_of(OLD)
    assert file.sha256_after == sha256_of(NEW)
    assert plan.server_args == ("--x=1",)


def test_another_repository_may_be_named(tmp_path: Path) -> None:
    (file,) = plan_from_run(manifest(), RESULT, tmp_path).files
    assert file.path == tmp_path / "m" / "config.pbtxt"


def test_a_model_without_a_config_has_no_text_before() -> None:
    plan = plan_from_run(manifest("", None), RESULT)
    (file,) = plan.files
    assert file.text_before is None
    assert file.sha256_before is None
    assert file.diff().endswith("@@ -0,0 +1 @@\n+max_batch_size: 8\n\\ No newline at end of file\n")


@pytest.mark.parametrize(
    "result",
    [
        {"status": "kept", "winner": None, "models": {}},
        {"status": "infeasible", "winner": None},
        {"status": "failed", "winner": None, "models": {"m": {"config_after": "text"}}},
    ],
)
def test_a_run_without_a_winner_is_refused(result: dict[str, object]) -> None:
    with pytest.raises(
        SpecError, match=f"r1 has no config to write: it ended as {result['status']}"
    ):
        plan_from_run(manifest(), result)


def test_diff_shows_the_change_and_a_missing_last_newline(tmp_path: Path) -> None:
    diff = make_file(tmp_path, "m", before="a\nb\n", after="a\nc").diff()
    assert diff == (
        "--- a/m/config.pbtxt\n+++ b/m/config.pbtxt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
        "\\ No newline at end of file\n"
    )


@pytest.mark.parametrize(
    ("facts", "changes", "said"),
    [
        (manifest(OLD, sha256_of("other")), {}, "the config it read is not the one whose hash"),
        (manifest(OLD, None), {}, "that it says was not there"),
        (manifest("half {"), {}, "the config it read is not a config: line 1"),
        (
            manifest(),
            {"models": {"m": {"config_after": "\n\n#!/bin/sh\nrm"}}},
            "its winner's config is not a config: line 4",
        ),
        (manifest(), {"models": {"m": {"config_after": "\udcff"}}}, "not Unicode text"),
        (manifest(), {"written": {"sha256_after": "0" * 64}}, "its winner's config is not the one"),
        (manifest(), {"model": "n"}, "its result is about the model 'n', not 'm'"),
    ],
)
def test_a_run_that_contradicts_itself_is_no_plan(
    facts: Manifest, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(SpecError, match=f"run r1 cannot be applied: .*{said}"):
        plan_from_run(facts, {**RESULT, **changes})


def test_a_run_that_was_written_already_is_a_plan_still() -> None:
    written = {"sha256_before": sha256_of(OLD), "sha256_after": sha256_of(NEW)}
    assert plan_from_run(manifest(), {**RESULT, "written": written}).files[0].text_after == NEW
