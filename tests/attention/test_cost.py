"""What the cost model says, against what torch counts, what tensors hold, and what can be listed.

torch's counter sees matrix products. It sees nothing inside a CPU's fused kernel, so these tests
count under the math backend.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from attention_cases import path
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention import (
    RWKV7,
    Argmax,
    Attention,
    BigBird,
    Cost,
    DeltaNet,
    GatedDeltaNet,
    GatedDeltaNet2,
    GatedLinear,
    KernelAttention,
    KimiDelta,
    Linformer,
    Mamba2,
    Mask,
    Shape,
    SlidingWindow,
    Softmax,
    State,
)
from regard.attention.block_sparse import BlockSparse
from regard.attention.config import BUILT_IN
from regard.attention.cost import Mode
from regard.attention.feature_maps import (
    Elu,
    FavorHyperbolic,
    FavorPositive,
    FeatureMap,
    Polynomial,
)
from regard.attention.gated import CHANNEL_LOG_DECAY, RecurrentAttention
from regard.attention.gates import Gates
from regard.attention.registry import find, mechanisms
from regard.operations import OperationCounter
from regard.studies.costs import OUTER_PRODUCTS

CPU = torch.device("cpu")
SHAPE = Shape(batch=2, heads=4, kv_heads=2, queries=128, keys=128, d=16, e=16)
SMALL = Shape(batch=2, heads=4, kv_heads=2, queries=8, keys=8, d=4, e=3)
MAPS: dict[str, Callable[[], FeatureMap]] = {
    "elu": Elu,
    "polynomial": lambda: Polynomial(d=16, degree=2),
    "cubic": lambda: Polynomial(d=16, degree=3),
    "favor-positive": lambda: FavorPositive(d=16, features=32),
    "favor-hyperbolic": lambda: FavorHyperbolic(d=16, features=16),
}
SPARSE: dict[str, Callable[[], BlockSparse]] = {
    "window": lambda: SlidingWindow(size=16, block_size=16),
    "odd window": lambda: SlidingWindow(size=20, block_size=16),
    "bigbird": lambda: BigBird(block_size=16, random=2, global_blocks=1, max_keys=512),
}


@contextmanager
def math() -> Iterator[None]:
    """Make softmax attention take the backend that the counter can see into."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def gates(attend: Attention, query: Tensor, key: Tensor, value: Tensor) -> Gates:
    """Gates in the middle of their range."""
    n = attend.queries_per_head
    return {
        gate.name: key.new_full(
            gate.shape(query, key, value, queries_per_head=n),
            (max(gate.low, -1.0) + min(gate.high, 2.0)) / 2,
        )
        for gate in attend.gates
    }


@dataclass(frozen=True, eq=False)
class Call:
    """Tensors of a shape, and what is done with them."""

    shape: Shape

    def inputs(self) -> list[Tensor]:
        shape, generator = self.shape, torch.Generator().manual_seed(0)
        sizes = (
            (shape.heads, shape.queries, shape.d),
            (shape.kv_heads, shape.keys, shape.d),
            (shape.kv_heads, shape.keys, shape.e),
        )
        learned = shape.mode == "training"
        return [
            torch.rand(shape.batch, *size, generator=generator)
            .to(shape.dtype)
            .requires_grad_(learned)
            for size in sizes
        ]

    def started(self, attend: Attention) -> State:
        """The state of all keys but the last, as many as there are queries."""
        shape, (_, key, value) = self.shape, self.inputs()
        past = shape.keys - shape.queries
        state = attend.init_state(
            shape.batch,
            shape.kv_heads,
            shape.d,
            shape.e,
            capacity=shape.keys,
            device=CPU,
            dtype=shape.dtype,
        )
        if past:
            heads = attend.queries_per_head * shape.heads
            query = torch.ones(shape.batch, heads, past, shape.d, dtype=shape.dtype)
            seen = key[:, :, :past], value[:, :, :past]
            _, state = attend.extend(query, *seen, state, gates=gates(attend, query, *seen))
        return state

    def operations(self, attend: Attention) -> int:
        """Those of its matrix products, as torch counts them."""
        shape, (query, key, value) = self.shape, self.inputs()
        new = slice(shape.keys - shape.queries, None)
        state = self.started(attend) if shape.mode == "step" else None
        mask = Mask.causal("end") if shape.causal else None
        with math(), OperationCounter(OUTER_PRODUCTS) as counter:
            if state is not None:
                added = key[:, :, new], value[:, :, new]
                attend.extend(query, *added, state, gates=gates(attend, query, *added))
            else:
                out = attend(query, key, value, mask=mask, gates=gates(attend, query, key, value))
            if shape.mode == "training":
                out.sum().backward()
        return counter.total


def cost(attend: Attention, /, **sizes: Any) -> Cost:
    return attend.cost(replace(SHAPE, **sizes))


def counted(attend: Attention, /, **sizes: Any) -> int:
    return Call(replace(SHAPE, **sizes)).operations(attend)


# Products

CHUNK = 64
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


def kernel(name: str) -> KernelAttention:
    return KernelAttention(MAPS[name](), chunk=CHUNK)


