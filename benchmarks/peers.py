"""Whole models of other packages: of the sizes of one of ours, and with its weights if wished.

They are looked up when they are needed, and come with `pip install 'regard[bench]'`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig

SIZE = DecoderConfig(context_length=128, n_layers=4, n_heads=8, d_model=256, dropout=0.0)
VOCABULARY = 256

_RENAMED = {
    "body.embedding": "transformer.wte",
    "body.absolute.vectors": "transformer.wpe.weight",
    "body.layers": "transformer.h",
    "body.norm": "transformer.ln_f",
    "norm_attention": "ln_1",
    "self_attention.qkv_proj": "attn.c_attn",
    "self_attention.o_proj": "attn.c_proj",
    "norm_feed_forward": "ln_2",
    "feed_forward.up_proj": "mlp.c_fc",
    "feed_forward.down_proj": "mlp.c_proj",
    "head.weight": "lm_head.weight",
}
"""What the parts of our model are called in Hugging Face's GPT-2."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A package's language model."""

    name: str
    package: str
    """What has to be installed."""
    make: Callable[[DecoderConfig, int], Any]
    """A model of the sizes of ours, for a vocabulary."""
    score: Callable[[Any, Tensor], Tensor]
    """The model's logits for all positions of token ids."""
    note: str
    """In what it isn't like ours, or is used in a way that has to be known."""

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None


def hugging_face(config: DecoderConfig, vocabulary: int) -> Any:
    """GPT-2 on torch's attention kernel, with the exact GELU that ours has."""
    transformers = import_module("transformers")
    sizes = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_positions=config.context_length,
        n_embd=config.d_model,
        n_layer=config.n_layers,
        n_head=config.n_heads,
        n_inner=config.d_ff,
        activation_function="gelu",
        embd_pdrop=config.dropout,
        attn_pdrop=config.dropout,
        resid_pdrop=config.dropout,
        layer_norm_epsilon=nn.LayerNorm(1).eps,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,  # it would stop there
        attn_implementation="sdpa",
    )
    return transformers.GPT2LMHeadModel(sizes)


def hugging_face_logits(model: Any, ids: Tensor) -> Tensor:
    """Without a cache, which nobody needs in training."""
    logits: Tensor = model(input_ids=ids, use_cache=False).logits
    return logits


def x_transformers(config: DecoderConfig, vocabulary: int) -> Any:
    """A decoder with learned positions, on torch's attention kernel."""
    package = import_module("x_transformers")
    return package.TransformerWrapper(
        num_tokens=vocabulary,
        max_seq_len=config.context_length,
        emb_dropout=config.dropout,
        attn_layers=package.Decoder(
            dim=config.d_model,
            depth=config.n_layers,
            heads=config.n_heads,
            attn_dim_head=config.d_head,
            attn_flash=True,
            attn_dropout=config.dropout,
            attn_sublayer_dropout=config.dropout,
            ff_sublayer_dropout=config.dropout,
        ),
    )


def x_transformers_logits(model: Any, ids: Tensor) -> Tensor:
    logits: Tensor = model(ids)
    return logits


def load_ours(theirs: Any, ours: LanguageModel) -> None:
    """Give Hugging Face's GPT-2 the weights of our model with learned positions.

    Its linear layers in the blocks keep their matrices transposed; the heads lie as in ours: those
    of all queries, of all keys, of all values.
    """
    weights = {}
    for name, tensor in ours.state_dict().items():
        linear = name.startswith("body.layers") and tensor.ndim == 2
        weights[_renamed(name)] = tensor.mT if linear else tensor
    theirs.load_state_dict(weights)


def _renamed(name: str) -> str:
    for ours, theirs in _RENAMED.items():
        name = name.replace(ours, theirs)
    return name


@torch.no_grad()
def scatter(model: LanguageModel) -> None:
    """Move all weights at random, also those that begin as zero or one: biases, positions, norms.

    So no two models agree by leaving something out.
    """
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.02)


def not_installed(peers: Sequence[Peer]) -> list[str]:
    """What is left out."""
    return [f"{p.name}: not installed ({p.package})" for p in peers if not p.installed]


HUGGING_FACE = Peer(
    name="Hugging Face GPT-2",
    package="transformers",
    make=hugging_face,
    score=hugging_face_logits,
    note="sdpa attention, with the exact GELU in place of its approximation; is given no mask of "
    "the padding, which stands at the end, where a causal model doesn't look",
)
X_TRANSFORMERS = Peer(
    name="x-transformers",
    package="x_transformers",
    make=x_transformers,
    score=x_transformers_logits,
    note="attn_flash; its projections around attention have no bias, nor have its norms",
)
PEERS = (HUGGING_FACE, X_TRANSFORMERS)
