"""`regard import-hf` makes a run that the other commands take."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from regard.cli import config
from regard.runs.run import Run
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from tiny import BIOGRAPHIES, QUESTIONS, STEPS, Command, refused, succeeded
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


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_info_tells_where_it_comes_from(
    regard: Command, imported: Path, models: Path, family: str
) -> None:
    told = succeeded(regard("info", family)).out
    origin = Run.load(imported / family).origin
    kind = {"gpt2": "BPE, ", "bert": "WordPiece, "}[family]
    for fact in ("import", str(models / family), origin["fingerprint"], kind):
        assert fact in told


@pytest.mark.usefixtures("imported")
def test_a_gpt2_generates(regard: Command) -> None:
    outcome = succeeded(regard("generate", "gpt2", "Ada Finch", "--max-new-tokens", "3"))
    assert outcome.out.startswith("Ada Finch")


def test_a_gpt2_is_evaluated_on_a_text_and_on_questions(regard: Command, imported: Path) -> None:
    succeeded(regard("evaluate", "gpt2", "text.txt", "--json", "text.json"))
    figures = json.loads((imported / "text.json").read_text("utf-8"))
    text = "".join(f"{line}\n" for line in BIOGRAPHIES)
    assert figures["tokens"] == len(Run.load(imported / "gpt2").tokenizer.encode(text)) - 1
    outcome = succeeded(regard("evaluate", "gpt2", "pairs.tsv"))
    assert f"of {len(QUESTIONS)} questions" in outcome.out


def test_a_gpt2_is_finetuned(regard: Command, imported: Path) -> None:
    succeeded(regard("finetune", "pairs.tsv", "--from", "gpt2", "--out", "quiz", *STEPS))
    parent, run = Run.load(imported / "gpt2"), Run.load(imported / "quiz")
    assert run.origin["parent"] == "gpt2"
    assert run.tokenizer.fingerprint == parent.tokenizer.fingerprint
    ids = torch.arange(20)[None]
    before, after = (model(ids) for model in (parent.language_model, run.language_model))
    assert not torch.equal(before, after)
    torch.testing.assert_close(before, after, rtol=0.1, atol=0.1)  # three small steps


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
    kind = "tokenizer.kind=hugging-face"
    refused(regard("pretrain", "text.txt", "--out", "other", kind, *settings), kind, "--tokenizer")


@pytest.mark.usefixtures("imported")
def test_a_bert_continues_no_text(regard: Command) -> None:
    for command in [("generate", "bert", "Ada"), ("evaluate", "bert", "text.txt")]:
        refused(regard(*command), "bert", "causal language model")


def test_folder_and_place_are_asked_for(regard: Command) -> None:
    for arguments in [(), ("gpt2",), ("--out", "new")]:
        refused(regard("import-hf", *arguments), "FOLDER" if "gpt2" not in arguments else "--out")


def test_what_cannot_be_imported_is_refused_in_one_line(
    regard: Command, folder: Path, models: Path
) -> None:
    own = Path(shutil.copytree(models / "gpt2", folder / "own"))
    refused(regard("import-hf", "nowhere", "--out", "new"), "nowhere", "it doesn't exist")
    (own.parent / "empty").mkdir()
    refused(regard("import-hf", "empty", "--out", "new"), "empty", "no config.json")
    refused(regard("import-hf", own, "--out", "own"), "own: exists")
    edit(own / "config.json", model_type="opt")
    refused(regard("import-hf", own, "--out", "new"), "config.json", "opt")
    refused(regard("import-hf", models / "gpt2", "--out", "text.txt/new"), "text.txt")


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


@pytest.mark.usefixtures("imported")
def test_what_cannot_be_exported_is_refused_in_one_line(regard: Command) -> None:
    refused(regard("export-hf", "gpt2", "--out", "bert"), "bert: exists")
    refused(regard("export-hf", "nowhere", "--out", "new"), "nowhere")
    named = ("export-hf", "gpt2", "--out", "new", "--family")
    refused(regard(*named, "gpt_neox"), "gpt2: isn't like gpt_neox: model.positions.kind")
    refused(regard(*named, "gpt3"), "--family gpt3: no such family; there are: gpt2")


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
