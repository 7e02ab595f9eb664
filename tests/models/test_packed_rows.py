"""Several documents in a row: each is as if it were alone."""

from typing import Any

import numpy as np
import pytest
import torch

from regard.attention.config import BUILT_IN
from regard.attention.registry import find
from regard.config import override
from regard.data.batch import Batch, RowFormat
from regard.data.packing import PackedDocuments
from regard.errors import UnsupportedError
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.models.transformer import Decoder
from regard.positions.config import DynamicScalingConfig, RotaryConfig
from regard.runs.recipe import Recipe
from tiny_models import BLOCK, VOCABULARY, tiny_model

LENGTHS = (5, 3, 8, 6, 40, 2, 7, 9)
SUPPORTING = [
    kind for kind in BUILT_IN if find(kind).features["documents"] and find(kind).features["causal"]
]
BY_PLACE = {"bigbird"}
"""Mechanisms whose blocks lie at places of the row, so that a document's place matters."""
SUMMED = {"forgetting"}
"""Mechanisms of differences of sums over the row, in which other documents cancel to rounding."""
SIGNED = {"fourier", "favor-trigonometric"}
"""Mechanisms whose features may be negative, so that normalizers of large queries may be too."""
POSITIONS = (
    "learned",
    "sinusoidal",
    "one-hot",
    "relative-bias",
    "shaw-vectors",
    "t5-bias",
    "alibi",
    "rotary",
    "none",
)
EPS = torch.finfo(torch.float64).eps


def config(kind: str) -> Any:
    mechanism = find(kind).config
    return mechanism(**mechanism.check_options)


def model_of(kind: str) -> LanguageModel:
    model = tiny_model(attention=config(kind))
    if kind in SIGNED:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "qkv_proj" in name:
                    weight[: 2 * len(weight) // 3] *= 0.1
    return model


def body_of(model: LanguageModel) -> Decoder:
    assert isinstance(model.body, Decoder)
    return model.body


@pytest.mark.parametrize("kind", ["softmax", *BY_PLACE, *SUMMED])
def test_no_hidden_state_depends_on_another_document(kind: str) -> None:
    body = body_of(model_of(kind))
    ids = torch.arange(BLOCK)[None] % VOCABULARY
    documents = torch.tensor([[0] * 5 + [1] * 3 + [2] * 6 + [-1] * 2])
    vectors: list[torch.Tensor] = []

    def keep(_module: object, _inputs: object, output: torch.Tensor) -> None:
        output.retain_grad()
        vectors.append(output)

    handle = body.embedding.register_forward_hook(keep)
    hidden = body(ids, document_ids=documents)
    handle.remove()
    for document in (0, 1, 2):
        inside = documents[0] == document
        (gradient,) = torch.autograd.grad(
            hidden[0, inside].square().sum(), vectors[0], retain_graph=True
        )
        largest = float(gradient[0, inside].abs().max())
        assert largest > 0
        assert gradient[0, ~inside].abs().max() <= (4 * EPS * largest if kind in SUMMED else 0)


def batches(*, packing: bool) -> Batch:
    """All documents, in the rows of one batch."""
    rows = PackedDocuments(
        np.random.default_rng(0).integers(0, VOCABULARY, sum(LENGTHS)),
        np.cumsum([0, *LENGTHS])[:-1],
        RowFormat(BLOCK, pad=0),
        packing=packing,
        prefix=(1,),
        suffix=(2,),
        vocabulary=VOCABULARY,
    )
    rng = np.random.default_rng(0)
    return rows.collate([rows.example(index, rng) for index in range(len(rows))])


def gradients(model: LanguageModel, batch: Batch) -> tuple[float, list[torch.Tensor]]:
    loss = model.loss(batch)
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return float(loss.detach()), [g for g in found if g is not None]


def require_equal(model: LanguageModel) -> None:
    packed, padded = batches(packing=True), batches(packing=False)
    assert packed.n_targets == padded.n_targets
    assert len(packed.labels) < len(padded.labels)
    (loss, ours), (expected, theirs) = gradients(model, packed), gradients(model, padded)
    # Sums of about as many roundings as there are targets times layers, over the largest entry.
    bound = 1e4 * EPS
    assert abs(loss - expected) <= bound * expected
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() <= bound * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("positions", POSITIONS)
def test_packed_and_padded_gradients_are_equal_for_any_positions(positions: str) -> None:
    sizes = ["model.d_model=16", "model.n_heads=4", f"model.context_length={BLOCK}"]
    model = override(Recipe(), [*sizes, f"model.positions.kind={positions}"]).model
    assert isinstance(model, DecoderConfig)
    require_equal(tiny_model(positions=model.positions))


@pytest.mark.parametrize("kind", [kind for kind in SUPPORTING if kind not in BY_PLACE])
def test_packed_and_padded_gradients_are_equal_for_any_mechanism(kind: str) -> None:
    require_equal(model_of(kind))


def test_dynamic_scaling_depends_on_no_padding_and_refuses_packed_rows() -> None:
    scaling = DynamicScalingConfig(original_context_length=4)
    body = body_of(tiny_model(positions=RotaryConfig(scaling=scaling)))
    ids = torch.arange(12)[None] % VOCABULARY
    padded = body(ids, torch.tensor([6]))[:, :6]
    torch.testing.assert_close(padded, body(ids[:, :6]))
    with pytest.raises(UnsupportedError, match="dynamic scaling"):
        body.require_documents()
