"""Sites: the named editable tensors of a run, with shape and cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from regard.attention.gating import RWKV7Gating
from regard.attention.softmax import ScoreAttention
from regard.edits.places import (
    LATENTS,
    AttentionModule,
    Parts,
    attention_layers,
    cross_attention,
    stack_layers,
    stacks,
)
from regard.edits.positions import rotary_of
from regard.edits.recurrent import state_places
from regard.errors import UserError, alternatives
from regard.explorer.states import state_width
from regard.models.attention_layers import CrossAttention, SelfAttention
from regard.models.builders import Model
from regard.models.fixed_window import FixedWindowDecoder
from regard.models.latent_attention import LatentSelfAttention
from regard.models.layers import Layer
from regard.models.perceiver import LatentLayer, PerceiverDecoder
from regard.models.recurrent import Recurrence
from regard.models.seq2seq import GlobalAttention
from regard.models.transformer import Decoder, Encoder, Transformer
from regard.runs.run import Run

Shape: TypeAlias = tuple[int | str, ...]
PAIRS = ("scores", "weights")
"""Parts of a head with a number for each query and key."""
BY_TOKEN = "a step per token"
"""Cost of an edit of states, which run their layer token by token."""


@dataclass(frozen=True)
class Site:
    """An editable tensor: a place, or one head of it."""

    name: str
    place: str
    """Name of the intercepted tensor, of all heads together."""
    head: int | None
    shape: Shape
    """Shape without the batch: n tokens, m source tokens, l latents of a perceiver."""
    cost: str
    """Cost of an edit beyond the model's own kernels."""

    @property
    def part(self) -> str:
        """The last word of the place."""
        return self.place.rpartition(".")[2]

    @property
    def layer(self) -> str:
        """Name of a head's attention layer."""
        return self.place.rpartition(".")[0]

    @property
    def of_latents(self) -> bool:
        """Whether rows are a perceiver's latents, or the tokens that they attend to."""
        return self.shape[0] == "l"

    @property
    def width(self) -> int | None:
        """Number of channels per token; None for scores and weights."""
        return None if self.part in PAIRS else prod(x for x in self.shape if isinstance(x, int))


def sites(run: Run) -> list[Site]:
    """Return every editable place of a run, in the order of its computation.

    >>> [site.name for site in regard.sites(run) if site.part == "heads"]
    ['decoder.0.heads.0', 'decoder.0.heads.1', 'decoder.1.heads.0', 'decoder.1.heads.1']
    """
    return list(model_sites(run.model))


def model_sites(model: Model) -> Iterator[Site]:
    """Yield the sites of a model."""
    attention: dict[str, list[Site]] = {}
    for parts in attention_layers(model):
        attention[parts.place] = list(_attention_sites(parts))
    for name, stack in stacks(model).items():
        if isinstance(stack, Transformer):
            yield from _transformer_sites(name, stack, attention)
        else:
            yield _plain(f"{name}.embedding", stack.embedding.embedding_dim)
        if isinstance(stack, FixedWindowDecoder):
            yield _plain(f"{name}.hidden", stack.hidden.out_features)
        recurrence = getattr(stack, "recurrence", None)
        if isinstance(recurrence, Recurrence):
            for place, _, _ in state_places(name, recurrence):
                one_of_two = place.count(".") > 1
                width = recurrence.d_out // (2 if one_of_two else 1)
                for part in ("hidden", "cell")[: recurrence.parts]:
                    site = f"{place}.{part}"
                    yield Site(site, site, None, ("n", width), BY_TOKEN)
    yield from attention.get("decoder.cross", ())


def _transformer_sites(
    name: str,
    stack: Decoder | Encoder | PerceiverDecoder,
    attention: Mapping[str, Sequence[Site]],
) -> Iterator[Site]:
    """Yield the sites of a stack, including those of its attention layers."""
    if stack.absolute is not None:
        of_tokens = stack.embedding.embedding_dim if stack.concatenated else 0
        yield _plain(f"{name}.positions", stack.width - of_tokens)
    yield _plain(f"{name}.embedding", stack.width)
    for i, (place, layer, reader) in enumerate(stack_layers(name, stack)):
        rows = "l" if reader == LATENTS else "n"
        yield _plain(f"{place}.residual", stack.width, rows)
        if rotary_of(stack, i) is not None:
            yield _plain(f"{place}.positions", 1)
        for branch in _branches(layer):
            owner = {"attention": place, "cross": f"{place}.cross"}.get(branch)
            yield from attention.get(owner or "", ())
            yield _plain(f"{place}.{branch}", stack.width, rows)
            yield _plain(f"{place}.residual.{branch}", stack.width, rows)


