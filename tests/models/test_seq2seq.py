"""Encoder and decoder: the formula of attention, what states change, and which mechanisms fit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention.config import SoftmaxConfig, supporting
from regard.attention.score_config import LinformerConfig
from regard.errors import UserError
from regard.models.config import (
    EncoderDecoderConfig,
    RecurrentEncoderDecoderConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.seq2seq import EncoderDecoder, GlobalAttention, RecurrentEncoderDecoder
from tiny_attentions import ATTENTIONS
from tiny_recurrent import BLOCK, CELLS, TINY, VOCABULARY, close, padded, sharp

MODELS: dict[str, dict[str, Any]] = {
    "vanilla, no attention": {"cell": "vanilla"},
    "identity, both ways": CELLS["identity"] | {"bidirectional": True},
    "gru, softmax": {"cell": "gru", "attention": SoftmaxConfig()},
    "lstm, both ways": {"cell": "lstm", "bidirectional": True},
    "lstm, both ways, softmax": {
        "cell": "lstm",
        "bidirectional": True,
        "attention": SoftmaxConfig(scaled=False),
    },
}
EVERY_MODEL = pytest.mark.parametrize("model", MODELS)
SOURCES = [[3, 1, 4, 1, 5], [9], [2, 6, 5]]
TARGETS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [1, 9, 1, 9]])


def tiny(**choices: Any) -> RecurrentEncoderDecoder:
    config = RecurrentEncoderDecoderConfig(**{**TINY, **choices})
    with torch.random.fork_rng():
        torch.manual_seed(0)  # random features
        return sharp(RecurrentEncoderDecoder(config, VOCABULARY))


def attention_of(model: RecurrentEncoderDecoder) -> GlobalAttention:
    assert model.attention is not None
    return model.attention


# The formula


@EVERY_MODEL
@torch.no_grad()
def test_the_decoder_begins_with_maps_of_the_encoder_s_final_states(model: str) -> None:
    made, (ids, lengths) = tiny(**MODELS[model]), padded(SOURCES)
    states, (_, last) = made.encode(ids, lengths), made.encoder.encode(ids, lengths)
    bridges = iter(made.bridges)
    for found, state in zip(states.decoder.layers, last, strict=True):
        for decoder_part, encoder_part in zip(found, state, strict=True):
            bridge = next(bridges)
            assert isinstance(bridge, nn.Linear)
            assert close(decoder_part, encoder_part @ bridge.weight.T + bridge.bias)
    if made.attention is None:
        hidden, _ = made.decoder.extend(TARGETS, states.decoder)
        assert close(made(ids, lengths, TARGETS), hidden)


@pytest.mark.parametrize("scaled", [True, False])
@torch.no_grad()
def test_attention_is_the_formula(scaled: bool) -> None:
    made = tiny(cell="lstm", bidirectional=True, attention=SoftmaxConfig(scaled=scaled))
    (ids, lengths), part = padded(SOURCES), attention_of(made)
    source, _ = made.encoder.encode(ids, lengths)
    states, _ = made.decoder.extend(TARGETS, made.encode(ids, lengths).decoder)
    found, weights = made(ids, lengths, TARGETS), made.attention_weights(ids, lengths, TARGETS)
    for row, n in enumerate(lengths.tolist()):
        real = source[row, :n]
        query, key, value = (
            x @ projection.weight.T
            for x, projection in (
                (states[row], part.q_proj),
                (real, part.k_proj),
                (real, part.v_proj),
            )
        )
        powers = (query @ key.T / (6**0.5 if scaled else 1)).exp()
        shares = powers / powers.sum(1, keepdim=True)
        expected = torch.cat([shares @ value, states[row]], 1) @ part.o_proj.weight.T
        assert close(found[row], expected.tanh())
        assert close(weights[row, 0, :, :n], shares)
        assert not weights[row, 0, :, n:].any()


# What it refuses


def test_a_memory_of_other_rows_is_refused() -> None:
    made = tiny()
    memory = made.encode(*padded(SOURCES))
    with pytest.raises(ValueError, match="a memory of 3 sources doesn't fit 2 rows"):
        made.init_state(2, BLOCK, memory)


def test_without_attention_there_are_no_weights_to_show() -> None:
    with pytest.raises(UserError, match=r"no attention to show: train one with model\.attention"):
        tiny().attention_weights(*padded(SOURCES), TARGETS)


# Gradients


def test_attention_carries_gradients_where_the_bridges_carry_none() -> None:
    made = tiny(attention=SoftmaxConfig())
    for name, parameter in made.bridges.named_parameters():
        if name.endswith("weight"):
            nn.init.zeros_(parameter)
    made(torch.tensor([[2, 3, 4, 0]]), torch.tensor([3]), TARGETS[:1]).sum().backward()
    for name, parameter in made.encoder.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name


# Every mechanism


@pytest.mark.parametrize("name", supporting("cross"))
@torch.no_grad()
def test_each_mechanism_shows_the_weights_that_it_applies(name: str) -> None:
    """Rows alone and step by step are those of test_places.py."""
    made = tiny(attention=ATTENTIONS[name])
    part, (ids, lengths) = attention_of(made), padded(SOURCES)
    for parameter in part.parameters():
        parameter.mul_(0.5)  # so that random waves have positive sums
    assert close(by_weights(made, ids, lengths), made(ids, lengths, TARGETS))


def by_weights(made: RecurrentEncoderDecoder, ids: Tensor, lengths: Tensor) -> Tensor:
    """The hidden states of the targets, gathered with the weights that are shown."""
    part = attention_of(made)
    source, _ = made.encoder.encode(ids, lengths)
    states, _ = made.decoder.extend(TARGETS, made.encode(ids, lengths).decoder)
    gathered = made.attention_weights(ids, lengths, TARGETS) @ part.v_proj(source)[:, None]
    gathered = gathered if part.gating is None else part.gating.finish(states, gathered)
    out: Tensor = part.o_proj(torch.cat([gathered[:, 0], states], -1))
    return out.tanh()


def test_cross_attention_has_the_length_of_sources() -> None:
    sizes: dict[str, Any] = {"n_layers": 1, "n_heads": 2, "d_model": 16}
    decoder = TargetConfig(context_length=4, cross_attention=LinformerConfig(), **sizes)
    config = EncoderDecoderConfig(
        encoder=TransformerConfig(context_length=9, **sizes), decoder=decoder
    )
    body = EncoderDecoder(config, VOCABULARY)
    ids = torch.arange(9)[None] % VOCABULARY
    assert body(ids, torch.tensor([9]), ids[:, :4]).shape == (1, 4, 16)
