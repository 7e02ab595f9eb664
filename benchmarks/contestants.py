"""What is measured: Regard's mechanisms and their peers, at 8 heads of width 64, one row.

A bare mechanism gets queries, keys and values. A layer gets tokens of width 512 and projects them
as its peer does. All get the same random numbers.

Peers are looked up when they are needed; they come with `pip install 'regard[bench]'`.
"""

import inspect
import io
import textwrap
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend

from regard.attention import (
    Attention,
    BigBird,
    Cost,
    KernelAttention,
    Linformer,
    Mask,
    MoBA,
    Shape,
    SlidingWindow,
    Softmax,
)
from regard.attention.cost import Mode
from regard.attention.feature_maps import Elu, FavorPositive
from regard.attention.top_k import IndexedTopK
from regard.positions import Alibi

HEADS, D = 8, 64
WIDTH = HEADS * D
FEATURES = 256
LINFORMER_K = 256
BLOCK, RANDOM = 64, 3
WINDOW = 128
DROPOUT = 0.1
MODES: tuple[Mode, ...] = ("forward", "training")
TITLES = {"forward": "forward", "training": "forward and backward"}


class Inputs:
    """Random queries, keys and values, and tokens for the layers."""

    def __init__(self, n: int, device: torch.device) -> None:
        torch.manual_seed(n)
        self.n, self.device = n, device
        query, key, value = (_random(1, HEADS, n, D, device=device) for _ in range(3))
        self.qkv = query, key, value
        self.tokens = _random(1, n, WIDTH, device=device)


def _random(*shape: int, device: torch.device) -> Tensor:
    return torch.randn(shape, device=device).requires_grad_()


@dataclass(frozen=True)
class Work:
    """What is to be run, what the gradient is taken for, and what it should cost."""

    run: Callable[[], Tensor]
    wanted: tuple[Tensor, ...]
    cost: Callable[[Mode], Cost] | None = None

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.run()

    def training(self) -> tuple[Tensor, ...]:
        """Forward and backward."""
        out = self.run()
        return torch.autograd.grad(out, self.wanted, out.detach())


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Something to be measured, at the lengths that it is fit for."""

    name: str
    make: Callable[[Inputs], Work]
    package: str = "regard"
    """What has to be installed."""
    shortest: int = 1
    longest: int = 1 << 30
    longest_training: int = 1 << 30
    """The longest that is measured with backward."""
    note: str = ""
    """Why not at other lengths, and whatever else a reader has to know."""
    linear: bool = False
    """Whether its memory should grow in proportion to the length."""

    def runs(self, n: int, mode: Mode) -> bool:
        longest = self.longest if mode == "forward" else min(self.longest, self.longest_training)
        return self.shortest <= n <= longest and self.installed

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One of ours beside a peer, and how much of the peer's forward time it may take."""

    ours: str
    peer: str
    at_most: float | None = None
    since: int = 1
    """The shortest length that the claim is for."""

    def claim(self, n: int, mode: Mode) -> float | None:
        """What is claimed at a length; claims are about the forward pass."""
        return self.at_most if mode == "forward" and n >= self.since else None


class Layer(nn.Module):
    """Projections, each with a bias or without, around a mechanism."""

    def __init__(self, attend: Attention, *, bias: bool, out: nn.Module) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=bias) for _ in range(3))
        self.attend, self.out = attend, out

    def forward(self, tokens: Tensor) -> Tensor:
        """(row, token, width) → the same."""
        projected = (project(tokens) for project in (self.query, self.key, self.value))
        gathered = self.attend(*(x.unflatten(2, (HEADS, D)).transpose(1, 2) for x in projected))
        joined: Tensor = self.out(gathered.transpose(1, 2).flatten(2))
        return joined

    @property
    def products(self) -> int:
        """How many products of a token with a square matrix it has."""
        return 3 + isinstance(self.out, nn.Linear)


# Regard's


def bare(
    attend: Callable[[int], Attention], *, causal: bool = False, bias: Alibi | None = None
) -> Callable[[Inputs], Work]:
    """A mechanism for a length, by itself."""
    mask = Mask.causal() if causal else None

    def make(inputs: Inputs) -> Work:
        mechanism = attend(inputs.n).to(inputs.device)
        moved = None if bias is None else bias.to(inputs.device)
        return Work(
            partial(mechanism, *inputs.qkv, mask=mask, bias=moved),
            (*inputs.qkv, *mechanism.parameters()),
            partial(cost, mechanism, inputs.n, causal),
        )

    return make


