"""Masks: what each field allows, and that combined masks allow what all of them do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_cases import masks, thorough
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import Differential, Mask, SlidingWindow, Softmax
from regard.attention.base import Attention

CPU = torch.device("cpu")
Sizes = tuple[int, int, int, int]

sizes = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 5), st.integers(1, 5))


def full(mask: Mask, size: Sizes) -> Tensor:
    """The mask for every row, head, query and key."""
    return mask.to_dense(size[2], size[3], CPU).expand(size)


def by_definition(mask: Mask, size: Sizes) -> Tensor:
    """The mask again, pair by pair."""
    return torch.tensor(
        [
            [
                [
                    [_may_look(mask, size, b, h, i, j) for j in range(size[3])]
                    for i in range(size[2])
                ]
                for h in range(size[1])
            ]
            for b in range(size[0])
        ]
    )


def _may_look(mask: Mask, size: Sizes, b: int, h: int, i: int, j: int) -> bool:
    position = i + size[3] - size[2] if mask.alignment == "end" else i
    ids, pairs = mask.document_ids, mask.allowed
    return (
        (mask.alignment is None or j <= position)
        and (mask.window_size is None or abs(position - j) <= mask.window_size)
        and (mask.key_lengths is None or j < int(mask.key_lengths[b]))
        and (ids is None or int(ids[b, i]) == int(ids[b, j]))
        and (pairs is None or bool(pairs.expand(size)[b, h, i, j]))
    )


@thorough
@given(size=sizes, data=st.data())
def test_the_dense_form_is_the_definition_pair_by_pair(size: Sizes, data: st.DataObject) -> None:
    mask = data.draw(masks(batch=size[0], heads=size[1], queries=size[2], keys=size[3]))
    assert torch.equal(full(mask, size), by_definition(mask, size))


@thorough
@given(size=sizes, square=st.booleans(), data=st.data())
def test_combined_masks_allow_what_both_allow(
    size: Sizes, square: bool, data: st.DataObject
) -> None:
    """With as many queries as keys, or no window.

    A window counts from where queries stand, and a causal mask at the "end" moves them.
    """
    batch, heads, queries, keys = size = (*size[:3], size[2] if square else size[3])
    windows = queries == keys
    first, second = (
        data.draw(
            masks(
                batch=batch,
                heads=heads,
                queries=queries,
                keys=keys,
                windows=windows,
                documents=documents,
            )
        )
        for documents in (True, False)
    )
    if {first.alignment, second.alignment} == {"start", "end"}:
        with pytest.raises(ValueError, match='aligned at the "start", the other at the "end"'):
            first & second
        return
    assert torch.equal(full(first & second, size), full(first, size) & full(second, size))
    assert torch.equal(full(second & first, size), full(first & second, size))
    assert (first & second).restrictions == first.restrictions | second.restrictions


def test_two_masks_that_name_documents_cannot_be_combined() -> None:
    documents = Mask.documents(torch.tensor([[0, 0, 1]]))
    with pytest.raises(ValueError, match="documents"):
        documents & documents


def test_a_window_of_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        Mask.window(-1)


@pytest.mark.parametrize(
    "attend", [Softmax(), SlidingWindow(size=2, block_size=2)], ids=["softmax", "window"]
)
@pytest.mark.parametrize("rows", [1, 4])
def test_a_mask_of_another_number_of_rows_is_refused(attend: Attention, rows: int) -> None:
    x = torch.zeros(rows, 2, 5, 8)
    with pytest.raises(ValueError, match=f"key_lengths of 2 rows don't fit {rows} rows"):
        attend(x, x, x, mask=Mask.lengths(torch.tensor([3, 5])))


@pytest.mark.parametrize("axes", [2, 3])
def test_a_mask_with_fewer_axes_is_for_all_rows_and_heads(axes: int) -> None:
    allowed = torch.ones(5, 5).tril().bool()[(None,) * (axes - 2)]
    query, value = torch.randn(2, 2, 2, 5, 8)
    both = torch.cat([query, query.flip(0)], 1)
    gates = {"share": torch.full((2, 2, 5), 0.5)}
    for attend, queries, own in (Softmax(), query, {}), (Differential(), both, gates):
        expected, found = (
            attend(queries, query, value, mask=mask, gates=own)
            for mask in (Mask.dense(allowed.expand(1, 1, 5, 5)), Mask(allowed=allowed))
        )
        assert torch.equal(found, expected)


def test_restrictions_name_the_fields_that_are_given() -> None:
    assert Mask().restrictions == frozenset()
    assert Mask.window(0).restrictions == {"window_size"}
    mask = Mask.causal() & Mask.lengths(torch.tensor([0]))
    assert mask.restrictions == {"alignment", "key_lengths"}


# What layers share


def test_layers_share_what_a_mask_is_made_into() -> None:
    mask = Mask.causal() & Mask.documents(torch.tensor([[0, 0, 1]]))
    dense = mask.to_dense(3, 3, CPU)
    assert mask.to_dense(3, 3, CPU) is dense
    assert mask.within(1) is mask.within(1)
    assert torch.equal(mask.within(0).to_dense(3, 3, CPU)[0, 0], torch.eye(3).bool())


def test_a_mask_of_other_sizes_or_parts_is_made_anew() -> None:
    mask = Mask.causal("end") & Mask.lengths(torch.tensor([1, 3]))
    mask.to_dense(3, 3, CPU)
    assert mask.to_dense(2, 3, CPU).shape[-2:] == (2, 3)
    last = mask.rows(torch.tensor([1]))
    assert torch.equal(last.to_dense(3, 3, CPU)[0, 0], torch.ones(3, 3).tril().bool())
    assert torch.equal(mask.to(CPU).to_dense(3, 3, CPU), mask.to_dense(3, 3, CPU))
    near = mask & Mask.window(0)
    assert torch.equal(near.to_dense(3, 3, CPU)[1, 0], torch.eye(3).bool())
    assert near.restrictions == {"alignment", "key_lengths", "window_size"}


def test_a_mask_first_used_in_inference_mode_has_gradients_elsewhere() -> None:
    mask, scores = Mask.causal(), torch.zeros(1, 1, 3, 3, requires_grad=True)
    with torch.inference_mode():
        mask.to_dense(3, 3, CPU)
    scores.masked_fill(~mask.to_dense(3, 3, CPU), 1.0).sum().backward()
    (scores * mask.to_dense(3, 3, CPU)).sum().backward()
    assert scores.grad is not None


def test_documents_are_sorted_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts: list[Tensor] = []
    sort = Tensor.sort

    def counted(x: Tensor, *args: Any) -> Any:
        sorts.append(x)
        return sort(x, *args)

    monkeypatch.setattr(Tensor, "sort", counted)
    mask = Mask.documents(torch.tensor([[0, 0, 1], [0, 1, 0]]))
    for name in ("elu", "mamba2"):
        with pytest.raises(ValueError, match=f"row 1 has a document in two places; {name}"):
            mask.require_contiguous(name)
    assert len(sorts) == 1


@pytest.mark.parametrize("restrict", [Mask.lengths, Mask.documents])
def test_masks_of_rows_compile_in_one_graph(restrict: Callable[[Tensor], Mask]) -> None:
    """With symbolic sizes, as in training: each layer broke the graph."""
    rows = torch.tensor([2, 3]) if restrict is Mask.lengths else torch.tensor([[0, 0, 1]] * 2)

    def dense(rows: Tensor) -> Tensor:
        return restrict(rows).to_dense(3, 3, CPU)

    torch.compiler.reset()
    compiled = torch.compile(dense, backend="eager", fullgraph=True, dynamic=True)
    assert torch.equal(compiled(rows), dense(rows))
