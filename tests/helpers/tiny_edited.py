"""Tiny runs in float64, whose tokens are the words of a small vocabulary."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from torch import Tensor, nn

from regard.attention.config import BUILT_IN, AttentionConfig, config_type
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.attention.score_config import GatedSoftmaxConfig
from regard.edits.activations import text_inputs
from regard.edits.apply import edited
from regard.edits.edit import Edit
from regard.errors import UserError
from regard.huggingface.convert.families import FAMILIES as IMPORTED
from regard.models.builders import SequenceToSequence
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    RecurrentConfig,
)
from regard.models.head_config import ClassificationHeadConfig, HeadConfig, LMHeadConfig
from regard.models.layers import Layer
from regard.models.transformer import Decoder
from regard.positions.config import NoPositionsConfig, RotaryConfig
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.text.tokenizer import word_tokenizer
from tiny_attentions import OPTIONS as SMALL
from tiny_families import FAMILIES, LABELS, SIZES, reads_both_ways
from tiny_recurrent import sharp

WORDS = ("Ada", "Bob", "was", "born", "in", "Rome", "Oslo", "and", "lives")
TEXT = "Ada was born in Rome and lives in Oslo"
OTHER = "Bob was born in Oslo and lives in Rome"
OPTIONS: dict[str, dict[str, Any]] = {
    **{kind: SMALL[kind] for kind in SMALL if kind not in ("latent", "softmax-one")},
    "top-k, indexer": {"k": 3, "indexer_heads": 2},
    "differential, version 1": {"version": 1},
    "synthesizer, random": {"variant": "random"},
    "latent, queries too": {"d_query_latent": 6, "d_latent": 5, "d_rope": 4},
}
MECHANISMS = [
    name
    for kind in BUILT_IN
    if kind not in ("linformer", "favor-trigonometric")
    for name in (kind, *(option for option in OPTIONS if option.startswith(f"{kind},")))
]
"""Those of decoders, without features whose weights may be negative."""
BODIES = {
    **FAMILIES,
    "perceiver": msgspec.structs.replace(FAMILIES["perceiver"], n_latents=8),
    "perceiver, tied": msgspec.structs.replace(
        FAMILIES["perceiver, tied"], attention=GatedSoftmaxConfig()
    ),
    "decoder, sandwich": DecoderConfig(
        **SIZES, norm="sandwich", n_kv_heads=1, positions=RotaryConfig(), value_residual=True
    ),
    "decoder, shared values": DecoderConfig(
        **SIZES,
        norm="post",
        canon="BD",
        attention=GatedDeltaNetConfig(),
        positions=NoPositionsConfig(),
        value_embedding=True,
        value_residual=True,
    ),
}
"""Families, one of which has latents of some new tokens, and more that combine parts of layers."""


def tiny_run(config: ModelConfig) -> Run:
    """An untrained run with large weights."""
    reads = isinstance(config, EncoderConfig | RecurrentConfig) and reads_both_ways(config)
    head: HeadConfig = ClassificationHeadConfig(labels=LABELS) if reads else LMHeadConfig()
    tokenizer = word_tokenizer([f" {word}" for word in WORDS])
    run = Run.new(Path("tiny"), Recipe(model=config, head=head), tokenizer, {})
    sharp(run.model)
    for module in run.model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.data += 1
    return run


def family_run(family: str) -> Run:
    """A run of a family."""
    return tiny_run(BODIES[family])


def mechanism_run(kind: str, **settings: Any) -> Run:
    """A decoder with two query heads, which share a key/value head unless they can't."""
    found = cast(type[AttentionConfig], config_type(kind.partition(",")[0]))
    config = found(**OPTIONS.get(kind, {}))
    shared = {"n_kv_heads": 1} if config.supports.kv_heads else {}
    return tiny_run(DecoderConfig(**{**SIZES, **shared, "attention": config, **settings}))


def imported_run(family: str) -> Run:
    """A Hugging Face model of a family, as a run whose text is numbers of tokens."""
    from tiny_hugging_face import VARIANTS, VOCABULARY, ours, tiny  # imports transformers

    family_of = IMPORTED[family]
    hf = tiny(family, next(iter(VARIANTS[family])))
    config = family_of.read_config(family_of.amend(hf.config.to_dict(), dict(hf.state_dict())))
    recipe = Recipe(model=config, head=family_of.head)
    words = [f" {word}" for word in (*WORDS, *map(str, range(VOCABULARY)))]
    return Run(Path("hf:tiny"), recipe, word_tokenizer(words[: VOCABULARY - 3]), ours(hf), {})


def texts_of(run: Run) -> tuple[str, str | None]:
    """A text for a run, and a target if it needs one."""
    return TEXT, OTHER if isinstance(run.model, SequenceToSequence) else None


def decoder_layer(run: Run, layer: int) -> Layer:
    """A layer of a decoder."""
    body = run.model.body
    assert isinstance(body, Decoder)
    return body._layers()[layer]


def off(one: Tensor, other: Tensor) -> float:
    """The largest difference."""
    return float((one - other).detach().abs().max())


def require_refused(run: Run, edit: Edit, message: str) -> None:
    """Require that an edit of TEXT raises an error of one line."""
    inputs, *_ = text_inputs(run, TEXT)
    with pytest.raises(UserError, match=message) as caught, edited(run, edit):
        run.model.body(*inputs)
    assert "\n" not in str(caught.value)
