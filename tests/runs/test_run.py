"""A run comes back as it was saved, or is refused; nothing is mixed silently."""

import json
import ntpath
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from regard.attention.feature_maps import RandomFeatures
from regard.config import override
from regard.errors import UserError
from regard.runs.recipes import RECIPES
from regard.runs.run import Run, ancestors
from regard.text.config import BytePairsConfig, CharactersConfig, WordsConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer
from tiny import BIOGRAPHIES, MODEL, QUESTIONS

TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "characters": lambda: train_tokenizer(CharactersConfig(), ["Ada was born."]),
    "words": lambda: train_tokenizer(WordsConfig(), ["Ada was born."]),
    "byte-pairs": lambda: train_tokenizer(BytePairsConfig(size=300), ["Ada was born."]),
}


FAVOR = ("model.attention.kind=favor-positive",)


def new_run(path: Path, *settings: str, tokenizer: str = "characters") -> Run:
    recipe = override(RECIPES["default"], [*MODEL, f"tokenizer.kind={tokenizer}", *settings])
    return Run.new(path, recipe, TOKENIZERS[tokenizer](), {"stage": "none"})


def saved(run: Run) -> Run:
    run.save_description()
    run.save_weights()
    return run


def logits(run: Run) -> torch.Tensor:
    ids = torch.arange(2, 10).reshape(2, 4) % run.tokenizer.size
    with torch.inference_mode():
        out: torch.Tensor = run.model.eval()(ids)
    return out


@pytest.mark.parametrize(
    ("tokenizer", "setting"),
    [
        ("characters", "model.dropout=0.5"),
        ("words", "model.positions.kind=learned"),
        ("byte-pairs", "model.tie_head=true"),
    ],
)
def test_a_run_comes_back_as_it_was(tmp_path: Path, tokenizer: str, setting: str) -> None:
    run = saved(new_run(tmp_path / "run", setting, tokenizer=tokenizer))
    again = Run.load(tmp_path / "run")
    assert not again.model.training
    # Exact: the same operations on the same shapes.
    assert torch.equal(logits(again), logits(run))
    assert again.recipe == run.recipe
    assert again.origin == run.origin
    assert again.tokenizer.fingerprint == run.tokenizer.fingerprint
    assert again.n_parameters == run.n_parameters


def test_what_a_mechanism_drew_is_saved_with_the_weights(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", *FAVOR)
    features = next(m for m in run.model.modules() if isinstance(m, RandomFeatures))
    features.redraw(123)
    again = Run.load(saved(run).path)
    # Exact: the same operations on the same shapes.
    assert torch.equal(logits(again), logits(run))
    assert not torch.equal(logits(run), logits(new_run(tmp_path / "other", *FAVOR)))


def test_saving_again_gives_the_same_files(run: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    saved(Run.load(run))
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_the_seed_decides_the_weights_and_touches_no_other_draw(tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    one, same = new_run(tmp_path), new_run(tmp_path)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(logits(one), logits(same))
    assert not torch.equal(logits(one), logits(new_run(tmp_path, "seed=1")))


def test_making_a_run_writes_nothing(tmp_path: Path) -> None:
    new_run(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as refused:
        Run.load(path)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_another_runs_tokenizer_is_refused_with_both_named(run: Path) -> None:
    own = Run.load(run)
    texts = [*BIOGRAPHIES, *(question.text for question in QUESTIONS)]
    other = train_tokenizer(own.recipe.tokenizer, [text.replace("R", "Q") for text in texts])
    assert own.tokenizer.size == other.size  # shapes can't tell them apart
    other.save(run)
    message = refusal(run)
    assert own.tokenizer.fingerprint in message
    assert other.fingerprint in message
    assert str(run / "model.safetensors") in message
    assert str(run / "tokenizer.json") in message


def flipped(data: bytes) -> bytes:
    """The file with another first byte of its header."""
    return data[:8] + bytes([data[8] ^ 0xFF]) + data[9:]


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 100, 0.5, -1, None])
def test_damaged_weights_are_refused(run: Path, kept: float | None) -> None:
    """Truncated ones, and a flipped header."""
    path = run / "model.safetensors"
    data = path.read_bytes()
    end = int(kept * len(data)) if kept == 0.5 else kept
    path.write_bytes(flipped(data) if end is None else data[: int(end)])
    assert refusal(run).startswith(f"{path}: is damaged")


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("model.d_model=32", "×32"),
        ("model.n_layers=2", "layers.1"),
        ("model.d_ff=8", "16×8"),
        ("model.n_kv_heads=1", "requires 32"),
        ("model.positions.kind=learned", "48×16"),
        ("model.tie_head=true", "head"),
    ],
)
def test_weights_of_another_size_are_refused(run: Path, setting: str, names: str) -> None:
    mine = Run.load(run)
    Run(run, override(mine.recipe, [setting]), mine.tokenizer, mine.model).save_description()
    message = refusal(run)
    assert message.startswith(f"{run / 'model.safetensors'}: ")
    assert names in message
    assert "config.toml" in message


