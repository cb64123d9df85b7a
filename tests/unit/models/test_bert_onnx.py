"""Both versions are what make_model.py makes, and take texts of any length."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import onnxruntime
import pytest
from builders.model_files import REPOSITORY, import_file

DIRECTORY = REPOSITORY / "bert-onnx"
MODELS = {version: DIRECTORY / str(version) / "model.onnx" for version in (1, 2)}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_file(DIRECTORY / "make_model.py", monkeypatch)


def test_the_script_makes_the_committed_files_which_are_small(script: ModuleType) -> None:
    made = {
        version: script.make(seed).SerializeToString() for version, seed in script.VERSIONS.items()
    }
    assert made == {version: path.read_bytes() for version, path in MODELS.items()}
    assert made[1] != made[2]
    assert max(map(len, made.values())) < 700_000


def test_padding_of_any_length_changes_nothing_and_the_kind_of_a_token_does() -> None:
    session = onnxruntime.InferenceSession(MODELS[2])
    ids, ones = np.arange(1, 11).reshape(2, 5), np.ones((2, 5), np.int64)

    def pooled(padding: int, kind: int) -> np.ndarray:
        def padded(values: np.ndarray) -> np.ndarray:
            return np.pad(values, ((0, 0), (0, padding)))

        tokens = {"input_ids": padded(ids), "attention_mask": padded(ones)}
        return session.run(["pooler_output"], {**tokens, "token_type_ids": padded(kind * ones)})[0]

    np.testing.assert_allclose(pooled(123, 0), pooled(0, 0), rtol=1e-4, atol=1e-5)
    assert np.abs(pooled(0, 1) - pooled(0, 0)).max() > 0.01