def _branches(layer: Layer | LatentLayer) -> Iterator[str]:
    """Yield the branches of a layer that add to its residual stream."""
    if isinstance(layer, Layer):
        yield "attention"
    if cross_attention(layer) is not None:
        yield "cross"
    yield "feedforward"


def _plain(name: str, width: int, rows: str = "n") -> Site:
    return Site(name, name, None, (rows, width), "none")


def _attention_sites(parts: Parts) -> Iterator[Site]:
    """Yield the sites of each query head, and of each key/value head."""
    module, mechanism, place = parts.module, parts.mechanism, parts.place
    queries, keys, values, outputs = head_counts(module)
    width, value_width = _widths(module)
    rows, columns = _lengths(parts)
    yield from _heads(f"{place}.queries", queries, (rows, width))
    yield from _heads(f"{place}.keys", keys, (columns, width))
    yield from _heads(f"{place}.values", values, (columns, value_width))
    scored = ("scores", "weights") if isinstance(mechanism, ScoreAttention) else ("weights",)
    for part in scored:
        yield from _heads(f"{place}.{part}", outputs, (rows, columns), "n × n weights")
    if (numbers := _state_width(parts, width, value_width)) is not None:
        yield from _heads(f"{place}.states", values, (rows, numbers), BY_TOKEN)
    for head in range(outputs):
        name = f"{place}.heads.{head}"
        if module.gating is not None:
            yield Site(f"{name}.raw", f"{place}.raw", head, (rows, value_width), "none")
        yield Site(name, f"{place}.heads", head, (rows, value_width), "none")


def _heads(place: str, heads: int, shape: Shape, cost: str = "none") -> Iterator[Site]:
    """Yield a site for each head of a place."""
    for head in range(heads):
        yield Site(f"{place}.{head}", place, head, shape, cost)


def _lengths(parts: Parts) -> tuple[str, str]:
    """Return the letters for the numbers of queries and keys in shapes."""
    if LATENTS in (parts.queries, parts.keys):
        return "l" if parts.queries == LATENTS else "n", "l"
    return "n", "n" if parts.keys == parts.queries else "m"


def _state_width(parts: Parts, d: int, e: int) -> int | None:
    """Return the size of a head's state; None if it has none or uses a sliding window."""
    module = parts.module
    if not isinstance(module, SelfAttention) or module.window_size is not None:
        return None
    return state_width(parts.mechanism, d, e) if parts.place.startswith("decoder") else None


def head_counts(module: AttentionModule) -> tuple[int, int, int, int]:
    """Return the numbers of query, key, value and output heads of a mechanism."""
    match module:
        case SelfAttention():
            queries, keys, values = module.heads
            outputs = max(module.n_heads, values)
            if isinstance(module.gating, RWKV7Gating):  # it makes keys per value head
                return outputs, values, values, outputs
            return queries, keys, values, outputs
        case CrossAttention():
            queries = module.q_proj.out_features // module.d_head
            return queries, module.kv_heads, module.kv_heads, queries
    return 1, 1, 1, 1


def _widths(module: AttentionModule) -> tuple[int, int]:
    """Return the widths of queries and keys, and of values."""
    match module:
        case LatentSelfAttention():
            return module.d_rope + module.d_head, module.d_head
        case GlobalAttention():
            return module.q_proj.out_features, module.q_proj.out_features
    return module.d_head, module.d_head


def find_site(known: Mapping[str, Site], name: str) -> Site:
    """Return the site of a name.

    Raises:
        UserError: there is none; the message lists the nearest names, or the number of heads.
    """
    if name in known:
        return known[name]
    owner, _, head = name.removesuffix(".raw").rpartition(".")
    heads = [site for site in known.values() if site.head is not None and site.place == owner]
    if heads and head.isdecimal():
        raise UserError(f"site {name}: {owner} has {len(heads)} heads, numbered from 0")
    near = alternatives(name, known)
    if name.endswith(".positions"):
        near = (
            "positions are a site of learned, sinusoidal and one-hot ones, and of layers with "
            f"rotary ones without dynamic scaling; biases are part of scores; {near}"
        )
    raise UserError(f"site {name}: is not in this model; {near}")
