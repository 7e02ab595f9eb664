"""The Transformer: its size, its weights at first, and its compiled form.

That it computes GPT-2, Llama and others is shown by tests/huggingface/test_families.py.
"""

from math import sqrt
from typing import Any

import pytest
import torch

from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.positions.config import LearnedConfig, RotaryConfig
from tiny_models import tiny_model

VARIANTS: dict[str, dict[str, Any]] = {
    "learned": {"positions": LearnedConfig()},
    "shared keys": {"positions": RotaryConfig(), "n_kv_heads": 2, "activation": "relu2"},
}


def fresh(config: DecoderConfig, vocabulary: int) -> LanguageModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LanguageModel(config, vocabulary)


@pytest.mark.parametrize("tied", [False, True])
def test_weights_begin_as_in_gpt_2(tied: bool) -> None:
    model = fresh(DecoderConfig(n_layers=2, tie_head=tied), 256)
    for name, parameter in model.state_dict().items():
        if name.endswith("bias") or "absolute" in name:
            assert not parameter.any(), name
        elif "norm" in name:
            assert bool((parameter == 1).all()), name
        else:
            # Five standard errors of mean and standard deviation.
            error = 5 * 0.02 / parameter.numel() ** 0.5
            assert abs(float(parameter.mean())) <= error, name
            assert abs(float(parameter.std()) - 0.02) <= error / sqrt(2), name


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_compiled_without_a_break_it_is_the_same(variant: str) -> None:
    model = tiny_model(**VARIANTS[variant])
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    weights = list(model.parameters())
    results = []
    for run in (compiled, model):
        logits = run(ids)
        results.append([logits, *torch.autograd.grad(logits.logsumexp(-1).sum(), weights)])
    for one, other in zip(*results, strict=True):
        # Sums of a few hundred products, perhaps in another order.
        largest = max(1.0, float(other.detach().abs().max()))
        bound = 1024 * torch.finfo(torch.float64).eps * largest
        assert float((one - other).detach().abs().max()) <= bound
