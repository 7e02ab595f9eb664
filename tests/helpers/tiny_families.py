"""A tiny model of every family with every head that fits it, and batches to train each."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from regard.attention.config import SoftmaxConfig
from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.attention.score_config import BigBirdConfig
from regard.data import IGNORE
from regard.data.batch import Batch, PaddedIds
from regard.models.builders import (
    Classifier,
    ConditionedModel,
    Embedder,
    LanguageModel,
    MaskedLanguageModel,
    Model,
    Reconstructor,
    SequenceToSequence,
    TokenClassifier,
    make_model,
)
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    FixedWindowConfig,
    ModelConfig,
    PerceiverConfig,
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.head_config import (
    HEADS,
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
    ReconstructionHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.models.ngram_config import NgramConfig
from regard.models.pattern import LayerConfig
from regard.positions.config import AlibiConfig, NoPositionsConfig, RotaryConfig
from tiny_recurrent import BLOCK, CELLS, TINY, VOCABULARY, padded, sharp

SIZES: dict[str, Any] = {
    "context_length": BLOCK,
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 8,
    "dropout": 0.0,
}
WIDE: dict[str, Any] = SIZES | {"n_layers": 1, "n_heads": 3, "d_model": 12}
LABELS = ("north", "south", "west")

HYBRID = (
    LayerConfig(attention=GatedDeltaNetConfig(), short_conv=3, positions=NoPositionsConfig()),
    LayerConfig(window=5, n_kv_heads=1, d_ff=8, gated=True, canon="CD"),
)
FAMILIES: dict[str, ModelConfig] = {
    "decoder": DecoderConfig(**SIZES),
    "decoder, post": DecoderConfig(**SIZES, norm="post", n_kv_heads=1, positions=RotaryConfig()),
    "decoder, tied": DecoderConfig(**SIZES, tie_head=True, attention=EluConfig()),
    "decoder, convolved": DecoderConfig(**SIZES, short_conv=3, positions=RotaryConfig()),
    "decoder, canon": DecoderConfig(**SIZES, canon="ABCD", gated=True, parallel_residual=True),
    "decoder, embeddings": DecoderConfig(
        **SIZES,
        ngrams=NgramConfig(slots=40),
        value_embedding=True,
        value_residual=True,
        scale_embeddings=True,
    ),
    "decoder, hybrid": DecoderConfig(**SIZES, positions=RotaryConfig(), pattern=HYBRID),
    "perceiver": PerceiverConfig(**SIZES | {"n_layers": 3}, n_latents=5, n_kv_heads=1),
    "perceiver, tied": PerceiverConfig(
        **SIZES | {"n_layers": 4}, n_latents=BLOCK, tie_head=True, positions=NoPositionsConfig()
    ),
    "encoder, convolved": EncoderConfig(**SIZES, short_conv=2, canon="AC", canon_width=3),
    "encoder, embeddings": EncoderConfig(
        **SIZES, ngrams=NgramConfig(slots=40), value_embedding=True, value_residual=True
    ),
    "encoder": EncoderConfig(**SIZES, n_token_types=2, activation="gelu-tanh"),
    "encoder, tied": EncoderConfig(**SIZES, norm="post", tie_head=True, positions=AlibiConfig()),
    "encoder-decoder": EncoderDecoderConfig(
        encoder=TransformerConfig(**WIDE, attention=BigBirdConfig(block_size=2)),
        decoder=TargetConfig(**SIZES, n_kv_heads=1, attention=EluConfig()),
    ),
    "encoder-decoder, post": EncoderDecoderConfig(
        encoder=TransformerConfig(
            **SIZES,
            norm="post",
            positions=NoPositionsConfig(),
            pattern=(LayerConfig(attention=EluConfig()), LayerConfig()),
        ),
        decoder=TargetConfig(
            **WIDE,
            norm="post",
            activation="relu",
            positions=AlibiConfig(),
            canon="AD",
            ngrams=NgramConfig(longest=2, slots=9),
            value_embedding=True,
            value_residual=True,
        ),
    ),
    **{f"rnn, {cell}": RecurrentConfig(**TINY, **choice) for cell, choice in CELLS.items()},
    **{
        f"rnn, {cell}, both ways": RecurrentConfig(**TINY, **choice, bidirectional=True)
        for cell, choice in CELLS.items()
    },
    "rnn, tied": RecurrentConfig(**TINY, tie_head=True),
    "rnn-encoder-decoder": RecurrentEncoderDecoderConfig(**TINY),
    "rnn-encoder-decoder, attention": RecurrentEncoderDecoderConfig(
        **TINY, cell="lstm", bidirectional=True, attention=SoftmaxConfig()
    ),
    "fixed-window": FixedWindowConfig(
        context_length=BLOCK, size=3, d_model=4, d_hidden=5, dropout=0.0
    ),
    "fixed-window, tied": FixedWindowConfig(
        context_length=BLOCK, size=3, d_model=4, d_hidden=5, dropout=0.0, tie_head=True
    ),
}
HEAD_CONFIGS: dict[str, HeadConfig] = {
    "lm": LMHeadConfig(),
    "masked-lm": MaskedLMHeadConfig(),
    "classification": ClassificationHeadConfig(labels=LABELS),
    "token-classification": TokenClassificationHeadConfig(labels=LABELS),
    "embedding": EmbeddingHeadConfig(width=5),
    "reconstruction": ReconstructionHeadConfig(),
}


def reads_both_ways(config: ModelConfig) -> bool:
    """Whether each hidden state is a function of the whole row."""
    if isinstance(config, RecurrentConfig):
        return config.bidirectional
    return isinstance(config, EncoderConfig)


def kind(config: ModelConfig | HeadConfig) -> str:
    """The name that recipes have for it."""
    return str(config.__struct_config__.tag)


def fits(config: ModelConfig, head: str) -> bool:
    """Whether there is such a model: with these heads, none reads both ways."""
    is_causal = head in ("lm", "reconstruction")
    return head in HEADS[kind(config)] and not (is_causal and reads_both_ways(config))


MODELS = {
    f"{family}: {head}": (config, HEAD_CONFIGS[head])
    for family, config in FAMILIES.items()
    for head in HEAD_CONFIGS
    if fits(config, head)
}


def _one_head_each() -> Iterator[str]:
    for i, family in enumerate(FAMILIES):
        names = [name for name in MODELS if name.startswith(f"{family}: ")]
        yield names[i % len(names)]


COVERING = list(_one_head_each())
"""Each family once, and each head at least once: for what bodies and heads do apart."""


def tiny(config: ModelConfig, head: HeadConfig) -> Model:
    """An untrained model in float64 and evaluation mode, whose weights are large."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # random features
        model = sharp(make_model(config, head, VOCABULARY))
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.data += 1
    return model


