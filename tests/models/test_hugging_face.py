"""Decoder and encoder are GPT-2 and BERT, by Hugging Face's implementation of both."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from regard.huggingface.convert.families import FAMILIES
from tiny_hugging_face import (
    BLOCK,
    VOCABULARY,
    language_model,
    masked_language_model,
    tiny_bert,
    tiny_gpt2,
)

GPT2S: dict[str, dict[str, Any]] = {
    "as it was": {},
    "wide, exact gelu": {"n_inner": 40, "activation_function": "gelu", "n_layer": 3},
    "relu, unscaled": {"activation_function": "relu", "scale_attn_weights": False},
    "a head of its own": {"tie_word_embeddings": False, "layer_norm_epsilon": 0.1, "n_head": 2},
}
BERTS: dict[str, dict[str, Any]] = {
    "as it was": {},
    "three segments": {"type_vocab_size": 3, "num_hidden_layers": 3, "num_attention_heads": 2},
    "scores of their own": {"tie_word_embeddings": False, "layer_norm_eps": 0.1},
}
# A hidden state is a few dozen roundings away from its inputs, in either implementation.
IMPLEMENTATIONS = pytest.mark.parametrize(
    ("attention", "dtype", "tolerance"),
    [("sdpa", torch.float32, 1e-5), ("eager", torch.float64, 1e-10)],
    ids=str,
)
LENGTHS = torch.tensor([BLOCK, 1, 7, 12])
REAL = torch.arange(BLOCK) < LENGTHS[:, None]


def ids(kinds: int = VOCABULARY, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(kinds, (len(LENGTHS), BLOCK), generator=generator)


def states_of(model: Any, *inputs: Tensor) -> list[Tensor]:
    """What each layer gives, the last one with the norm after it, and the logits."""
    states: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _, __, out: states.append(out))
        for module in (*model.body.layers[:-1], model.body)
    ]
    states.append(model(*inputs))
    for hook in hooks:
        hook.remove()
    return states


def assert_same(found: list[Tensor], expected: Any, tolerance: float) -> None:
    theirs = [*expected.hidden_states[1:], expected.logits]
    for one, other in zip(found, theirs, strict=True):
        difference = (one - other)[REAL].abs().max()
        assert float(difference) <= tolerance * max(1.0, float(other[REAL].abs().max()))


@IMPLEMENTATIONS
@pytest.mark.parametrize("variant", GPT2S)
@torch.no_grad()
def test_a_decoder_is_gpt_2(
    variant: str, attention: str, dtype: torch.dtype, tolerance: float
) -> None:
    hf = tiny_gpt2(**GPT2S[variant], attn_implementation=attention, dtype=dtype)
    model, text = language_model(hf), ids()
    expected = hf(text, attention_mask=REAL.long(), output_hidden_states=True)
    assert_same(states_of(model, text), expected, tolerance)


@IMPLEMENTATIONS
@pytest.mark.parametrize("variant", BERTS)
@torch.no_grad()
def test_an_encoder_is_bert(
    variant: str, attention: str, dtype: torch.dtype, tolerance: float
) -> None:
    hf = tiny_bert(**BERTS[variant], attn_implementation=attention, dtype=dtype)
    model, text, segments = masked_language_model(hf), ids(), ids(hf.config.type_vocab_size, seed=1)
    for given in ({"token_type_ids": segments}, {}):
        expected = hf(text, attention_mask=REAL.long(), output_hidden_states=True, **given)
        assert_same(states_of(model, text, LENGTHS, *given.values()), expected, tolerance)


@torch.no_grad()
def test_cached_decoding_is_gpt_2_s() -> None:
    """Rows that go on from prompts of unequal length, each as if it were alone."""
    hf = tiny_gpt2()
    model, text, more = language_model(hf), ids()[:, : BLOCK // 2], ids(seed=1)[:, :3]
    keep = REAL[:, : BLOCK // 2]
    _, states = model.extend(text, model.init_state(len(text), BLOCK), keep)
    logits, _ = model.extend(more, states)
    for row, prompt in enumerate(text):
        alone = torch.cat([prompt[keep[row]], more[row]])
        expected = hf(alone[None]).logits[0, -1]
        torch.testing.assert_close(logits[row], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tied", [True, False])
def test_tied_matrices_stay_tied(tied: bool) -> None:
    gpt2 = language_model(tiny_gpt2(tie_word_embeddings=tied))
    bert = masked_language_model(tiny_bert(tie_word_embeddings=tied))
    assert (gpt2.head.weight is gpt2.body.embedding.weight) == tied
    assert (bert.head.scores.weight is bert.body.embedding.weight) == tied


def assert_same_gradients(model: nn.Module, converted: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        largest = max(1.0, float(converted[name].abs().max()))
        assert float((parameter.grad - converted[name]).abs().max()) <= 1e-10 * largest, name


def converted_gradients(hf: PreTrainedModel) -> dict[str, Tensor]:
    family = FAMILIES[hf.config.model_type]
    gradients = {name: p.grad for name, p in hf.named_parameters() if p.grad is not None}
    converted, _ = family.load_weights(gradients, family.read_config(hf.config.to_dict()))
    return converted


@pytest.mark.parametrize("variant", GPT2S)
def test_gradients_are_gpt_2_s(variant: str) -> None:
    hf = tiny_gpt2(**GPT2S[variant])
    model, text = language_model(hf), ids()
    for logits in (model(text), hf(text).logits):
        logits.logsumexp(-1).sum().backward()
    assert_same_gradients(model, converted_gradients(hf))


@pytest.mark.parametrize("variant", BERTS)
def test_gradients_are_bert_s(variant: str) -> None:
    hf = tiny_bert(**BERTS[variant])
    model, text = masked_language_model(hf), ids()
    for logits in (model(text, LENGTHS), hf(text, attention_mask=REAL.long()).logits):
        logits[REAL].logsumexp(-1).sum().backward()
    assert_same_gradients(model, converted_gradients(hf))
