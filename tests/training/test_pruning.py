"""Pruned runs: the least important heads are gone, and the run is one like any other."""

from functools import partial
from pathlib import Path

import pytest
import torch

import regard
from regard import edits
from regard.data.batch import Batch
from regard.edits.apply import edited
from regard.edits.head_importance import (
    ablation_importance,
    gate_importance,
    gradient_importance,
    loss_of,
)
from regard.errors import NonFiniteError, UnsupportedError
from regard.evaluation.evaluate import Evaluation
from regard.evaluation.perplexity import NOTHING_DRAWN, TextScore, text_dataset
from regard.huggingface.convert.export import export_run
from regard.huggingface.convert.folder import read_folder
from regard.models.builders import Model
from regard.models.config import DecoderConfig
from regard.models.head_pruning import Kept, copy_kept
from regard.runs.run import Run
from regard.text.corpus import Document
from regard.training.pruning import MEASURES, order_units, prune
from tiny import MODEL, QUESTIONS, STEPS, Command, refused, succeeded
from tiny_edited import OTHER, TEXT, imported_run, mechanism_run, off


def batches(run: Run, rows: int) -> list[Batch]:
    """Two texts of unequal length, in batches of so many rows."""
    texts = text_dataset(run, [Document(text=t, where="") for t in (TEXT, "Ada lives in Oslo")])
    examples = [texts.example(i, NOTHING_DRAWN) for i in (0, 1)]
    return [texts.collate(examples[i : i + rows]) for i in range(0, 2, rows)]


def slope(run: Run, row: Batch, place: str, group: int) -> float:
    """∂L/∂ξ of the loss of a row, by a central difference."""
    step = 1e-4 * torch.eye(2, dtype=torch.float64)[[group]]
    more, less = (loss_of(run.model, [row], {place: 1 + x}) for x in (step, -step))
    return (more - less) / 2e-4 * row.n_targets


def test_importance_is_the_mean_size_of_the_slope_of_a_rows_loss() -> None:
    run = mechanism_run("gated-softmax", n_kv_heads=2)
    rows = batches(run, 1)
    found, together = (gradient_importance(run.model, batches(run, n)) for n in (1, 2))
    for place, values in found.items():
        slopes = [sum(abs(slope(run, row, place, g)) for row in rows) for g in (0, 1)]
        expected = torch.tensor(slopes) / torch.tensor(slopes).norm()
        assert torch.allclose(values, expected, atol=1e-5), place
        assert torch.allclose(together[place], expected, atol=1e-5), place


def test_ablation_is_the_growth_of_the_loss_with_a_head_at_zero() -> None:
    run = mechanism_run("softmax", n_heads=4, n_kv_heads=2)
    rows = batches(run, 1)
    found = ablation_importance(run.model, rows)["decoder.1"]
    own = loss_of(run.model, rows)
    with edited(run, edits.zero("decoder.1.heads.2") + edits.zero("decoder.1.heads.3")):
        assert loss_of(run.model, rows) - own == pytest.approx(float(found[1]), abs=1e-6)


def test_the_best_of_each_layer_goes_last_and_ranks_are_paired_with_those_of_a_source() -> None:
    importance = {
        "encoder.0": torch.tensor([0.3, 0.1]),
        "decoder.0": torch.tensor([0.2, 0.9]),
        "decoder.0.cross": torch.tensor([0.4, 0.2]),
    }
    assert [unit.groups for unit in order_units(importance)] == [
        (("encoder.0", 1),),
        (("decoder.0", 0), ("decoder.0.cross", 1)),
        (("encoder.0", 0),),
        (("decoder.0", 1), ("decoder.0.cross", 0)),
    ]


def test_a_pruned_run_is_one_like_any_other(run: Path, tmp_path: Path) -> None:
    """It loads, answers, is scored, trained and exported; its answers are those of an edit."""
    whole, out = regard.load(run), tmp_path / "pruned"
    found = prune(whole, QUESTIONS, out=out, keep=0.5)
    loaded = regard.load(out)
    assert loaded.n_parameters < whole.n_parameters
    assert [level.kept for level in found.levels] == [2, 1]
    assert [level.parameters for level in found.levels] == [whole.n_parameters, loaded.n_parameters]
    ((place, group),) = found.units[0].groups
    zero = edits.zero(f"{place}.heads.{group}")
    asked = [question.text for question in QUESTIONS]
    assert regard.generate(loaded, asked) == regard.generate(whole, asked, edit=zero)
    expected = regard.evaluate(whole, QUESTIONS, edit=zero)
    assert isinstance(expected, Evaluation)
    assert expected.accuracy is not None
    assert found.levels[1].score == f"accuracy {expected.accuracy.percent()}"
    assert regard.evaluate(loaded, QUESTIONS).answered == expected.answered
    assert loaded.origin["pruned_by"] == "importance"
    assert loaded.origin["kept_groups"] == [[place, 1 - group]]
    assert loaded.origin["parent"] == str(run)
    tuned = regard.finetune(
        loaded, QUESTIONS, out=tmp_path / "tuned", settings=["training.steps=1"], device="cpu"
    )
    assert tuned.n_parameters == loaded.n_parameters


