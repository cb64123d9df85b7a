"""The classifier head's own arithmetic, without a server."""

from __future__ import annotations

import numpy as np
import pytest
from builders.model_files import REPOSITORY, import_file


def test_the_label_is_the_likelier_class_and_the_score_its_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = import_file(REPOSITORY / "classifier-head" / "1" / "head.py", monkeypatch)
    head = module.Head(np.array([[1.0, -1.0]], np.float32), np.zeros(2, np.float32))
    labels, scores = head.classify(np.array([[0.0], [2.0], [-500.0]], np.float32))
    assert labels.tolist() == [[b"negative"], [b"negative"], [b"positive"]]
    np.testing.assert_allclose(scores, [[0.5], [1 / (1 + np.exp(-4))], [1.0]], rtol=1e-6)