Row: TypeAlias = tuple[list[int], list[int]]
"""A text, and a source that only models of pairs read."""


def results(model: Model, rows: Sequence[Row], *, padding: int = 0) -> list[Tensor]:
    """What a model gives for each row of a batch: for each token, or one for all."""
    texts, sources = ([row[i] for row in rows] for i in (0, 1))
    ids, lengths = padded(texts, padding=padding)
    match model:
        case Classifier() | Embedder():
            return list(model(ids, lengths))
        case SequenceToSequence():
            out = model(*padded(sources, padding=padding), ids)
        case MaskedLanguageModel() | TokenClassifier() | Reconstructor():
            out = model(ids, lengths)
        case _:
            out = model(ids)
    return [row[: len(text)] for row, text in zip(out, texts, strict=True)]


def writer(model: Model, source: Tensor, lengths: Tensor) -> LanguageModel | ConditionedModel:
    """What continues texts, about a source if the model reads one."""
    if isinstance(model, SequenceToSequence):
        return model.condition(source, lengths)
    assert isinstance(model, LanguageModel)
    return model


def tiny_batch(model: Model, seed: int = 0) -> Batch:
    """Rows of unequal length to train a model on."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(highest: int) -> list[list[int]]:
        lengths = torch.randint(3, BLOCK + 1, (5,), generator=generator).tolist()
        return [torch.randint(2, highest, (n,), generator=generator).tolist() for n in lengths]

    texts, others = (PaddedIds(*padded(drawn(VOCABULARY)), pad=0) for _ in range(2))
    labels = torch.randint(len(LABELS), texts.ids.shape, generator=generator)
    labels[torch.arange(texts.ids.shape[1]) >= texts.lengths[:, None]] = IGNORE
    match model:
        case Classifier():
            return Batch({"input_ids": texts}, labels[:, 0])
        case Embedder():
            inputs = {"questions": texts, "documents": others}
            return Batch(inputs, torch.arange(5), in_batch_negatives=True)
        case SequenceToSequence():
            return Batch({"source": others, "input_ids": texts}, labels)
    return Batch({"input_ids": texts}, labels)
