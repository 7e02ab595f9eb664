"""Planted circuits: patching finds exactly the heads whose weights were set by hand."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard import edits
from regard.data import IGNORE
from regard.data.batch import Batch, PaddedIds
from regard.edits.effects import effects
from regard.edits.faithfulness import faithfulness
from regard.edits.found import Effects
from regard.edits.head_importance import gate_importance
from regard.edits.paths import paths
from regard.models.config import DecoderConfig
from regard.models.head_config import LMHeadConfig
from regard.models.layers import Layer
from regard.models.transformer import Decoder
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.probes import number_tokenizer

NUMBERS, HEADS, WIDTH = 8, 4, 12
TOKENS, POSITIONS = NUMBERS + 3, 8
TOKEN = slice(0, TOKENS)
POSITION = slice(TOKENS, TOKENS + POSITIONS)
PREVIOUS = slice(POSITION.stop, POSITION.stop + TOKENS)
OUT = slice(PREVIOUS.stop, PREVIOUS.stop + TOKENS)
JUNK = slice(OUT.stop, HEADS * WIDTH)
"""Channels that nothing reads; other heads write there."""
SHARP = 40.0
ROUNDING = 1e-9


def blank_run(n_layers: int) -> tuple[Run, Decoder]:
    """A decoder that reads tokens and positions as unit vectors; its heads write junk."""
    config = DecoderConfig(
        context_length=POSITIONS, n_layers=n_layers, n_heads=HEADS, d_model=HEADS * WIDTH, dropout=0
    )
    recipe = Recipe(model=config, head=LMHeadConfig())
    run = Run.new(Path("planted"), recipe, number_tokenizer(NUMBERS), {})
    body = run.model.double().eval().body
    assert isinstance(body, Decoder)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in run.model.named_parameters():
            if "norm" not in name:
                parameter.zero_()
            if name.endswith("qkv_proj.weight"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        body.embedding.weight[:, TOKEN] = torch.eye(TOKENS, dtype=torch.float64)
        positions = next(p for name, p in body.named_parameters() if "absolute" in name)
        positions[:POSITIONS, POSITION] = torch.eye(POSITIONS, dtype=torch.float64)
        for layer in body._layers():
            weight = layer.self_attention.o_proj.weight
            weight[JUNK] = 0.001 * torch.randn(weight[JUNK].shape, generator=generator).double()
    return run, body


def plant(layer: Layer, head: int, query: Tensor, key: Tensor, value: Tensor, out: Tensor) -> None:
    """Set the four matrices of a head."""
    attention, width = layer.self_attention, HEADS * WIDTH
    rows = slice(head * WIDTH, (head + 1) * WIDTH)
    with torch.no_grad():
        for i, matrix in enumerate((query, key, value)):
            attention.qkv_proj.weight[i * width : (i + 1) * width][rows] = matrix
        attention.o_proj.weight[:, rows] = out


def read_out(run: Run, matrix: Tensor) -> None:
    """Set the matrix from the channels `OUT` to logits."""
    head = run.model.head
    assert isinstance(head, nn.Linear)
    head.weight.data[:, OUT] = matrix


def selecting(block: slice, *, scale: float = 1.0, shift: int = 0) -> Tensor:
    """The matrix from the stream to a head that reads a block, shifted by some places."""
    matrix = torch.zeros(WIDTH, HEADS * WIDTH, dtype=torch.float64)
    for i in range(block.stop - block.start):
        if 0 <= i + shift < WIDTH:
            matrix[i + shift, block.start + i] = scale
    return matrix


def found_by_patching(run: Run, clean: str, corrupt: str, right: str, wrong: str) -> Effects:
    metric = edits.logit_difference(right, wrong)
    return effects(run, clean, corrupt, metric=metric, by=("patching",), controls=0)


def large(found: Effects) -> set[str]:
    """The heads with more than a twentieth of the effect."""
    means = found.examples.mean(0)
    return {cell.name for cell, mean in zip(found.cells, means, strict=True) if abs(mean) > 0.05}


def induction_run() -> Run:
    """A head for the previous token and one that matches it: A B … A → B (Elhage et al., 2021)."""
    run, body = blank_run(2)
    first, second = body._layers()
    behind = selecting(POSITION, scale=SHARP, shift=-1), selecting(POSITION)
    plant(first, 2, *behind, selecting(TOKEN), selecting(PREVIOUS).T)
    match = selecting(TOKEN, scale=SHARP), selecting(PREVIOUS)
    plant(second, 1, *match, selecting(TOKEN), selecting(OUT).T)
    read_out(run, torch.eye(TOKENS, dtype=torch.float64))
    return run


def test_induction_is_a_head_for_the_previous_token_and_a_head_that_matches_it() -> None:
    found = found_by_patching(induction_run(), "3 5 1 2 3", "4 5 1 2 3", "5", "7")
    assert found.clean[0] > 2 * abs(found.corrupt[0])
    assert large(found) == {"decoder.0.heads.2", "decoder.1.heads.1"}


def test_the_heads_of_induction_alone_are_faithful() -> None:
    metric = edits.logit_difference("5", "7")
    found = faithfulness(induction_run(), "3 5 1 2 3", "4 5 1 2 3", metric=metric)
    for curve in (found.by_effect, found.by_size):
        assert {cell.name for cell in curve.order[:2]} == {"decoder.0.heads.2", "decoder.1.heads.1"}
        f = [one.value for one in curve.faithfulness]
        assert f[0] == 0
        assert f[1] == pytest.approx(0, abs=0.02), "neither head does anything without the other"
        assert f[2:-1] == pytest.approx([1.0] * 6, abs=0.02)
        assert f[-1] == 1
    # Of eight heads, a trapezoid of height 1/2 and six of height 1.
    assert found.cpr.value == pytest.approx(6.5 / 8, abs=0.02)
    assert found.cmd.value == pytest.approx(1.5 / 8, abs=0.02)


def test_learned_gates_keep_the_heads_of_induction_alone() -> None:
    draw = torch.Generator().manual_seed(0)
    rows = torch.stack([3 + torch.randperm(NUMBERS, generator=draw)[:4] for _ in range(16)])
    labels = torch.full((16, 5), IGNORE)
    labels[:, -1] = rows[:, 1]  # A B … A → B
    ids = PaddedIds.of(torch.cat([rows, rows[:, :1]], 1).tolist(), 0)
    batch, model = Batch({"input_ids": ids}, labels), induction_run().model
    found = gate_importance(model, [batch], penalty=0.2, steps=100)
    kept = {f"{place}.{int(g)}" for place, p in found.items() for g in (p > 0.5).nonzero()}
    assert kept == {"decoder.0.2", "decoder.1.1"}


def test_a_sum_is_two_heads_that_add_their_numbers() -> None:
    """One head reads the first number, another the second; the logit of s is s(a + b) − s²/2."""
    run, body = blank_run(1)
    (layer,) = body._layers()
    counted = torch.zeros(WIDTH, HEADS * WIDTH, dtype=torch.float64)
    counted[0, TOKEN] = 0.02 * (torch.arange(TOKENS).double() - 3)  # the number of a token
    for head, place in ((0, 1), (3, 2)):
        key = torch.zeros_like(counted)
        key[0, POSITION.start + place] = 1.0
        query = torch.zeros_like(counted)
        query[0, POSITION] = SHARP  # every position asks alike
        query[0, POSITION.start + place] = SHARP
        plant(layer, head, query, key, counted, selecting(slice(OUT.start, OUT.start + 1)).T)
    numbers = torch.zeros(TOKENS, TOKENS, dtype=torch.float64)
    numbers[3:, 0] = torch.arange(NUMBERS)
    read_out(run, numbers)
    found = found_by_patching(run, "3 4 0", "1 2 0", "7", "3")
    assert large(found) == {"decoder.0.heads.0", "decoder.0.heads.3"}
    # Both numbers grow by 2, and the last norm is nearly linear for sums this small.
    assert found.examples[0, [0, 3]].tolist() == pytest.approx([0.5, 0.5], abs=0.1)


def test_the_path_of_induction_is_into_the_keys() -> None:
    """The head for the previous token acts by the keys of the second head alone."""
    run = induction_run()
    metric = edits.logit_difference("5", "7")
    names = ["decoder.1.queries.1", "decoder.1.keys.1", "decoder.1.values.1", "decoder.1.keys.0"]
    found = paths(run, "3 5 1 2 3", "4 5 1 2 3", metric=metric, receivers=names)
    rows = {row["site"]: row for row in found.rows()}
    first, second = rows.pop("decoder.0.heads.2"), rows.pop("decoder.1.heads.1")
    assert first["total"] > 0.9
    assert first["decoder.1.keys.1"] == pytest.approx(first["total"], abs=0.05)
    assert second["direct"] == pytest.approx(second["total"], abs=ROUNDING)
    assert second["total"] > 0.9
    others = [abs(first[name]) for name in ("direct", *names) if name != "decoder.1.keys.1"]
    others += [abs(row[name]) for row in rows.values() for name in ("total", "direct", *names)]
    assert max(others) < 0.05


def test_a_later_head_that_takes_an_effect_back_is_in_the_difference() -> None:
    """Self-repair (McGrath et al., 2023, arXiv:2307.15771): the total is less than the direct."""
    run, body = blank_run(2)
    first, second = body._layers()
    here = selecting(POSITION, scale=SHARP), selecting(POSITION)
    plant(first, 0, *here, selecting(TOKEN), selecting(OUT).T)
    plant(second, 3, *here, selecting(OUT), -0.5 * selecting(OUT).T)
    read_out(run, torch.eye(TOKENS, dtype=torch.float64))
    metric = edits.logit_difference("5", "7")
    found = paths(run, "3 5", "3 7", metric=metric, receivers=["decoder.1.values.3"])
    row = next(row for row in found.rows() if row["site"] == "decoder.0.heads.0")
    assert row["direct"] > 1.2 * row["total"] > 0
    assert row["difference"] == pytest.approx(row["decoder.1.values.3"], rel=0.2)
    assert row["difference"] < 0