def layer(
    attend: Callable[[int], Attention], *, bias: bool = False, out_bias: bool | None = None
) -> Callable[[Inputs], Work]:
    """A mechanism for a length between projections; none to the output if `out_bias` is None."""

    def make(inputs: Inputs) -> Work:
        out = nn.Identity() if out_bias is None else nn.Linear(WIDTH, WIDTH, bias=out_bias)
        whole = Layer(attend(inputs.n), bias=bias, out=out).to(inputs.device)
        return Work(
            partial(whole, inputs.tokens),
            (inputs.tokens, *whole.parameters()),
            partial(layer_cost, whole, inputs.n),
        )

    return make


def softmax(_: int) -> Attention:
    return Softmax()


def favor(_: int) -> Attention:
    return KernelAttention(FavorPositive(d=D, features=FEATURES))


def elu(_: int) -> Attention:
    return KernelAttention(Elu())


def linformer(n: int) -> Attention:
    return Linformer(length=n, k=min(LINFORMER_K, n))


def bigbird(n: int) -> Attention:
    return BigBird(block_size=BLOCK, random=RANDOM, max_keys=n)


def indexed(inputs: Inputs) -> Work:
    """64 keys of a query, chosen by an indexer with one head of width 32."""
    attend = IndexedTopK(k=64, heads=1, d=32)
    query, key = (_random(1, 1, inputs.n, 32, device=inputs.device) for _ in range(2))
    weight = torch.ones(1, 1, inputs.n, device=inputs.device)
    gates = {"index_query": query, "index_key": key, "index_weight": weight}
    run = partial(attend, *inputs.qkv, mask=Mask.causal(), gates=gates)
    return Work(run, inputs.qkv, partial(cost, attend, inputs.n, True))


def cost(mechanism: Attention, n: int, causal: bool, mode: Mode) -> Cost:
    """The mechanism's own account of a call."""
    shape = Shape(
        batch=1,
        heads=HEADS,
        kv_heads=HEADS,
        queries=n,
        keys=n,
        d=D,
        e=D,
        causal=causal,
        mode=mode,
    )
    return mechanism.cost(shape)


def layer_cost(whole: Layer, n: int, mode: Mode) -> Cost:
    """The mechanism's account, and that of the projections."""
    inner, passes = cost(whole.attend, n, False, mode), 3 if mode == "training" else 1
    numbers = whole.products * (2 * n * WIDTH + WIDTH**2)
    return Cost(
        operations=inner.operations + passes * whole.products * 2 * n * WIDTH**2,
        bytes=inner.bytes + passes * numbers * 4,
        parameters=sum(parameter.numel() for parameter in whole.parameters()),
        state_bytes=inner.state_bytes,
    )


# Peers


def sdpa(
    inputs: Inputs,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    bias: Callable[[], Tensor | None] = lambda: None,
) -> Work:
    """torch's kernel by the backend that torch chooses; the bias is what a call returns."""
    query, key, value = inputs.qkv

    def run() -> Tensor:
        return F.scaled_dot_product_attention(
            query, key, value, bias(), dropout_p=dropout, is_causal=causal
        )

    return Work(run, inputs.qkv, partial(cost, Softmax(), inputs.n, causal))


def sdpa_alibi(inputs: Inputs) -> Work:
    """The bias made before and handed over."""
    made = alibi(inputs)
    return sdpa(inputs, bias=lambda: made)


def sdpa_making_alibi(inputs: Inputs) -> Work:
    """The bias made in the call, as Regard does on a CPU."""
    return sdpa(inputs, bias=partial(alibi, inputs))


def alibi(inputs: Inputs) -> Tensor:
    position = torch.arange(inputs.n, device=inputs.device)
    return Alibi(heads=HEADS).to(inputs.device).dense(position, position)[None]


def performer(inputs: Inputs, *, causal: bool) -> Work:
    """performer-pytorch's attention without projections."""
    with redirect_stdout(io.StringIO()):  # it tells that it has no CUDA code
        attend = import_module("performer_pytorch").FastAttention(
            dim_heads=D, nb_features=FEATURES, causal=causal
        )
    return Work(partial(attend.to(inputs.device), *inputs.qkv), inputs.qkv)