Sizes = list[dict[str, Any]]
PASSES: Sizes = [
    {"queries": queries, "keys": keys, "mode": mode}
    for queries, keys in ((128, 128), (64, 128), (128, 64), (1, 100))
    for mode in ("forward", "training")
]
STEPS: Sizes = [{"queries": queries, "mode": "step"} for queries in (1, CHUNK)]
CHUNKS: Sizes = [
    {"queries": queries, "keys": keys, "causal": causal}
    for queries, keys in ((128, 128), (512, 512), (1024, 1024), (24, CHUNK))
    for causal in (False, True)
]
COUNTED: dict[str, tuple[Callable[[], Attention], Sizes]] = {
    "softmax": (Softmax, PASSES + STEPS),
    "argmax": (Argmax, PASSES + STEPS),
    "linformer": (lambda: Linformer(length=160, k=8), PASSES),
    "linformer by head": (lambda: Linformer(length=160, k=8, heads=2), PASSES),
    **{name: (partial(kernel, name), CHUNKS + STEPS) for name in MAPS},
    "window": (lambda: SlidingWindow(size=20, block_size=16), STEPS[:1]),
    "window of one": (lambda: SlidingWindow(size=0, block_size=16), STEPS[:1]),
    "window of all": (lambda: SlidingWindow(size=500, block_size=16), STEPS[:1]),
}


@pytest.mark.parametrize("name", COUNTED)
def test_every_product_is_counted(name: str) -> None:
    """Without causality, in whole chunks, or in steps; hidden keys of a step aren't needed."""
    make, sizes = COUNTED[name]
    for size, eager in product(sizes, [True] if name in MAPS else [True, False]):
        with path(eager=eager):
            assert cost(make(), **size).operations == counted(make(), **size), (size, eager)


def test_causal_pairs_are_those_of_the_mask() -> None:
    for queries, keys in product(range(1, 8), repeat=2):
        shape = replace(SMALL, queries=queries, keys=keys, causal=True)
        assert shape.pairs == int(Mask.causal("end").to_dense(queries, keys, CPU).sum())
        assert replace(shape, causal=False).pairs == queries * keys
        for attend in (Softmax(), Argmax()):
            assert attend.cost(shape).operations == 2 * 2 * 4 * shape.pairs * (4 + 3)


@pytest.mark.parametrize("name", ["elu", "polynomial", "favor-positive", "favor-hyperbolic"])
@CAUSAL
def test_training_takes_three_times_the_products(causal: bool, name: str) -> None:
    """But for what has no gradient.

    That is directions, selections, the carry that the first chunk reads and the last one leaves.
    """
    attend = kernel(name)
    seen, said = (
        counted(attend, causal=causal, mode="training"),
        cost(attend, causal=causal, mode="training"),
    )
    drawn = (SHAPE.heads + SHAPE.kv_heads) * SHAPE.batch * 128 * attend.features.operations(16)
    assert said.operations == 3 * cost(attend, causal=causal).operations - drawn
    by_chunk = 2 * SHAPE.batch * CHUNK * attend.features.size(16) * (16 + 1)
    unneeded = by_chunk * (SHAPE.heads + 2 * SHAPE.kv_heads) if causal else 0
    assert seen == said.operations - unneeded