def test_a_pruned_run_with_equal_layers_is_exported(tmp_path: Path) -> None:
    """As a Llama of half the heads, whose layers need no sizes of their own."""
    run, file = imported_run("llama"), tmp_path / "text.txt"
    file.write_text(f"{TEXT}\n{OTHER}\n")
    pruned = prune(run, file, out=tmp_path / "pruned", keep=0.5).run
    assert isinstance(pruned.recipe.model, DecoderConfig)
    assert pruned.recipe.model.pattern == ()
    export_run(regard.load(tmp_path / "pruned"), tmp_path / "exported")
    exported = read_folder(tmp_path / "exported", tmp_path).language_model
    ids = torch.tensor([[1, 5, 3, 7]])
    assert off(exported(ids), pruned.language_model(ids)) <= 1e-4


def test_impossible_options_are_refused(regard: Command, run: Path) -> None:
    name = run.name
    refused(regard("prune", name, "pairs.tsv", "--out", "new", "--keep", "1"), "keep = 1: choose")
    refused(regard("prune", name, "pairs.tsv", "--out", "new", "--keep", ".1"), "from 0.5, one")
    refused(regard("prune", name, "pairs.tsv", "--out", "new", "--by", "size"), "size: ")
    refused(regard("prune", name, "pairs.tsv", "--out", name), "exists")
    refused(regard("prune", name, "inputs.tsv", "--out", "new"), "has no answer")


@pytest.mark.parametrize("by", ["ablation", "gates"])
def test_the_command_prints_heads_and_levels(
    regard: Command, run: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEASURES, "gates", partial(gate_importance, steps=2))
    done = succeeded(
        regard("prune", run.name, "text.txt", "--out", "a b", "--keep", ".5", "--by", by)
    )
    assert done.out.splitlines()[0].split() == ["heads", "importance", "kept"]
    assert "decoder.0.heads.1" in done.out
    assert "perplexity" in done.out
    assert [line.split()[-1] for line in done.out.splitlines()[-4:-2]] == ["no", "yes"]
    assert "--from 'a b' --out" in done.out
    succeeded(regard("generate", "a b", "Where was Ada Finch born?"))


def test_a_run_of_text_is_scored_on_a_text_of_any_name(folder: Path) -> None:
    """Though the models that are scored lack the token files by which `evaluate` finds texts."""
    whole = regard.train(
        "text", folder / "text.txt", out=folder / "whole", settings=[*MODEL, *STEPS]
    )
    (folder / "text.md").write_text(f"{TEXT}\n{OTHER}\n")
    found = prune(whole, folder / "text.md", out=folder / "new", keep=0.5)
    expected = regard.evaluate(found.run, folder / "text.md")
    assert isinstance(expected, TextScore)
    assert found.levels[-1].score == f"perplexity {expected.perplexity}"


def test_a_pruned_model_is_compared_with_heads_at_zero(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As custom mechanisms may do anything with a head's number."""

    def copy_others(old: Model, new: Model, kept: Kept) -> None:
        copy_kept(old, new, {name: [1 - group for group in of] for name, of in kept.items()})

    monkeypatch.setattr("regard.training.pruning.copy_kept", copy_others)
    with pytest.raises(UnsupportedError, match="depend on their index"):
        prune(regard.load(run), QUESTIONS, out=tmp_path / "new", keep=0.5)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("by", MEASURES)
def test_an_infinite_loss_orders_no_heads(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEASURES, "gates", partial(gate_importance, steps=2))
    run, file = mechanism_run("softmax", n_kv_heads=2), tmp_path / "text.txt"
    file.write_text(TEXT)
    run.language_model.head.weight.data[:] = 1e308
    with pytest.raises(NonFiniteError, match=r"decoder\.0\.heads is NaN or infinite"):
        prune(run, file, out=tmp_path / "new", by=by, keep=0.5)
    assert not (tmp_path / "new").exists()
