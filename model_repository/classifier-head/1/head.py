"""A linear layer and a softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LABELS = np.array([b"negative", b"positive"], dtype=object)
EMBEDDING = 128


@dataclass(frozen=True)
class Head:
    """``weights``: [embedding, labels]; ``bias``: [labels]."""

    weights: np.ndarray
    bias: np.ndarray

    @classmethod
    def of_seed(cls, seed: int) -> Head:
        """RandomState: the one generator of numpy whose stream never changes between versions."""
        random = np.random.RandomState(seed)
        weights = random.standard_normal((EMBEDDING, len(LABELS))).astype(np.float32)
        return cls(weights, np.zeros(len(LABELS), np.float32))

    def classify(self, embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Label and probability of each row of [rows, embedding], both as [rows, 1]."""
        logits = embeddings @ self.weights + self.bias
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        best = probabilities.argmax(axis=1)
        return LABELS[best][:, None], probabilities.max(axis=1, keepdims=True)
