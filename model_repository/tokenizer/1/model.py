"""Texts in, padded ids and attention masks out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from wordpiece import PAD, WordPiece

LENGTH = 128


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.tokenizer = WordPiece(Path(__file__).parent / "vocab.txt")

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self.answer(request) for request in requests]

    def answer(self, request: Any) -> Any:
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().ravel()
        ids = np.full((len(texts), LENGTH), self.tokenizer.ids[PAD], np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(texts):
            encoded = self.tokenizer.encode(text.decode("utf-8", errors="replace"), LENGTH)
            ids[row, : len(encoded)] = encoded
            mask[row, : len(encoded)] = 1
        tensors = [pb_utils.Tensor("input_ids", ids), pb_utils.Tensor("attention_mask", mask)]
        return pb_utils.InferenceResponse(tensors)
