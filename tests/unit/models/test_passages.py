"""How the model that asks others cuts long texts, without a server."""

from __future__ import annotations

import numpy as np
import pytest
from builders.model_files import REPOSITORY, import_file


@pytest.mark.parametrize(("tokens", "count"), [(0, 1), (2, 1), (16, 1), (17, 2), (128, 8)])
def test_a_text_is_cut_into_as_few_passages_as_hold_it(
    tokens: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = import_file(REPOSITORY / "nlp-bls" / "1" / "passages.py", monkeypatch)
    ids = np.arange(128)
    cut, mask = passages.split(ids, (ids < tokens).astype(np.int64))
    assert cut.shape == mask.shape == (count, 16)
    assert cut.ravel().tolist() == list(range(16 * count))
    assert mask.sum() == tokens


def test_each_text_has_the_mean_of_its_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    passages = import_file(REPOSITORY / "nlp-bls" / "1" / "passages.py", monkeypatch)
    long = np.array([[1.0, 2.0], [3.0, 6.0]])
    assert passages.mean_of_each([long, long[:1]]).tolist() == [[2.0, 4.0], [1.0, 2.0]]
