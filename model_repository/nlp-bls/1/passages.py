"""A long text as passages of a length that the encoder takes, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LENGTH = 16  # of tiny-bert


def split(ids: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask of one text, [tokens] each, as [passages, LENGTH]; without empty passages."""
    passages = max(-(-int(mask.sum()) // LENGTH), 1)
    end = passages * LENGTH
    return ids[:end].reshape(passages, LENGTH), mask[:end].reshape(passages, LENGTH)


def mean_of_each(embeddings: Sequence[np.ndarray]) -> np.ndarray:
    """The mean over each text's passages, [texts, embedding]."""
    return np.stack([passages.mean(axis=0) for passages in embeddings])