def linformer_package(inputs: Inputs) -> Work:
    """The linformer package's layer: three projections without bias, one with."""
    attend = import_module("linformer").LinformerSelfAttention(
        dim=WIDTH, seq_len=inputs.n, k=min(LINFORMER_K, inputs.n), heads=HEADS
    )
    return _whole(attend, inputs)


def x_transformers(inputs: Inputs) -> Work:
    """x-transformers' layer on torch's kernel: four projections without bias."""
    attend = import_module("x_transformers").Attention(
        dim=WIDTH, dim_head=D, heads=HEADS, flash=True
    )
    return _whole(attend, inputs)


def hugging_face_bigbird(inputs: Inputs, *, matrix: bool) -> Work:
    """Hugging Face's sparse layer: three projections with bias, none of the output.

    transformers 5 always spreads the weights over a dense N × N matrix at the end, which earlier
    versions did on request; `matrix` says whether it does here. In evaluation mode, where it looks
    at block 0 in place of random ones: as much work, without the drawing.
    """
    module = import_module("transformers.models.big_bird.modeling_big_bird")
    config = module.BigBirdConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        block_size=BLOCK,
        num_random_blocks=RANDOM,
        max_position_embeddings=max(inputs.n, 4096),
    )
    attend = module.BigBirdBlockSparseAttention(config, seed=0).to(inputs.device).eval()
    if not matrix:
        attend.bigbird_block_sparse_attention = MethodType(_without_matrix(module), attend)
    ones = torch.ones(1, inputs.n, device=inputs.device)
    blocked, band, rows, columns = module.BigBirdModel.create_masks_for_block_sparse_attn(
        ones, BLOCK
    )

    def run() -> Tensor:
        out: Tensor = attend(inputs.tokens, band, rows, columns, blocked, blocked)[0]
        return out

    return Work(run, (inputs.tokens, *attend.parameters()))


def _without_matrix(module: Any) -> Callable[..., Any]:
    """Hugging Face's sparse attention from its source, up to where the matrix begins."""
    name = "bigbird_block_sparse_attention"
    whole = inspect.getsource(getattr(module.BigBirdBlockSparseAttention, name))
    needed, found, _ = textwrap.dedent(whole).partition("    # Reassemble the full")
    if not found:
        raise LookupError("this version of transformers makes no matrix, or elsewhere")
    names = dict(vars(module))
    exec(needed + "    return context_layer, None\n", names)
    function: Callable[..., Any] = names[name]
    return function


def _whole(attend: nn.Module, inputs: Inputs) -> Work:
    attend = attend.to(inputs.device)
    return Work(partial(attend, inputs.tokens), (inputs.tokens, *attend.parameters()))


def sdpa_backends(device: torch.device) -> dict[str, str]:
    """Which backend torch's kernel takes for each of its contestants."""
    inputs = Inputs(512, device)
    options: dict[str, dict[str, Any]] = {
        "SDPA": {},
        "SDPA causal": {"is_causal": True},
        "SDPA + ALiBi": {"attn_mask": alibi(inputs)},
        "SDPA + dropout": {"dropout_p": DROPOUT},
    }
    query, key, value = inputs.qkv
    return {
        name: SDPBackend(torch._fused_sdp_choice(query, key, value, **given)).name
        for name, given in options.items()
    }


_QUADRATIC = "makes several tensors of 8 · N² numbers, 8 GiB each at 16 384"
_EVALUATION = (
    "In evaluation mode, where it looks at block 0 in place of random ones: as much work, without "
    "the drawing"
)