def test_other_tensors_and_metadata_are_refused(run: Path) -> None:
    path = run / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    save_file(tensors | {"surplus": torch.zeros(3)}, path, metadata)
    assert "surplus" in refusal(run)
    save_file(tensors, path)
    assert "doesn't say what it was made for" in refusal(run)


@pytest.mark.parametrize(
    "setting", ["model.n_heads=1", "model.activation=relu", "template.prompt={question}"]
)
def test_weights_that_would_mean_something_else_are_refused(run: Path, setting: str) -> None:
    """All shapes fit, and the model would be another one."""
    mine = Run.load(run)
    changed = override(mine.recipe, [setting])
    assert changed != mine.recipe
    Run(run, changed, mine.tokenizer, mine.model).save_description()
    assert "put back the configuration" in refusal(run)


def test_weights_from_before_an_option_load(run: Path) -> None:
    path, before = run / "model.safetensors", logits(Run.load(run))
    with safe_open(path, framework="pt") as file:
        made_for = json.loads(file.metadata()["made_for"])
    made_for["model"] |= {"an_option_that_is_gone": None}
    made_for["model"].pop("n_value_heads", None)
    save_file(load_file(path), path, {"made_for": json.dumps(made_for)})
    assert torch.equal(logits(Run.load(run)), before)


BAD_FILES: list[tuple[str, str | None, str]] = [
    ("config.toml", None, "no config.toml"),
    ("model.safetensors", None, "--resume"),
    *(
        (file, None, f"{file}: is missing; restore it from a copy")
        for file in ("tokenizer.json", "tokenizer_config.json", "origin.json")
    ),
    ("config.toml", "model = 3", ""),
    *(("config.toml", text, "isn't TOML") for text in ("][", "\x00")),
    *(
        ("tokenizer.json", text, "is no tokenizer")
        for text in ("", "]", "{}", "null", '{"model": {}}')
    ),
    *(("tokenizer_config.json", text, "") for text in ("", "3", "{}")),
    ("tokenizer_config.json", '{"unknown": "error", "pad_token": "<none>"}', ""),
    ("origin.json", "", "isn't JSON"),
    *(("origin.json", text, "holds no table") for text in ("3", "null", "[1]")),
]
"""Files, their new content (None: none), and the reason."""


@pytest.mark.parametrize(("file", "text", "says"), BAD_FILES)
def test_a_missing_or_damaged_file_is_named(
    run: Path, file: str, text: str | None, says: str
) -> None:
    if text is None:
        (run / file).unlink()
        start = str(run)
    else:
        (run / file).write_text(text, encoding="utf-8")
        start = f"{run / file}: "
    message = refusal(run)
    assert message.startswith(start)
    assert says in message


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.write_text("x", encoding="utf-8")
    for path in (folder, file):
        assert refusal(path) == f"{path}: is not a run folder: it has no config.toml"
    assert refusal(tmp_path / "nowhere").endswith("nowhere: is not a run folder: it doesn't exist")


def test_files_end_their_lines_as_the_platform_does_not_matter(run: Path) -> None:
    """An editor on Windows may have touched the readable files."""
    before = logits(Run.load(run))
    for name in ("config.toml", "origin.json", "tokenizer.json"):
        text = (run / name).read_bytes()
        (run / name).write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert torch.equal(logits(Run.load(run)), before)


def test_an_ancestor_may_be_on_another_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "relpath", ntpath.relpath)
    origin = {"run_folder": r"C:\runs\b", "ancestors": [{"run": r"D:\runs\a"}]}
    assert ancestors(tmp_path, origin) == [{"run": r"D:\runs\a"}]
