"""Inputs of the library that don't fit are refused in a sentence, before a kernel sees them."""

import pytest
import torch
from torch import Tensor

from regard.attention import KernelAttention, Mask, MoBA, Softmax
from regard.attention.contract_cases import Cases
from regard.attention.feature_maps import Elu
from regard.attention.gated import RecurrentAttention
from regard.attention.registry import mechanisms

X = torch.zeros(2, 4, 6, 8)


@pytest.mark.parametrize("name", mechanisms())
def test_inputs_of_other_kinds_are_refused(name: str) -> None:
    mechanism = mechanisms()[name]
    attend = mechanism.example()
    case = Cases(mechanism, torch.float32, torch.device("cpu"), attend).plain()
    gates = case.gates

    def refused(query: Tensor, key: Tensor, value: Tensor, mask: object, says: str) -> None:
        with pytest.raises((TypeError, ValueError), match=says) as error:
            attend(query, key, value, mask=mask, gates=gates)
        assert "\n" not in str(error.value)

    query, key, value, mask = case.query, case.key, case.value, case.mask
    refused(query[0], key[0], value[0], mask, "expected four axes: batch, heads, tokens, width")
    refused(
        query, key, value, torch.ones(11, 11).bool(), r"is a Tensor: expected a Mask; .*dense\("
    )
    refused(query.long(), key.long(), value.long(), mask, "torch.int64 .* expected one floating")
    refused(query, key.double(), value, mask, "torch.float64 .* expected one floating type")
    refused(query, key.to("meta"), value, mask, "cpu, meta and cpu: expected one device")


def test_autocast_may_mix_types() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        out = Softmax()(X, X.bfloat16(), X, mask=Mask.causal())
    assert out.shape == X.shape


CONTIGUOUS = [
    name
    for name, known in mechanisms().items()
    if issubclass(known.type, KernelAttention | RecurrentAttention | MoBA)
]


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_sums_and_blocks_need_contiguous_documents(name: str) -> None:
    """In kernel attention, which has masks of its own without causality, both ways.

    In moba, each part of a document was a document of its own, silently.
    """
    known = mechanisms()[name]
    attend = known.example()
    case = Cases(known, torch.float32, torch.device("cpu"), attend).plain()
    n = case.key.shape[2]
    documents = Mask.documents(torch.tensor([[0] * n, [0, 1, 0] + [2] * (n - 3)]))
    masks = [Mask.causal() & documents, *([documents] if attend.supports.bidirectional else [])]
    for mask in masks:
        with pytest.raises(ValueError, match=f"row 1 has a document in two places; {attend.name}"):
            attend(case.query, case.key, case.value, mask=mask, gates=case.gates)


def test_documents_are_for_self_attention() -> None:
    mask = Mask.causal() & Mask.documents(torch.zeros(2, 6, dtype=torch.long))
    with pytest.raises(ValueError, match="document"):
        Softmax()(X, X.repeat(1, 1, 2, 1), X.repeat(1, 1, 2, 1), mask=mask)


@pytest.mark.parametrize("attend", [Softmax(), KernelAttention(Elu())])
def test_one_length_for_all_rows_of_a_memory(attend: Softmax | KernelAttention) -> None:
    """Rows couldn't be reordered: IndexError."""
    query, key, value = torch.randn(3, 3, 2, 4, 8)
    mask = Mask.lengths(torch.tensor([2]))
    memory, order = attend.encode_memory(key, value, mask=mask), torch.tensor([2, 0])
    out = attend.attend_memory(query[order], memory.reorder(order))
    torch.testing.assert_close(out, attend(query, key, value, mask=mask)[order])
    with pytest.raises(ValueError, match="key_lengths of 2 rows don't fit 3 rows"):
        attend.encode_memory(key, value, mask=Mask.lengths(torch.tensor([2, 2])))


@pytest.mark.parametrize(
    "attend", [Softmax(), MoBA(block_size=2, blocks=2), KernelAttention(Elu())]
)
@pytest.mark.parametrize("mask", ["lengths", "documents"])
def test_masks_of_no_rows(attend: Softmax | KernelAttention, mask: str) -> None:
    x, none = torch.randn(0, 2, 3, 4), torch.zeros(0, 3, dtype=torch.long)
    rows = Mask.lengths(none[:, 0]) if mask == "lengths" else Mask.documents(none)
    assert attend(x, x, x, mask=Mask.causal() & rows).shape == x.shape


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (Mask.dense(torch.ones(8, 8).bool()), r"\(1, 1, 8, 8\) doesn't fit 4 heads, 16 queries"),
        (Mask.dense(torch.ones(2, 16, 16).bool()), r"dense mask .* doesn't fit 4 heads"),
        (Mask.dense(torch.ones(1, 1, 1, 16, 16).bool()), "dense mask .* doesn't fit"),
        (Mask.block_pairs(torch.ones(1, 2, 2).bool(), size=4), "a block mask for 8 queries"),
        (Mask.block_pairs(torch.ones(2, 4, 4).bool(), size=4), "a block mask for 2 heads"),
    ],
)
def test_masks_of_other_sizes_are_refused(mask: Mask, says: str) -> None:
    """With a window, a GPU repeated them over heads and tokens, in silence."""
    x = torch.randn(1, 4, 16, 16)
    with pytest.raises(ValueError, match=says):
        Softmax()(x, x, x, mask=mask & Mask.window(20))
