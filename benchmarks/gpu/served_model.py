"""BERT or a small CNN with seeded random weights, on the GPU or the CPU.

The Python backend runs it; `models.py` copies it as ``1/model.py`` beside a config that says which
network. Its answers mean nothing, but its work is that of the real network. Tensors are passed by
DLPack: the stub of tritonserver 24.10 was built for NumPy 1; with NumPy 2, arrays that it hands
over repeat their first element, and those that it takes are empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack, to_dlpack

SEED = 0
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}


class Bert(torch.nn.Module):
    """transformers' BERT with two labels; token 0 is padding."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        from transformers.models.bert.configuration_bert import BertConfig
        from transformers.models.bert.modeling_bert import BertForSequenceClassification

        super().__init__()
        hidden = int(parameters["hidden"])
        config = BertConfig(
            num_hidden_layers=int(parameters["layers"]),
            hidden_size=hidden,
            num_attention_heads=hidden // 64,
            intermediate_size=4 * hidden,
        )
        self.bert = BertForSequenceClassification(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.bert(input_ids=ids, attention_mask=ids != 0).logits


class Cnn(torch.nn.Module):
    """Many small layers: a GPU needs longer to start each than to compute it."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        super().__init__()
        channels = 16
        layers: list[torch.nn.Module] = []
        for number in range(int(parameters["layers"])):
            layers += [
                torch.nn.Conv2d(channels if number else 1, channels, 3, padding=1),
                torch.nn.BatchNorm2d(channels),
                torch.nn.ReLU(),
            ]
        self.layers = torch.nn.Sequential(*layers)
        self.head = torch.nn.Linear(channels, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        like = self.head.weight.dtype
        return self.head(self.layers(image.to(like)).mean(dim=(2, 3)))


NETWORKS: dict[str, Callable[[Mapping[str, str]], torch.nn.Module]] = {"bert": Bert, "cnn": Cnn}
#: What a network is warmed up with, without the batch.
EXAMPLES = {"bert": torch.ones(128, dtype=torch.int64), "cnn": torch.zeros(1, 16, 16)}


def padded(count: int) -> int:
    """The batch size used for ``count`` inputs: few sizes, each warmed up at the start."""
    return 1 << max(count - 1, 0).bit_length()


def ballast_bytes(text: str, total: int) -> int:
    """Memory of an instance besides its weights: 0, 4GiB, or a share of the GPU such as 27%."""
    if text.endswith("%"):
        return int(total * float(text.removesuffix("%")) / 100)
    return int(float(text[:-3]) * UNITS[text[-3:]]) if text != "0" else 0


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config["parameters"].items()}
        on_gpu = args["model_instance_kind"] == "GPU"
        number = int(args["model_instance_device_id"])
        self.device = torch.device("cuda", number) if on_gpu else torch.device("cpu")
        torch.manual_seed(SEED)
        if not on_gpu:
            torch.set_num_threads(1)
        self.output = config["output"][0]["name"]
        self.input = config["input"][0]["name"]
        with self.device:
            network = NETWORKS[parameters["network"]](parameters)
        self.network = network.to(torch.float16 if on_gpu else torch.float32).eval()
        if on_gpu:
            torch.cuda.empty_cache()  # the weights as they were before they were halved
            total = torch.cuda.mem_get_info(self.device)[1]
            size = ballast_bytes(parameters["ballast"], total)
            self.ballast = torch.empty(size, dtype=torch.uint8, device=self.device)
        example = EXAMPLES[parameters["network"]]
        for power in range(padded(config["max_batch_size"]).bit_length()):
            self.answer(torch.stack([example] * (1 << power)))

    @torch.inference_mode()
    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        count = inputs.shape[0]
        more = inputs[:1].expand(padded(count) - count, *inputs.shape[1:])
        batch = torch.cat([inputs, more]).to(self.device, non_blocking=True)
        return self.network(batch)[:count].float().cpu()

    def execute(self, requests: list[Any]) -> list[Any]:
        tensors = [pb_utils.get_input_tensor_by_name(r, self.input) for r in requests]
        inputs = [from_dlpack(tensor.to_dlpack()) for tensor in tensors]
        answers = self.answer(torch.cat(inputs)).split([x.shape[0] for x in inputs])
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack(self.output, to_dlpack(a))])
            for a in answers
        ]
