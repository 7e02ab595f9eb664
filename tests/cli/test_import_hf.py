"""`regard import-hf` makes a run that the other commands take."""

import shutil
from pathlib import Path

import pytest
import torch

from regard.cli import config
from regard.runs.run import Run
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from tiny import STEPS, Command, succeeded
from tiny_folders import bert_folder, bert_pieces, edit, gpt2_folder, gpt2_pieces


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each family, not to be changed."""
    path = tmp_path_factory.mktemp("models")
    gpt2_folder(path / "gpt2", gpt2_pieces(), {})
    bert_folder(path / "bert", bert_pieces())
    return path


@pytest.fixture
def imported(regard: Command, folder: Path, models: Path) -> Path:
    """The test's own folder, with the runs `gpt2` and `bert`."""
    for family in ("gpt2", "bert"):
        succeeded(regard("import-hf", models / family, "--out", family))
    return folder


@pytest.mark.parametrize(
    ("family", "kind", "special"),
    [
        ("gpt2", "decoder", "bos 300, eos 300"),
        ("bert", "encoder", "pad 4, sep 2, cls 1, mask 3, unk 0"),
    ],
)
def test_it_tells_what_was_read_and_where_the_run_is(
    regard: Command, folder: Path, models: Path, family: str, kind: str, special: str
) -> None:
    outcome = succeeded(regard("import-hf", models / family, "--out", "deep/run"))
    run = Run.load(folder / "deep/run")
    assert f"model: {kind}, {run.recipe.model.summary}\n" in outcome.out
    assert f"parameters: {run.n_parameters:,}\n" in outcome.out
    assert f"tokenizer: {run.tokenizer.size} tokens; special ids: {special}\n" in outcome.out
    assert outcome.out.endswith("Run: deep/run\n")
    files = {"config.toml", "model.safetensors", "origin.json", *TOKENIZER_FILES}
    files |= {"config.json", "modeling_regard.py"}
    files |= {"generation_config.json"} if family == "gpt2" else set()
    assert outcome.new == ["deep", "deep/run", *(f"deep/run/{name}" for name in sorted(files))]


def test_its_tokens_serve_other_models_and_are_not_trained(
    regard: Command, imported: Path, models: Path
) -> None:
    settings = ("model.n_layers=1", "model.d_model=16", "model.n_heads=2", *STEPS)
    flags = ("--tokenizer", "gpt2", "--out", "new")
    succeeded(regard("pretrain", "text.txt", *flags, *settings))
    flags = ("--tokenizer", f"hf:{models / 'gpt2'}", "--out", "text")
    succeeded(regard("train", "text", "text.txt", *flags, *settings, "model.context_length=16"))
    ours, theirs = (Run.load(imported / name).tokenizer for name in ("text", "gpt2"))
    assert ours.fingerprint == theirs.fingerprint


@pytest.mark.usefixtures("imported")
def test_a_run_is_exported_and_imported_again(regard: Command, folder: Path) -> None:
    outcome = succeeded(regard("export-hf", "gpt2", "--out", "deep/exported"))
    assert outcome.out == "model_type: gpt2\nFolder: deep/exported\n"
    names = ["config.json", "generation_config.json", "model.safetensors", *sorted(TOKENIZER_FILES)]
    assert outcome.new == ["deep", "deep/exported", *(f"deep/exported/{n}" for n in sorted(names))]
    succeeded(regard("import-hf", "deep/exported", "--out", "again"))
    ids = torch.arange(20)[None]
    before, after = (Run.load(folder / name).language_model(ids) for name in ("gpt2", "again"))
    assert torch.equal(before, after)


def test_it_tells_what_is_dropped(regard: Command, folder: Path, models: Path) -> None:
    own = Path(shutil.copytree(models / "gpt2", folder / "own"))
    edit(own / "generation_config.json", num_beams=4)
    outcome = succeeded(regard("import-hf", own, "--out", "run"))
    assert "dropped: num_beams = 4\n" in outcome.out


def test_a_long_list_of_what_is_dropped_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"encoder.layer.{i}.pooler.weight" for i in range(9)]
    config._show_dropped(names)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert " ".join(out.split()) == f"dropped: {', '.join(names)}"
