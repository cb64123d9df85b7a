"""Texts in, padded ids and attention masks out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from wordpiece import PAD, WordPiece

#: Tokens of each pair of outputs, by what their names begin with. A pair nobody asks for, as a
#: step of an ensemble leaves one out, is not made.
LENGTHS = {"": 128, "short_": 16}


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.tokenizer = WordPiece(Path(__file__).parent / "vocab.txt")

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self.answer(request) for request in requests]

    def answer(self, request: Any) -> Any:
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().ravel()
        decoded = [text.decode("utf-8", errors="replace") for text in texts]
        tensors, wanted = [], set(request.requested_output_names())
        for prefix, length in LENGTHS.items():
            names = [f"{prefix}input_ids", f"{prefix}attention_mask"]
            if wanted.intersection(names):
                tensors += map(pb_utils.Tensor, names, self.encoded(decoded, length))
        return pb_utils.InferenceResponse(tensors)

    def encoded(self, texts: list[str], length: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and mask, [texts, length] each."""
        ids = np.full((len(texts), length), self.tokenizer.ids[PAD], np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(texts):
            pieces = self.tokenizer.encode(text, length)
            ids[row, : len(pieces)] = pieces
            mask[row, : len(pieces)] = 1
        return ids, mask