@pytest.mark.parametrize(
    "make", [GatedLinear, Mamba2, DeltaNet, GatedDeltaNet, KimiDelta, GatedDeltaNet2, RWKV7]
)
def test_recurrences_are_counted_but_for_the_triangular_system(
    make: type[RecurrentAttention],
) -> None:
    """The counter doesn't know solve_triangular, nor products by element.

    Where decays differ by channel, so are those of a token's read with its own write.
    """
    for n in [1, 64, 100, 128]:
        attend, sizes = make(chunk=64), {"queries": n, "keys": n, "causal": True}
        erases, by_channel = make not in (GatedLinear, Mamba2), CHANNEL_LOG_DECAY in attend.gates
        queries, states = SHAPE.batch * SHAPE.heads, SHAPE.batch * SHAPE.kv_heads
        solved = states * 64 * 64 * (16 + 16) if erases else 0
        reads, writes = queries + (states if erases else 0), 1 + (make is RWKV7)
        own = reads * writes * 2 * 64 * 16 if by_channel else 0
        uncounted = -(-n // 64) * (solved + own) if n > 1 else 0
        assert counted(attend, **sizes) == cost(attend, **sizes).operations - uncounted


# Blocks


@pytest.mark.parametrize("make", SPARSE.values(), ids=SPARSE)
@CAUSAL
def test_the_blocks_that_are_looked_at_are_counted(
    causal: bool, make: Callable[[], BlockSparse]
) -> None:
    """Whole blocks: what a window or causality hides within them is computed too."""
    attend = make()
    pattern = attend.pattern(4, 128, causal=causal, device=CPU)
    assert pattern.blocks is not None
    pairs = int(pattern.blocks.allowed.expand(4, -1, -1).sum()) * 16 * 16
    assert cost(attend, causal=causal).operations == 2 * 2 * pairs * (16 + 16)


@pytest.mark.parametrize("make", SPARSE.values(), ids=SPARSE)
@pytest.mark.parametrize("mode", ["forward", "training"])
@CAUSAL
def test_on_a_cpu_empty_places_of_the_table_are_computed_too(
    causal: bool, mode: Mode, make: Callable[[], BlockSparse]
) -> None:
    """So a call takes what its table has room for: more than the model says, which counts none."""
    attend = make()
    sizes: dict[str, Any] = {"queries": 512, "keys": 512, "causal": causal, "mode": mode}
    slots, full = attend.table(4, 32, causal=causal, device=CPU).shape[2], 0
    if not causal:
        full = attend.full_rows
    rows = 512 * (full * 16) + (512 - full * 16) * slots * 16
    room = 2 * 2 * 4 * rows * (16 + 16) * (3 if mode == "training" else 1)
    seen, said = counted(attend, **sizes), cost(attend, **sizes).operations
    assert seen == room
    assert said <= seen <= 1.3 * said


def test_one_token_attends_to_the_blocks_of_its_row() -> None:
    attend = SPARSE["bigbird"]()
    table = attend.table(4, 8, causal=True, device=CPU)
    scores = int((table[:, -1] >= 0).sum()) * 16
    said = cost(attend, queries=1, mode="step").operations
    assert said == 2 * 2 * scores * (16 + 16)
    assert counted(attend, queries=1, mode="step") == said


# Numbers that are kept


def test_parameters_are_those_that_are_trained_and_only_decoding_has_a_state() -> None:
    for name in BUILT_IN:
        attend = find(name).example()
        found = attend.cost(SMALL)
        assert found.parameters == sum(x.numel() for x in attend.parameters())
        assert bool(found.state_bytes) == (name in DECODING)


DECODING = [name for name, mechanism in mechanisms().items() if mechanism.type.supports.decoding]


def test_a_state_holds_the_bytes_that_the_model_says() -> None:
    """A cache has one slot more, for padding, and each row a length.

    The latents of `latent` are in the cache of its layer: tests/models/test_latent_attention.py.
    """
    dtypes = [torch.float32, torch.float64, torch.bfloat16]
    for name, dtype, keys in product(sorted({*DECODING} - {"latent"}), dtypes, [1, 8]):
        attend, shape = find(name).example(), replace(SMALL, keys=keys, queries=1, dtype=dtype)
        expected = attend.cost(shape).state_bytes
        if not isinstance(attend, KernelAttention | RecurrentAttention):
            expected += 2 * 2 * (4 + 3) * dtype.itemsize + 2 * 8
        if name == "forgetting":
            expected += 2 * 4 * max(dtype.itemsize, 4) + 2 * 8
        assert Call(shape).started(attend).bytes == expected, (name, dtype, keys)


# Bytes


@pytest.mark.parametrize("make", [Softmax, Argmax, lambda: kernel("elu"), SPARSE["bigbird"]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_comes_in_and_goes_out_is_moved(
    dtype: torch.dtype, make: Callable[[], Attention]
) -> None:
    """And in training the gradients of both, and both again."""
    query, key, value = Call(replace(SHAPE, dtype=dtype)).inputs()
    out = make()(query, key, value)
    moved = sum(x.nbytes for x in (query, key, value, out))
    assert cost(make(), dtype=dtype).bytes == moved
    assert cost(make(), dtype=dtype, mode="training").bytes == 3 * moved


def test_linformer_reads_its_projections_too() -> None:
    plain, own = cost(Softmax()), cost(Linformer(length=160, k=8))
    assert own.bytes == plain.bytes + 2 * 8 * 128 * 4


def test_a_step_moves_what_it_remembers() -> None:
    """A cache is read; a state is read and written, however long the text."""

    def step(attend: Attention, keys: int = 128) -> Cost:
        return cost(attend, queries=1, keys=keys, mode="step")

    query, out = 2 * 4 * 16 * 4, 2 * 4 * 16 * 4
    cache = 2 * 2 * 128 * (16 + 16) * 4
    assert step(Softmax()).bytes == query + out + cache
    state, new = 2 * 2 * (16 * 17 + 1) * 4, 2 * 2 * (16 + 16) * 4
    assert step(kernel("elu")).bytes == query + out + new + 2 * state
    assert step(kernel("elu"), keys=4096) == step(kernel("elu"))
    assert step(SPARSE["window"]()).bytes < step(Softmax()).bytes
    assert step(SPARSE["window"](), keys=256).bytes == step(SPARSE["window"]()).bytes


def test_intensity_is_operations_by_byte() -> None:
    assert Cost(operations=300, bytes=120, parameters=0, state_bytes=0).intensity == 2.5
    step, forward = cost(Softmax(), queries=1, mode="step"), cost(Softmax())
    # Each key of a step is used once by each of two heads, of a pass by all queries.
    assert step.intensity < 1.01
    assert forward.intensity > 20 * step.intensity
    halved = cost(Softmax(), dtype=torch.bfloat16)
    assert halved.intensity == 2 * forward.intensity