CONTESTANTS = (
    Contestant(name="SDPA", make=sdpa),
    Contestant(name="SDPA causal", make=partial(sdpa, causal=True)),
    Contestant(name="softmax", make=bare(softmax)),
    Contestant(name="softmax causal", make=bare(softmax, causal=True)),
    Contestant(name="SDPA + ALiBi", make=sdpa_alibi, longest=8192, note="is handed the bias"),
    Contestant(
        name="SDPA + ALiBi, made again", make=sdpa_making_alibi, longest=8192, note=_QUADRATIC
    ),
    Contestant(
        name="softmax + ALiBi",
        make=bare(softmax, bias=Alibi(heads=HEADS)),
        longest=8192,
        note="makes the bias in each call: " + _QUADRATIC,
    ),
    Contestant(
        name="SDPA + dropout",
        make=partial(sdpa, dropout=DROPOUT),
        longest=8192,
        note=_QUADRATIC,
    ),
    Contestant(
        name="softmax + dropout",
        make=bare(lambda _: Softmax(dropout=DROPOUT).train()),
        longest=8192,
        note=_QUADRATIC,
    ),
    Contestant(name="x-transformers layer", make=x_transformers, package="x_transformers"),
    Contestant(name="softmax layer", make=layer(softmax, out_bias=False)),
    Contestant(
        name="performer-pytorch",
        make=partial(performer, causal=False),
        package="performer_pytorch",
    ),
    Contestant(name="FAVOR+", make=bare(favor), linear=True),
    Contestant(
        name="performer-pytorch causal",
        make=partial(performer, causal=True),
        package="performer_pytorch",
        note="without its CUDA extension, by the code that it falls back on",
    ),
    Contestant(name="FAVOR+ causal", make=bare(favor, causal=True), linear=True),
    Contestant(name="elu+1", make=bare(elu), linear=True),
    Contestant(name="elu+1 causal", make=bare(elu, causal=True), linear=True),
    Contestant(name="linformer package layer", make=linformer_package, package="linformer"),
    Contestant(name="Linformer layer", make=layer(linformer, out_bias=True), linear=True),
    Contestant(name="Linformer", make=bare(linformer), linear=True),
    Contestant(
        name="Hugging Face BigBird layer",
        make=partial(hugging_face_bigbird, matrix=True),
        package="transformers",
        shortest=1024,
        note="up to 704 tokens it is dense. As it is, with the N × N matrix of weights that "
        "transformers 5 makes besides. " + _EVALUATION,
    ),
    Contestant(
        name="Hugging Face BigBird layer, no matrix",
        make=partial(hugging_face_bigbird, matrix=False),
        package="transformers",
        shortest=1024,
        note="Hugging Face's layer as it was before transformers 5. " + _EVALUATION,
    ),
    Contestant(name="BigBird layer", make=layer(bigbird, bias=True), linear=True),
    Contestant(name="BigBird", make=bare(bigbird), linear=True),
    Contestant(name="sliding window", make=bare(lambda _: SlidingWindow(size=WINDOW)), linear=True),
    Contestant(name="MoBA causal", make=bare(lambda _: MoBA(block_size=64, blocks=4), causal=True)),
    Contestant(
        name="top-k by an indexer",
        make=indexed,
        longest_training=4096,
        note="its training, with n × n weights of all heads, is measured up to 4,096 tokens",
    ),
)

PAIRS = (
    Pair(ours="softmax", peer="SDPA", at_most=1.05),
    Pair(ours="softmax causal", peer="SDPA causal", at_most=1.05),
    Pair(ours="softmax + ALiBi", peer="SDPA + ALiBi"),
    Pair(ours="softmax + ALiBi", peer="SDPA + ALiBi, made again"),
    Pair(ours="softmax + dropout", peer="SDPA + dropout"),
    Pair(ours="softmax layer", peer="x-transformers layer"),
    Pair(ours="FAVOR+", peer="performer-pytorch", at_most=0.5),
    Pair(ours="FAVOR+", peer="SDPA", at_most=1.0, since=4096),
    Pair(ours="FAVOR+ causal", peer="performer-pytorch causal", at_most=1 / 20),
    Pair(ours="FAVOR+ causal", peer="SDPA causal", at_most=1.0, since=8192),
    Pair(ours="elu+1", peer="SDPA"),
    Pair(ours="elu+1 causal", peer="SDPA causal", at_most=1 / 8, since=16384),
    Pair(ours="Linformer layer", peer="linformer package layer", at_most=1.0),
    Pair(ours="Linformer", peer="SDPA"),
    Pair(ours="BigBird layer", peer="Hugging Face BigBird layer", at_most=0.33),
    Pair(ours="BigBird layer", peer="Hugging Face BigBird layer, no matrix", at_most=0.33),
    Pair(ours="BigBird", peer="SDPA", at_most=1.0, since=4096),
    Pair(ours="sliding window", peer="SDPA"),
    Pair(ours="MoBA causal", peer="SDPA causal", at_most=1.0, since=8192),
    Pair(ours="top-k by an indexer", peer="SDPA causal"),
)
