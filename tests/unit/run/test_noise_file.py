from __future__ import annotations

from pathlib import Path

from tuner.run.manifest import Manifest
from tuner.run.noise_file import noise_path, read_noise, write_noise

NOISE = {"fingerprint": "abc", "model": "m", "measured_at": "2025-03-01", "capacity": {"cv": 0.01}}


def test_what_is_kept_is_found_by_machine_and_model(tmp_path: Path) -> None:
    write_noise(tmp_path, NOISE)
    assert read_noise(tmp_path, "abc", "m") == NOISE
    assert read_noise(tmp_path, "abd", "m") is None
    assert read_noise(tmp_path, "abc", "n") is None


def test_the_newest_counts(tmp_path: Path) -> None:
    write_noise(tmp_path, NOISE)
    newer = {**NOISE, "measured_at": "2025-03-02"}
    write_noise(tmp_path, newer)
    assert read_noise(tmp_path, "abc", "m") == newer


def test_a_file_that_is_none_of_ours_counts_as_none(tmp_path: Path) -> None:
    path = noise_path(tmp_path, "abc", "m")
    path.parent.mkdir()
    without_capacity = '{"measured_at": "2025-03-01", "model": "m"}'
    for text in ("{", "[]", "{}", without_capacity, "[" * 100_000):
        path.write_text(text)
        assert read_noise(tmp_path, "abc", "m") is None


def test_manifests_from_before_have_no_noise() -> None:
    data = {
        "run_id": "r", "created_at": "", "spec_path": "", "spec_text": "", "spec_sha256": "",
        "spec": {}, "model": "m", "seed": 0, "config_path": "", "config_text": "",
        "config_sha256": None, "versions": {}, "host": {}, "gpus": [], "fingerprint": "abc",
        "schema_version": 1,
    }  # fmt: skip
    before = Manifest.from_json(data)
    assert before.noise is None
    now = Manifest.from_json({**data, "noise": NOISE})
    assert now.noise == NOISE
    before.refuse_if_different(now)  # other noise is no other experiment
