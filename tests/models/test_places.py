"""Each mechanism in each place of each family: it works there, or is refused by who can."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

from regard.attention.config import BUILT_IN, AttentionConfig, SoftmaxConfig, supporting
from regard.errors import UnsupportedError
from regard.models.builders import Model, SequenceToSequence, make_model
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
    RecurrentEncoderDecoderConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.head_config import HeadConfig, LMHeadConfig, MaskedLMHeadConfig
from regard.models.pattern import LayerConfig
from tiny_attentions import ATTENTIONS
from tiny_families import SIZES, WIDE, Row, results, tiny, writer
from tiny_recurrent import BLOCK, TINY, VOCABULARY, close, padded

ONLY_CAUSAL = [kind for kind in BUILT_IN if kind not in supporting("bidirectional")]


def shared(attention: AttentionConfig) -> dict[str, Any]:
    """One key head for all heads, where that is supported."""
    return {"n_kv_heads": 1} if attention.supports.kv_heads else {}


Maker = Callable[[AttentionConfig], ModelConfig]
PLACES: dict[str, tuple[Maker, HeadConfig, tuple[str, ...]]] = {
    "decoder": (
        lambda attention: DecoderConfig(**SIZES, attention=attention, **shared(attention)),
        LMHeadConfig(),
        ("alignment", "decoding"),
    ),
    "encoder": (
        lambda attention: EncoderConfig(**SIZES, attention=attention, **shared(attention)),
        MaskedLMHeadConfig(),
        ("bidirectional", "key_lengths"),
    ),
    "encoder of a pair": (
        lambda attention: EncoderDecoderConfig(
            encoder=TransformerConfig(**WIDE, attention=attention), decoder=TargetConfig(**SIZES)
        ),
        LMHeadConfig(),
        ("bidirectional", "key_lengths"),
    ),
    "decoder of a pair": (
        lambda attention: EncoderDecoderConfig(
            encoder=TransformerConfig(**SIZES), decoder=TargetConfig(**WIDE, attention=attention)
        ),
        LMHeadConfig(),
        ("alignment", "decoding"),
    ),
    "cross-attention of a pair": (
        lambda attention: EncoderDecoderConfig(
            encoder=TransformerConfig(**SIZES),
            decoder=TargetConfig(**WIDE, cross_attention=attention),
        ),
        LMHeadConfig(),
        ("cross", "key_lengths"),
    ),
    "recurrent pair": (
        lambda attention: RecurrentEncoderDecoderConfig(**TINY, attention=attention),
        LMHeadConfig(),
        ("cross", "key_lengths"),
    ),
}
"""How a model is made, its head, and what the place takes, in the order of the refusals."""


def lacking(attention: str, place: str) -> list[str]:
    return [ability for ability in PLACES[place][2] if attention not in supporting(ability)]


def able(attention: str) -> list[str]:
    return [place for place in PLACES if not lacking(attention, place)]


UNABLE = [pair for pair in product(ATTENTIONS, PLACES) if lacking(*pair)]


def model_with(attention: str, place: str) -> Model:
    make, head, _ = PLACES[place]
    model = tiny(make(ATTENTIONS[attention]), head)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data *= 0.3  # so that random waves have positive sums
    return model


def test_every_refusal_is_here() -> None:
    assert set(UNABLE) == {
        ("linformer", "decoder"),
        ("linformer", "decoder of a pair"),
        *product(
            ("synthesizer", "bigbird", "sliding-window", "differential", "latent"),
            ("cross-attention of a pair", "recurrent pair"),
        ),
        *product(ONLY_CAUSAL, set(PLACES) - {"decoder", "decoder of a pair"}),
    }
    assert len(ONLY_CAUSAL) == 10


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_where_it_is_able_rows_know_nothing_of_one_another_nor_of_padding(attention: str) -> None:
    """For texts at random, mechanisms are tried by their contract, and models in test_builders."""
    rows: list[Row] = [([3, 1, 4, 1, 5], [9]), ([2], [6, 5, 3, 5]), ([8, 9, 7], [9, 3])]
    assert able(attention)
    for place in able(attention):
        model = model_with(attention, place)
        alone = [results(model, [row])[0] for row in rows]
        for order, padding in (((0, 1, 2), 0), ((2, 0, 1), 7)):
            together = results(model, [rows[row] for row in order], padding=padding)
            for row, result in zip(order, together, strict=True):
                assert close(result, alone[row]), place


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_where_it_is_able_step_by_step_is_all_at_once(attention: str) -> None:
    """Decoders step in test_mechanisms, with any positions."""
    sources = padded([[3, 1, 4, 1, 5], [9]])
    ids = torch.randint(VOCABULARY, (2, BLOCK), generator=torch.Generator().manual_seed(0))
    for place in set(able(attention)) - {"encoder", "decoder"}:
        model = model_with(attention, place)
        whole = model(*sources, ids) if isinstance(model, SequenceToSequence) else model(ids)
        writes = writer(model, *sources)
        states, steps = writes.init_state(2, BLOCK), []
        for column in ids.unbind(1):
            logits, states = writes.extend(column[:, None], states)
            steps.append(logits)
        assert close(torch.stack(steps, 1), whole), place


def test_where_it_is_not_those_that_are_able_are_named() -> None:
    for attention, place in UNABLE:
        make, head, _ = PLACES[place]
        others = ", ".join(supporting(lacking(attention, place)[0]))
        with pytest.raises(UnsupportedError, match=rf"^{attention} attention does not") as refused:
            make_model(make(ATTENTIONS[attention]), head, VOCABULARY)
        assert str(refused.value).endswith(f"; supported by: {others}")
        assert attention not in others.split(", ")


def test_dropout_of_weights_needs_a_mechanism_that_supports_it() -> None:
    elu, some = ATTENTIONS["elu"], (LayerConfig(), LayerConfig(attention=SoftmaxConfig()))
    source = TransformerConfig(**SIZES)
    target = TargetConfig(**SIZES, attention=elu, attention_dropout=0.1)
    refused: tuple[ModelConfig, ...] = (
        DecoderConfig(**SIZES, attention=elu, attention_dropout=0.1),
        EncoderDecoderConfig(encoder=source, decoder=target),
    )
    for config in refused:
        with pytest.raises(UnsupportedError, match=r"elu attention does not .* dropout of weights"):
            make_model(config, LMHeadConfig(), VOCABULARY)
    cross = TargetConfig(
        **SIZES, attention=elu, cross_attention=SoftmaxConfig(), attention_dropout=0.1
    )
    built: tuple[ModelConfig, ...] = (
        DecoderConfig(**SIZES | {"dropout": 0.1}, attention=elu, attention_dropout=0.0),
        DecoderConfig(**SIZES, attention=elu, attention_dropout=0.1, pattern=some),
        EncoderDecoderConfig(encoder=source, decoder=cross),
    )
    for config in built:
        make_model(config, LMHeadConfig(), VOCABULARY)
