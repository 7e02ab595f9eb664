"""Positions as a site: vectors of the input, and the places by which a layer rotates."""

from typing import Any

import pytest
import torch
from test_decoding import all_edits, check_decoding
from torch import Tensor

from regard import edits
from regard.edits.activations import activations, text_inputs
from regard.edits.apply import edited
from regard.edits.edit import Edit, Edits
from regard.edits.sites import sites
from regard.models.config import DecoderConfig, EncoderConfig
from regard.models.transformer import Decoder
from regard.positions.config import (
    AlibiConfig,
    DynamicScalingConfig,
    LearnedConfig,
    NoPositionsConfig,
    OneHotConfig,
    PositionsConfig,
    RotaryConfig,
    SinusoidalConfig,
    T5BiasConfig,
)
from regard.runs.run import Run
from tiny_edited import TEXT, mechanism_run, off, require_refused, tiny_run
from tiny_families import SIZES
from tiny_recurrent import padded

ROUNDING = 1e-9
VECTORS: dict[str, PositionsConfig] = {
    "learned": LearnedConfig(),
    "sinusoidal": SinusoidalConfig(),
    "one-hot": OneHotConfig(),
    "concatenated": LearnedConfig(combine="concatenate", width=3),
}


def run_with(positions: PositionsConfig, **settings: Any) -> Run:
    return tiny_run(DecoderConfig(**SIZES | settings, positions=positions))


def hidden(run: Run, edit: Edit | Edits | None = None) -> Tensor:
    with torch.no_grad(), edited(run, edit):
        found: Tensor = run.model.body(*text_inputs(run, TEXT)[0])
    return found


@pytest.mark.parametrize("kind", VECTORS)
def test_vectors_are_what_joins_the_embeddings(kind: str) -> None:
    wide = {"d_model": 16} if kind == "one-hot" else {}
    run = run_with(VECTORS[kind], **wide)
    body, (inputs, *_) = run.model.body, text_inputs(run, TEXT)
    assert isinstance(body, Decoder)
    known = {site.name: site for site in sites(run)}
    site = known["decoder.positions"]
    found = activations(run, inputs, [site, known["decoder.embedding"]])
    vectors, embedded = found["decoder.positions"][0], found["decoder.embedding"][0]
    assert vectors.shape == (10, 3 if kind == "concatenated" else body.width)
    tokens = body.embedding(inputs[0])[0]
    joined = [tokens, vectors] if kind == "concatenated" else [tokens + vectors]
    assert torch.equal(torch.cat([x.to(tokens.dtype) for x in joined], -1), embedded)
    with edited(run, edits.zero(site.name, at="born")):
        changed = activations(run, inputs, [known["decoder.embedding"]])["decoder.embedding"][0]
    born = 1 + TEXT.split().index("born")
    without = embedded.clone()
    without[born, -vectors.shape[1] :] -= vectors[born].to(without.dtype)
    assert off(changed, without) <= ROUNDING
    check_decoding(run, all_edits(run))


ROTARY = ["decoder.0.positions", "decoder.1.positions"]


def test_rotary_positions_are_the_places_of_tokens() -> None:
    run = run_with(RotaryConfig())
    (inputs, *_), known = text_inputs(run, TEXT), {site.name: site for site in sites(run)}
    found = activations(run, inputs, [known[name] for name in ROTARY])
    for x in found.values():
        assert x[0].tolist() == [[float(i)] for i in range(10)]
    own = hidden(run)
    shifted = Edits(tuple(edits.steer(name, [1.0], scale=-2.5) for name in ROTARY))
    assert off(hidden(run, shifted), own) <= ROUNDING, "the distance alone counts"
    assert off(hidden(run, edits.steer(ROTARY[0], [1.0], scale=3, at=2)), own) > 1e-3
    check_decoding(run, all_edits(run))


def test_zero_at_rotary_layers_is_a_model_without_positions() -> None:
    run, bare = run_with(RotaryConfig()), run_with(NoPositionsConfig())
    bare.model.load_state_dict(run.model.state_dict())
    none = Edits(tuple(edits.zero(name) for name in ROTARY))
    assert off(hidden(run, none), hidden(bare)) <= ROUNDING


def test_a_moved_token_is_rotated_alone() -> None:
    """Of the keys, that of the moved token is the one at the other place."""
    run = mechanism_run("softmax", positions=RotaryConfig(), n_layers=1)
    inputs, *_ = text_inputs(run, TEXT)
    keys = next(site for site in sites(run) if site.part == "keys")
    own = activations(run, inputs, [keys])[keys.name][0]
    move, back = (edits.steer("decoder.0.positions", [3.0], scale=x, at=2) for x in (1, -1))
    with edited(run, move):
        moved = activations(run, inputs, [keys])[keys.name][0]
    changed = (moved != own).any(-1)
    assert changed.tolist() == [i == 2 for i in range(10)]
    with edited(run, move + back):
        assert torch.equal(activations(run, inputs, [keys])[keys.name][0], own)


@pytest.mark.parametrize(
    "positions",
    [
        AlibiConfig(),
        T5BiasConfig(),
        NoPositionsConfig(),
        RotaryConfig(scaling=DynamicScalingConfig()),
    ],
)
def test_other_positions_say_where_they_are(positions: PositionsConfig) -> None:
    run = run_with(positions)
    assert not [site for site in sites(run) if site.part == "positions"]
    for name in ("decoder.positions", "decoder.0.positions"):
        require_refused(run, edits.zero(name), "biases are part of scores")


@pytest.mark.parametrize("positions", [RotaryConfig(), LearnedConfig()])
def test_a_padded_row_of_an_encoder_is_the_row_alone(positions: PositionsConfig) -> None:
    run = tiny_run(EncoderConfig(**SIZES, positions=positions))
    site = next(site for site in sites(run) if site.part == "positions")
    moved = edits.steer(site.name, [2.0] * (site.width or 0), at="last")
    edit = moved + edits.zero(site.name, at=(1, 2))
    rows = [[1, 3, 5, 6, 7, 8], [1, 4, 5, 6]]
    with torch.no_grad(), edited(run, edit):
        together = run.model.body(*padded(rows))
        for row, found in zip(rows, together, strict=True):
            alone = run.model.body(torch.tensor([row]), torch.tensor([len(row)]))[0]
            assert off(found[: len(row)], alone) <= ROUNDING
    with torch.no_grad():
        assert off(run.model.body(*padded(rows)), together) > 1e-3
