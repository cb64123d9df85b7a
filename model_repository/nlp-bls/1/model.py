"""Texts in, labels of the whole texts out: other models do the work, and this one asks them."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from passages import mean_of_each, split


class TritonPythonModel:
    async def execute(self, requests: list[Any]) -> list[Any]:
        """All requests of a batch at once: those that are asked join what comes together."""
        return list(await asyncio.gather(*map(self.answer, requests)))

    async def answer(self, request: Any) -> Any:
        try:
            return await self.classify(pb_utils.get_input_tensor_by_name(request, "text"))
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(str(error)))

    async def classify(self, text: Any) -> Any:
        asked = pb_utils.InferenceRequest(
            model_name="tokenizer",
            requested_output_names=["input_ids", "attention_mask"],
            inputs=[text],
        )
        tokens = await outputs_of(asked)
        # A request for each text, so that none waits for longer ones and tiny-bert may join them.
        rows = zip(tokens["input_ids"], tokens["attention_mask"], strict=True)
        passages = [split(ids, mask) for ids, mask in rows]
        embeddings = await asyncio.gather(*(embed(*passage) for passage in passages))
        asked = pb_utils.InferenceRequest(
            model_name="classifier-head",
            requested_output_names=["label", "score"],
            inputs=[pb_utils.Tensor("embedding", mean_of_each(embeddings))],
        )
        head = await outputs_of(asked)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("sentiment_label", head["label"]),
                pb_utils.Tensor("confidence", head["score"]),
            ]
        )


async def embed(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The embedding of each passage of a text, [passages, embedding]."""
    asked = pb_utils.InferenceRequest(
        model_name="tiny-bert",
        requested_output_names=["pooled"],
        inputs=[pb_utils.Tensor("input_ids", ids), pb_utils.Tensor("attention_mask", mask)],
    )
    return (await outputs_of(asked))["pooled"]


async def outputs_of(asked: Any) -> dict[str, np.ndarray]:
    """What a model answers, by the names of its outputs."""
    response = await asked.async_exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
