"""FlexAttention as it is asked: masks and biases by index, and what it makes of them on a CPU.

The fast way is a GPU's, compiled. Here torch runs it eagerly, over the whole matrix of scores, and
without gradients, which it has on a GPU only.
"""

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import torch
from attention_cases import Case, error, normal
from torch import Tensor
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch._dynamo.testing import CompileCounter
from torch.nn.attention.flex_attention import BlockMask

from regard.attention import Bias, Mask, Softmax, flex
from regard.attention.contract_cases import TableBias, _cross_masks, _self_masks
from regard.positions import Alibi, RelativeBias, ShawVectors, T5Bias

CPU = torch.device("cpu")
BATCH, HEADS, N, SHORT, D = 2, 4, 11, 5, 4


def placed(masks: dict[str, Mask | None], queries: int, keys: int) -> dict[str, Case]:
    """A case for each mask."""
    return {
        f"{queries} queries, {keys} keys, {name}": Case(
            query=normal(BATCH, HEADS, queries, D),
            key=normal(BATCH, HEADS // 2, keys, D, seed=1),
            value=normal(BATCH, HEADS // 2, keys, D, seed=2),
            mask=mask,
        )
        for name, mask in masks.items()
    }


CASES = {
    **placed(_self_masks(CPU), N, N),
    **placed(_cross_masks(SHORT, N, CPU), SHORT, N),
    **placed(_cross_masks(N, SHORT, CPU), N, SHORT),
}
FEW = (
    "11 queries, 11 keys, no mask",
    "11 queries, 11 keys, causal, blocks, lengths",
    "11 queries, 11 keys, causal, documents, lengths",
    "11 queries, 11 keys, causal, window, dense",
    "5 queries, 11 keys, causal from the end, lengths",
    "11 queries, 5 keys, causal from the end",
    "5 queries, 11 keys, window from the end",
)
"""Masks that have all fields among them: torch takes a while to trace each."""


def indices(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Row, head, query and key of each place of the matrix."""
    sizes = (*case.query.shape[:3], case.key.shape[2])
    row, head, query, key = torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij")
    return row, head, query, key


# Masks


def test_the_mask_by_index_is_the_dense_one() -> None:
    for name, case in CASES.items():
        by_index = flex.mask_mod(case.mask or Mask(), case.query.shape[2], case.key.shape[2])
        assert torch.equal(by_index(*indices(case)), case.allowed()), name


def by_blocks(mask: Mask, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Which blocks of 128 are computed, and which without looking at the mask."""
    blocks = flex.block_mask(mask, query, key)
    assert blocks.full_kv_indices is not None
    assert blocks.full_kv_num_blocks is not None
    full = BlockMask.from_kv_blocks(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    return blocks.to_dense().bool(), full.to_dense().bool()


LONG = 400
IDS = torch.stack([torch.arange(LONG) // 130, torch.arange(LONG) // 70])
PAIRS = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.5
LONG_MASKS: dict[str, tuple[Mask, tuple[int, int]]] = {
    "end": (Mask.causal("end"), (1, 1)),
    "window": (Mask.window(30), (1, 1)),
    "lengths": (Mask.lengths(torch.tensor([0, 200])), (2, 1)),
    "documents": (Mask.documents(IDS), (2, 1)),
    "blocks by head": (Mask.block_pairs(PAIRS, size=100), (1, 3)),
    "dense": (
        Mask.dense((torch.arange(LONG)[:, None] + torch.arange(LONG) < 500)[None, None]),
        (1, 1),
    ),
    "dense by head": (Mask.dense((torch.arange(LONG) < 300).expand(1, 3, 1, LONG)), (1, 3)),
    "all": (
        Mask.causal()
        & Mask.lengths(torch.tensor([150, 390]))
        & Mask.documents(IDS)
        & Mask.block_pairs(PAIRS, size=100),
        (2, 3),
    ),
}


@pytest.mark.parametrize(("mask", "sizes"), LONG_MASKS.values(), ids=LONG_MASKS)
def test_blocks_that_are_left_out_are_empty_and_full_ones_are_full(
    mask: Mask, sizes: tuple[int, int]
) -> None:
    """And rows and heads are told apart only where the mask does."""
    query = key = torch.zeros(2, 3, LONG, D)
    computed, full = by_blocks(mask, query, key)
    assert computed.shape[:2] == sizes
    padded = torch.zeros(2, 3, 512, 512, dtype=torch.bool)
    padded[:, :, :LONG, :LONG] = mask.to_dense(LONG, LONG, CPU)
    blocks = padded.unflatten(2, (4, 128)).unflatten(4, (4, 128))
    assert torch.equal(computed.expand(2, 3, 4, 4), blocks.any(5).any(3))
    assert not bool((full & ~blocks.all(5).all(3)).any())
    assert bool(full.any()) == bool(blocks.all(5).all(3).any())


def test_fewer_queries_than_keys_have_a_block_mask_of_their_own() -> None:
    query, key = torch.zeros(1, 2, 100, D), torch.zeros(1, 1, 300, D)
    for alignment, row in (("start", [[True, False, False]]), ("end", [[True, True, True]])):
        mask = Mask(alignment="start" if alignment == "start" else "end")
        computed, _ = by_blocks(mask, query, key)
        assert computed[0, 0].tolist() == row


# Biases


BIASES: dict[str, Callable[[], Bias]] = {
    "alibi": lambda: Alibi(heads=HEADS),
    "relative": lambda: learned(RelativeBias(heads=HEADS, clip=3)),
    "t5": lambda: learned(T5Bias(heads=HEADS, buckets=8, max_distance=10, bidirectional=True)),
    "table": lambda: TableBias(normal(HEADS, N, N)),
}


def learned(bias: RelativeBias | T5Bias) -> Bias:
    """With numbers that aren't zero."""
    torch.nn.init.normal_(bias.values, generator=torch.Generator().manual_seed(4))
    return bias


@pytest.mark.parametrize("make", BIASES.values(), ids=BIASES)
def test_the_bias_by_index_is_the_dense_one_where_the_mask_places_queries(
    make: Callable[[], Bias],
) -> None:
    bias = make()
    for name, case in CASES.items():
        score = normal(BATCH, HEADS, case.query.shape[2], case.key.shape[2])
        add = flex.score_mod(bias, case.mask, case.query, case.key)
        keys = case.key.shape[2]
        queries = (case.mask or Mask()).query_positions(case.query.shape[2], keys, CPU)
        expected = score + bias.dense(queries, torch.arange(keys))
        # Exact: one product and one sum for each place.
        assert torch.equal(add(score, *indices(case)), expected), name


# Attention


def attend(case: Case, bias: Bias | None = None, *, scale: float = D**-0.5) -> Tensor:
    with warnings.catch_warnings():
        # Eager is what is tested here.
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex.attend(case.query, case.key, case.value, mask=case.mask, bias=bias, scale=scale)


@pytest.mark.parametrize(("name", "biased"), [*zip(FEW, cycle([False, True]))])
def test_it_is_softmax_attention(name: str, biased: bool) -> None:
    """Of grouped heads, and of rows that may look at nothing; every other one has a bias."""
    case, bias = CASES[name], Alibi(heads=HEADS) if biased else None
    found = attend(case, bias)
    softmax = Softmax()(case.query, case.key, case.value, mask=case.mask, bias=bias)
    # Both round, and a bias adds its size to the scores that are rounded.
    assert error(found, softmax, case) <= 2 * (1 + N * biased)
    assert not found[~case.allowed().any(-1)].any()


def test_scores_are_scaled_as_asked() -> None:
    case = CASES[f"{N} queries, {N} keys, no mask"]
    doubled = replace(case, query=2 * case.query)
    # Exact: a power of two rounds nothing.
    assert torch.equal(attend(case, scale=1.0), attend(doubled))


# When


def test_a_cpu_takes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(flex, "attend")
    x, bias = torch.zeros(1, HEADS, N, 16), Alibi(heads=HEADS)
    assert flex.can_run(x, None, bias)
    Softmax()(x, x, x, bias=bias)


def test_vectors_are_no_bias_for_it() -> None:
    x = torch.zeros(1, 1, 4, 16)
    with pytest.raises(AssertionError):
        flex.score_mod(ShawVectors(d=16, clip=1), None, x, x)


# Compiled


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounter]:
    """Count the graphs of FlexAttention as on a GPU, but run eagerly."""
    counter = CompileCounter()
    run, compile_ = flex._run, torch.compile

    def on_a_gpu(function: Callable[..., Any], _: bool, *args: Any, **options: Any) -> Any:
        return run(function, True, *args, **options)

    def counting(function: Callable[..., Any], **options: Any) -> Any:
        return compile_(function, **options, backend=counter)

    monkeypatch.setattr(flex, "_run", on_a_gpu)
    monkeypatch.setattr(torch, "compile", counting)
    torch.compiler.reset()
    flex._compiled.cache_clear()
    yield counter
    flex._compiled.cache_clear()
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # within torch
@torch.no_grad()
def test_many_lengths_have_few_graphs(compiled: CompileCounter) -> None:
    """A first and a second of the mask and of the attention, and none for the next eight shapes."""
    for i in range(10):
        n, rows = 140 + 150 * i, 2 + i % 3
        ids = (torch.arange(n) // 50).expand(rows, -1)
        query, key = normal(rows, HEADS, n, D), normal(rows, HEADS // 2, n, D, seed=1)
        mask = Mask.causal() & Mask.documents(ids)
        out = flex.attend(query, key, key, mask=mask, bias=None, scale=D**-0.5)
        torch.testing.assert_close(out, Softmax()(query, key, key, mask=mask))
    assert compiled.frame_count == 4


@torch.no_grad()
def test_too_many_kinds_raise(compiled: CompileCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch would silently run eagerly, over all pairs."""
    monkeypatch.setattr(flex, "KINDS", 1)
    x = normal(1, HEADS, N, D)
    flex.attend(x, x, x, mask=None, bias=None, scale=1.0)
    with pytest.raises(FailOnRecompileLimitHit):
        flex.attend(x, x, x, mask=None, bias=Alibi(heads=HEADS), scale=1.0)
    assert compiled.frame_count == 1


def test_a_block_mask_is_freed_with_its_mask() -> None:
    x = torch.zeros(1, 1, LONG, D)
    mask = Mask.documents(IDS[:1])
    freed = weakref.ref(flex.block_mask(mask, x, x))
    gc.disable()
    try:
        del mask
        assert freed() is None
    finally:
        gc.enable()
