"""Speed and memory of a training: tokens per second, model FLOPs utilization, peak memory.

Model FLOPs utilization (MFU) is the number of operations that the model needs for the tokens of a
second, over the peak of the GPU. A token needs 6·N + 12·L·H·Q·T operations in training, for N
weights that multiply it, L layers, H heads of width Q and rows of T tokens (Chowdhery et al., 2022,
app. B, arXiv:2204.02311). Scores that a causal mask hides count, recomputed activations do not. The
head's weights count for the tokens that are scored.
"""

import re
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import nn

from regard.attention.config import SoftmaxConfig
from regard.data.batch import Batch
from regard.device import peak_memory_mb
from regard.environment import ExecutionEnvironment
from regard.models.builders import Model
from regard.models.config import DecoderConfig, EncoderConfig, ModelConfig

PEAKS = {
    "A10": 125e12,
    "A30": 165e12,
    "A40": 149.7e12,
    "A100": 312e12,
    "L4": 121e12,
    "L40S": 362e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200 NVL": 836e12,
    "H200": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
}
"""Peak dense bfloat16 operations per second (NVIDIA's data sheets); longer names come first."""


def peak_of(gpu: str) -> float | None:
    """Return the peak of a GPU by its name, if it is known; MIG instances have none."""
    words = set(re.split(r"[ -]", gpu.lower()))
    if "mig" in words:
        return None
    return next((peak for name, peak in PEAKS.items() if set(name.lower().split()) <= words), None)


@dataclass(frozen=True)
class TrainingCost:
    """Cost of a training step of a dense Transformer."""

    body: int
    """Weights of the matrices that each token is multiplied by."""
    head: int
    """Weights of the matrices that each scored token is multiplied by."""
    attention: int
    """L·H·Q."""

    @staticmethod
    def of(model: Model, config: ModelConfig) -> "TrainingCost | None":
        """Return the cost for a decoder or encoder with exact attention to whole rows.

        None for other models, and if weights are frozen: the formula doesn't apply to them.
        """
        if not isinstance(config, DecoderConfig | EncoderConfig):
            return None
        exact = all(
            isinstance(layer.attention, SoftmaxConfig)
            and not (layer.window or layer.short_conv or layer.canon != "off")
            for layer in config.layers
        )
        if not exact or not all(weight.requires_grad for weight in model.parameters()):
            return None
        attention = sum(layer.n_heads * layer.d_head for layer in config.layers)
        return TrainingCost(_weights(model.body), _weights(model.head), attention)

    def operations(self, batch: Batch) -> int:
        """Return the floating-point operations of a step, two per multiply-add."""
        products = self.body * batch.positions + self.head * batch.n_targets
        return 6 * products + 12 * self.attention * batch.pairs


def _weights(part: nn.Module) -> int:
    return sum(m.weight.numel() for m in part.modules() if isinstance(m, nn.Linear))


class Throughput:
    """Speed and memory since the last line of metrics."""

    def __init__(
        self, model: Model, config: ModelConfig, environment: ExecutionEnvironment, processes: int
    ) -> None:
        self._device = environment.device
        self._cost, self._peak = TrainingCost.of(model, config), None
        if self._device.type == "cuda" and environment.dtype == torch.bfloat16:
            peak = peak_of(torch.cuda.get_device_name(self._device))
            self._peak = peak and peak * processes
        self._tokens, self._operations, self._seconds = 0, 0, 0.0

    def add(self, batch: Batch, seconds: float) -> None:
        """Add a step with the batch of all processes."""
        self._tokens += batch.positions
        self._operations += self._cost.operations(batch) if self._cost else 0
        self._seconds += seconds

    def record(self) -> dict[str, Any]:
        """Return speed and memory of the steps since the last record."""
        seconds = max(self._seconds, 1e-9)
        record: dict[str, Any] = {"tokens_per_second": round(self._tokens / seconds)}
        memory = peak_memory_mb(self._device)
        if isfinite(memory):
            record["memory_mb"] = round(memory)
        if self._peak and self._operations:
            record["mfu"] = round(self._operations / seconds / self._peak, 4)
        self._tokens, self._operations, self._seconds = 0, 0, 0.0
        return record
